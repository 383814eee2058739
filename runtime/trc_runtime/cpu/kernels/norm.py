"""Batch normalisation over all dimensions but the last, and its folded form for inference.

Sums are taken in two levels (`blocks.column_sums`), variances from centred values. Arrays are (rows, channels)
with rows = n h w.
"""

from __future__ import annotations

import numpy as np

from trc_runtime.cpu.bind import Array, BoundNode
from trc_runtime.cpu.kernels.blocks import SUM_ROWS, column_sums, partial_rows
from trc_runtime.cpu.registry import Run, kernel


class _Moments:
    """Sums over rows, group by group of SUM_ROWS rows."""

    def __init__(self, node: BoundNode, rows: int, channels: int) -> None:
        self.group = node.scratch((min(rows, SUM_ROWS), channels))
        self.partial = node.scratch((partial_rows(rows), channels))
        self.rows = rows

    def starts(self) -> range:
        return range(0, self.rows, SUM_ROWS)


@kernel("bn_fwd")
def bn_fwd(node: BoundNode) -> Run:
    """Normalise with the batch's statistics; y may be x.

    y = (x - mean) invstd gamma + beta with invstd = 1 / sqrt(var + eps), var the biased variance. The next running
    values are (1 - momentum) prev + momentum new, with the unbiased variance. Of a single row there is no unbiased
    variance: the running one then stays as it is.
    """
    x, y = node.matrix("x"), node.matrix("y")
    gamma, beta = node.flat("gamma"), node.flat("beta")
    prev_mean, prev_var = node.flat("prev_mean"), node.flat("prev_var")
    next_mean, next_var = node.flat("next_mean"), node.flat("next_var")
    mean, invstd = node.flat("saved_mean"), node.flat("saved_invstd")
    eps, momentum = node.number("eps"), node.number("momentum")
    rows, channels = x.shape
    moments = _Moments(node, rows, channels)
    var, factor = node.scratch((channels,)), node.scratch((channels,))

    def run() -> None:
        column_sums(x, moments.partial, mean)
        np.divide(mean, rows, out=mean)
        for n, start in enumerate(moments.starts()):
            centred = y[start : start + SUM_ROWS]
            np.subtract(x[start : start + SUM_ROWS], mean, out=centred)
            square = moments.group[: centred.shape[0]]
            np.multiply(centred, centred, out=square)
            np.add.reduce(square, axis=0, out=moments.partial[n])
        np.add.reduce(moments.partial, axis=0, out=var)

        np.subtract(mean, prev_mean, out=next_mean)
        np.multiply(next_mean, momentum, out=next_mean)
        np.add(next_mean, prev_mean, out=next_mean)
        if rows > 1:
            np.divide(var, rows - 1, out=next_var)
            np.subtract(next_var, prev_var, out=next_var)
            np.multiply(next_var, momentum, out=next_var)
            np.add(next_var, prev_var, out=next_var)
        else:
            np.copyto(next_var, prev_var)

        np.divide(var, rows, out=var)
        np.add(var, eps, out=var)
        np.sqrt(var, out=var)
        np.reciprocal(var, out=invstd)
        np.multiply(invstd, gamma, out=factor)
        for start in moments.starts():
            centred = y[start : start + SUM_ROWS]
            np.multiply(centred, factor, out=centred)
            np.add(centred, beta, out=centred)

    return run


@kernel("bn_bwd")
def bn_bwd(node: BoundNode) -> Run:
    """Gradients of batch normalisation; dx (optional) may be dy or x.

    With h = (x - mean) invstd: dbeta = sum dy, dgamma = sum dy h,
    dx = gamma invstd (dy - (dbeta + h dgamma) / rows).
    """
    dy, x = node.matrix("dy"), node.matrix("x")
    gamma, mean, invstd = node.flat("gamma"), node.flat("saved_mean"), node.flat("saved_invstd")
    dgamma, dbeta = node.flat("dgamma"), node.flat("dbeta")
    dx = node.matrix("dx") if "dx" in node else None
    rows, channels = x.shape
    moments = _Moments(node, rows, channels)
    factor, shift, outer = (node.scratch((channels,)) for _ in range(3))

    def run() -> None:
        column_sums(dy, moments.partial, dbeta)
        for n, start in enumerate(moments.starts()):
            product = moments.group[: x[start : start + SUM_ROWS].shape[0]]
            np.subtract(x[start : start + SUM_ROWS], mean, out=product)
            np.multiply(product, dy[start : start + SUM_ROWS], out=product)
            np.add.reduce(product, axis=0, out=moments.partial[n])
        np.add.reduce(moments.partial, axis=0, out=dgamma)
        np.multiply(dgamma, invstd, out=dgamma)
        if dx is not None:
            np.multiply(dgamma, invstd, out=factor)
            np.divide(factor, rows, out=factor)
            np.divide(dbeta, rows, out=shift)
            np.multiply(gamma, invstd, out=outer)
            for start in moments.starts():
                _block_gradient(dy[start : start + SUM_ROWS], x[start : start + SUM_ROWS], dx[start : start + SUM_ROWS])

    def _block_gradient(dy_block: Array, x_block: Array, dx_block: Array) -> None:
        t = moments.group[: x_block.shape[0]]
        np.subtract(x_block, mean, out=t)
        np.multiply(t, factor, out=t)
        np.add(t, shift, out=t)
        np.subtract(dy_block, t, out=t)
        np.multiply(t, outer, out=dx_block)

    return run


@kernel("bn_fold")
def bn_fold(node: BoundNode) -> Run:
    """Compute eq_scale = gamma / sqrt(var + eps), eq_bias = beta - mean eq_scale."""
    gamma, beta, mean, var = (node.flat(n) for n in ("gamma", "beta", "mean", "var"))
    scale, bias = node.flat("eq_scale"), node.flat("eq_bias")
    eps = node.number("eps")

    def run() -> None:
        np.add(var, eps, out=scale)
        np.sqrt(scale, out=scale)
        np.divide(gamma, scale, out=scale)
        np.multiply(mean, scale, out=bias)
        np.subtract(beta, bias, out=bias)

    return run


@kernel("affine_fwd")
def affine_fwd(node: BoundNode) -> Run:
    """Compute y = act(x scale + bias), a number each channel; y may be x."""
    x, y = node.matrix("x"), node.matrix("y")
    scale, bias = node.flat("scale"), node.flat("bias")
    act = node.params.get("act", "none")

    def run() -> None:
        np.multiply(x, scale, out=y)
        np.add(y, bias, out=y)
        if act != "none":
            np.maximum(y, 0, out=y)
        if act == "relu6":
            np.minimum(y, 6, out=y)

    return run
