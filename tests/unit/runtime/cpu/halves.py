"""Half precision in tests: values as they are stored, and how far off one rounding may be."""

from __future__ import annotations

import numpy as np
import torch

KINDS = [np.float32, np.float64, "fp16", "bf16"]
"""Types of a kernel's activations; the two words stand for mixed precision (`plans.run_kernel`)."""

_TORCH = {"fp16": torch.float16, "bf16": torch.bfloat16}
_UNIT = {"fp16": 2.0**-11, "bf16": 2.0**-8}
_SMALLEST = {"fp16": 2.0**-25, "bf16": 2.0**-134}


def is_half(kind: object) -> bool:
    return isinstance(kind, str)


def as_stored(values: np.ndarray, kind: object) -> np.ndarray:
    """Values rounded to a type, in float32 where it is a half one (by PyTorch)."""
    if isinstance(kind, str):
        return torch.tensor(np.asarray(values, np.float32)).to(_TORCH[kind]).float().numpy()
    return np.asarray(values).astype(kind)


def compute_eps(kind: object) -> float:
    """Machine epsilon of the type that is computed in."""
    return float(np.finfo(np.float32 if isinstance(kind, str) else kind).eps)


def one_rounding(kind: object, value: np.ndarray) -> np.ndarray:
    """How far the stored value may lie from the computed one."""
    if isinstance(kind, str):
        return _UNIT[kind] * np.abs(value) * (1 + 2.0**-8) + _SMALLEST[kind]
    return np.zeros_like(value, np.float64)
