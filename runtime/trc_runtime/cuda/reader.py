"""The thread that waits for launches, so that the launching thread never does."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

from trc_runtime.cuda._cuda import Event
from trc_runtime.cuda.context import Context
from trc_runtime.cuda.errors import CudaError
from trc_runtime.cuda.ring import Metrics


class Ticket:
    """A launch under way.

    A lock that is held until it is over: making one costs the launching thread a tenth of a `threading.Event`.
    """

    def __init__(self) -> None:
        self._over = False
        self._lock = threading.Lock()
        self._lock.acquire()
        self._metrics: Metrics | None = None
        self._error: BaseException | None = None

    @property
    def done(self) -> bool:
        """Whether the device has finished it."""
        return self._over

    def settle(self) -> None:
        """Wait until it is done (not a call of the driver); raises what went wrong on the device."""
        if not self._over:
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
        self._over = True
        self._lock.release()


_Item = tuple[Event, Ticket, Callable[[], Metrics | None]]


class Reader:
    """Follows launches in order: waits for the event behind each, reads its results, finishes its ticket."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._queue: queue.SimpleQueue[_Item | None] = queue.SimpleQueue()
        self._then: Callable[[], None] | None = None
        self._failed: BaseException | None = None
        self._thread = threading.Thread(target=self._work, name="trc-reader", daemon=True)
        self._thread.start()

    def follow(self, event: Event, ticket: Ticket, results: Callable[[], Metrics | None]) -> None:
        """Finish the ticket with `results()` once the event has passed."""
        self._queue.put((event, ticket, results))

    def _work(self) -> None:
        while (item := self._queue.get()) is not None:
            self._finish(*item)
            del item  # waiting for the next one must not keep this one's memory
        then, self._then = self._then, None
        try:
            if then is not None:
                then()
        except BaseException as err:
            self._failed = err

    def _finish(self, event: Event, ticket: Ticket, results: Callable[[], Metrics | None]) -> None:
        try:
            self._context.use()
            self._context.driver.wait_event(event)
            metrics = results()
        except BaseException as err:
            ticket.finish(None, err)
        else:
            ticket.finish(metrics)
        finally:
            del ticket, results  # an error remembers this call, and would keep them and itself alive in a circle

    def close(self, then: Callable[[], None]) -> None:
        """Finish everything that is under way, end the thread, and let it do what comes `then`, whose error is raised.

        The thread does it because it alone knows when nothing waits for the device any more: Python's collector may
        call this in the reader's own thread, which cannot wait for itself, and Ctrl-C may end the caller's wait.
        """
        self._then = then
        self._queue.put(None)
        if threading.current_thread() is self._thread:
            return
        self._thread.join()
        if self._failed is not None:
            failed, self._failed = self._failed, None
            raise failed
