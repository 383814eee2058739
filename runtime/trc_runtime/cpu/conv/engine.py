"""Which engine computes convolutions, and how to choose.

- "native": C compiled by the system's compiler, float32 arithmetic; what it does not take (`native.refusal`) is
  computed by NumPy;
- "numpy": NumPy alone, complete, the reference.

`TRC_CPU_CONV` chooses: "auto" (the default: native where a compiler is found), "native" (an error where there is
none) or "numpy". The choice is made when the first convolution is bound, logged once by the logger "trc.cpu", and
`choice()` tells it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

from trc_runtime.cpu.bind import Array, BoundNode
from trc_runtime.cpu.conv import depthwise, gemm, native
from trc_runtime.cpu.conv.build import BuildError, library
from trc_runtime.cpu.conv.gemm import Input
from trc_runtime.cpu.conv.geometry import Geometry
from trc_runtime.cpu.conv.sums import Statistics
from trc_runtime.cpu.registry import Run

VARIABLE = "TRC_CPU_CONV"
CHOICES = ("auto", "native", "numpy")
_log = logging.getLogger("trc.cpu")


@dataclass(frozen=True)
class Choice:
    """The engine of convolutions and, in a sentence, why."""

    engine: str
    reason: str


_forced: list[str] = []
_chosen: dict[str, Choice] = {}


def choice() -> Choice:
    """The engine that convolutions bound from now on use.

    ValueError where the choice is none of CHOICES, or "native" cannot be had.
    """
    wanted = _forced[-1] if _forced else os.environ.get(VARIABLE, "") or "auto"
    if wanted not in CHOICES:
        raise ValueError(f"{VARIABLE} is one of {', '.join(CHOICES)}, not '{wanted}'")
    if wanted not in _chosen:
        _chosen[wanted] = _decide(wanted)
        _log.info("CPU convolutions: %s (%s)", _chosen[wanted].engine, _chosen[wanted].reason)
    return _chosen[wanted]


def _decide(wanted: str) -> Choice:
    if wanted == "numpy":
        return Choice("numpy", "as asked for")
    try:
        name = str(library()._name)
    except BuildError as err:
        if wanted == "native":
            raise ValueError(f"compiled convolutions cannot be had: {err}; unset {VARIABLE} to use NumPy") from None
        return Choice("numpy", str(err))
    return Choice("native", f"compiled as {name}")


def native_available() -> bool:
    """Whether the compiled engine can be had."""
    try:
        library()
    except BuildError:
        return False
    return True


@contextmanager
def using(engine: str) -> Generator[Choice]:
    """Bind convolutions by one engine inside a `with`, whatever the environment says."""
    _forced.append(engine)
    try:
        yield choice()
    finally:
        _forced.pop()


def _takes(g: Geometry, source: Input, weight: Array) -> bool:
    return choice().engine == "native" and native.refusal(g, source, weight) is None


def correlate(
    node: BoundNode,
    g: Geometry,
    source: Input,
    weight: Array,
    target: Array,
    backward: bool,
    bias: Array | None = None,
    statistics: Statistics | None = None,
) -> Run:
    """Forward pass or data gradient (see `gemm.correlate`) by the engine that is chosen and takes it."""
    form = native if _takes(g, source, weight) else depthwise if g.depthwise else gemm
    return form.correlate(node, g, source, weight, target, backward, bias, statistics)


def weight_gradient(node: BoundNode, g: Geometry, source: Input, dy: Array, dweight: Array) -> Run:
    """Weight gradient (see `gemm.weight_gradient`) by the engine that is chosen and takes it."""
    form = native if _takes(g, source, dweight) else depthwise if g.depthwise else gemm
    return form.weight_gradient(node, g, source, dy, dweight)
