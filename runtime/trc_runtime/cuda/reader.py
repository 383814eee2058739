"""The thread that waits for launches, so that the launching thread never does."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

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

    @classmethod
    def of(cls, slot: NDArray[Any]) -> Metrics:
        """What a slot of the ring holds, an array of one `slot_type`."""
        loss, top1, top5, flag = slot.item()
        return cls(loss, top1, top5, bool(flag))


def slot_type(places: Mapping[str, tuple[np.dtype[Any], int]], flag: int, size: int) -> np.dtype[Any]:
    """The type of a slot: `places` says where results lie, `flag` where the NaN flag does.

    Results that the plan lacks are read from the slot's last word, which stays zero.
    """
    none = (np.dtype(np.float32), size - 4)
    fields = {name: places.get(name, none) for name in ("loss", "top1", "top5")} | {"flag": (np.dtype(np.int32), flag)}
    formats, offsets = ([f[i] for f in fields.values()] for i in range(2))
    layout: Any = {"names": list(fields), "formats": formats, "offsets": offsets, "itemsize": size}
    return np.dtype(layout)


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
                metrics = results()
            except BaseException as err:
                ticket.finish(None, err)
            else:
                ticket.finish(metrics)

    def close(self) -> None:
        """Finish everything that is under way and end the thread."""
        self._queue.put(None)
        self._thread.join()
