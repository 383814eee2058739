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
from trc.passes.plan.aliases import alias_pairs
from trc.passes.plan.common import insert_before_first, plan_of, required, tensors_of
from trc.passes.plan.dag import Ancestry
from trc.passes.plan.packing import PackStep, pack
from trc_runtime.schema.graphs import GraphId
from trc_runtime.schema.plan import POOL


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
