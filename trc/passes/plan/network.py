"""The network as the plan passes see it: its layers with their shapes, who reads whom, and who is trained."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue

from trc.diagnostics import CompileError, Diagnostic, diagnostic_at
from trc.dialects.arch import ModelOp, OutputOp
from trc.dialects.arch.base import LayerOp, ShapeProblem, is_static, shape_of
from trc.dialects.arch.base import Shape as ArchShape
from trc.dialects.memplan import SpecOp
from trc.layers.descriptor import Descriptor, Layer, Shape
from trc.layers.registry import require
from trc.passes.plan.common import required, specs_of
from trc_runtime.schema.dtypes import Precision

INPUT = -1
"""The source of what the network is fed with."""


@dataclass(frozen=True)
class Network:
    """Layers in order, each with its descriptor.

    `sources[l][i]` is the layer that makes input i of layer l, or INPUT; `roots` is the same with layers that only
    pass their input on looked through. `direct` says that the first layer alone reads the network's input, so that
    it runs in the buckets of the two input buffers; otherwise the input is copied for all its readers.
    """

    name: str
    precision: Precision
    layers: tuple[Layer, ...]
    descriptors: tuple[Descriptor, ...]
    sources: tuple[tuple[int, ...], ...]
    roots: tuple[tuple[int, ...], ...]
    direct: bool
    input: tuple[Shape, ...]


def read_model(module: ModuleOp) -> ModelOp:
    """The module's network."""
    models = required(module, ModelOp, "arch.model", "trc-opt on a BluePrint")
    if len(models) > 1:
        raise CompileError.at(models[1], "the module has more than one arch.model")
    return models[0]


def layer_ops(model: ModelOp) -> list[LayerOp]:
    """The network's layers; CompileError where the arch passes have not run."""
    ops: list[LayerOp] = []
    for op in model.body.block.ops:
        if isinstance(op, OutputOp):
            continue
        if not isinstance(op, LayerOp):
            raise CompileError.at(op, f"{op.name} is still there: run arch-plan first")
        ops.append(op)
    if not ops:
        raise CompileError.at(model, "the network has no layers")
    return ops


def read_network(module: ModuleOp) -> Network:
    """Read and check the network; CompileError lists every layer that cannot be compiled."""
    specs = specs_of(module)
    model = read_model(module)
    ops = layer_ops(model)
    _check_normalised(model, ops)
    descriptors = require(ops)
    if not descriptors[-1].is_loss or any(d.is_loss for d in descriptors[:-1]):
        raise CompileError.at(model, "the network must end in its only loss: run arch-normalize-softmax-ce first")
    sources = _sources(model, ops)
    roots = _roots(sources, descriptors)
    wanted, trained = _trained(descriptors, roots)
    shapes = _shapes(model, ops, sources, specs)
    layers = tuple(
        Layer(
            op,
            op.layer_name,
            specs[0].precision_,
            tuple(shapes[s] for s in sources[n]),
            shapes[n],
            trained[n],
            wanted[n],
        )
        for n, op in enumerate(ops)
    )
    problems = [
        diagnostic_at(layer.op, text, layer.name)
        for layer, d in zip(layers, descriptors, strict=True)
        for text in d.problems(layer)
    ]
    if problems:
        raise CompileError(problems)
    if not trained[-1]:
        raise CompileError.at(model, "the network has no parameters: there is nothing to train")
    readers = [n for n, s in enumerate(sources) if INPUT in s]
    direct = (
        len(readers) == 1
        and ops[readers[0]].first is not None
        and len(sources[readers[0]]) == 1
        and not descriptors[readers[0]].alias
    )
    return Network(
        model.sym_name.data,
        specs[0].precision_,
        layers,
        tuple(descriptors),
        sources,
        roots,
        direct,
        shapes[INPUT],
    )


def _check_normalised(model: ModelOp, ops: Sequence[LayerOp]) -> None:
    problems: list[Diagnostic] = []
    for op in ops:
        if op.layer is None:
            problems.append(diagnostic_at(op, f"{op.name} has no name: run arch-plan first"))
        elif not is_static(shape_of(op.result)):
            problems.append(diagnostic_at(op, "its shape is unknown: run arch-deduce-shapes first"))
        elif op.result.first_use is None:
            problems.append(diagnostic_at(op, "its result is never used: remove the layer"))
    if not problems and not is_static(shape_of(model.body.block.args[0])):
        problems.append(diagnostic_at(model, "the input's shape is unknown: write input(height, width, channels)"))
    if problems:
        raise CompileError(problems)


