"""The moving average of the weights, and the sums of what it is measured by.

    e += alpha (w - e)                      alpha = 1 - decay
    with warmup: alpha = max(alpha, 9 / (10 + t)), so decay = min(decay, (1 + t) / (10 + t)), t applied steps

The weighted difference keeps the small alpha exact and leaves e where it is when w is equal to it. Each operation is
rounded once: with u the unit roundoff, one update is within 2 u |w - e| alpha + u |e| (and terms in u^2) of the exact
one, however it is contracted. Nothing changes when has_nan is set. The gaps between slots hold zeros, and stay zero.
"""

from __future__ import annotations

import numpy as np

from trc_runtime.cpu.bind import BoundNode
from trc_runtime.cpu.kernels.blocks import cut
from trc_runtime.cpu.kernels.optimizer import BLOCK
from trc_runtime.cpu.registry import Run, kernel
from trc_runtime.schema.kinds import Access


@kernel("ema_update")
def ema_update(node: BoundNode) -> Run:
    """Compute e += alpha (w - e) over a range; see the file's head."""
    ranges = node.ranges(Access.READ) + node.ranges(Access.UPDATE)
    if len(ranges) != 2 or ranges[0].size != ranges[1].size:
        raise node.problem(f"takes two ranges of one size, not {', '.join(str(r.size) for r in ranges)} elements")
    weights, averages = ranges
    alpha, applied, has_nan = (node.scalar(role) for role in ("alpha", "applied", "has_nan"))
    warmup = node.flag("warmup")
    spare = node.scratch((min(weights.size, BLOCK),))
    blocks = [(w, e, spare[: w.size]) for w, e in cut([weights, averages], BLOCK)]
    one = averages.dtype.type

    def run() -> None:
        if has_nan[0]:
            return
        share = alpha[0]
        if warmup:
            share = max(share, one(9) / (one(10) + one(applied[0])))
        for w, e, t in blocks:
            np.subtract(w, e, out=t)
            np.multiply(t, share, out=t)
            np.add(e, t, out=e)

    return run


@kernel("accumulate_batch")
def accumulate_batch(node: BoundNode) -> Run:
    """Compute accum_loss += loss n, accum_top1 += top1, accum_top5 += top5, with n labels."""
    values = node.flat("loss"), node.flat("top1"), node.flat("top5")
    sums = node.flat("accum_loss"), node.flat("accum_top1"), node.flat("accum_top5")
    factors = node["label"].size, 1, 1

    def run() -> None:
        for total, value, factor in zip(sums, values, factors, strict=True):
            total[0] += float(value[0]) * factor

    return run
