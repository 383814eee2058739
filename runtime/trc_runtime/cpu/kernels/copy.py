"""Copies, clearing, and sums of two gradients."""

from __future__ import annotations

import numpy as np

from trc_runtime.cpu.bind import BoundNode
from trc_runtime.cpu.registry import Run, kernel
from trc_runtime.schema.kinds import Access
from trc_runtime.schema.regions import Region

_LABELS = (Region.I_A_LABEL, Region.I_B_LABEL)


@kernel("h2d_copy")
def h2d_copy(node: BoundNode) -> Run:
    """Copy the labels and images that the host has staged into the input regions of buffer `buffer`."""
    buffer = node.text("buffer")
    staging = node.staging(buffer)
    pairs = [
        (view, staging.labels.reshape(view.shape) if tensor.region in _LABELS else staging.images)
        for tensor, view in node.range_views(Access.WRITE)
    ]

    def run() -> None:
        for target, source in pairs:
            np.copyto(target, source)

    return run


@kernel("copy")
def copy(node: BoundNode) -> Run:
    """Compute y = x, of one shape and type."""
    x, y = node["x"], node["y"]
    if x.shape != y.shape or x.dtype != y.dtype:
        raise node.problem(f"copies {x.shape} of {x.dtype} to {y.shape} of {y.dtype}")

    def run() -> None:
        np.copyto(y, x)

    return run


@kernel("clear")
def clear(node: BoundNode) -> Run:
    """Write zeros to a range of regions."""
    (target,) = node.ranges(Access.WRITE)

    def run() -> None:
        target.fill(0)

    return run


@kernel("add_fwd")
def add_fwd(node: BoundNode) -> Run:
    """Compute y = a + b. y may be a or b."""
    a, b, y = node["a"], node["b"], node["y"]

    def run() -> None:
        np.add(a, b, out=y)

    return run
