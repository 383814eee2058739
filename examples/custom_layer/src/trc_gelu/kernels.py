"""The runtime's side of GELU: NumPy kernels. Importing this module registers them; it knows nothing of the compiler.

Values are stored as float64, float32, float16 or bfloat16 (which NumPy lacks: see `trc_runtime.cpu.half`). All is
computed in float64, in blocks that fit into the cache, in memory that is cut once when a node is bound: nothing is
allocated while the network trains. Operands are taken as matrices, one row a pixel: half types have rows padded to
eight channels, so that not every tensor is one dense stretch of memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import pi, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trc_runtime.cpu import half
from trc_runtime.cpu.bind import BoundNode
from trc_runtime.cpu.registry import Run, kernel

Array = NDArray[Any]

BLOCK = 8192
"""Elements that are computed at a time, or one row (all channels of a pixel) where that has more."""

# Rational functions for erf and erfc of W. J. Cody, Mathematics of Computation 23 (1969), with the coefficients of his
# program CALERF, highest power first. Up to NEAR: erf(z) = z A(z^2) / B(z^2). From there: erfc(z) = exp(-z^2) C(z) /
# D(z), which Cody uses up to 4; beyond, its error is far below the last bit of 1 - erfc(z).
NEAR = 0.46875
A = (1.85777706184603153e-1, 3.16112374387056560, 1.13864154151050156e2, 3.77485237685302021e2, 3.20937758913846947e3)
B = (1.0, 2.36012909523441209e1, 2.44024637934444173e2, 1.28261652607737228e3, 2.84423683343917062e3)
C = (
    *(2.15311535474403846e-8, 5.64188496988670089e-1, 8.88314979438837594, 6.61191906371416295e1),
    *(2.98635138197400131e2, 8.81952221241769090e2, 1.71204761263407058e3, 2.05107837782607147e3),
    1.23033935479799725e3,
)
D = (
    *(1.0, 1.57449261107098347e1, 1.17693950891312499e2, 5.37181101862009858e2, 1.62138957456669019e3),
    *(3.29079923573345963e3, 4.36261909014324716e3, 3.43936767414372164e3, 1.23033935480374942e3),
)
FAR = 40.0
"""Where exp(-z^2) has long been 0; the powers of larger z could overflow."""


class Gate:
    """Phi(x) = (1 + erf(x / sqrt 2)) / 2 of a block, in memory of its own; `wide` and `other` are for half types."""

    def __init__(self, node: BoundNode, like: Array) -> None:
        shape = min(block_rows(like), len(like)), like.shape[1]
        self.phi, self.z, self.square, self.top, self.bottom = (node.scratch(shape, np.float64) for _ in range(5))
        self.wide, self.other = (node.scratch(shape, np.float32) for _ in range(2))
        self.flags = node.scratch(shape, np.bool_)

    def head(self, rows: int) -> Gate:
        """The same memory for a block of so many rows."""
        part = object.__new__(Gate)
        for name, array in vars(self).items():
            setattr(part, name, array[:rows])
        return part

    def compute(self, x: Array) -> Array:
        """Fill `phi` and return it. NaN stays NaN."""
        phi, z, square, top, bottom, flags = self.phi, self.z, self.square, self.top, self.bottom, self.flags
        np.abs(x, out=z)
        np.multiply(z, sqrt(0.5), out=z)
        np.minimum(z, FAR, out=z)
        np.multiply(z, z, out=square)
        # Far from 0: half of erfc(z), which is Phi(-|x|).
        polynomial(C, z, top)
        polynomial(D, z, bottom)
        np.divide(top, bottom, out=top)
        np.negative(square, out=phi)
        np.exp(phi, out=phi)
        np.multiply(phi, top, out=phi)
        np.multiply(phi, 0.5, out=phi)
        # Near 0 the difference of 1 and erf(z) is exact enough: (1 - erf(z)) / 2.
        polynomial(A, square, top)
        polynomial(B, square, bottom)
        np.divide(top, bottom, out=top)
        np.multiply(top, z, out=top)
        np.subtract(1, top, out=top)
        np.multiply(top, 0.5, out=top)
        np.less_equal(z, NEAR, out=flags)
        np.copyto(phi, top, where=flags)
        # Phi(|x|) = 1 - Phi(-|x|).
        np.subtract(1, phi, out=top)
        np.greater(x, 0, out=flags)
        np.copyto(phi, top, where=flags)
        return phi


def polynomial(coefficients: Sequence[float], x: Array, out: Array) -> None:
    """Horner's rule, highest power first."""
    np.multiply(x, coefficients[0], out=out)
    for c in coefficients[1:-1]:
        np.add(out, c, out=out)
        np.multiply(out, x, out=out)
    np.add(out, coefficients[-1], out=out)


def block_rows(matrix: Array) -> int:
    """How many rows of a matrix are a block."""
    return max(1, BLOCK // max(1, matrix.shape[1]))


def blocks(*matrices: Array) -> Iterator[list[Array]]:
    """The same rows of each matrix, one block after another."""
    size = block_rows(matrices[0])
    for start in range(0, len(matrices[0]), size):
        yield [m[start : start + size] for m in matrices]


def loaded(stored: Array, wide: Array) -> Array:
    """Stored values as NumPy computes with them: themselves, or half types as float32 in `wide`."""
    if not half.is_half(stored.dtype):
        return stored
    half.load(stored, wide)
    return wide


def multiply(a: Array, b: Array, out: Array, wide: Array) -> None:
    """Store a product, rounded to the type of `out`; `wide` is scratch for half types, and may be `a`."""
    if half.is_half(out.dtype):
        np.multiply(a, b, out=wide, casting="same_kind")
        half.store(wide, out)
    else:
        np.multiply(a, b, out=out, casting="same_kind")


@kernel("gelu_fwd")
def gelu_fwd(node: BoundNode) -> Run:
    """Compute y = x Phi(x)."""
    x, y = node.matrix("x"), node.matrix("y")
    gate = Gate(node, x)
    work = [(a, b, gate.head(len(a))) for a, b in blocks(x, y)]

    def run() -> None:
        for a, b, g in work:
            value = loaded(a, g.wide)
            multiply(value, g.compute(value), b, g.wide)

    return run


@kernel("gelu_bwd")
def gelu_bwd(node: BoundNode) -> Run:
    """Compute dx = dy (Phi(x) + x phi(x)), phi(x) = exp(-x^2 / 2) / sqrt(2 pi)."""
    dy, x, dx = node.matrix("dy"), node.matrix("x"), node.matrix("dx")
    gate = Gate(node, x)
    work = [(a, b, c, gate.head(len(a))) for a, b, c in blocks(dy, x, dx)]

    def run() -> None:
        for a, b, c, g in work:
            value = loaded(b, g.wide)
            phi = g.compute(value)
            # z was cut off where the density is 0; there its product with x is 0 too.
            np.negative(g.square, out=g.square)
            np.exp(g.square, out=g.square)
            np.multiply(g.square, 1 / sqrt(2 * pi), out=g.square)
            np.multiply(g.square, value, out=g.square)
            np.add(phi, g.square, out=phi)
            multiply(loaded(a, g.other), phi, c, g.other)

    return run
