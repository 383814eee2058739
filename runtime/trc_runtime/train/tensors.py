"""The tensors of a session by name, as NumPy copies."""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping
from difflib import get_close_matches
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from trc_runtime.schema.plan import Plan, Tensor
from trc_runtime.schema.regions import AVERAGES, Region, region_range


class _ReadWrite(Protocol):
    def read(self, name: str) -> NDArray[Any]: ...

    def write(self, name: str, array: NDArray[Any]) -> None: ...


class TensorNameError(KeyError):
    """There is no such tensor, or it cannot be seen from outside."""

    def __str__(self) -> str:
        return str(self.args[0])


def is_gradient(tensor: Tensor) -> bool:
    """Whether a tensor is the gradient of a parameter."""
    return Region.G_BN_BIAS.ordinal <= tensor.region.ordinal <= Region.G_DEEP_CONV.ordinal


def is_parameter(tensor: Tensor) -> bool:
    """Whether a tensor is a parameter (master weights)."""
    return Region.W_BN_BIAS.ordinal <= tensor.region.ordinal <= Region.W_DEEP_CONV.ordinal


_AVERAGED = (*region_range(Region.W_BN_BIAS, Region.W_DEEP_CONV), Region.B_PREV_MEAN, Region.B_PREV_VAR)
_AVERAGES = frozenset(AVERAGES[region] for region in _AVERAGED)


def is_averaged(tensor: Tensor) -> bool:
    """Whether a moving average, where the plan keeps one, has a counterpart: parameters and running statistics."""
    return tensor.region in _AVERAGED


def is_average(tensor: Tensor) -> bool:
    """Whether a tensor is such a counterpart. Its name alone does not say so: a layer's tensors may be called `ema`."""
    return tensor.region in _AVERAGES


_COUNTERS = ("iteration", "applied")
"""They index tables."""


class Tensors(MutableMapping[str, NDArray[Any]]):
    """Reading gives a copy in the logical shape; assigning fills the tensor.

    Gradients are those of the last step, without the loss scale. What lives only within a step (activations) is not
    here: its bytes are shared. `changed` is called with the name after a parameter or a running statistic was assigned.
    """

    def __init__(self, plan: Plan, session: _ReadWrite, changed: Callable[[str], None]) -> None:
        self._session = session
        self._changed = changed
        self._state = {t.name: t for t in plan.tensors if not t.region.transient}
        self._transient = {t.name for t in plan.tensors if t.region.transient}

    def _find(self, name: str) -> Tensor:
        if (tensor := self._state.get(name)) is not None:
            return tensor
        if not isinstance(cast(object, name), str):
            raise TensorNameError(f"tensors are found by their names, such as 'fc1.weight', not by {name!r}")
        if name in self._transient:
            raise TensorNameError(f"tensor '{name}' lives only within a step: its memory is shared")
        close = get_close_matches(name, self._state, n=3)
        hint = f"; did you mean {' or '.join(close)}?" if close else ""
        raise TensorNameError(f"there is no tensor '{name}'{hint}")

    def _scale(self) -> float:
        return float(self._session.read("scaling").reshape(-1)[0]) if "scaling" in self._state else 1.0

    def __getitem__(self, name: str) -> NDArray[Any]:
        tensor = self._find(name)
        value = self._session.read(name)
        if is_gradient(tensor) and (scale := self._scale()) != 1:
            value /= scale
        return value

    def __setitem__(self, name: str, value: NDArray[Any]) -> None:
        tensor = self._find(name)
        value = np.asarray(value)
        if name in _COUNTERS and value.size and value.dtype.kind in "iuf" and value.min() < 0:
            raise ValueError(f"tensor '{name}' counts steps: it cannot be {value.min()}")
        if is_gradient(tensor) and (scale := self._scale()) != 1:
            value = value * scale
        self._session.write(name, value)
        if is_averaged(tensor):
            self._changed(name)

    def __delitem__(self, name: str) -> None:
        raise TypeError("tensors of a compiled network cannot be deleted")

    def __contains__(self, name: object) -> bool:
        return name in self._state

    def __iter__(self) -> Iterator[str]:
        return iter(self._state)

    def __len__(self) -> int:
        return len(self._state)
