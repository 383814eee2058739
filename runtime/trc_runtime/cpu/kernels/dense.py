"""Fully connected layers and flatten.

Weights are (out, in). The products go to BLAS with transposed views, which copies nothing. Arrays of rank 4 are
taken as (samples, all other dimensions in memory order: height, width, channel). Half operands are converted whole,
weights some rows at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np

from trc_runtime.cpu.bind import Array, BoundNode
from trc_runtime.cpu.half import compute_type, is_half, load
from trc_runtime.cpu.kernels.blocks import Whole, column_sums, partial_rows
from trc_runtime.cpu.registry import Run, kernel

WEIGHT_BYTES = 1 << 23
"""Bytes of half weights' float32 form that are made at a time."""


class _Weights:
    """The rows of a weight matrix in pieces, in the compute type: one piece unless they are of half storage."""

    def __init__(self, node: BoundNode) -> None:
        weight = node.samples("weight")
        kind = compute_type(weight.dtype)
        count = weight.shape[0]
        half = is_half(weight.dtype)
        size = max(1, WEIGHT_BYTES // (kind.itemsize * max(1, weight.shape[1]))) if half else count
        edges = [*range(0, count, size), count]
        self.rows = [slice(a, b) for a, b in pairwise(edges)]
        self._stored = [weight[r] for r in self.rows]
        self._values = node.scratch((min(size, count), weight.shape[1]), kind) if half else None

    def piece(self, number: int) -> Array:
        """A piece, valid until the next is asked for."""
        stored = self._stored[number]
        if self._values is None:
            return stored
        values = self._values[: stored.shape[0]]
        load(stored, values)
        return values


def _rectifier(node: BoundNode) -> str:
    """The node's activation: none, relu or relu6."""
    act = node.params.get("act", "none")
    if act not in ("none", "relu", "relu6"):
        raise node.problem(f"act is one of none, relu, relu6, not '{act}'")
    return str(act)


@kernel("fc_fwd")
def fc_fwd(node: BoundNode) -> Run:
    """y[n, o] = act(sum_i x[n, i] weight[o, i] + bias[o]); the bias is optional."""
    x, y, weights = Whole(node, "x"), Whole(node, "y"), _Weights(node)
    bias = node.flat("bias") if "bias" in node else None
    targets = [y.values[:, rows] for rows in weights.rows]
    act = _rectifier(node)

    def run() -> None:
        x.load()
        for number, target in enumerate(targets):
            np.matmul(x.values, weights.piece(number).T, out=target)
        if bias is not None:
            np.add(y.values, bias, out=y.values)
        if act != "none":
            np.maximum(y.values, 0, out=y.values)
        if act == "relu6":
            np.minimum(y.values, 6, out=y.values)
        y.store()

    return run


@kernel("fc_bwd_data")
def fc_bwd_data(node: BoundNode) -> Run:
    """Compute dx = dy weight; where x is given, 0 where the activation with the result x let nothing pass."""
    dy, dx, weights = Whole(node, "dy"), Whole(node, "dx"), _Weights(node)
    sources = [dy.values[:, rows] for rows in weights.rows]
    part = node.scratch(dx.values.shape, dx.values.dtype) if len(sources) > 1 else None
    mask = _mask(node, dx)

    def run() -> None:
        dy.load()
        np.matmul(sources[0], weights.piece(0), out=dx.values)
        if part is not None:
            for number in range(1, len(sources)):
                np.matmul(sources[number], weights.piece(number), out=part)
                np.add(dx.values, part, out=dx.values)
        if mask is not None:
            mask()
        dx.store()

    return run


def _mask(node: BoundNode, dx: Whole) -> Callable[[], None] | None:
    """Clear the elements of dx that the activation whose result is x did not let pass; None without x.

    The bits are multiplied, as integers: a product of floating-point numbers would let NaNs through.
    """
    act = _rectifier(node)
    if "x" not in node or act == "none":
        return None
    x, bits = Whole(node, "x"), np.dtype(f"i{dx.values.itemsize}")
    stopped, high = (node.scratch(dx.values.shape, np.bool_) for _ in range(2))
    passing, target = node.scratch(dx.values.shape, bits), dx.values.view(bits)

    def mask() -> None:
        x.load()
        np.less_equal(x.values, 0, out=stopped)
        if act == "relu6":
            np.greater_equal(x.values, 6, out=high)
            np.logical_or(stopped, high, out=stopped)
        np.logical_not(stopped, out=stopped)
        np.copyto(passing, stopped)
        np.multiply(target, passing, out=target)

    return mask


@kernel("fc_bwd_weight")
def fc_bwd_weight(node: BoundNode) -> Run:
    """Compute dweight = dy^T x."""
    dy, x, dweight = Whole(node, "dy"), Whole(node, "x"), Whole(node, "dweight")
    transposed = dy.values.T

    def run() -> None:
        dy.load()
        x.load()
        np.matmul(transposed, x.values, out=dweight.values)
        dweight.store()

    return run


@kernel("fc_bwd_bias")
def fc_bwd_bias(node: BoundNode) -> Run:
    """Compute dbias = the sum of dy over the samples."""
    dy, dbias = Whole(node, "dy"), node.flat("dbias")
    partial = node.scratch((partial_rows(dy.values.shape[0]), dy.values.shape[1]))

    def run() -> None:
        dy.load()
        column_sums(dy.values, partial, dbias)

    return run


@kernel("flatten_fwd")
def flatten_fwd(node: BoundNode) -> Run:
    """Compute y = x in the order of memory (height, width, channel). y may be x."""
    return _reordered(node, node["x"], node["y"])


@kernel("flatten_bwd")
def flatten_bwd(node: BoundNode) -> Run:
    """Compute dx = dy in the order of memory. dx may be dy."""
    return _reordered(node, node["dy"], node["dx"])


def _reordered(node: BoundNode, source: Array, target: Array) -> Run:
    """Copy between a map and a row a sample, either of which may have padded channels."""
    if source.size != target.size or source.shape[0] != target.shape[0] or source.dtype != target.dtype:
        raise node.problem(f"copies {source.shape} of {source.dtype} to {target.shape} of {target.dtype}")
    # the dense innermost dimension of the row can be split as the map is
    if source.ndim == 4 and source.shape[1:3] == (1, 1):
        source = source.reshape(target.shape, copy=False)
    else:
        target = target.reshape(source.shape, copy=False)
    if not np.may_share_memory(source, target):

        def run() -> None:
            np.copyto(target, source)

        return run
    if source.ctypes.data == target.ctypes.data and source.strides == target.strides:
        return lambda: None
    spare = node.scratch(source.shape, source.dtype)

    def through() -> None:
        np.copyto(spare, source)
        np.copyto(target, spare)

    return through
