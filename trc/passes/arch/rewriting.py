"""What the arch passes share: walking the layers of a model, making layers, replacing them, fresh names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.rewriter import Rewriter

from trc.diagnostics import CompileError, Diagnostic, diagnostic_at
from trc.dialects.arch import ContainerOp, LayerOp, ModelOp, OutputOp, Shape, shape_of, tensor_of
from trc.dialects.attributes import string


def models(module: ModuleOp) -> list[ModelOp]:
    """The networks of a module."""
    return [op for op in module.body.block.ops if isinstance(op, ModelOp)]


def end_of(model: ModelOp) -> OutputOp:
    """The operation that names a model's result; CompileError for a model without it."""
    last = model.body.block.last_op
    if not isinstance(last, OutputOp):
        raise CompileError.at(model, f"model @{model.sym_name.data} does not end in arch.output")
    return last


def layers(model: ModelOp) -> list[LayerOp]:
    """The layers in order; CompileError where structure is left or something else stands between them."""
    end = end_of(model)
    found: list[LayerOp] = []
    problems: list[Diagnostic] = []
    for op in model.body.block.ops:
        if isinstance(op, LayerOp):
            found.append(op)
        elif isinstance(op, ContainerOp):
            problems.append(diagnostic_at(op, f"{op.name} is structure, not a layer: run arch-expand-tree first"))
        elif op is not end:
            problems.append(diagnostic_at(op, f"{op.name} is no layer of the arch dialect"))
    if problems:
        raise CompileError(problems)
    return found


def input_of(op: LayerOp) -> SSAValue:
    """The first operand."""
    return op.operands[0]


def make(
    kind: type[LayerOp],
    inputs: Sequence[SSAValue],
    properties: Mapping[str, Attribute],
    like: LayerOp,
) -> LayerOp:
    """A layer with ready properties in place of another one: its location, type and value name are carried over."""
    new = kind.create(operands=inputs, result_types=[like.result.type], properties=dict(properties))
    new.location = like.location
    new.result.name_hint = like.result.name_hint
    return new


def insert_before(place: Operation, new: LayerOp) -> None:
    """Put a layer before an operation of a block."""
    block = place.parent
    assert block is not None
    block.insert_op_before(new, place)


def substitute(old: Sequence[LayerOp], new: LayerOp) -> None:
    """Put a layer in place of a group, in the order in which its members run; the last one's result is the group's."""
    last = old[-1]
    insert_before(last, new)
    last.result.replace_all_uses_with(new.result)
    erase(old)


def erase(ops: Sequence[LayerOp]) -> None:
    """Remove layers that nothing uses but later ones among them."""
    for op in reversed(ops):
        block = op.parent
        assert block is not None
        block.erase_op(op)


def set_shape(value: SSAValue, shape: Shape) -> SSAValue:
    """Give a value the type of a shape; the value itself where it has that type already."""
    if value.type == tensor_of(shape):
        return value
    return Rewriter.replace_value_with_new_type(value, tensor_of(shape))


def require_static(ops: Iterable[LayerOp]) -> None:
    """CompileError where a layer's shape is not known yet."""
    for op in ops:
        if None in shape_of(op.result)[1:]:
            raise CompileError.at(op, "its shape is not known yet: run arch-deduce-shapes first", op.layer_name)


class Names:
    """The names that a model's layers have, and new ones beside them."""

    def __init__(self, ops: Iterable[LayerOp]) -> None:
        self._taken = {name for op in ops for name in op.leaf_names}
        self._last: dict[str, int] = {}

    def fresh(self, kind: str) -> str:
        """The first `<kind><n>` that no layer has."""
        n = self._last.get(kind, 0) + 1
        while f"{kind}{n}" in self._taken:
            n += 1
        self._last[kind] = n
        self._taken.add(f"{kind}{n}")
        return f"{kind}{n}"


def named(properties: Mapping[str, Attribute], name: str) -> dict[str, Attribute]:
    """The properties with the layer's name."""
    return {**properties, "layer": string(name)}
