"""IR to Plan: symbols become indices, operands get their roles, and nothing is decided any more."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import TypeVar

from xdsl.dialects.builtin import ModuleOp

from trc.diagnostics import CompileError
from trc.dialects.graph import AtlasOp, ComputationOp, StepOp
from trc.dialects.graph.attributes import OperandRef
from trc.dialects.graph.bucket import BucketOp
from trc.dialects.graph.node import NodeOp
from trc.dialects.memplan import PlanOp, RegionOp, SpecOp, TensorOp
from trc_runtime.schema.config import RunConfig
from trc_runtime.schema.graphs import GraphId
from trc_runtime.schema.kinds import Access, Kind
from trc_runtime.schema.plan import (
    Node,
    Operand,
    Plan,
    RangeRef,
    Span,
    Step,
    Tensor,
    TensorRef,
    VariantSpec,
)

T = TypeVar("T")

NodeIds = dict[tuple[str, GraphId], tuple[int, ...]]
"""(computation, bucket) to the indices of its nodes in the plan."""


def lower_module(module: ModuleOp, config: RunConfig) -> Plan:
    """The Plan of a module that has passed every phase up to the atlas.

    Raises CompileError that names the pass to run when something is missing.
    """
    plan = _only(module, PlanOp, "plan-create-memory-plans")
    atlas = _only(module, AtlasOp, "graph-build-atlas")
    total = plan.total_
    if total is None:
        raise CompileError.at(plan, "the plan has no total yet: run plan-pack-transients first")
    tensors = [_tensor(op) for op in _all(module, TensorOp)]
    index = {t.name: n for n, t in enumerate(tensors)}
    nodes: list[Node] = []
    ids: NodeIds = {}
    for computation in _all(module, ComputationOp):
        for graph_id, bucket in computation.buckets_.items():
            made = [_node(op, computation.name_, bucket, index) for op in bucket.nodes_]
            ids[computation.name_, graph_id] = tuple(range(len(nodes), len(nodes) + len(made)))
            nodes += made
    spans = (Span(r.name_, r.offset_, r.bytes_) for r in _all(module, RegionOp))
    return Plan(
        name=plan.name_,
        mode=plan.mode_,
        config=config,
        variants=tuple(VariantSpec(s.name_, s.batch_, s.height_, s.width_, s.channels_) for s in _all(module, SpecOp)),
        tensors=tuple(tensors),
        spans=tuple(sorted(spans, key=lambda s: s.offset)),
        total=total,
        nodes=tuple(nodes),
        steps=tuple(_step(op, ids) for op in _all(module, StepOp)),
        captures=atlas.captures_,
        atlas=atlas.table_,
    )


def _all(module: ModuleOp, kind: type[T]) -> Iterator[T]:
    return (op for op in module.ops if isinstance(op, kind))


def _only(module: ModuleOp, kind: type[T], made_by: str) -> T:
    for op in _all(module, kind):
        return op
    raise CompileError(f"the module is not compiled to the end: run {made_by} first")


def _tensor(op: TensorOp) -> Tensor:
    slot, offset = op.slot_, op.offset_
    if slot is None or offset is None:
        raise CompileError.at(op, f"tensor @{op.name_} has no place yet: run plan-pack-transients first")
    return Tensor(op.name_, op.region_, op.dtype_, op.shapes_, slot, offset, op.initial_, op.layer_, op.channels_)


def _node(op: NodeOp, computation: str, bucket: BucketOp, index: dict[str, int]) -> Node:
    kind = op.record_
    if kind is None:
        raise CompileError.at(op, f"unknown kind {op.kind_}")
    return Node(
        kind=op.kind_,
        computation=computation,
        bucket=bucket.id_,
        stream=op.stream_ or kind.stream or bucket.stream_,
        layer=op.layer_,
        operands=tuple(_operands(op, kind, index)),
        scalars=tuple((role, index[name]) for role, name in zip(kind.scalars, op.scalars_, strict=True)),
        params=op.params_,
    )


def _operands(op: NodeOp, kind: Kind, index: dict[str, int]) -> Iterator[Operand]:
    """The operands in the order of the kind's record; optional ones may be absent."""
    for access in Access:
        refs: Sequence[OperandRef] = op.operand_refs(access)
        for operand, ref in zip_longest(kind.group(access), refs):
            if operand is None:
                raise CompileError.at(op, f"kind {kind.name} has more operands than its record")
            if ref is not None:
                yield Operand(operand.name, access, TensorRef(index[ref]) if isinstance(ref, str) else RangeRef(*ref))


def _step(op: StepOp, ids: NodeIds) -> Step:
    nodes = tuple(n for bucket in op.buckets_ for n in ids[op.computation_, bucket])
    return Step(op.name_, op.computation_, op.columns_, nodes, op.after_)
