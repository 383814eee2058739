"""The scalars that steer a step: rate, counters, bias corrections, the check for NaN, running statistics."""

from __future__ import annotations

from math import isfinite

import numpy as np

from trc_runtime.cpu.bind import BoundNode
from trc_runtime.cpu.kernels.blocks import cut
from trc_runtime.cpu.registry import Run, kernel
from trc_runtime.schema.kinds import Access


def decimal_of(stored: np.floating) -> float:
    """The shortest decimal number that is stored as this value.

    1 - beta loses most of a float32's digits: of the stored 0.999 it is 1.3e-5 off. So what the user wrote is
    recovered, which is the shortest decimal that rounds to the stored value.
    """
    return float(str(stored))


@kernel("fetch_rate")
def fetch_rate(node: BoundNode) -> Run:
    """Compute lr = lr_table[min(iteration, n - 1)]."""
    table, iteration, rate = node.scalar("lr_table"), node.scalar("iteration"), node.flat("lr")
    last = table.size - 1

    def run() -> None:
        rate[0] = table[min(int(iteration[0]), last)]

    return run


@kernel("count_step")
def count_step(node: BoundNode) -> Run:
    """Compute iteration += 1, and applied += 1 unless has_nan is set."""
    iteration, applied = node.flat("iteration"), node.flat("applied")
    has_nan = node.scalar("has_nan")

    def run() -> None:
        iteration[0] += 1
        if not has_nan[0]:
            applied[0] += 1

    return run


@kernel("bias_correction")
def bias_correction(node: BoundNode) -> Run:
    """Compute bias_correction_i = 1 / (1 - beta_i ** (applied + 1)), in double precision and rounded once."""
    applied = node.scalar("applied")
    pairs = [(node.scalar(f"beta{i}"), node.flat(f"bias_correction{i}")) for i in (1, 2)]

    def run() -> None:
        time = int(applied[0]) + 1
        for beta, correction in pairs:
            correction[0] = 1.0 / (1.0 - decimal_of(beta[0]) ** time)

    return run


@kernel("check_nan")
def check_nan(node: BoundNode) -> Run:
    """Compute has_nan = 1 if any gradient of the range is NaN or infinite, else 0.

    The dot product of the range with itself is finite only if every element is; where it is not (it may have
    overflowed), each element is looked at.
    """
    (gradients,) = node.ranges(Access.READ)
    flag = node.flat("has_nan")
    # with exponents this large a product of two is infinite though the factors are not
    blocks = [(block, node.scratch(block.shape, np.bool_)) for (block,) in cut([gradients], _CHECK_BLOCK)]

    def run() -> None:
        if isfinite(float(np.dot(gradients, gradients))):
            flag[0] = 0
            return
        flag[0] = 0
        for block, finite in blocks:
            np.isfinite(block, out=finite)
            if not finite.all():
                flag[0] = 1
                return

    return run


_CHECK_BLOCK = 1 << 18


GROWTH_INTERVAL = 2000
"""Good steps after which the loss scale doubles."""

LARGEST_SCALE = 2.0**24
SMALLEST_SCALE = 1.0


@kernel("scale_update")
def scale_update(node: BoundNode) -> Run:
    """Halve the loss scale after an overflow (not below 1), double it after 2000 good steps (not above 2^24)."""
    scaling, counter = node.flat("scaling"), node.flat("growth_counter")
    has_nan = node.scalar("has_nan")

    def run() -> None:
        scale = float(scaling[0])
        if has_nan[0]:
            scaling[0] = max(scale / 2, SMALLEST_SCALE)
            counter[0] = 0
            return
        counter[0] += 1
        if counter[0] >= GROWTH_INTERVAL:
            scaling[0] = min(scale * 2, LARGEST_SCALE)
            counter[0] = 0

    return run


@kernel("commit_stats")
def commit_stats(node: BoundNode) -> Run:
    """The running statistics become those that forward computed; nothing when has_nan is set."""
    (following,), (committed,) = node.ranges(Access.READ), node.ranges(Access.UPDATE)
    has_nan = node.scalar("has_nan")
    if following.size != committed.size:
        raise node.problem(f"the ranges have {following.size} and {committed.size} elements")

    def run() -> None:
        if not has_nan[0]:
            np.copyto(committed, following)

    return run
