"""Half-precision storage: the one seam through which convolutions convert.

float16 is NumPy's own; bfloat16 is stored as uint16 and rounded to the nearest, ties to even. Arithmetic happens
in float32 (float64 for float64 storage).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import DTypeLike

from trc_runtime.cpu.bind import Array

BF16 = np.dtype(np.uint16)
_NAN = np.uint32(0x7FC0)


def compute_type(storage: DTypeLike) -> np.dtype[np.generic]:
    """The type to compute in for values stored as `storage`."""
    return np.dtype(np.float64 if np.dtype(storage) == np.float64 else np.float32)


def load(stored: Array, out: Array) -> None:
    """Write stored values to `out` (compute type, same shape, any strides); exact."""
    if stored.dtype == BF16:
        bits = out.view(np.uint32)
        np.copyto(bits, stored)
        np.left_shift(bits, 16, out=bits)
    else:
        np.copyto(out, stored)


def store(values: Array, out: Array) -> None:
    """Round values (compute type) once into the storage of `out`; the values of bfloat16 results are lost."""
    if out.dtype == BF16:
        np.copyto(out, _rounded(values), casting="unsafe")
    else:
        np.copyto(out, values, casting="same_kind")


def round_to(values: Array, storage: DTypeLike, spare: Array | None) -> None:
    """Round values in place to what the storage type can hold; `spare` is float16 memory of their shape."""
    kind = np.dtype(storage)
    if kind == BF16:
        bits = _rounded(values)
        np.left_shift(bits, 16, out=bits)
    elif kind == np.float16:
        assert spare is not None
        np.copyto(spare, values, casting="same_kind")
        np.copyto(values, spare)


def _rounded(values: Array) -> Array:
    """The upper 16 bits after rounding, in place, as uint32."""
    bits = values.view(np.uint32)
    nan = np.isnan(values)
    odd = (bits >> 16) & 1
    bits += odd
    bits += 0x7FFF
    bits >>= 16
    bits[nan] = _NAN
    return bits
