"""The arithmetic of `Normalise`: x * scale + shift, product and sum each rounded once to the type computed in."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from trc_runtime.schema.config import Normalise
from trc_runtime.schema.dtypes import DType, Precision

WHITE = 255
"""The largest pixel."""

_LARGEST_F16 = float(np.finfo(np.float16).max)


def scale_and_shift(normalise: Normalise, dtype: np.dtype[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """The same as x * scale + shift, with scale = 1 / (255 std) and shift = -mean / std, one number a channel.

    Computed in float64 and rounded once to `dtype`.
    """
    mean, std = np.array(normalise.mean), np.array(normalise.std)
    scale, shift = 1 / (WHITE * std), -mean / std
    return scale.astype(dtype), shift.astype(dtype)


def normalised(images: NDArray[np.uint8], normalise: Normalise, dtype: type[np.floating] = np.float32) -> NDArray[Any]:
    """A normalised copy of images [n, h, w, c]."""
    scale, shift = scale_and_shift(normalise, np.dtype(dtype))
    return images * scale + shift


def too_large_problem(normalise: Normalise, precision: Precision) -> str | None:
    """Why pixels do not fit the type that a precision computes in, and what to do; None where they do."""
    if precision.compute is not DType.F16 or (largest := largest_pixel(normalise)) <= _LARGEST_F16:
        return None
    return (
        f"normalise makes pixels of up to {largest:.6g}, beyond {_LARGEST_F16:.0f}, the largest number of "
        f"{precision.value}: take a larger std, or amp-bf16"
    )


def largest_pixel(normalise: Normalise) -> float:
    """The largest absolute value that a pixel can become."""
    scale, shift = scale_and_shift(normalise, np.dtype(np.float64))
    return float(np.maximum(np.abs(shift), np.abs(WHITE * scale + shift)).max())
