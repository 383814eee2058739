"""Whether a node is computed in C or in NumPy."""

from __future__ import annotations

from trc_runtime.cpu.bind import Array
from trc_runtime.cpu.conv import engine
from trc_runtime.cpu.rows import compiled


def uses_compiled(array: Array) -> bool:
    """Whether nodes that read this array are computed in C: where convolutions are, and in float32."""
    return engine.choice().engine == "native" and compiled.takes(array)
