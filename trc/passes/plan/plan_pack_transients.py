"""Offsets of the transient tensors in the pool."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from trc.diagnostics import CompileError
from trc.dialects.graph import ComputationOp, StepOp
from trc.dialects.memplan import RegionOp, TensorOp
from trc.passes.plan.access import NodeAccess, TensorTable
from trc.passes.plan.common import insert_before_first, plan_of, required, tensors_of
from trc.passes.plan.dag import Ancestry
from trc.passes.plan.packing import PackStep, pack
from trc_runtime.schema.graphs import GraphId
from trc_runtime.schema.kinds import KINDS, Access, Kind
from trc_runtime.schema.plan import POOL
from trc_runtime.schema.regions import channel_alignment


@dataclass(frozen=True)
class PlanPackTransientsPass(ModulePass):
    """Give transient tensors offsets in one pool behind the regions of state, and the plan its total.

    Tensors share bytes only where the order of the steps' nodes allows it, whatever the streams do.
    """

    name = "plan-pack-transients"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Set the offsets left open, add the span POOL, set `total`."""
        plan = plan_of(op)
        if plan.mode_ != "packed":
            raise CompileError.at(plan, f"the plan has mode {plan.mode_}: only a packed plan has transients to pack")
        if plan.total_ is not None:
            raise CompileError.at(plan, "the plan has a total already: plan-pack-transients has run")
        steps = required(op, StepOp, "graph.step", "graph-schedule-steps")
        table = TensorTable(tensors_of(op))
        nodes = table.accesses(required(op, ComputationOp, "graph.computation", "graph-build-computation"))
        transient = [n for n, flag in enumerate(table.transient) if flag]
        number = {n: k for k, n in enumerate(transient)}
        sizes = [_slot(table.tensors[n]) for n in transient]
        packing = pack(sizes, list(pack_steps(table, steps, nodes, number)))
        base = max(r.offset_ + r.bytes_ for r in required(op, RegionOp, "memplan.region", "plan-create-memory-plans"))
        for n, offset in zip(transient, packing.offsets, strict=True):
            table.tensors[n].offset_ = base + offset
        if packing.size:
            insert_before_first(op, TensorOp, RegionOp(POOL, base, packing.size, location=plan.location))
        plan.total_ = base + packing.size


def _slot(tensor: TensorOp) -> int:
    if tensor.slot_ is None:
        raise CompileError.at(tensor, f"tensor @{tensor.name_} has no slot: run plan-compute-max-slot-bytes first")
    return tensor.slot_


def pack_steps(
    table: TensorTable,
    steps: Sequence[StepOp],
    nodes: dict[str, dict[GraphId, list[NodeAccess]]],
    number: dict[int, int],
) -> Iterator[PackStep]:
    """The steps that touch transient tensors, each distinct one once: input buffers A and B mostly look alike."""
    seen: set[tuple[object, ...]] = set()
    for step in steps:
        buckets = nodes[step.computation_]
        accesses = [a for g in step.buckets_ for a in buckets.get(g, ())]
        if len(accesses) != len(step.after_):
            raise CompileError.at(
                step, f"step @{step.name_} orders {len(step.after_)} nodes, its buckets have {len(accesses)}"
            )
        if not any(a.transient for a in accesses):
            continue
        key = step.after_, tuple(a.transient for a in accesses), tuple(a.op.kind_ for a in accesses if a.transient)
        if key in seen:
            continue
        seen.add(key)
        ancestry = Ancestry()
        touched: dict[int, list[int]] = defaultdict(list)
        aliases: dict[tuple[int, int, int], None] = {}
        for n, (access, after) in enumerate(zip(accesses, step.after_, strict=True)):
            ancestry.add(after, bool(access.transient))
            for t in access.transient:
                touched[number[t]].append(n)
            aliases.update(((n, number[t], number[u]), None) for t, u in alias_pairs(access, table))
        yield PackStep(ancestry, touched, aliases)


def alias_pairs(access: NodeAccess, table: TensorTable) -> Iterator[tuple[int, int]]:
    """(t, u): the node may write u where it reads t, byte for byte. Both transient, one layout in all columns."""
    kind = KINDS.get(access.op.kind_)
    if kind is None or not kind.may_alias:
        return
    for out, source in kind.may_alias:
        u, t = _operand(access, kind, out, table), _operand(access, kind, source, table)
        if u is None or t is None or not (table.transient[u] and table.transient[t]):
            continue
        if _same_layout(table.tensors[t], table.tensors[u]):
            yield t, u


def _operand(access: NodeAccess, kind: Kind, name: str, table: TensorTable) -> int | None:
    """The tensor that stands for an operand; None for a range or one left out."""
    for group in Access:
        refs = access.op.operand_refs(group)
        for operand, ref in zip(kind.group(group), refs, strict=False):
            if operand.name == name and isinstance(ref, str):
                return table.index[ref]
    return None


def _same_layout(a: TensorOp, b: TensorOp) -> bool:
    """Whether element i of both lies at the same byte: one type, and one shape or no padding."""
    if a.dtype_ is not b.dtype_ or a.slot_ != b.slot_:
        return False
    if a.shapes_ == b.shapes_:
        return channel_alignment(a.region_, a.dtype_) == channel_alignment(b.region_, b.dtype_)
    return all(
        (s is None) == (r is None) and (s is None or r is None or (_dense(a, s) and _dense(b, r)))
        for s, r in zip(a.shapes_, b.shapes_, strict=True)
    )


def _dense(tensor: TensorOp, shape: Sequence[int]) -> bool:
    return shape[-1] % channel_alignment(tensor.region_, tensor.dtype_) == 0
