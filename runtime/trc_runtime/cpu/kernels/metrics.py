"""Sums of loss and of right answers over an epoch."""

from __future__ import annotations

from trc_runtime.cpu.bind import BoundNode
from trc_runtime.cpu.registry import Run, kernel


@kernel("accumulate_metrics")
def accumulate_metrics(node: BoundNode) -> Run:
    """Compute accum_loss += loss batch_size, accum_top1 += top1, accum_top5 += top5; nothing when has_nan is set."""
    loss, top1, top5 = node.flat("loss"), node.flat("top1"), node.flat("top5")
    sums = node.flat("accum_loss"), node.flat("accum_top1"), node.flat("accum_top5")
    batch_size, has_nan = node.scalar("batch_size"), node.scalar("has_nan")

    def run() -> None:
        if has_nan[0]:
            return
        for total, value in zip(sums, (float(loss[0]) * int(batch_size[0]), top1[0], top5[0]), strict=True):
            total[0] += value

    return run
