"""Phase 2: slots."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from trc.passes.plan.common import tensors_of
from trc_runtime.schema.dtypes import DType
from trc_runtime.schema.plan import Shape
from trc_runtime.schema.regions import Region, slot_bytes


@dataclass(frozen=True)
class PlanComputeMaxSlotBytesPass(ModulePass):
    """Write each tensor's `slot`: the largest of its columns, channel padding counted."""

    name = "plan-compute-max-slot-bytes"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Set `slot` on every tensor."""
        for tensor in tensors_of(op):
            tensor.slot_ = max_slot(tensor.shapes_, tensor.dtype_, tensor.region_)


@lru_cache(1 << 12)
def max_slot(shapes: tuple[Shape | None, ...], dtype: DType, region: Region) -> int:
    """The largest slot of the columns in bytes; at least one column has a shape."""
    return max(slot_bytes(s, dtype, region) for s in set(shapes) if s is not None)
