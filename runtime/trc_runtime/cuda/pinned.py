"""Page-locked host memory that lives as long as the arrays that lie in it."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from trc_runtime.cpu.arena import ArenaError, format_bytes
from trc_runtime.cuda._cuda import OUT_OF_MEMORY
from trc_runtime.cuda.errors import DriverCallError
from trc_runtime.cuda.release import release

if TYPE_CHECKING:
    from trc_runtime.cuda.context import Context


class _Block:
    """Page-locked memory as NumPy sees it. Arrays hold it, and the last one that goes frees it.

    Users are given such arrays and may keep them for longer than the session, so a block holds the device's context by
    itself. No container that Python's collector knows refers to it, only arrays do: it is not collected before them.
    """

    def __init__(self, context: Context, size: int) -> None:
        self._driver = driver = context.driver
        self._device = context.device
        self._context = driver.retain_context(context.device)
        try:
            self._address = driver.allocate_pinned(size)
        except BaseException:
            driver.release_context(context.device)
            raise
        self.__array_interface__: dict[str, Any] = {
            "version": 3, "typestr": "|u1", "shape": (size,), "data": (self._address, False)
        }  # fmt: skip

    def __del__(self) -> None:
        if not hasattr(self, "_address"):
            return
        with suppress(Exception):  # a destructor has nobody to tell
            release([self._free, partial(self._driver.release_context, self._device)])

    def _free(self) -> None:
        with self._driver.current(self._context):
            self._driver.free_pinned(self._address)


def pinned(context: Context, size: int, what: str) -> NDArray[np.uint8]:
    """Page-locked host memory of `size` bytes, all zero. Its address is `.ctypes.data`.

    ArenaError, which names `what` it is for, where the machine has too little.
    """
    try:
        memory: NDArray[np.uint8] = np.asarray(_Block(context, max(size, 1)))
    except DriverCallError as err:
        if err.code != OUT_OF_MEMORY:
            raise
        raise ArenaError(
            f"not enough page-locked host memory for {what}: it needs {format_bytes(size)} ({size} bytes); a smaller "
            "batch or resolution needs less"
        ) from None
    memory.fill(0)
    return memory
