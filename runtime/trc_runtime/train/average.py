"""The moving average of a plan's weights, as the loop sees it: which tensors it has, and when it begins anew."""

from __future__ import annotations

from typing import Any, Protocol

from numpy.typing import NDArray

from trc_runtime.schema.plan import Plan, Tensor
from trc_runtime.schema.regions import AVERAGE_SUFFIX, Region, region_range
from trc_runtime.train.tensors import is_averaged

_AVERAGES = frozenset(
    (*region_range(Region.E_BN_BIAS, Region.E_DEEP_CONV), Region.E_STAT_MEAN, Region.E_STAT_VAR),
)


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
        kept = {t.name for t in plan.tensors if t.region in _AVERAGES}
        self._averaged: dict[str, Tensor] = {
            t.name: t for t in plan.tensors if is_averaged(t) and average_name(t.name) in kept
        }

    def __bool__(self) -> bool:
        return bool(self._averaged)

    def require(self) -> None:
        """AverageError for a plan without one."""
        if not self:
            raise AverageError(
                "the network keeps no moving average of its weights: compile it with ema=trc.EMA(0.999) (--ema 0.999)"
            )

    def restart(self, session: _ReadWrite) -> None:
        """Make every average equal to what it is the average of."""
        for name in self._averaged:
            self.follow(session, name)

    def follow(self, session: _ReadWrite, name: str) -> None:
        """Make a tensor's average, if it has one, equal to it."""
        if name in self._averaged:
            session.write(average_name(name), session.read(name))
