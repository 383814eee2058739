"""The arithmetic of `Normalise`: x * scale + shift, product and sum each rounded once to the type computed in."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from trc_runtime.schema.config import Normalise

WHITE = 255
"""The largest pixel."""


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


def largest_pixel(normalise: Normalise) -> float:
    """The largest absolute value that a pixel can become."""
    scale, shift = scale_and_shift(normalise, np.dtype(np.float64))
    return float(np.maximum(np.abs(shift), np.abs(WHITE * scale + shift)).max())
