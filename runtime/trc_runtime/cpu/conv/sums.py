"""Statistics of a convolution's output, and the bias gradient: sums over pixels in float64."""

from __future__ import annotations

import numpy as np

from trc_runtime.cpu.bind import Array, BoundNode

CHUNK = 1 << 14
"""Elements that are squared and summed at a time: they stay in the first-level cache."""


class Sums:
    """Sums (and sums of squares) of the columns of matrices, block after block."""

    def __init__(self, node: BoundNode, channels: int, squares: bool) -> None:
        self._rows = max(1, CHUNK // channels)
        self._chunk = node.scratch((self._rows, channels), np.float64)
        self._part = node.scratch((channels,), np.float64)
        self.total = node.scratch((channels,), np.float64)
        self.total_squares = node.scratch((channels,), np.float64) if squares else None

    def begin(self) -> None:
        """Start from zero."""
        self.total.fill(0)
        if self.total_squares is not None:
            self.total_squares.fill(0)

    def add(self, values: Array, channels: slice = slice(None)) -> None:
        """Add the rows of a matrix, whose columns are these channels."""
        width = values.shape[1]
        part, total = self._part[:width], self.total[channels]
        for start in range(0, values.shape[0], self._rows):
            block = values[start : start + self._rows]
            chunk = self._chunk[: block.shape[0], :width]
            np.copyto(chunk, block)
            np.add.reduce(chunk, axis=0, out=part)
            np.add(total, part, out=total)
            if self.total_squares is not None:
                np.multiply(chunk, chunk, out=chunk)
                np.add.reduce(chunk, axis=0, out=part)
                squares = self.total_squares[channels]
                np.add(squares, part, out=squares)


class Statistics:
    """The operands sum and sumsq of a node with the sums that fill them."""

    def __init__(self, node: BoundNode, channels: int) -> None:
        self.sums = Sums(node, channels, squares=True)
        self._sum, self._sumsq = node.flat("sum"), node.flat("sumsq")

    def begin(self) -> None:
        """Start from zero."""
        self.sums.begin()

    def gather(self, parts: Array) -> None:
        """The sums of parts (parts, 2, channels) that were summed elsewhere, in order; rounded into the operands."""
        self.begin()
        assert self.sums.total_squares is not None
        for sums, squares in parts:
            np.add(self.sums.total, sums, out=self.sums.total)
            np.add(self.sums.total_squares, squares, out=self.sums.total_squares)
        self.finish()

    def finish(self) -> None:
        """Round once into the operands."""
        np.copyto(self._sum, self.sums.total, casting="same_kind")
        assert self.sums.total_squares is not None
        np.copyto(self._sumsq, self.sums.total_squares, casting="same_kind")
