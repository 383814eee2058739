"""Nodes and buckets in the making."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import LocationAttr

from trc.dialects.graph import BucketOp, ComputationOp, ComputeOp, RangeOp
from trc.dialects.graph.attributes import OperandRef
from trc.dialects.graph.node import NodeOp
from trc_runtime.schema.graphs import GRAPH_STREAM, GraphId
from trc_runtime.schema.kinds import Kind

Params = Mapping[str, bool | int | float | str]


@dataclass(frozen=True)
class Record:
    """A node before it is an operation."""

    kind: Kind
    reads: Sequence[OperandRef]
    updates: Sequence[OperandRef]
    writes: Sequence[OperandRef]
    scalars: Sequence[str]
    params: Params | None
    layer: str | None
    location: LocationAttr | None

    def touched(self) -> Iterator[str]:
        """The tensors that it names."""
        for refs in (self.reads, self.updates, self.writes):
            yield from (ref for ref in refs if isinstance(ref, str))
        yield from self.scalars


class Bucket:
    """The nodes of one graph id, in order."""

    def __init__(self, graph_id: GraphId) -> None:
        self.graph_id = graph_id
        self.records: list[Record] = []

    def emit(
        self,
        kind: Kind,
        *,
        reads: Sequence[OperandRef] = (),
        updates: Sequence[OperandRef] = (),
        writes: Sequence[OperandRef] = (),
        scalars: Sequence[str] = (),
        params: Params | None = None,
        layer: str | None = None,
        location: LocationAttr | None = None,
    ) -> None:
        """Append a node."""
        self.records.append(Record(kind, reads, updates, writes, scalars, params, layer, location))

    def finish(self) -> list[NodeOp]:
        """The nodes as operations; a stream is written where the kind's is not the bucket's."""
        nodes: list[NodeOp] = []
        for r in self.records:
            stream = None if r.kind.stream is GRAPH_STREAM[self.graph_id] else r.kind.stream
            op = RangeOp if r.kind.on_range else ComputeOp
            nodes.append(
                op(r.kind.name, r.reads, r.updates, r.writes, r.scalars, r.params, r.layer, stream, location=r.location)
            )
        return nodes


class Buckets:
    """The buckets of one computation, made when first asked for."""

    def __init__(self) -> None:
        self._buckets: dict[GraphId, Bucket] = {}

    def __getitem__(self, graph_id: GraphId) -> Bucket:
        """The bucket of a graph id."""
        if graph_id not in self._buckets:
            self._buckets[graph_id] = Bucket(graph_id)
        return self._buckets[graph_id]

    def touched(self) -> set[str]:
        """The tensors that the nodes name."""
        return {name for bucket in self._buckets.values() for record in bucket.records for name in record.touched()}

    def finish(self, name: str, location: LocationAttr) -> ComputationOp:
        """The computation; buckets without nodes are left out, the others stand in the order of their numbers."""
        filled = sorted((b for b in self._buckets.values() if b.records), key=lambda b: b.graph_id.value)
        ops = [BucketOp(b.graph_id, GRAPH_STREAM[b.graph_id], b.finish(), location=location) for b in filled]
        return ComputationOp(name, ops, location=location)
