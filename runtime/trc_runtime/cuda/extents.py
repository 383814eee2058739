"""Which bytes of the arena a node may touch in a column, operand by operand."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from trc_runtime.schema.plan import Node, Plan, RangeRef, Tensor, TensorRef
from trc_runtime.schema.regions import padded_elements, region_range


@dataclass(frozen=True)
class Extent:
    """The bytes [begin, end) of an operand. `name` is its role, `tensor` what lies there."""

    name: str
    tensor: str
    begin: int
    end: int
    reads: bool
    writes: bool

    def holds(self, offset: int) -> bool:
        """Whether an address lies in it."""
        return self.begin <= offset < self.end


class Extents:
    """The extents of a plan's nodes."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._spans = {s.name: s for s in plan.spans}
        self._ranges: dict[RangeRef, tuple[int, int]] = {}

    def stored(self, tensor: Tensor, column: int) -> int:
        """Bytes of a tensor in a column, channel padding included; 0 where the column lacks it."""
        shape = tensor.shapes[column]
        return 0 if shape is None else padded_elements(shape, tensor.dtype, tensor.region) * tensor.dtype.itemsize

    def of_range(self, ref: RangeRef) -> tuple[int, int]:
        """The bytes of a closed interval of regions."""
        if ref not in self._ranges:
            present = [self._spans[r.name] for r in region_range(ref.first, ref.last) if r.name in self._spans]
            present = [s for s in present if s.bytes]
            begin = min((s.offset for s in present), default=0)
            self._ranges[ref] = begin, max((s.offset + s.bytes for s in present), default=begin)
        return self._ranges[ref]

    def of_node(self, node: Node, column: int) -> Iterator[Extent]:
        """Every operand and scalar of a node."""
        for operand in node.operands:
            reads, writes = operand.access.reads, operand.access.writes
            if isinstance(ref := operand.ref, TensorRef):
                tensor = self._plan.tensors[ref.tensor]
                end = tensor.offset + self.stored(tensor, column)
                yield Extent(operand.name, tensor.name, tensor.offset, end, reads, writes)
            else:
                begin, end = self.of_range(ref)
                name = f"{ref.first.name} to {ref.last.name}"
                yield Extent(operand.name, name, begin, end, reads, writes)
        for role, index in node.scalars:
            tensor = self._plan.tensors[index]
            end = tensor.offset + self.stored(tensor, column)
            yield Extent(role, tensor.name, tensor.offset, end, True, False)
