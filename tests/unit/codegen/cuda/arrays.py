"""Random arrays, and what storage leaves of them."""

from __future__ import annotations

import numpy as np

Shape = tuple[int, ...]


def normal(rng: np.random.Generator, shape: Shape, scale: float = 1.0, shift: float = 0.0) -> np.ndarray:
    return (rng.standard_normal(shape) * scale + shift).astype(np.float32)


def rounded(array: np.ndarray, dtype: str) -> np.ndarray:
    """What is left of an array in storage."""
    if dtype == "fp16":
        return array.astype(np.float16).astype(np.float32)
    if dtype == "bf16":
        return ((array.view(np.uint32) + 0x8000) & 0xFFFF0000).view(np.float32)
    return array


def channel(rng: np.random.Generator, c: int, scale: float = 1.0, shift: float = 0.0) -> np.ndarray:
    return normal(rng, (1, 1, 1, c), scale, shift)
