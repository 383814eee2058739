"""Convolutions: forward (with statistics, with a prologue), data, weight and bias gradient.

x is (n, h, w, c), weights (k, r, s, c / groups), y (n, p, q, k). The arithmetic is `trc_runtime.cpu.conv`'s; which
of its engines computes is decided by `conv.engine`.
"""

from __future__ import annotations

import numpy as np

from trc_runtime.cpu.bind import BoundNode
from trc_runtime.cpu.conv import engine
from trc_runtime.cpu.conv.gemm import Input
from trc_runtime.cpu.conv.geometry import data_gradient, forward, geometry
from trc_runtime.cpu.conv.source import prologue
from trc_runtime.cpu.conv.sums import Statistics, Sums
from trc_runtime.cpu.half import compute_type, load
from trc_runtime.cpu.registry import Run, kernel


@kernel("conv_fwd", "conv_stats_fwd", "conv_norm_fwd", "conv_norm_stats_fwd")
def conv_fwd(node: BoundNode) -> Run:
    """y[n, p, q, k] = sum of x[n, p stride + r - padding, q stride + s - padding, c] weight[k, r, s, c] + bias[k].

    With scale and shift, act(x scale + shift) rounded to x's storage type stands for x inside the image (outside it
    is zero). The statistics are the sums of y and of its squares, as stored, over n, p and q.
    """
    x, weight, y = node["x"], node["weight"], node["y"]
    g = geometry(node, x.shape, weight.shape, y.shape)
    before = prologue(node) if "scale" in node else None
    statistics = Statistics(node, g.k) if "sum" in node else None
    bias = node.flat("bias") if "bias" in node else None
    source = Input(x, forward(g), before)
    return engine.correlate(node, g, source, weight, y, False, bias, statistics)


@kernel("conv_bwd_data")
def conv_bwd_data(node: BoundNode) -> Run:
    """Compute dx[n, h, w, c] = the sum of dy weight over all outputs that pixel (h, w) takes part in."""
    dy, weight, dx = node["dy"], node["weight"], node["dx"]
    g = geometry(node, dx.shape, weight.shape, dy.shape)
    return engine.correlate(node, g, Input(dy, data_gradient(g)), weight, dx, True)


@kernel("conv_bwd_weight", "conv_norm_bwd_weight")
def conv_bwd_weight(node: BoundNode) -> Run:
    """Compute dweight[k, r, s, c] = the sum over all outputs of dy times the input, the prologue applied to it."""
    dy, x, dweight = node["dy"], node["x"], node["dweight"]
    g = geometry(node, x.shape, dweight.shape, dy.shape)
    before = prologue(node) if "scale" in node else None
    return engine.weight_gradient(node, g, Input(x, forward(g), before), dy, dweight)


@kernel("conv_bwd_bias")
def conv_bwd_bias(node: BoundNode) -> Run:
    """Compute dbias = the sum of dy over samples and pixels, in float64, rounded once."""
    dy, dbias = node["dy"], node.flat("dbias")
    images, channels = dy.shape[0], dy.shape[-1]
    sums = Sums(node, channels, squares=False)
    values = node.scratch(dy.shape[1:], compute_type(dy.dtype))
    matrix = values.reshape(-1, channels)

    def run() -> None:
        sums.begin()
        for n in range(images):
            load(dy[n], values)
            sums.add(matrix)
        np.copyto(dbias, sums.total, casting="same_kind")

    return run
