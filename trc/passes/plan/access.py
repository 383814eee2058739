"""Which tensors a node touches: symbols, and ranges resolved to the tensors of their regions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from trc.diagnostics import CompileError
from trc.dialects.graph import ComputationOp
from trc.dialects.graph.attributes import OperandRef
from trc.dialects.graph.node import NodeOp
from trc.dialects.memplan import TensorOp
from trc_runtime.schema.graphs import GraphId
from trc_runtime.schema.kinds import Access
from trc_runtime.schema.regions import Region, region_range


@dataclass(frozen=True)
class NodeAccess:
    """What a node touches, by the tensors' places in the table. Updates count as reads and as writes."""

    op: NodeOp
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    transient: tuple[int, ...]
    """The transient ones among them."""

    @cached_property
    def touched(self) -> frozenset[int]:
        """All of them."""
        return frozenset(self.reads).union(self.writes)


class TensorTable:
    """The layout table, searchable by name and by region."""

    def __init__(self, tensors: Sequence[TensorOp]) -> None:
        self.tensors = tensors
        self.index = {t.name_: n for n, t in enumerate(tensors)}
        regions = [t.region_ for t in tensors]
        self.transient = [r.transient for r in regions]
        self._by_region: dict[Region, list[int]] = {}
        for n, region in enumerate(regions):
            self._by_region.setdefault(region, []).append(n)
        self._ranges: dict[tuple[Region, Region], tuple[int, ...]] = {}

    @property
    def regions(self) -> list[Region]:
        """The regions that hold tensors."""
        return list(self._by_region)

    def resolve(self, ref: OperandRef, op: NodeOp) -> tuple[int, ...]:
        """The tensors behind an operand; CompileError for an unknown symbol."""
        if isinstance(ref, str):
            found = self.index.get(ref)
            if found is None:
                raise CompileError.at(
                    op,
                    f"{op.kind_} names @{ref}, which is not in the layout table: run plan-derive-all-shapes with the "
                    "options of graph-build-computation",
                )
            return (found,)
        if ref not in self._ranges:
            inside = (n for r in region_range(*ref) for n in self._by_region.get(r, ()))
            self._ranges[ref] = tuple(inside)
        return self._ranges[ref]

    def access(self, op: NodeOp) -> NodeAccess:
        """What a node touches."""
        reads: list[int] = []
        writes: list[int] = []
        for access in Access:
            for ref in op.operand_refs(access):
                found = self.resolve(ref, op)
                if access.reads:
                    reads += found
                if access.writes:
                    writes += found
        for name in op.scalars_:
            reads += self.resolve(name, op)
        transient = self.transient
        return NodeAccess(
            op,
            tuple(reads),
            tuple(writes),
            tuple(dict.fromkeys(n for n in (*reads, *writes) if transient[n])),
        )

    def accesses(self, computations: Iterable[ComputationOp]) -> dict[str, dict[GraphId, list[NodeAccess]]]:
        """What all nodes touch, by computation and bucket."""
        return {
            c.name_: {g: [self.access(node) for node in bucket.nodes_] for g, bucket in c.buckets_.items()}
            for c in computations
        }
