"""The thread that waits for launches, so that the launching thread never does."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass

from trc_runtime.cuda._cuda import Event
from trc_runtime.cuda.context import Context
from trc_runtime.cuda.errors import CudaError


@dataclass(frozen=True)
class Metrics:
    """Results of a batch: mean loss, how many were right, how many among the best five, whether it was skipped."""

    loss: float
    top1: float
    top5: float
    skipped: bool


class Ticket:
    """A launch under way."""

    def __init__(self) -> None:
        self._over = threading.Event()
        self._metrics: Metrics | None = None
        self._error: BaseException | None = None

    @property
    def done(self) -> bool:
        """Whether the device has finished it."""
        return self._over.is_set()

    def settle(self) -> None:
        """Wait until it is done (not a call of the driver); raises what went wrong on the device."""
        self._over.wait()
        if self._error is not None:
            raise CudaError(f"a launch failed: {self._error}") from self._error

    def wait(self) -> Metrics | None:
        """Wait, and return the batch's results (None for a launch without)."""
        self.settle()
        return self._metrics

    def finish(self, metrics: Metrics | None, error: BaseException | None = None) -> None:
        """Say that it is over; the reader's business."""
        self._metrics, self._error = metrics, error
        self._over.set()


_Item = tuple[Event, Ticket, Callable[[], Metrics | None]]


class Reader:
    """Follows launches in order: waits for the event behind each, reads its results, finishes its ticket."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._queue: queue.SimpleQueue[_Item | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="trc-reader", daemon=True)
        self._thread.start()

    def follow(self, event: Event, ticket: Ticket, results: Callable[[], Metrics | None]) -> None:
        """Finish the ticket with `results()` once the event has passed."""
        self._queue.put((event, ticket, results))

    def _work(self) -> None:
        while (item := self._queue.get()) is not None:
            event, ticket, results = item
            try:
                self._context.use()
                self._context.driver.wait_event(event)
                ticket.finish(results())
            except BaseException as err:
                ticket.finish(None, err)

    def close(self) -> None:
        """Finish everything that is under way and end the thread."""
        self._queue.put(None)
        self._thread.join()