def _sources(model: ModelOp, ops: Sequence[LayerOp]) -> tuple[tuple[int, ...], ...]:
    index: dict[SSAValue, int] = {model.body.block.args[0]: INPUT}
    sources: list[tuple[int, ...]] = []
    for n, op in enumerate(ops):
        sources.append(tuple(index[v] for v in op.operands))
        index[op.result] = n
    output: Operation | None = model.body.block.last_op
    if not isinstance(output, OutputOp) or index.get(output.operands[0]) != len(ops) - 1:
        raise CompileError.at(model, "the network's result must be that of its last layer")
    return tuple(sources)


def _roots(sources: tuple[tuple[int, ...], ...], descriptors: Sequence[Descriptor]) -> tuple[tuple[int, ...], ...]:
    behind: list[int] = []
    roots: list[tuple[int, ...]] = []
    for n, (inputs, descriptor) in enumerate(zip(sources, descriptors, strict=True)):
        found = tuple(s if s == INPUT else behind[s] for s in inputs)
        roots.append(found)
        behind.append(found[0] if descriptor.alias else n)
    return tuple(roots)


def _trained(
    descriptors: Sequence[Descriptor], roots: tuple[tuple[int, ...], ...]
) -> tuple[list[tuple[bool, ...]], list[bool]]:
    """Which inputs need a gradient (a parameter lies above them), and which layers have one below or in them."""
    trained: list[bool] = []
    wanted: list[tuple[bool, ...]] = []
    for descriptor, inputs in zip(descriptors, roots, strict=True):
        wanted.append(tuple(s != INPUT and trained[s] for s in inputs))
        trained.append(descriptor.has_parameters or any(wanted[-1]))
    return wanted, trained


def _shapes(
    model: ModelOp, ops: Sequence[LayerOp], sources: tuple[tuple[int, ...], ...], specs: Sequence[SpecOp]
) -> dict[int, tuple[Shape, ...]]:
    """Six shapes for the network's input and for each layer's result."""
    _, height, width, depth = shape_of(model.body.block.args[0])
    by_size: dict[tuple[int, int], dict[int, tuple[int, int, int]]] = {}
    for spec in specs:
        if spec.channels_ != depth:
            raise CompileError.at(spec, f"@{spec.name_} has {spec.channels_} channels, the network's input {depth}")
        size = spec.height_, spec.width_
        if size in by_size:
            continue
        if size == (height, width):
            by_size[size] = {n: _without_batch(shape_of(op.result)) for n, op in enumerate(ops)}
        else:
            by_size[size] = _infer((*size, spec.channels_), ops, sources, spec)
        by_size[size][INPUT] = (*size, spec.channels_)
    columns = [(spec.batch_, by_size[spec.height_, spec.width_]) for spec in specs]
    return {n: tuple((batch, *shapes[n]) for batch, shapes in columns) for n in (INPUT, *range(len(ops)))}


def _infer(
    image: tuple[int, int, int], ops: Sequence[LayerOp], sources: tuple[tuple[int, ...], ...], spec: SpecOp
) -> dict[int, tuple[int, int, int]]:
    """The shapes at a resolution that the types do not show."""
    found: dict[int, ArchShape] = {INPUT: (None, *image)}
    for n, op in enumerate(ops):
        try:
            found[n] = op.infer_shape([found[s] for s in sources[n]])
        except ShapeProblem as err:
            where = f"at {image[0]}x{image[1]} (@{spec.name_})"
            raise CompileError.at(op, f"{where}: {err}", op.layer_name) from None
    return {n: _without_batch(shape) for n, shape in found.items()}


def _without_batch(shape: ArchShape) -> tuple[int, int, int]:
    _, h, w, c = shape
    if h is None or w is None or c is None:
        raise ValueError(f"the shape {shape} is not static")
    return h, w, c
