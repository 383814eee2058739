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
from math import inf, prod

import numpy as np

from trc_runtime.cpu.bind import Array, BoundNode
from trc_runtime.cpu.half import BF16, F16, compute_type, is_half, load, store
from trc_runtime.cpu.kernels.blocks import Blocks, filled
from trc_runtime.cpu.registry import Run, kernel

ACTIVATIONS = ("none", "relu", "relu6")
"""What a normalisation may apply, by the name of the parameter `act`."""

_NEGLIGIBLE = {F16: 2.0**-25, BF16: 2.0**-134}
"""The largest number that rounds to 0 in a half type."""

_SIX = {F16: 6 - 2.0**-9, BF16: 6 - 2.0**-6}
"""The smallest number that rounds to 6 in a half type (a tie, and 6 is even)."""


def activation(node: BoundNode) -> str:
    """The parameter `act`; "none" where the node has none. ValueError for an unknown one."""
    act = node.text("act") if "act" in node.params else "none"
    if act not in ACTIVATIONS:
        raise node.problem(f"knows the activations {', '.join(ACTIVATIONS)}, not '{act}'")
    return act


class Row:
    """One number a channel, in the compute type: the operand itself, or scratch that `load` fills from half storage."""

    def __init__(self, node: BoundNode, name: str) -> None:
        stored = node.flat(name)
        self._stored = stored if is_half(stored.dtype) else None
        self.values = node.scratch(stored.shape, compute_type(stored.dtype)) if is_half(stored.dtype) else stored

    def load(self) -> None:
        """Convert again."""
        if self._stored is not None:
            load(self._stored, self.values)


def _sum(values: Array, part: Array, total: Array) -> None:
    """Add the sums of a block's columns to `total`; both are float64."""
    np.add.reduce(values, axis=0, dtype=np.float64, out=part)
    np.add(total, part, out=total)


def _vectors(node: BoundNode, channels: int, count: int) -> list[Array]:
    return [node.scratch((channels,), np.float64) for _ in range(count)]


# ---------------------------------------------------------------- statistics


