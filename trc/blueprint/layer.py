"""The nodes of a network's description: `Layer`, a tree, and `BluePrint`, a named tree with an input."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, field
from types import CodeType
from typing import Any, cast

from trc.diagnostics import Location

MAX_DEPTH = 64
"""How deeply layers may nest. Printers and parsers of IR recurse, so there must be a bound; networks need about six."""

MAX_LAYERS = 100_000
"""How many layers a network may have once all repeats and blocks are written out."""

MAX_SIDE = 65_536
"""The largest height or width of an input, and of a window, stride or padding."""

MAX_CHANNELS = 16_777_216
"""The largest number of channels or features."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z0-9_]+)*", re.ASCII)
_SYMBOL = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_LONGEST_NAME = 200

Value = int | float | bool | str | None
"""What a layer's argument may be, after it has been checked."""


def is_layer_name(name: str) -> bool:
    """Whether a text may name a layer: letters, digits and `_`, in parts joined by dots (`layer1.0.conv`)."""
    return len(name) <= _LONGEST_NAME and _NAME.fullmatch(name) is not None


def is_blueprint_name(name: str) -> bool:
    """Whether a text may name a BluePrint: a letter or `_`, then letters, digits and `_`."""
    return len(name) <= _LONGEST_NAME and _SYMBOL.fullmatch(name) is not None


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


@dataclass(frozen=True, repr=False)
class BluePrint:
    """A whole network: its layers, its name and, when known, the size (height, width, channels) of one input image.

    `root` may be a `seq` that begins with `input(h, w, c)`; the input is then taken from there.

    Raises:
        TypeError, ValueError: the name, the input or the root cannot be used; the message names which.
    """

    root: Layer
    name: str = "model"
    input: tuple[int, int, int] | None = None

    def __post_init__(self) -> None:
        if not isinstance(cast(Any, self.root), Layer):
            raise TypeError(f"BluePrint: argument 'root' must be a layer, not {self.root!r}")
        if not isinstance(cast(Any, self.name), str) or not is_blueprint_name(self.name):
            raise ValueError(
                f"BluePrint: argument 'name' must be letters, digits and '_' (at most {_LONGEST_NAME}, "
                f"no digit first), not {self.name!r}"
            )
        given = None if self.input is None else checked_input(self.input, "BluePrint: argument 'input'")
        root, inner = split_input(self.root)
        if given is not None and inner is not None and given != inner:
            raise ValueError(
                f"BluePrint: argument 'input' is {given}, but the layers begin with input{inner}; give one of the two"
            )
        object.__setattr__(self, "root", root)
        object.__setattr__(self, "input", given if given is not None else inner)

    @property
    def source(self) -> Location | None:
        """Where the network's outermost layer was written."""
        return self.root.source

    def __str__(self) -> str:
        from trc.blueprint.printing import print_blueprint

        return print_blueprint(self)

    __repr__ = __str__


def as_blueprint(model: BluePrint | Layer) -> BluePrint:
    """The BluePrint itself, or one named "model" around a layer.

    Raises:
        TypeError: it is neither.
    """
    if isinstance(model, BluePrint):
        return model
    if isinstance(cast(Any, model), Layer):
        return BluePrint(model)
    raise TypeError(f"a network is given as a BluePrint or a layer such as seq(...), not {model!r}")


def checked_input(size: object, what: str = "input") -> tuple[int, int, int]:
    """An input's (height, width, channels) as three plain ints.

    Raises:
        TypeError: it is no sequence of three whole numbers.
        ValueError: a number is out of range.
    """
    if not isinstance(size, tuple | list):
        raise TypeError(f"{what} must be (height, width, channels), not {size!r}")
    values = cast("tuple[object, ...] | list[object]", size)
    if len(values) != 3:
        raise ValueError(f"{what} must be (height, width, channels), not {len(values)} numbers")
    out: list[int] = []
    limits = (("height", MAX_SIDE), ("width", MAX_SIDE), ("channels", MAX_CHANNELS))
    for (name, high), value in zip(limits, values, strict=True):
        if isinstance(value, bool) or not hasattr(value, "__index__"):
            raise TypeError(f"{what}: {name} must be a whole number, not {value!r}")
        number = int(cast(int, value).__index__())
        if not 1 <= number <= high:
            raise ValueError(f"{what}: {name} must be from 1 to {high}, not {number}")
        out.append(number)
    return out[0], out[1], out[2]


def split_input(root: Layer) -> tuple[Layer, tuple[int, int, int] | None]:
    """A root layer without the `input(h, w, c)` it may begin with, and that input.

    Raises:
        ValueError: there is no layer after the input.
    """
    if root.kind == "input" or (root.kind == "seq" and root.children[0].kind == "input" and len(root.children) == 1):
        raise ValueError("a network needs at least one layer after input(...)")
    if root.kind != "seq" or root.children[0].kind != "input":
        return root, None
    head, *rest = root.children
    size = cast("tuple[int, int, int]", head.args)
    return Layer("seq", root.args, tuple(rest), root.name, root.source, root.size - head.size, root.depth), size


_positions: dict[int, tuple[CodeType, list[tuple[int | None, int | None]]]] = {}
_POSITIONS_KEPT = 64


def caller_place() -> Location | None:
    """The place of the call that led from a user's file into trc; None where there is no such file.

    It costs about a microsecond: the table of a function's positions is read once and kept for a while.
    """
    frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    while frame is not None and str(frame.f_globals.get("__name__", "")).partition(".")[0] == "trc":
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
