"""Kinds of the moving average of the weights."""

from __future__ import annotations

from trc_runtime.schema.kinds import KINDS, Access, Kind, Operand, reads, updates

EMA_UPDATE = KINDS.register(
    Kind(
        "ema_update",
        (Operand("w", Access.READ, is_range=True), Operand("e", Access.UPDATE, is_range=True)),
        scalars=("alpha", "applied", "has_nan"),
        params=(("warmup", bool),),
        on_range=True,
    )
)
"""e += alpha (w - e), unless the step is skipped. With `warmup` alpha is at least 9 / (10 + applied), where `applied`
counts this step already: the decay 1 - alpha is then at most (1 + applied) / (10 + applied)."""

ACCUMULATE_BATCH = KINDS.register(
    Kind(
        "accumulate_batch",
        (*reads("loss", "top1", "top5", "label"), *updates("accum_loss", "accum_top1", "accum_top5")),
    )
)
"""accum_loss += loss n, accum_topk += topk; `label` gives only n, the number of samples."""
