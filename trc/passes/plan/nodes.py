"""Emitting nodes: the builder that descriptors are given, and buckets in the making."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xdsl.dialects.builtin import LocationAttr

from trc.dialects.graph import BucketOp, ComputationOp, ComputeOp, RangeOp
from trc.dialects.graph.attributes import OperandRef
from trc.dialects.graph.node import NodeOp
from trc.layers.descriptor import Layer
from trc_runtime.schema.graphs import GRAPH_STREAM, GraphId
from trc_runtime.schema.kinds import Kind

Params = Mapping[str, bool | int | float | str]


class Bucket:
    """The nodes of one graph id, in order."""

    def __init__(self, graph_id: GraphId) -> None:
        self.graph_id = graph_id
        self.nodes: list[NodeOp] = []

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
        """Append a node; its stream is written where the kind's is not the bucket's."""
        stream = None if kind.stream is GRAPH_STREAM[self.graph_id] else kind.stream
        op = RangeOp if kind.on_range else ComputeOp
        node = op(kind.name, reads, updates, writes, scalars, params, layer, stream, location=location)
        self.nodes.append(node)


class Buckets:
    """The buckets of one computation, made when first asked for."""

    def __init__(self) -> None:
        self._buckets: dict[GraphId, Bucket] = {}

    def __getitem__(self, graph_id: GraphId) -> Bucket:
        """The bucket of a graph id."""
        if graph_id not in self._buckets:
            self._buckets[graph_id] = Bucket(graph_id)
        return self._buckets[graph_id]

    def finish(self, name: str, location: LocationAttr) -> ComputationOp:
        """The computation; buckets without nodes are left out, the others stand in the order of their numbers."""
        filled = sorted((b for b in self._buckets.values() if b.nodes), key=lambda b: b.graph_id.value)
        ops = [BucketOp(b.graph_id, GRAPH_STREAM[b.graph_id], b.nodes, location=location) for b in filled]
        return ComputationOp(name, ops, location=location)


class LayerBuilder:
    """The `Builder` of trc.layers.descriptor, for one layer and one bucket."""

    def __init__(
        self,
        bucket: Bucket,
        layer: Layer,
        inputs: Sequence[str],
        output: str,
        output_grad: str | None = None,
        input_grads: Sequence[str | None] = (),
    ) -> None:
        self.layer = layer
        self.inputs = inputs
        self.output = output
        self._bucket = bucket
        self._output_grad = output_grad
        self._input_grads = input_grads

    @property
    def output_grad(self) -> str:
        """The gradient of the layer's result."""
        if self._output_grad is None:
            raise ValueError(f"layer '{self.layer.name}' asks for a gradient that does not exist")
        return self._output_grad

    def input_grad(self, index: int) -> str | None:
        """The tensor for the gradient of an input."""
        return self._input_grads[index]

    def tensor(self, name: str) -> str:
        """The layer's own tensor of that name."""
        return f"{self.layer.name}.{name}"

    def emit(
        self,
        kind: Kind,
        *,
        reads: Sequence[str] = (),
        updates: Sequence[str] = (),
        writes: Sequence[str] = (),
        scalars: Sequence[str] = (),
        params: Params | None = None,
    ) -> None:
        """Append a node of this layer."""
        self._bucket.emit(
            kind,
            reads=reads,
            updates=updates,
            writes=writes,
            scalars=scalars,
            params=params,
            layer=self.layer.name,
            location=self.layer.op.location,
        )
