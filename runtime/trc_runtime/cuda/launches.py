"""Launches that are ready, the lanes that take turns, their tickets, and what it took to make them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from trc_runtime.cuda._cuda import Event
from trc_runtime.cuda.errors import CudaError
from trc_runtime.cuda.graph import Built
from trc_runtime.cuda.host import StagedInput
from trc_runtime.cuda.link import Copy
from trc_runtime.cuda.order import Order
from trc_runtime.cuda.ring import Metrics

LANES = 2
"""Copies of each launch's graph. A launch needs the results of the last but one of its kind to have been read, so that
the device has the next one while the host reads."""


class Ticket:
    """A launch, under way or still to come."""

    __slots__ = ("_error", "_lock", "_metrics", "_over", "_wake", "clear")

    def __init__(self, wake: Callable[[], None]) -> None:
        self.clear = False
        """Whether it is over and nothing went wrong."""
        self._wake = wake
        self._over = False
        self._lock = threading.Lock()  # held until it is over
        self._lock.acquire()
        self._metrics: Metrics | None = None
        self._error: BaseException | None = None

    @property
    def done(self) -> bool:
        """Whether it is over; does not wait."""
        if not self._over:
            self._wake()
        return self._over

    def settle(self) -> None:
        """Wait until it is over (not a call of the driver); CudaError with what went wrong on the device."""
        if not self._over:
            self._wake()
            with self._lock:
                pass
        if self._error is not None:
            raise CudaError(f"a launch failed: {self._error}") from self._error

    def wait(self) -> Metrics | None:
        """Wait, and return the batch's results (None for a launch without)."""
        self.settle()
        return self._metrics

    def finish(self, metrics: Metrics | None, error: BaseException | None = None) -> None:
        """Say that it is over, once; the reader's business."""
        self._metrics, self._error = metrics, error
        self.clear = error is None
        self._over = True
        self._lock.release()


class Lane:
    """One copy of a launch: its graph (None in per-kernel mode), its place in the ring, and its tickets.

    `last` is the ticket of the launch under way or before, `coming` that of the next.
    """

    def __init__(
        self,
        built: Built | None,
        copies: tuple[Copy, ...],
        results: NDArray[Any] | None,
        event: Event,
        wake: Callable[[], None],
    ) -> None:
        self.built = built
        self.copies = copies
        self.event = event
        self._results = results
        self._wake = wake
        self.last = Ticket(wake)
        self.last.finish(None)
        self.coming = Ticket(wake)

    def finish(self, metrics: Metrics | None, error: BaseException | None = None) -> None:
        """Say that the launch under way is over; the reader's business.

        It makes the next ticket too, because the launching thread has little time.
        """
        self.coming = Ticket(self._wake)
        self.last.finish(metrics, error)

    def metrics(self) -> Metrics | None:
        """What lies in its place in the ring."""
        return None if self._results is None else Metrics.of(self._results)


@dataclass
class Executable:
    """One launch, ready. Its lanes take turns; `inputs` are the input buffers that it reads."""

    order: Order
    inputs: tuple[StagedInput, ...]
    lanes: tuple[Lane, ...]
    turn: int = 0

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
