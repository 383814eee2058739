"""Batch normalisation over all dimensions but the last: materialised, deferred, and folded for inference.

Arrays are taken as (rows, channels) with rows = n h w, and worked on in blocks of rows. Sums over rows are float64,
whatever the precision. Deferred: `bn_finalize` turns a channel's sums into a scale and a shift in the storage type of
the activations; readers compute act(x scale + shift) in the compute type (two roundings: the product, the sum) and
round once to storage.

    h = (x - mean) invstd,  y = gamma h + beta,  g = dy where the activation let through, else 0
    dbeta = sum g,  dgamma = sum g h,  dx = gamma invstd (g - (dbeta + h dgamma) / rows)
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from types import ModuleType

import numpy as np

from trc_runtime.cpu.bind import Array, BoundNode
from trc_runtime.cpu.half import compute_type, store
from trc_runtime.cpu.registry import Run, kernel
from trc_runtime.cpu.rows import compiled, plain
from trc_runtime.cpu.rows.choice import uses_compiled
from trc_runtime.cpu.rows.parts import Row, activation, gate_of, vectors


def _form(node: BoundNode) -> ModuleType:
    """The module whose passes compute a node."""
    return compiled if uses_compiled(node["x"]) else plain


# ---------------------------------------------------------------- statistics


class _Finish:
    """From a batch's mean and variance to all that is kept of them."""

    def __init__(self, node: BoundNode, rows: int) -> None:
        self._prev = node.flat("prev_mean"), node.flat("prev_var")
        self._next = node.flat("next_mean"), node.flat("next_var")
        self._saved_mean, self._saved_invstd = node.flat("saved_mean"), node.flat("saved_invstd")
        self._eps, self._momentum, self._rows = node.number("eps"), node.number("momentum"), rows
        (self._t,) = vectors(node, self._saved_mean.size, 1)

    def apply(self, mean: Array, var: Array, offset: Array | None = None) -> None:
        """Running and saved statistics from mean and biased variance (float64); `var` becomes invstd.

        `offset` is added to the mean for the running one.
        The next running values are (1 - momentum) prev + momentum new, with the unbiased variance. Of a single row
        there is no unbiased variance: the running one then stays as it is.
        """
        t, rows = self._t, self._rows
        factors = 1.0, (rows / (rows - 1) if rows > 1 else None)
        for prev, following, new, factor in zip(self._prev, self._next, (mean, var), factors, strict=True):
            if factor is None:
                np.copyto(following, prev)
                continue
            np.multiply(new, factor, out=t)
            if new is mean and offset is not None:
                np.add(t, offset, out=t)
            np.subtract(t, prev, out=t)
            np.multiply(t, self._momentum, out=t)
            np.add(t, prev, out=following, casting="same_kind")
        np.copyto(self._saved_mean, mean, casting="same_kind")
        np.add(var, self._eps, out=var)
        np.sqrt(var, out=var)
        np.reciprocal(var, out=var)
        np.copyto(self._saved_invstd, var, casting="same_kind")


@kernel("bn_stats")
def bn_stats(node: BoundNode) -> Run:
    """Compute the sums of x and of its squares over the rows of each channel, in float64, rounded once."""
    sums = node.scratch((2, node["x"].shape[-1]), np.float64)
    add_up = _form(node).moments(node, None, sums)
    results = node.flat("sum"), node.flat("sumsq")

    def run() -> None:
        add_up()
        for out, value in zip(results, sums, strict=True):
            np.copyto(out, value, casting="same_kind")

    return run


@kernel("bn_finalize")
def bn_finalize(node: BoundNode) -> Run:
    """From sums to scale = gamma invstd and shift = beta - mean scale, besides running and saved statistics.

    Computed in float64; scale and shift are rounded to their storage type last. x tells the number of rows only.
    The running mean is that of x + offset.
    """
    rows = prod(node["x"].shape[:-1])
    total, squares, gamma, beta = (node.flat(n) for n in ("sum", "sumsq", "gamma", "beta"))
    scale, shift = node.flat("scale"), node.flat("shift")
    offset = None if node.get("offset") is None else node.flat("offset")
    finish = _Finish(node, rows)
    mean, var, t = vectors(node, total.size, 3)
    narrow = node.scratch((total.size,), compute_type(scale.dtype))

    def run() -> None:
        np.divide(total, rows, out=mean)
        np.divide(squares, rows, out=var)
        np.multiply(mean, mean, out=t)
        np.subtract(var, t, out=var)
        np.maximum(var, 0, out=var)  # rounding may leave less; NaN stays
        finish.apply(mean, var, offset)
        np.multiply(var, gamma, out=var)
        np.multiply(mean, var, out=t)
        np.subtract(beta, t, out=t)
        for values, stored in ((var, scale), (t, shift)):
            np.copyto(narrow, values, casting="same_kind")
            store(narrow, stored)

    return run


