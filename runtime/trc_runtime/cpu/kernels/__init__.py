"""The kernels of the CPU target, one file a family."""

from __future__ import annotations

from importlib import import_module

FAMILIES = (
    *("activation", "conv", "copy", "dense", "dropout", "ema", "input", "loss", "metrics", "norm", "optimizer"),
    *("pool", "scalars"),
)
"""The files; importing one registers its kernels."""


def load() -> None:
    """Register all kernels of this package."""
    for family in FAMILIES:
        import_module(f"{__name__}.{family}")
