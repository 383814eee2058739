"""Fully connected layers and flatten.

Weights are (out, in). The products go to BLAS with transposed views, which copies nothing. Arrays of rank 4 are
taken as (samples, all other dimensions in memory order).
"""

from __future__ import annotations

import numpy as np

from trc_runtime.cpu.bind import BoundNode
from trc_runtime.cpu.kernels.blocks import column_sums, partial_rows
from trc_runtime.cpu.registry import Run, kernel


@kernel("fc_fwd")
def fc_fwd(node: BoundNode) -> Run:
    """y[n, o] = sum_i x[n, i] weight[o, i] + bias[o]; the bias is optional."""
    x, weight, y = node.samples("x"), node.samples("weight"), node.samples("y")
    transposed = weight.T
    if "bias" not in node:

        def multiply() -> None:
            np.matmul(x, transposed, out=y)

        return multiply
    bias = node.flat("bias")

    def multiply_add() -> None:
        np.matmul(x, transposed, out=y)
        np.add(y, bias, out=y)

    return multiply_add


@kernel("fc_bwd_data")
def fc_bwd_data(node: BoundNode) -> Run:
    """Compute dx = dy weight."""
    dy, weight, dx = node.samples("dy"), node.samples("weight"), node.samples("dx")

    def run() -> None:
        np.matmul(dy, weight, out=dx)

    return run


@kernel("fc_bwd_weight")
def fc_bwd_weight(node: BoundNode) -> Run:
    """Compute dweight = dy^T x."""
    dy, x, dweight = node.samples("dy"), node.samples("x"), node.samples("dweight")
    transposed = dy.T

    def run() -> None:
        np.matmul(transposed, x, out=dweight)

    return run


@kernel("fc_bwd_bias")
def fc_bwd_bias(node: BoundNode) -> Run:
    """Compute dbias = the sum of dy over the samples."""
    dy, dbias = node.samples("dy"), node.flat("dbias")
    partial = node.scratch((partial_rows(dy.shape[0]), dy.shape[1]))

    def run() -> None:
        column_sums(dy, partial, dbias)

    return run


@kernel("flatten_fwd")
def flatten_fwd(node: BoundNode) -> Run:
    """Compute y = x in the order of memory (height, width, channel)."""
    x, y = node.flat("x"), node.flat("y")

    def run() -> None:
        np.copyto(y, x)

    return run


@kernel("flatten_bwd")
def flatten_bwd(node: BoundNode) -> Run:
    """Compute dx = dy in the order of memory."""
    dy, dx = node.flat("dy"), node.flat("dx")

    def run() -> None:
        np.copyto(dx, dy)

    return run
