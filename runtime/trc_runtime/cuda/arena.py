"""The device's arena: one allocation that holds every tensor of a plan and the scratch memory of its nodes."""

from __future__ import annotations

from contextlib import suppress

from trc_runtime.cpu.arena import LARGEST, ArenaError, format_bytes
from trc_runtime.cuda._cuda import OUT_OF_MEMORY, Driver, Stream
from trc_runtime.cuda.errors import DriverCallError
from trc_runtime.schema.plan import Plan
from trc_runtime.schema.regions import SLOT_ALIGNMENT, align_up


class DeviceArena:
    """Device memory of `plan.total` bytes, followed by `scratch` bytes that belong to no tensor; all zero.

    ArenaError, which shows the bytes needed and free and the largest regions, where the device has too little.
    """

    def __init__(self, driver: Driver, plan: Plan, scratch: int, stream: Stream) -> None:
        self._driver = driver
        self.tensors = plan.total
        self.size = max(align_up(plan.total, SLOT_ALIGNMENT) + scratch, SLOT_ALIGNMENT)
        free, total = driver.memory()
        check_room(plan, scratch, self.size, free, total)
        try:
            self.address = driver.allocate(self.size)
        except DriverCallError as err:
            if err.code != OUT_OF_MEMORY:
                raise
            raise ArenaError(shortage(plan, scratch, self.size, free, total)) from None
        try:
            driver.zero(self.address, self.size, stream)
            driver.synchronize(stream)
        except BaseException:
            with suppress(Exception):  # the first error is the one to show
                self.close()
            raise

    @property
    def scratch(self) -> int:
        """The address of the scratch memory."""
        return self.address + align_up(self.tensors, SLOT_ALIGNMENT)

    def close(self) -> None:
        """Free the memory; once."""
        if self.address:
            address, self.address = self.address, 0
            self._driver.free(address)


def check_room(plan: Plan, scratch: int, size: int, free: int, total: int) -> None:
    """ArenaError where `size` bytes are more than the device has free."""
    if size > free:
        raise ArenaError(shortage(plan, scratch, size, free, total))


def shortage(plan: Plan, scratch: int, size: int, free: int, total: int) -> str:
    """The message for too little device memory."""
    spans = sorted(plan.spans, key=lambda s: (-s.bytes, s.offset))[:LARGEST]
    regions = ", ".join(f"{s.name} {format_bytes(s.bytes)}" for s in spans)
    more = f", {format_bytes(scratch)} of it workspaces" if scratch else ""
    first = _too_little(f"the plan '{plan.name}'", size, free, total, more)
    return f"{first}\nlargest regions: {regions}\n{_ADVICE}"


def allocate(driver: Driver, size: int, what: str) -> int:
    """Device memory beside the arena; ArenaError, which names `what` it is for, where the device has too little."""
    free, total = driver.memory()
    if size <= free:
        try:
            return driver.allocate(size)
        except DriverCallError as err:
            if err.code != OUT_OF_MEMORY:
                raise
    raise ArenaError(f"{_too_little(what, size, free, total)}; {_ADVICE}")


_ADVICE = "a smaller batch or resolution needs less"


def _too_little(what: str, size: int, free: int, total: int, more: str = "") -> str:
    return (
        f"not enough GPU memory for {what}: it needs {format_bytes(size)} ({size} bytes{more}), free are "
        f"{format_bytes(free)} ({free} bytes) of {format_bytes(total)}"
    )
