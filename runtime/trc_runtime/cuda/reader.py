"""The thread that waits for launches, so that the launching thread never does."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue

from trc_runtime.cuda.context import Context
from trc_runtime.cuda.launches import Lane


class Reader:
    """Follows launches in order: waits for the event behind each, reads its results, finishes its ticket.

    It sleeps until somebody asks for a ticket that is not over, and then works until nothing is under way. Waking a
    thread for every launch would cost the launching thread more than all the rest (a system call, on virtual machines
    an interrupt of another processor).
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self.pending: deque[Lane] = deque()
        """What has been launched and has to be finished, in order; the launching thread appends."""
        # Whoever puts may be interrupted by Python's collector, which may put too: SimpleQueue allows it, locks do not.
        self._calls: SimpleQueue[bool] = SimpleQueue()
        self._then: Callable[[], None] | None = None
        self._failed: BaseException | None = None
        self._thread = threading.Thread(target=self._work, name="trc-reader", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Finish what is under way; a call that the reader has not heard yet does for all."""
        if self._calls.empty():
            self._calls.put(True)

    def _work(self) -> None:
        going = True
        while going:
            going = self._calls.get()
            while self.pending:
                self._finish(self.pending.popleft())
        then, self._then = self._then, None
        try:
            if then is not None:
                then()
        except BaseException as err:
            self._failed = err

    def _finish(self, lane: Lane) -> None:
        """Wait for a launch and finish its ticket, with an error where one occurs."""
        try:
            self._context.use()
            self._context.driver.wait_event(lane.event)
            metrics = lane.metrics()
        except BaseException as err:
            lane.finish(None, err)
        else:
            lane.finish(metrics)
        finally:
            del lane  # an error remembers this call, and would keep it alive

    def close(self, then: Callable[[], None]) -> None:
        """Finish everything that is under way, end the thread, and let it do what comes `then`, whose error is raised.

        The thread does it because it alone knows when nothing waits for the device any more: Python's collector may
        call this in the reader's own thread, which cannot wait for itself, and Ctrl-C may end the caller's wait.
        """
        self._then = then
        self._calls.put(False)
        if threading.current_thread() is self._thread:
            return
        self._thread.join()
        if self._failed is not None:
            failed, self._failed = self._failed, None
            raise failed
