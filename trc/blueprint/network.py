"""`BluePrint`: a whole network, its layers with a name and the size of its input."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, cast

from trc.blueprint.layer import MAX_CHANNELS, MAX_SIDE, Layer
from trc.blueprint.parameters import BlockStyle
from trc.blueprint.signatures import SIGNATURES
from trc.diagnostics import Location

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_LONGEST_NAME = 200
_WORDS = ("BluePrint", "Layer", "auto", "true", "false")


def name_problem(name: str) -> str | None:
    """Why a text cannot name a BluePrint, or None. The name must be free, for the text form has it beside others."""
    if len(name) > _LONGEST_NAME or _NAME.fullmatch(name) is None:
        shown = repr(name) if len(name) <= _LONGEST_NAME else f"{len(name)} characters"
        return f"it must be letters, digits and '_' (at most {_LONGEST_NAME}, no digit first), not {shown}"
    if name in SIGNATURES:
        return f"'{name}' is the name of a layer; choose another name"
    if name in BlockStyle.__members__:
        return f"'{name}' is the name of a block style; choose another name"
    if name in _WORDS:
        return f"'{name}' has a meaning of its own; choose another name"
    return None


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
        if not isinstance(cast(Any, self.name), str):
            raise TypeError(f"BluePrint: argument 'name' must be a text, not {self.name!r}")
        if (problem := name_problem(self.name)) is not None:
            raise ValueError(f"BluePrint: argument 'name': {problem}")
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