class _Finish:
    """From a batch's mean and variance to all that is kept of them."""

    def __init__(self, node: BoundNode, rows: int) -> None:
        self._prev = node.flat("prev_mean"), node.flat("prev_var")
        self._next = node.flat("next_mean"), node.flat("next_var")
        self._saved_mean, self._saved_invstd = node.flat("saved_mean"), node.flat("saved_invstd")
        self._eps, self._momentum, self._rows = node.number("eps"), node.number("momentum"), rows
        (self._t,) = _vectors(node, self._saved_mean.size, 1)

    def apply(self, mean: Array, var: Array) -> None:
        """Running and saved statistics from mean and biased variance (float64); `var` becomes invstd.

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
    blocks = Blocks(node, ("x",), rows=True)
    total, squares, part = _vectors(node, blocks.shape[1], 3)
    wide = blocks.scratch(node, np.dtype(np.float64))
    sums = node.flat("sum"), node.flat("sumsq")

    def run() -> None:
        total.fill(0)
        squares.fill(0)
        for block in blocks:
            block.load()
            (x,) = block.values
            values = wide[: x.shape[0]]
            np.copyto(values, x)
            _sum(values, part, total)
            np.multiply(values, values, out=values)
            _sum(values, part, squares)
        for out, value in zip(sums, (total, squares), strict=True):
            np.copyto(out, value, casting="same_kind")

    return run


@kernel("bn_finalize")
def bn_finalize(node: BoundNode) -> Run:
    """From sums to scale = gamma invstd and shift = beta - mean scale, besides running and saved statistics.

    Computed in float64; scale and shift are rounded to their storage type last. x tells the number of rows only.
    """
    rows = prod(node["x"].shape[:-1])
    total, squares, gamma, beta = (node.flat(n) for n in ("sum", "sumsq", "gamma", "beta"))
    scale, shift = node.flat("scale"), node.flat("shift")
    finish = _Finish(node, rows)
    mean, var, t = _vectors(node, total.size, 3)
    narrow = node.scratch((total.size,), compute_type(scale.dtype))

    def run() -> None:
        np.divide(total, rows, out=mean)
        np.divide(squares, rows, out=var)
        np.multiply(mean, mean, out=t)
        np.subtract(var, t, out=var)
        np.maximum(var, 0, out=var)  # rounding may leave less; NaN stays
        finish.apply(mean, var)
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
    source, blocks = Blocks(node, ("x",), rows=True), Blocks(node, ("x",), ("y",), rows=True)
    rows, channels = blocks.shape
    gamma, beta, mean = node.flat("gamma"), node.flat("beta"), node.flat("saved_mean")
    finish = _Finish(node, rows)
    mean64, var, part = _vectors(node, channels, 3)
    factor, scratch = node.scratch((channels,)), blocks.scratch(node)

    def run() -> None:
        mean64.fill(0)
        for block in source:
            block.load()
            _sum(block.values[0], part, mean64)
        np.divide(mean64, rows, out=mean64)
        np.copyto(mean, mean64, casting="same_kind")
        var.fill(0)
        for block in source:
            block.load()
            (x,) = block.values
            t = scratch[: x.shape[0]]
            np.subtract(x, mean, out=t)
            np.multiply(t, t, out=t)
            _sum(t, part, var)
        np.divide(var, rows, out=var)
        finish.apply(mean64, var)
        np.multiply(var, gamma, out=factor, casting="same_kind")
        for block in blocks:
            block.load()
            x, y = block.values
            np.subtract(x, mean, out=y)
            np.multiply(y, factor, out=y)
            np.add(y, beta, out=y)
            block.store()

    return run


def _activate(values: Array, act: str) -> None:
    if act != "none":
        np.maximum(values, filled(0, values), out=values)
    if act == "relu6":
        np.minimum(values, filled(6, values), out=values)


def _affine(node: BoundNode, scale_name: str, shift_name: str, others: Sequence[str]) -> Run:
    """Compute y = act(x scale + shift + other scale' + shift'), the last three as far as the node has them."""
    act = activation(node)
    blocks = Blocks(node, ("x", *others), ("y",), rows=True)
    scale, shift = Row(node, scale_name), Row(node, shift_name)
    second = [Row(node, n) for n in ("shortcut_scale", "shortcut_shift") if n in node]
    if len(second) == 1:
        raise node.problem("takes a scale and a shift of the shortcut, or neither")
    scratch = blocks.scratch(node)

    def run() -> None:
        for row in (scale, shift, *second):
            row.load()
        for block in blocks:
            block.load()
            x, y = block.values[0], block.values[-1]
            t = scratch[: x.shape[0]]
            np.multiply(x, scale.values, out=t)
            if not others:
                np.add(t, shift.values, out=y)
            else:
                np.add(t, shift.values, out=t)
                other = block.values[1]
                if second:
                    # y may be the shortcut, whose element is read before y's is written
                    np.multiply(other, second[0].values, out=y)
                    np.add(y, second[1].values, out=y)
                    other = y
                np.add(t, other, out=y)
            _activate(y, act)
            block.store()

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


class _Gate:
    """The gradient of an activation whose input is computed again: g = dy where it let through, else 0.

    It let through where x scale + shift, rounded to the storage type as readers have rounded it, lies above 0 (and
    below 6). Whether a number rounds to 0 or 6 is told by comparing it with the last number that does.
    """

    def __init__(self, node: BoundNode, blocks: Blocks, act: str) -> None:
        storage = node["x"].dtype
        self.act = act
        self.low, self.high = _NEGLIGIBLE.get(storage, 0.0), _SIX.get(storage, 6.0) if act == "relu6" else inf
        self.rows = [] if act == "none" else [Row(node, "scale"), Row(node, "shift")]
        kind = blocks.dtype
        self._integer = np.dtype(f"i{kind.itemsize}")
        self._z = blocks.scratch(node)
        self._flags = blocks.scratch(node, np.dtype(np.bool_))
        self._other = blocks.scratch(node, np.dtype(np.bool_))
        self._bits = blocks.scratch(node, self._integer)

    def begin(self) -> None:
        """Fetch scale and shift."""
        for row in self.rows:
            row.load()

    def apply(self, dy: Array, x: Array, g: Array) -> Array:
        """g, in the given array or dy itself."""
        if self.act == "none":
            return dy
        z, flags, bits = self._z[: x.shape[0]], self._flags[: x.shape[0]], self._bits[: x.shape[0]]
        np.multiply(x, self.rows[0].values, out=z)
        np.add(z, self.rows[1].values, out=z)
        np.less_equal(z, filled(self.low, z), out=flags)
        if self.act == "relu6":
            other = self._other[: x.shape[0]]
            np.greater_equal(z, filled(self.high, z), out=other)
            np.logical_or(flags, other, out=flags)
        np.logical_not(flags, out=flags)
        # bit by bit: a product of floating-point numbers would let NaN through, a masked copy takes four times as long
        np.copyto(bits, flags)
        np.multiply(dy.view(self._integer), bits, out=g.view(self._integer))
        return g


@kernel("bn_bwd", "norm_bwd")
def norm_bwd(node: BoundNode) -> Run:
    """Gradients of batch normalisation with an activation behind it; dx (optional) may be dy or x."""
    act = activation(node)
    blocks = Blocks(node, ("dy", "x"), rows=True)
    rows, channels = blocks.shape
    gamma, mean, invstd = node.flat("gamma"), node.flat("saved_mean"), node.flat("saved_invstd")
    dgamma, dbeta = node.flat("dgamma"), node.flat("dbeta")
    gate = _Gate(node, blocks, act)
    total, weighted, part = _vectors(node, channels, 3)
    masked, scratch = blocks.scratch(node), blocks.scratch(node)
    back: Blocks | None = None
    kept: list[Array] | None = None
    if "dx" in node:
        back = Blocks(node, ("dy", "x"), ("dx",), rows=True, size=blocks.size)
        if act != "none" and not is_half(node["dx"].dtype) and not np.may_share_memory(node["dx"], node["x"]):
            kept = [block.values[2] for block in back]  # g waits in the place of dx
    slope, level, outer = node.scratch((channels,)), node.scratch((channels,)), node.scratch((channels,))

    def run() -> None:
        gate.begin()
        total.fill(0)
        weighted.fill(0)
        for number, block in enumerate(blocks):
            block.load()
            dy, x = block.values
            g = gate.apply(dy, x, masked[: x.shape[0]] if kept is None else kept[number])
            _sum(g, part, total)
            t = scratch[: x.shape[0]]
            np.subtract(x, mean, out=t)
            np.multiply(t, g, out=t)
            _sum(t, part, weighted)
        np.multiply(weighted, invstd, out=weighted)
        np.copyto(dbeta, total, casting="same_kind")
        np.copyto(dgamma, weighted, casting="same_kind")
        if back is None:
            return
        np.multiply(weighted, invstd, out=weighted)
        np.divide(weighted, rows, out=slope, casting="same_kind")
        np.divide(total, rows, out=level, casting="same_kind")
        np.multiply(gamma, invstd, out=outer)
        for number, block in enumerate(back):
            block.load()
            dy, x, dx = block.values
            g = gate.apply(dy, x, masked[: x.shape[0]]) if kept is None else kept[number]
            t = scratch[: x.shape[0]]
            np.subtract(x, mean, out=t)
            np.multiply(t, slope, out=t)
            np.add(t, level, out=t)
            np.subtract(g, t, out=t)
            np.multiply(t, outer, out=dx)
            block.store()

    return run
