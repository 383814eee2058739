"""Threads that share the independent blocks of one node.

Compiled code and NumPy's elementwise operations let other threads run meanwhile. Each block is computed as it would
be by one thread, hence the bytes of the result do not depend on the number of threads.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TypeVar

import numpy as np

T = TypeVar("T")


@cache
def thread_count() -> int:
    """The threads that a node may use: the processors of this process, or fewer if BLAS is told fewer."""
    try:
        count = len(os.sched_getaffinity(0))
    except AttributeError:  # not on every system
        count = os.cpu_count() or 1
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
        text = os.environ.get(name, "")
        if text.isdecimal() and int(text) > 0:
            return min(count, int(text))
    return count


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="trc-conv")


def run(work: Callable[[int, Iterator[T]], None], items: Sequence[T], threads: int) -> None:
    """Call `work(thread, iterator)` in `threads` threads, this one included, and wait for all.

    All take from the same iterator, so that a thread that does not get a processor holds up nobody.
    """
    queue = iter(items)
    if threads <= 1 or len(items) <= 1:
        work(0, queue)
        return

    def quietly(thread: int) -> None:
        with np.errstate(all="ignore"):  # a setting of each thread
            work(thread, queue)

    pool = _pool(threads - 1)
    others = [pool.submit(quietly, thread) for thread in range(1, threads)]
    try:
        work(0, queue)
    finally:
        for other in others:
            if not other.cancel():
                other.result()
