"""The pinned ring through which a launch's results reach the host, and what they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trc_runtime.cuda.context import Context
from trc_runtime.cuda.errors import CudaError
from trc_runtime.cuda.link import Copy
from trc_runtime.cuda.order import FLAG, result_tensors
from trc_runtime.cuda.pinned import pinned
from trc_runtime.schema.plan import Plan
from trc_runtime.schema.regions import SLOT_ALIGNMENT, Region, align_up

SLOTS = 512
"""Launches that can have results of their own."""


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


class Ring:
    """Slots for results: the bytes of R_RESULT as they lie in the arena (at address `arena`), then the NaN flag."""

    def __init__(self, context: Context, plan: Plan, arena: int) -> None:
        tensors = [plan.tensors[i] for i in result_tensors(plan)]
        values = [t for t in tensors if t.region is Region.R_RESULT]
        self._arena = arena
        self._begin = min((t.offset for t in values), default=0)
        self._span = max((t.offset + t.dtype.itemsize for t in values), default=0) - self._begin
        self._flag = next((t for t in tensors if t.name == FLAG), None)
        self._flag_at = align_up(self._span, SLOT_ALIGNMENT)
        self._size = self._flag_at + SLOT_ALIGNMENT
        places = {t.name: (t.dtype.numpy, t.offset - self._begin) for t in values}
        self._type = slot_type(places, self._flag_at, self._size)
        self._memory = pinned(context, SLOTS * self._size, "the results of launches") if values else None
        self._used = 0

    def slot(self) -> tuple[NDArray[Any] | None, tuple[Copy, ...]]:
        """A free slot and the copies that fill it; (None, ()) for a plan without results."""
        if self._memory is None:
            return None, ()
        if self._used == SLOTS:
            raise CudaError(f"more than {SLOTS} launches with results of their own")
        memory = self._memory[self._used * self._size :][: self._size]
        self._used += 1
        target = memory.ctypes.data
        copies = [Copy(target, self._arena + self._begin, self._span, "to_host")]
        if self._flag is not None:
            source = self._arena + self._flag.offset
            copies.append(Copy(target + self._flag_at, source, self._flag.dtype.itemsize, "to_host"))
        return memory.view(self._type), tuple(copies)
