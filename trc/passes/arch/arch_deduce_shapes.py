"""Step 6: the shape of every value."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from trc.diagnostics import CompileError, Diagnostic, diagnostic_at
from trc.dialects.arch import UNKNOWN, ConvOp, ModelOp, Shape, ShapeProblem, int_of, shape_of, shape_text
from trc.dialects.arch.base import UNIT, agree, is_static
from trc.dialects.attributes import integer
from trc.passes.arch.rewriting import layers, models, set_shape


@dataclass(frozen=True)
class ArchDeduceShapesPass(ModulePass):
    """Give every value a type that is static but for the batch; refuse networks whose shapes do not work out.

    Depthwise convolutions learn their channels, and grouped ones with one channel a group are marked as depthwise.
    """

    name = "arch-deduce-shapes"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Deduce in every model of the module."""
        problems: list[Diagnostic] = []
        for model in models(op):
            problems += deduce(model)
        if problems:
            raise CompileError(problems)


def deduce(model: ModelOp) -> list[Diagnostic]:
    """Deduce one model's shapes; returns what is wrong, layers behind a bad one left out."""
    given = shape_of(model.input)
    if not is_static(given):
        message = f"the input of @{model.sym_name.data} is {shape_text(given)}: give it height, width and channels"
        return [diagnostic_at(model, message)]
    problems: list[Diagnostic] = []
    for layer in layers(model):
        inputs = [shape_of(value) for value in layer.operands]
        if not all(map(is_static, inputs)):
            # Only a layer with a problem of its own leaves its shape unknown.
            set_shape(layer.result, UNKNOWN)
            continue
        try:
            shape = layer.infer_shape(inputs)
            told = shape_of(layer.result)
            if not agree(shape, told):
                raise ShapeProblem(f"gives {shape_text(shape)}, but its type says {shape_text(told)}")
        except ShapeProblem as err:
            problems.append(diagnostic_at(layer, str(err), layer.layer_name))
            shape = UNKNOWN
        set_shape(layer.result, shape)
        if isinstance(layer, ConvOp) and is_static(shape):
            settle_depthwise(layer, inputs[0], shape)
    return problems


def settle_depthwise(conv: ConvOp, x: Shape, y: Shape) -> None:
    """Write down the channels of a depthwise convolution; mark one that was written as a grouped one."""
    channels = x[3]
    assert channels is not None
    if conv.depthwise is not None:
        conv.properties["out_channels"] = integer(channels)
        conv.properties["groups"] = integer(channels)
    elif int_of(conv.groups) == channels == y[3] and channels > 1:
        conv.depthwise = UNIT