# ---------------------------------------------------------------- forward


@kernel("bn_fwd")
def bn_fwd(node: BoundNode) -> Run:
    """Normalise with the batch's statistics; y may be x.

    y = (x - mean) invstd gamma + beta with invstd = 1 / sqrt(var + eps), var the biased variance, taken from centred
    values. Running statistics as `bn_finalize` computes them.
    """
    x = node["x"]
    rows, channels = prod(x.shape[:-1]), x.shape[-1]
    gamma, beta, mean = node.flat("gamma"), node.flat("beta"), node.flat("saved_mean")
    finish = _Finish(node, rows)
    sums, factor = node.scratch((2, channels), np.float64), node.scratch((channels,))
    mean64, var, t = vectors(node, channels, 3)
    form = _form(node)
    add_up, add_up_centred = form.moments(node, None, sums), form.moments(node, mean, sums)
    write = form.centred(node, mean, factor, beta)

    def run() -> None:
        add_up()
        np.divide(sums[0], rows, out=mean64)
        np.copyto(mean, mean64, casting="same_kind")
        add_up_centred()
        # about the rounded mean; what is left of the sum corrects for that
        np.divide(sums[0], rows, out=t)
        np.multiply(t, t, out=t)
        np.divide(sums[1], rows, out=var)
        np.subtract(var, t, out=var)
        np.maximum(var, 0, out=var)
        finish.apply(mean64, var)
        np.multiply(var, gamma, out=factor, casting="same_kind")
        write()

    return run


def _affine(node: BoundNode, scale_name: str, shift_name: str, others: Sequence[str]) -> Run:
    """Compute y = act(x scale + shift + other scale' + shift'), the last three as far as the node has them."""
    act = activation(node)
    scale, shift = Row(node, scale_name), Row(node, shift_name)
    second = [Row(node, n) for n in ("shortcut_scale", "shortcut_shift") if n in node]
    if len(second) == 1:
        raise node.problem("takes a scale and a shift of the shortcut, or neither")
    write = _form(node).affine(node, scale, shift, others, second, act)

    def run() -> None:
        for row in (scale, shift, *second):
            row.load()
        write()

    return run


@kernel("materialise")
def materialise(node: BoundNode) -> Run:
    """Compute y = act(x scale + shift); y may be x."""
    return _affine(node, "scale", "shift", ())


@kernel("norm_add_act_fwd")
def norm_add_act_fwd(node: BoundNode) -> Run:
    """Compute y = act(x scale + shift + shortcut); y may be x or the shortcut.

    The shortcut is normalised (not activated) too where its scale and shift are given.
    """
    return _affine(node, "scale", "shift", ("shortcut",))


@kernel("affine_fwd")
def affine_fwd(node: BoundNode) -> Run:
    """Compute y = act(x scale + bias), with scale and bias in the master type; y may be x."""
    return _affine(node, "scale", "bias", ())


@kernel("affine_add_act_fwd")
def affine_add_act_fwd(node: BoundNode) -> Run:
    """Compute y = act(x scale + bias + shortcut); y may be x or the shortcut."""
    return _affine(node, "scale", "bias", ("shortcut",))


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


# ---------------------------------------------------------------- backward


@kernel("bn_bwd", "norm_bwd")
def norm_bwd(node: BoundNode) -> Run:
    """Gradients of batch normalisation with an activation behind it; dx (optional) may be dy or x."""
    gate = gate_of(node)
    x = node["x"]
    rows, channels = prod(x.shape[:-1]), x.shape[-1]
    gamma, mean, invstd = node.flat("gamma"), node.flat("saved_mean"), node.flat("saved_invstd")
    dgamma, dbeta = node.flat("dgamma"), node.flat("dbeta")
    sums = node.scratch((2, channels), np.float64)
    total, weighted = sums
    slope, level, outer = node.scratch((channels,)), node.scratch((channels,)), node.scratch((channels,))
    form = _form(node)
    add_up = form.reduce(node, gate, mean, sums)
    write = form.back(node, gate, mean, slope, level, outer) if "dx" in node else None

    def run() -> None:
        if gate is not None:
            gate.load()
        add_up()
        np.multiply(weighted, invstd, out=weighted)
        np.copyto(dbeta, total, casting="same_kind")
        np.copyto(dgamma, weighted, casting="same_kind")
        if write is None:
            return
        np.multiply(weighted, invstd, out=weighted)
        np.divide(weighted, rows, out=slope, casting="same_kind")
        np.divide(total, rows, out=level, casting="same_kind")
        np.multiply(gamma, invstd, out=outer)
        write()

    return run
