"""The arena: one aligned allocation that holds every tensor of a plan."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from trc_runtime.schema.plan import Plan
from trc_runtime.schema.regions import SLOT_ALIGNMENT

LARGEST = 5
"""How many regions and tensors the error for a lack of memory lists."""


class ArenaError(MemoryError):
    """The machine has not enough free memory for a plan."""


def allocate(plan: Plan, available: int | None = None) -> NDArray[np.uint8]:
    """`plan.total` zero bytes that begin at a multiple of 256.

    `available` (bytes) stands in for what the machine has free; by default the system is asked. ArenaError shows
    the bytes needed and available and the largest regions and tensors.
    """
    free = available_bytes() if available is None else available
    if free is not None and plan.total + SLOT_ALIGNMENT > free:
        raise ArenaError(_shortage(plan, free))
    try:
        memory = np.zeros(plan.total + SLOT_ALIGNMENT, np.uint8)
    except MemoryError:
        raise ArenaError(_shortage(plan, free)) from None
    start = -memory.ctypes.data % SLOT_ALIGNMENT
    return memory[start : start + plan.total]


def available_bytes() -> int | None:
    """Bytes that can be allocated without swapping, control groups included; None where the system does not say."""
    bounds = [b for b in (_system_available(), _group_available()) if b is not None]
    return min(bounds, default=None)


def _system_available() -> int | None:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    try:  # not Linux: the physical memory is an upper bound
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return None


def _group_available() -> int | None:
    """What the control group of this process (version 2, or version 1's root) leaves; None without a limit."""
    for limit, used, stat, cache in (
        ("memory.max", "memory.current", "memory.stat", "inactive_file"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat", "total_inactive_file"),
    ):
        root = Path("/sys/fs/cgroup")
        try:
            text = (root / limit).read_text().strip()
            if text == "max":
                return None
            # the page cache counts as used, but is given back on demand
            reclaimable = 0
            for line in (root / stat).read_text().splitlines():
                if line.startswith(f"{cache} "):
                    reclaimable = int(line.split()[1])
            return max(0, int(text) - int((root / used).read_text()) + reclaimable)
        except (OSError, ValueError, IndexError):
            continue
    return None


def format_bytes(count: int) -> str:
    """A number of bytes in binary units, for messages."""
    size, unit = float(count), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if size < 1024:
            break
        size, unit = size / 1024, larger
    return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"


def _shortage(plan: Plan, free: int | None) -> str:
    known = "an unknown amount" if free is None else f"{format_bytes(free)} ({free} bytes)"
    spans = sorted(plan.spans, key=lambda s: (-s.bytes, s.offset))[:LARGEST]
    tensors = sorted(plan.tensors, key=lambda t: (-t.slot, t.offset))[:LARGEST]
    lines = [
        f"not enough memory for the plan '{plan.name}': it needs {format_bytes(plan.total)} ({plan.total} bytes), "
        f"available is {known}",
        "largest regions: " + ", ".join(f"{s.name} {format_bytes(s.bytes)}" for s in spans),
        "largest tensors: " + ", ".join(f"{t.name} {format_bytes(t.slot)}" for t in tensors),
        "a smaller batch or resolution needs less",
    ]
    return "\n".join(lines)
