"""Launches that are ready, the lanes that take turns, and their tickets."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from numpy.typing import NDArray

from trc_runtime.cuda._cuda import Event
from trc_runtime.cuda.errors import CudaError
from trc_runtime.cuda.host import StagedInput
from trc_runtime.cuda.order import Order
from trc_runtime.cuda.ring import Metrics

LANES = 2
"""Copies of each launch's graph. A launch needs the results of the last but one of its kind to have been read, so that
the device has the next one while the host reads. `Executable` swaps them."""


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


class Closed(Ticket):
    """What stands for the last launch of a session that is closed: there is no next one."""

    __slots__ = ()

    def settle(self) -> None:
        """Say so."""
        raise CudaError("the session is closed")


class Lane:
    """One copy of a launch: what starts it, its place in the ring, and its tickets.

    `start` is one call of the driver, but in per-kernel mode. `last` is the ticket of the launch under way or before,
    `coming` that of the next; `past` is kept for the reader to drop.
    """

    __slots__ = ("_results", "_wake", "coming", "event", "last", "past", "start")

    def __init__(
        self,
        start: Callable[[], None],
        results: NDArray[Any] | None,
        event: Event,
        wake: Callable[[], None],
    ) -> None:
        self.start = start
        self.event = event
        self._results = results
        self._wake = wake
        self.past: Ticket | None = None
        self.last = Ticket(wake)
        self.last.finish(None)
        self.coming = Ticket(wake)

    def finish(self, metrics: Metrics | None, error: BaseException | None = None) -> None:
        """Say that the launch under way is over; the reader's business.

        It makes the next ticket too and drops the last but one, because the launching thread has little time.
        """
        self.past = None
        self.coming = Ticket(self._wake)
        self.last.finish(metrics, error)

    def metrics(self) -> Metrics | None:
        """What lies in its place in the ring."""
        return None if self._results is None else Metrics.of(self._results)


class Executable:
    """One launch, ready. Its two lanes take turns.

    `inputs` are the input buffers that it reads, `pending` the reader's queue, `nodes` the graph's (`Built.nodes`).
    """

    __slots__ = ("_append", "_lane", "_other", "inputs", "nodes", "order")

    def __init__(
        self,
        order: Order,
        inputs: tuple[StagedInput, ...],
        lanes: tuple[Lane, Lane],
        pending: deque[Lane],
        nodes: tuple[int, ...],
    ) -> None:
        self.order = order
        self.inputs = inputs
        self.nodes = nodes
        self._lane, self._other = lanes
        self._append = pending.append

    def launch(self) -> Ticket:
        """Launch it and return at once.

        The caller waits only where the last but one launch has not been read yet, which keeps the host from running
        ahead. CudaError where that one failed, and after the session's end.
        """
        # Few objects and one call of the driver: after a sleep of 30 ms everything that is touched has left the caches,
        # and an empty Python call takes 5 us (H200's host).
        lane = self._lane
        if not lane.last.clear:
            lane.last.settle()  # its slot in the ring must have been read
        for staged in self.inputs:
            if staged.dirty is not None:
                staged.pack()
        ticket = lane.coming
        try:
            lane.start()
        finally:  # Ctrl-C comes out of the driver's call when that has launched already
            lane.past = lane.last
            lane.last = ticket
            self._append(lane)  # before anybody can wait for it
            for staged in self.inputs:
                staged.reading = ticket
            self._lane = self._other
            self._other = lane
        return ticket

    @property
    def latest(self) -> Lane:
        """The lane that was launched last."""
        return self._other

    def close(self) -> None:
        """Launch no more."""
        self._lane = self._other = Lane(_nothing, None, self._lane.event, _nothing)
        self._lane.last = Closed(_nothing)


def _nothing() -> None:
    """What a closed launch starts."""
