"""The moving average of a plan's weights, as the loop sees it: which tensors it has, and when it begins anew."""

from __future__ import annotations

from typing import Any, Protocol

from numpy.typing import NDArray

from trc_runtime.schema.plan import Plan
from trc_runtime.schema.regions import AVERAGE_SUFFIX
from trc_runtime.train.tensors import is_average, is_averaged


class AverageError(ValueError):
    """A moving average is asked for where there is none."""


class _ReadWrite(Protocol):
    def read(self, name: str) -> NDArray[Any]: ...

    def write(self, name: str, array: NDArray[Any]) -> None: ...


def average_name(name: str) -> str:
    """The name of a tensor's moving average."""
    return f"{name}{AVERAGE_SUFFIX}"


class Average:
    """Parameters and running statistics with their averages; false for a plan that keeps none."""

    def __init__(self, plan: Plan) -> None:
        kept = {t.name for t in plan.tensors if is_average(t)}
        self.names = tuple(t.name for t in plan.tensors if is_averaged(t) and average_name(t.name) in kept)
        """What is averaged, in the plan's order."""

    def __bool__(self) -> bool:
        return bool(self.names)

    def require(self) -> None:
        """AverageError for a plan without one."""
        if not self:
            raise AverageError(
                "the network keeps no moving average of its weights: compile it with ema=trc.EMA(0.999) (--ema 0.999)"
            )

    def restart(self, session: _ReadWrite) -> None:
        """Make every average equal to what it is the average of."""
        for name in self.names:
            self.follow(session, name)

    def follow(self, session: _ReadWrite, name: str) -> None:
        """Make a tensor's average, if it has one, equal to it."""
        if name in self.names:
            session.write(average_name(name), session.read(name))
