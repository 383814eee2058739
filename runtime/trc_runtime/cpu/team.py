"""Threads that share the blocks of one node.

BLAS has threads of its own; NumPy's elementwise operations have none, but let others run meanwhile. So a node of
many independent blocks deals them out. Each block is computed as it would be by one thread, hence the bytes of the
result do not depend on the number of threads.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np

T = TypeVar("T")


def thread_count() -> int:
    """The threads that elementwise nodes use: the processors of this process, or fewer if BLAS is told fewer."""
    try:
        count = len(os.sched_getaffinity(0))
    except AttributeError:  # not on every system
        count = os.cpu_count() or 1
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
        text = os.environ.get(name, "")
        if text.isdecimal() and int(text) > 0:
            return min(count, int(text))
    return count


class Team:
    """A few threads that start with the first shared work and end with the session."""

    def __init__(self, threads: int | None = None) -> None:
        self.threads = thread_count() if threads is None else threads
        self._pool: ThreadPoolExecutor | None = None

    def size(self, items: int, least: int = 4) -> int:
        """How many threads so many items are worth: no thread for fewer than `least`."""
        return max(1, min(self.threads, items // least))

    def run(self, work: Callable[[int, Iterator[T]], None], items: Sequence[T], threads: int) -> None:
        """Call `work(thread, iterator)` in `threads` threads, this one included, and wait for all.

        All take from the same iterator, so that a thread that does not get a processor holds up nobody.
        """
        queue = iter(items)
        if threads == 1:
            work(0, queue)
            return
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.threads - 1, thread_name_prefix="trc-cpu")

        def quietly(thread: int) -> None:
            with np.errstate(all="ignore"):  # a setting of each thread
                work(thread, queue)

        others = [self._pool.submit(quietly, thread) for thread in range(1, threads)]
        try:
            work(0, queue)
        finally:
            for other in others:
                if not other.cancel():
                    other.result()
