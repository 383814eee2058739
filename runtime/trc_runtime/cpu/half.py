"""Half-precision storage on the CPU: the one module that converts.

float16 is NumPy's own type; bfloat16, which NumPy lacks, is stored as uint16 (the upper half of a float32) and rounded
to the nearest, ties to even; a NaN stays a NaN of the same sign. Arithmetic on half tensors happens in float32: kernels
`load` a block into scratch, compute, and `store` the result, which is its only rounding.
"""

from __future__ import annotations

from threading import local
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

Array = NDArray[Any]

BF16 = np.dtype(np.uint16)
"""How bfloat16 is stored."""

F16 = np.dtype(np.float16)
F32 = np.dtype(np.float32)
F64 = np.dtype(np.float64)

CHUNK = 1 << 14
"""Elements that are rounded at a time: with their scratch they stay in a core's cache."""

_QUIET = np.uint32(0x0040_0000)
"""The bit that makes a NaN a quiet one; set, it survives the cut to 16 bits."""


def is_half(storage: DTypeLike) -> bool:
    """Whether a NumPy type is the storage of one of the two half types."""
    return np.dtype(storage) in (BF16, F16)


def compute_type(storage: DTypeLike) -> np.dtype[np.generic]:
    """The type to compute in for values stored as `storage`: float64 for float64, else float32."""
    return F64 if np.dtype(storage) == F64 else F32


def load(stored: Array, out: Array) -> None:
    """Write stored values to `out` (compute type, same shape, any strides); exact."""
    if stored.dtype == BF16:
        bits = out.view(np.uint32)
        np.copyto(bits, stored)
        np.left_shift(bits, 16, out=bits)
    else:
        np.copyto(out, stored)


def store(values: Array, out: Array) -> None:
    """Round values (compute type) once into the storage of `out`, of the same shape.

    Where `out` is bfloat16 the values are scratch: they are lost.
    """
    if out.dtype == BF16:
        np.copyto(out, _rounded(values), casting="unsafe")
    else:
        np.copyto(out, values, casting="same_kind")


def round_to(values: Array, storage: DTypeLike, spare: Array | None = None) -> None:
    """Round values in place to what the storage type can hold.

    `spare` is float16 memory of their shape, if there is some at hand.
    """
    kind = np.dtype(storage)
    if kind == BF16:
        bits = _rounded(values)
        np.left_shift(bits, 16, out=bits)
    elif kind == F16:
        if spare is None:
            spare = np.empty(values.shape, F16)
        np.copyto(spare, values, casting="same_kind")
        np.copyto(values, spare)


def widened(stored: Array) -> Array:
    """Stored values of any type as users see them: a copy, halves as float32."""
    if not is_half(stored.dtype):
        return stored.copy()
    out: Array = np.empty(stored.shape, F32)
    load(stored, out)
    return out


def narrowed(values: Array, storage: DTypeLike) -> Array:
    """A new array with floating-point values in a storage type; a half one is reached through float32."""
    kind = np.dtype(storage)
    if not is_half(kind):
        return values.astype(kind)
    out: Array = np.empty(values.shape, kind)
    store(values.astype(F32), out)
    return out


class _Spare(local):
    """Scratch of a thread."""

    def __init__(self) -> None:
        self.bits: NDArray[np.uint32] = np.empty(CHUNK, np.uint32)


_spare = _Spare()


def _rounded(values: Array) -> Array:
    """The upper 16 bits after rounding, in place, as uint32.

    Adding 0x7FFF, and one more where the last bit kept is set, carries into the upper half exactly where the nearest
    (of two nearest the even) lies above.
    """
    bits = values.view(np.uint32)
    if bits.flags.c_contiguous:
        flat = bits.reshape(-1)
        for start in range(0, flat.size, CHUNK):
            _round_chunk(flat[start : start + CHUNK], values.reshape(-1)[start : start + CHUNK])
    elif bits.ndim > 1:
        for n in range(bits.shape[0]):
            _rounded(values[n])
    else:
        for start in range(0, bits.size, CHUNK):
            _round_chunk(bits[start : start + CHUNK], values[start : start + CHUNK])
    return bits


def _round_chunk(bits: NDArray[np.uint32], values: Array) -> None:
    odd = _spare.bits[: bits.size]
    # a maximum is NaN if anything is, and costs less than looking at each
    if np.isnan(np.maximum.reduce(values, initial=0)):
        # a NaN must not be carried away: its lower half is cleared, and it has a bit in the upper one
        nan = np.isnan(values)
        np.bitwise_or(bits, _QUIET, out=bits, where=nan)
        np.bitwise_and(bits, np.uint32(0xFFFF_0000), out=bits, where=nan)
    np.right_shift(bits, 16, out=odd)
    np.bitwise_and(odd, 1, out=odd)
    np.add(odd, 0x7FFF, out=odd)
    np.add(bits, odd, out=bits)
    np.right_shift(bits, 16, out=bits)
