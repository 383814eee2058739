"""Launches that are ready: the lanes that take turns, and what it took to make them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from trc_runtime.cuda._cuda import Event
from trc_runtime.cuda.graph import Built
from trc_runtime.cuda.link import Copy
from trc_runtime.cuda.order import Order
from trc_runtime.cuda.reader import Ticket
from trc_runtime.cuda.ring import Metrics

LANES = 2
"""Copies of each launch's graph. A launch needs the results of the last but one of its kind to have been read, so that
the device has the next one while the host reads."""


@dataclass
class Lane:
    """One copy of a launch: its graph (None in per-kernel mode), its place in the ring, and the launch under way."""

    built: Built | None
    copies: tuple[Copy, ...]
    results: NDArray[Any] | None
    event: Event
    last: Ticket | None = None

    def metrics(self) -> Metrics | None:
        """What lies in its place in the ring."""
        return None if self.results is None else Metrics.of(self.results)


@dataclass
class Executable:
    """One launch, ready. Its lanes take turns; `buffers` are the input buffers that it reads."""

    order: Order
    buffers: tuple[str, ...]
    lanes: tuple[Lane, ...]
    turn: int = 0

    def next(self) -> Lane:
        """The lane whose turn it is."""
        lane = self.lanes[self.turn]
        self.turn = (self.turn + 1) % len(self.lanes)
        return lane

    @property
    def latest(self) -> Lane:
        """The lane that was launched last."""
        return self.lanes[self.turn - 1]


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
