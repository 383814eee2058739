"""A network and its plan as tables for people: one line a layer, one line a tensor."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from trc.diagnostics import CompileError
from trc.dialects.arch import LayerOp, OutputOp, shape_of, shape_text
from trc.dialects.arch.base import UnitField
from trc.interchange.parameters import model_of
from trc_runtime.schema.plan import Plan, Tensor
from trc_runtime.schema.regions import Region

INPUT = "(input)"


def plan_table(module: ModuleOp, plan: Plan) -> str:
    """Both tables, each under a line that sums it up. `module` is what the plan was lowered from."""
    layers = layer_rows(module, plan)
    model = model_of(module)
    count = sum(_size(t) for t in plan.tensors if _is_parameter(t))
    head = f"network {plan.name}: input {shape_text(shape_of(model.input))}, {len(layers)} layers, {count} parameters"
    names = ("#", "kind", "name", "from", "in -> out", "parameters", "settings")
    tensors = tensor_rows(plan)
    total = f"plan ({plan.mode}): {len(tensors)} tensors, {plan.total} bytes"
    columns = ("#", "tensor", "region", "type", "shapes", "offset", "bytes")
    lines = [
        head,
        *_aligned(names, layers, "#", "parameters"),
        "",
        total,
        *_aligned(columns, tensors, "#", "offset", "bytes"),
    ]
    return "\n".join(lines) + "\n"


def layer_rows(module: ModuleOp, plan: Plan) -> list[tuple[str, ...]]:
    """Number, kind, name, sources, shapes, parameters and settings of each layer.

    CompileError before `arch-expand-tree`.
    """
    counts: dict[str, int] = {}
    for tensor in plan.tensors:
        if tensor.layer is not None and _is_parameter(tensor):
            counts[tensor.layer] = counts.get(tensor.layer, 0) + _size(tensor)
    block = model_of(module).body.block
    names: dict[SSAValue, str] = {block.args[0]: INPUT}
    rows: list[tuple[str, ...]] = []
    for op in block.ops:
        if isinstance(op, OutputOp):
            continue
        if not isinstance(op, LayerOp):
            raise CompileError.at(op, f"{op.name} is no layer: run arch-expand-tree first")
        names[op.result] = op.layer_name
        rows.append(
            (
                str(len(rows) + 1),
                op.name.removeprefix("arch."),
                op.layer_name,
                ", ".join(names[value] for value in op.operands),
                f"{', '.join(shape_text(shape_of(v)) for v in op.operands)} -> {shape_text(shape_of(op.result))}",
                str(sum(counts.get(leaf, 0) for leaf in op.leaf_names)),
                _settings(op),
            )
        )
    return rows


def _settings(op: LayerOp) -> str:
    """Parameters that differ from the defaults, then the parts of a merged layer and the chosen kernel forms."""
    words: list[str] = []
    for field in op.FIELDS:
        attr = op.properties.get(field.name)
        if attr is not None and (field.default is None or attr != field.attribute(field.default)):
            words.append(field.name if isinstance(field, UnitField) else f"{field.name}={field.text(attr)}")
    if op.parts is not None:
        words.append(f"[{' '.join(op.leaf_names)}]")
    words += [f"{leaf}:{form}" for leaf, form in op.forms_.items()]
    return " ".join(words)


def tensor_rows(plan: Plan) -> list[tuple[str, ...]]:
    """Number, name, region, type, shapes, offset and bytes of each tensor, in the plan's order.

    The shapes are the different ones of the six variants, in their order.
    """
    return [
        (
            str(number),
            tensor.name,
            tensor.region.name,
            tensor.dtype.value,
            _shapes(tensor),
            str(tensor.offset),
            str(tensor.slot),
        )
        for number, tensor in enumerate(plan.tensors, 1)
    ]


def _shapes(tensor: Tensor) -> str:
    found = dict.fromkeys("x".join(map(str, s)) for s in tensor.shapes if s is not None)
    real = "" if tensor.channels is None else f" of {tensor.channels}"
    return " ".join(found) + real


def _is_parameter(tensor: Tensor) -> bool:
    return Region.W_BN_BIAS.ordinal <= tensor.region.ordinal <= Region.W_DEEP_CONV.ordinal


def _size(tensor: Tensor) -> int:
    """Numbers in a tensor, those that only fill channels up left out."""
    *outer, inner = next(s for s in tensor.shapes if s is not None)
    return prod(outer) * (inner if tensor.channels is None else tensor.channels)


def _aligned(head: Sequence[str], rows: Sequence[Sequence[str]], *numbers: str) -> Iterable[str]:
    """Columns as wide as their widest cell; those named as `numbers` to the right."""
    cells = [head, *rows]
    widths = [max(len(row[n]) for row in cells) for n in range(len(head))]
    for row in cells:
        line = (
            text.rjust(width) if name in numbers else text.ljust(width)
            for name, text, width in zip(head, row, widths, strict=True)
        )
        yield ("  " + "  ".join(line)).rstrip()
