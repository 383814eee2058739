"""Phase 3: offsets."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from trc.diagnostics import CompileError
from trc.dialects.memplan import PlanOp, RegionOp, TensorOp
from trc.passes.plan.common import absent, insert_before_first, tensors_of
from trc.passes.plan.network import read_model
from trc_runtime.schema.regions import Region

MODES = ("packed", "regions")


@dataclass(frozen=True)
class PlanCreateMemoryPlansPass(ModulePass):
    """Write `memplan.plan`, the spans of the regions, and offsets.

    `regions` lays out every region, one cursor over all (spec/compiler-facts.md section 7.3). `packed` lays out the
    regions of state the same way and leaves transient tensors to plan-pack-transients.
    """

    name = "plan-create-memory-plans"

    mode: str = "packed"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Set `offset` on tensors; insert the plan and its spans before them."""
        if self.mode not in MODES:
            raise CompileError(f"unknown planner mode '{self.mode}'; choose one of {', '.join(MODES)}")
        absent(op, PlanOp, self.name)
        tensors = tensors_of(op)
        packed = self.mode == "packed"
        spans, total = lay_out(t for t in tensors if not (packed and t.region_.transient))
        model = read_model(op)
        plan = PlanOp(model.sym_name.data, self.mode, None if packed else total, location=model.location)
        insert_before_first(op, TensorOp, plan, *spans)


def lay_out(tensors: Iterable[TensorOp]) -> tuple[list[RegionOp], int]:
    """Give tensors dense offsets, region by region in the published order; the non-empty spans and the total."""
    by_region: dict[Region, list[TensorOp]] = {}
    for tensor in tensors:
        by_region.setdefault(tensor.region_, []).append(tensor)
    spans: list[RegionOp] = []
    cursor = 0
    for region in sorted(by_region, key=lambda r: r.ordinal):
        base = cursor
        for tensor in by_region[region]:
            slot = tensor.slot_
            if slot is None:
                raise CompileError.at(
                    tensor, f"tensor @{tensor.name_} has no slot: run plan-compute-max-slot-bytes first"
                )
            tensor.offset_ = cursor
            cursor += slot
        spans.append(RegionOp(region, base, cursor - base))
    return spans, cursor
