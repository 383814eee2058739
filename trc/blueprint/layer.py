"""`Layer`, a node of a network's description, its limits, and where in the user's files it was made."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, field
from types import CodeType

from trc.diagnostics import Location

MAX_DEPTH = 48
"""How deeply layers may nest. Printers and parsers of IR recurse, so there must be a bound; networks need about six."""

MAX_LAYERS = 100_000
"""How many layers a network may have once all repeats and blocks are written out."""

MAX_SIDE = 65_536
"""The largest height or width of an input, and of a window, stride or padding."""

MAX_CHANNELS = 16_777_216
"""The largest number of channels or features."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z0-9_]+)*", re.ASCII)
_LONGEST_NAME = 200

Value = int | float | bool | str | None
"""What a layer's argument may be, after it has been checked."""


def is_layer_name(name: str) -> bool:
    """Whether a text may name a layer: letters, digits and `_`, in parts joined by dots (`layer1.0.conv`)."""
    return len(name) <= _LONGEST_NAME and _NAME.fullmatch(name) is not None


@dataclass(frozen=True, slots=True, repr=False)
class Layer:
    """One immutable node of a network's description. Make it with a factory such as `conv`, `fc` or `seq`.

    The same Layer may stand in several positions; each is expanded on its own, so weights are not shared.
    Two layers are equal when they say the same; the place where they were written does not count.
    """

    kind: str
    """The name of the factory in its plain spelling: `conv`, `fc`, `seq`, ..."""
    args: tuple[Value, ...] = ()
    """The arguments in the order of the factory's signature, defaults filled in, inner layers left out."""
    children: tuple[Layer, ...] = ()
    name: str | None = None
    source: Location | None = field(default=None, compare=False)
    """Where it was written: a .bp text, or the line of Python that called the factory."""
    size: int = field(default=1, compare=False)
    """How many layers this is when written out."""
    depth: int = field(default=1, compare=False)
    """How deeply it nests; 1 for a leaf."""

    def __str__(self) -> str:
        from trc.blueprint.printing import print_layer

        return print_layer(self)

    __repr__ = __str__


_positions: dict[int, tuple[CodeType, list[tuple[int | None, int | None]]]] = {}
_POSITIONS_KEPT = 64


def caller_place() -> Location | None:
    """The place of the call that led from a user's file into trc; None where there is no such file.

    Modules with a global `__trc_library__` count as trc's: packages whose factories call trc's set it. It costs about
    a microsecond: the table of a function's positions is read once and kept for a while.
    """
    frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    while frame is not None and (
        str(frame.f_globals.get("__name__", "")).partition(".")[0] == "trc" or "__trc_library__" in frame.f_globals
    ):
        frame = frame.f_back
    if frame is None:
        return None
    code = frame.f_code
    known = _positions.get(id(code))
    # The code object is kept with its table: an id may be used again after its owner is gone.
    if known is None or known[0] is not code:
        if len(_positions) >= _POSITIONS_KEPT:
            _positions.clear()
        known = (code, [(line, column) for line, _, column, _ in code.co_positions()])
        _positions[id(code)] = known
    at = frame.f_lasti // 2
    line, column = known[1][at] if 0 <= at < len(known[1]) else (None, None)
    return Location(code.co_filename, line or frame.f_lineno or 1, (column or 0) + 1)
