"""Phase 0: the six shape variants."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from trc.diagnostics import CompileError
from trc.dialects.arch.base import shape_of
from trc.dialects.memplan import SpecOp
from trc.passes.plan.common import absent, append
from trc.passes.plan.network import read_model
from trc_runtime.schema.dtypes import Precision
from trc_runtime.schema.graphs import Variant


@dataclass(frozen=True)
class PlanCreateCompileSpecsPass(ModulePass):
    """Write the six `memplan.spec`: batch, resolution and precision of each variant.

    Sizes left out are those of the model's input; a size of 0 means left out. The last batch is what remains of
    a rank's samples, ceil(total / world size), after full batches; with unknown samples (0) all batches are full.
    """

    name = "plan-create-compile-specs"

    batch: int = 200
    val_batch: int = 0
    height: int = 0
    width: int = 0
    end_height: int = 0
    end_width: int = 0
    val_height: int = 0
    val_width: int = 0
    channels: int = 0
    train_samples: int = 0
    val_samples: int = 0
    world_size: int = 1
    precision: str = "fp32"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Append the specs to the module."""
        absent(op, SpecOp, self.name)
        self._check()
        try:
            precision = Precision.from_text(self.precision)
        except ValueError as err:
            raise CompileError(str(err)) from None
        model = read_model(op)
        _, height, width, channels = shape_of(model.body.block.args[0])
        begin = self.height or height, self.width or width
        end = self.end_height or begin[0], self.end_width or begin[1]
        val = self.val_height or begin[0], self.val_width or begin[1]
        depth = self.channels or channels
        if begin[0] is None or begin[1] is None or depth is None:
            raise CompileError.at(
                model, "the input's size is unknown: give height, width and channels, or write input(...)"
            )
        val_batch = self.val_batch or self.batch
        train_last = last_batch(self.train_samples, self.batch, self.world_size)
        val_last = last_batch(self.val_samples, val_batch, self.world_size)
        batches = (self.batch, train_last, self.batch, train_last, val_batch, val_last)
        sizes = (begin, begin, end, end, val, val)
        for variant, n, (h, w) in zip(Variant, batches, sizes, strict=True):
            assert h is not None
            assert w is not None
            append(op, SpecOp(variant, precision, n, h, w, depth, location=model.location))

    def _check(self) -> None:
        least_one = {"batch": self.batch, "world-size": self.world_size}
        least_zero = {
            "val-batch": self.val_batch,
            "height": self.height,
            "width": self.width,
            "end-height": self.end_height,
            "end-width": self.end_width,
            "val-height": self.val_height,
            "val-width": self.val_width,
            "channels": self.channels,
            "train-samples": self.train_samples,
            "val-samples": self.val_samples,
        }
        bad = [f"option {k} must be at least 1, not {v}" for k, v in least_one.items() if v < 1]
        bad += [f"option {k} must not be negative, not {v}" for k, v in least_zero.items() if v < 0]
        if bad:
            raise CompileError("; ".join(bad))


def last_batch(samples: int, batch: int, world_size: int) -> int:
    """The size of a rank's last batch in an epoch (spec/compiler-facts.md section 4); 0 samples mean unknown."""
    per_rank = -(-samples // world_size)
    return per_rank % batch or batch
