"""Batch norm's passes over rows of channels in NumPy, block by block; sums in float64."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from trc_runtime.cpu.bind import Array, BoundNode
from trc_runtime.cpu.kernels.blocks import Blocks, filled
from trc_runtime.cpu.registry import Run
from trc_runtime.cpu.rows.parts import Gate, Row, vectors


def _sum(values: Array, part: Array, total: Array) -> None:
    """Add the sums of a block's columns to `total`; both are float64."""
    np.add.reduce(values, axis=0, dtype=np.float64, out=part)
    np.add(total, part, out=total)


def moments(node: BoundNode, mean: Array | None, sums: Array) -> Run:
    """sums[0] = each channel's sum of x - mean (of x, without mean) over the rows, sums[1] that of its squares."""
    blocks = Blocks(node, ("x",), rows=True)
    (part,) = vectors(node, blocks.shape[1], 1)
    wide, centred = blocks.scratch(node, np.dtype(np.float64)), blocks.scratch(node)

    def run() -> None:
        sums.fill(0)
        for block in blocks:
            block.load()
            (x,) = block.values
            values = wide[: x.shape[0]]
            if mean is None:
                np.copyto(values, x)
            else:
                t = centred[: x.shape[0]]
                np.subtract(x, mean, out=t)
                np.copyto(values, t)
            _sum(values, part, sums[0])
            np.multiply(values, values, out=values)
            _sum(values, part, sums[1])

    return run


def centred(node: BoundNode, mean: Array, factor: Array, beta: Array) -> Run:
    """Compute y = (x - mean) factor + beta."""
    blocks = Blocks(node, ("x",), ("y",), rows=True)

    def run() -> None:
        for block in blocks:
            block.load()
            x, y = block.values
            np.subtract(x, mean, out=y)
            np.multiply(y, factor, out=y)
            np.add(y, beta, out=y)
            block.store()

    return run


def affine(node: BoundNode, scale: Row, shift: Row, others: Sequence[str], second: Sequence[Row], act: str) -> Run:
    """Compute y = act(x scale + shift + other), the other scaled and shifted by `second` if that is not empty."""
    blocks = Blocks(node, ("x", *others), ("y",), rows=True)
    scratch = blocks.scratch(node)

    def run() -> None:
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
            if act != "none":
                np.maximum(y, filled(0, y), out=y)
            if act == "relu6":
                np.minimum(y, filled(6, y), out=y)
            block.store()

    return run


class _Through:
    """Computes g block by block."""

    def __init__(self, node: BoundNode, blocks: Blocks, gate: Gate | None) -> None:
        self._gate = gate
        self._integer = np.dtype(f"i{blocks.dtype.itemsize}")
        if gate is not None:
            self._z, self._g = blocks.scratch(node), blocks.scratch(node)
            self._flags, self._other = (blocks.scratch(node, np.dtype(np.bool_)) for _ in range(2))
            self._bits = blocks.scratch(node, self._integer)

    def apply(self, dy: Array, x: Array) -> Array:
        """Dy where the gate lets it through, else 0."""
        if self._gate is None:
            return dy
        count = x.shape[0]
        z, g, flags, bits = self._z[:count], self._g[:count], self._flags[:count], self._bits[:count]
        np.multiply(x, self._gate.scale.values, out=z)
        np.add(z, self._gate.shift.values, out=z)
        np.less_equal(z, filled(self._gate.low, z), out=flags)
        if self._gate.high is not None:
            np.greater_equal(z, filled(self._gate.high, z), out=self._other[:count])
            np.logical_or(flags, self._other[:count], out=flags)
        np.logical_not(flags, out=flags)
        # bit by bit: a product of floating-point numbers would let NaN through, a masked copy takes four times as long
        np.copyto(bits, flags)
        np.multiply(dy.view(self._integer), bits, out=g.view(self._integer))
        return g


def reduce(node: BoundNode, gate: Gate | None, mean: Array, sums: Array) -> Run:
    """sums[0] = the sums of g over the rows, sums[1] those of g (x - mean)."""
    blocks = Blocks(node, ("dy", "x"), rows=True)
    through = _Through(node, blocks, gate)
    (part,) = vectors(node, blocks.shape[1], 1)
    scratch = blocks.scratch(node)

    def run() -> None:
        sums.fill(0)
        for block in blocks:
            block.load()
            dy, x = block.values
            g = through.apply(dy, x)
            _sum(g, part, sums[0])
            t = scratch[: x.shape[0]]
            np.subtract(x, mean, out=t)
            np.multiply(t, g, out=t)
            _sum(t, part, sums[1])

    return run


def back(node: BoundNode, gate: Gate | None, mean: Array, slope: Array, level: Array, outer: Array) -> Run:
    """Compute dx = (g - ((x - mean) slope + level)) outer."""
    blocks = Blocks(node, ("dy", "x"), ("dx",), rows=True)
    through = _Through(node, blocks, gate)
    scratch = blocks.scratch(node)

    def run() -> None:
        for block in blocks:
            block.load()
            dy, x, dx = block.values
            g = through.apply(dy, x)
            t = scratch[: x.shape[0]]
            np.subtract(x, mean, out=t)
            np.multiply(t, slope, out=t)
            np.add(t, level, out=t)
            np.subtract(g, t, out=t)
            np.multiply(t, outer, out=dx)
            block.store()

    return run
