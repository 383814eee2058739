"""Half-precision storage on the CPU: the one module that converts.

float16 is NumPy's own type; bfloat16, which NumPy lacks, is stored as uint16 (the upper half of a float32) and rounded
to the nearest, ties to even; a NaN stays a NaN of the same sign. Arithmetic on half tensors happens in float32: kernels
`load` a block into scratch, compute, and `store` the result, which is its only rounding. Where the system has a C
compiler larger blocks are converted by compiled code, to the same bits (but those of a NaN).
"""

from __future__ import annotations

from threading import local
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from trc_runtime.cpu.rows.library import kind_of, library, rows_of

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
    if stored.dtype not in (BF16, F16) or not _compiled("trc_load", stored, stored, out):
        if stored.dtype == BF16:
            bits = out.view(np.uint32)
            np.copyto(bits, stored)
            np.left_shift(bits, 16, out=bits)
        else:
            np.copyto(out, stored)


def store(values: Array, out: Array) -> None:
    """Round values (compute type) once into the storage of `out`, of the same shape.

    Where `out` is bfloat16 the values are scratch: they may be lost.
    """
    if out.dtype not in (BF16, F16) or not _compiled("trc_store", out, values, out):
        if out.dtype == BF16:
            np.copyto(out, _rounded(values), casting="unsafe")
        else:
            np.copyto(out, values, casting="same_kind")


def store_copy(values: Array, out: Array, spare: Array) -> None:
    """As `store`, but the values stay as they are; `spare` is memory of their shape and type."""
    if not _compiled("trc_store", out, values, out):
        np.copyto(spare, values)
        store(spare, out)


def round_to(values: Array, storage: DTypeLike, spare: Array | None = None) -> None:
    """Round float32 values in place to what the storage type can hold.

    `spare` is memory of that type and of their shape, if there is some at hand.
    """
    kind = np.dtype(storage)
    if not is_half(kind):
        return
    if spare is not None:
        store(values, spare)
        load(spare, values)
    elif values.flags.c_contiguous or values.ndim == 1:
        flat = values.reshape(-1)
        for start in range(0, flat.size, CHUNK):
            piece = flat[start : start + CHUNK]
            room = _spare.half[: piece.size].view(kind)
            store(piece, room)
            load(room, piece)
    else:
        for part in values:
            round_to(part, kind)


LEAST = 1 << 9
"""Elements below which NumPy is faster than a call of the compiled library."""


def _compiled(name: str, stored: Array, source: Array, target: Array) -> bool:
    """Convert by the compiled library; False where it does not come or does not pay."""
    if stored.size < LEAST or source.shape != target.shape:
        return False
    found = library()
    if found is None or F64 in (source.dtype, target.dtype):
        return False
    a, b = rows_of(source), rows_of(target)
    if a is None or b is None:
        return False
    if a[:2] != b[:2]:  # one of them is dense: it has rows as the other
        count, channels = max(a, b)[:2]
        a, b = (x if x[0] == count else (count, channels, channels) for x in (a, b))
    getattr(found, name)(kind_of(stored.dtype), source.ctypes.data, a[2], target.ctypes.data, b[2], a[0], a[1])
    return True


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
        self.half: NDArray[np.uint16] = np.empty(CHUNK, np.uint16)


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
