"""What it took to make a session ready."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Report:
    """What it took to make a session ready; times in seconds, memory in bytes."""

    device: str
    architecture: str
    seconds: Mapping[str, float]
    cubin_hit: bool
    kernels: int
    definitions: int
    captured: int
    executables: int
    arena: int
    scratch: int
    engines: Mapping[str, str]


@dataclass
class Clock:
    """Times of the parts of the start."""

    seconds: dict[str, float] = field(default_factory=dict[str, float])
    began: float = field(default_factory=time.perf_counter)

    def lap(self, name: str) -> None:
        """Count the time since the last lap for a part."""
        now = time.perf_counter()
        self.seconds[name] = self.seconds.get(name, 0.0) + now - self.began
        self.began = now
