"""A factory's arguments: names, types, ranges and defaults, in one form for Python, text and printing."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Protocol, cast

from trc.blueprint.layer import Layer, Value


class BlockStyle(StrEnum):
    """The preset residual blocks. `_DS` means stride 2; `E6` that the middle is six times as wide as the input."""

    RESNET_1_3_1 = "RESNET_1_3_1"
    RESNET_1_3_1_DS = "RESNET_1_3_1_DS"
    RESNET_3_3 = "RESNET_3_3"
    RESNET_3_3_DS = "RESNET_3_3_DS"
    MB_E1_K3 = "MB_E1_K3"
    MB_E1_K3_DS = "MB_E1_K3_DS"
    MB_E6_K3 = "MB_E6_K3"
    MB_E6_K3_DS = "MB_E6_K3_DS"


class ArgumentProblem(Exception):
    """An argument that cannot be used; `argument` is its name, or None where the call as a whole is wrong."""

    def __init__(self, message: str, argument: str | None = None, error: type[Exception] = ValueError) -> None:
        super().__init__(message)
        self.message = message
        self.argument = argument
        self.error = error


class Refusal(Exception):
    """Says what a value should have been; the caller adds whose argument it is."""

    def __init__(self, wanted: str, error: type[Exception] = ValueError) -> None:
        super().__init__(wanted)
        self.wanted = wanted
        self.error = error


class Check(Protocol):
    """Turns a given value into the one to keep, or raises Refusal."""

    def __call__(self, value: object) -> Value | Layer:
        """The value to keep."""
        ...


@dataclass(frozen=True)
class Whole:
    """A whole number from `low` to `high`."""

    low: int
    high: int

    def __call__(self, value: object) -> int:
        """The number as a plain int; NumPy's are taken too, true and false are not."""
        if isinstance(value, bool) or not hasattr(value, "__index__"):
            raise Refusal("a whole number", TypeError)
        number = int(cast(int, value).__index__())
        if not self.low <= number <= self.high:
            raise Refusal(f"from {self.low} to {self.high}")
        return number


@dataclass(frozen=True)
class Real:
    """A finite number from `low` to `high`; `phrase` says it in words, `open_low` and `open_high` leave out an end."""

    phrase: str
    low: float
    high: float
    open_low: bool = False
    open_high: bool = False

    def __call__(self, value: object) -> float:
        """The number as a plain float."""
        if isinstance(value, bool) or not (hasattr(value, "__float__") or hasattr(value, "__index__")):
            raise Refusal("a number", TypeError)
        try:
            number = float(cast(float, value))
        except (TypeError, ValueError, OverflowError):
            raise Refusal("a number", TypeError) from None
        low = number > self.low if self.open_low else number >= self.low
        high = number < self.high if self.open_high else number <= self.high
        if not math.isfinite(number) or not low or not high:
            raise Refusal(self.phrase)
        return number


@dataclass(frozen=True)
class Flag:
    """true or false."""

    def __call__(self, value: object) -> bool:
        """The flag; 0 and 1 are not taken, because they are easily a misplaced number."""
        if not isinstance(value, bool):
            raise Refusal("true or false", TypeError)
        return value


@dataclass(frozen=True)
class OneOf:
    """One of a few numbers."""

    choices: tuple[int, ...]

    def __call__(self, value: object) -> int:
        """The number as a plain int."""
        wanted = " or ".join(map(str, self.choices))
        if isinstance(value, bool) or not hasattr(value, "__index__"):
            raise Refusal(wanted, TypeError)
        number = int(cast(int, value).__index__())
        if number not in self.choices:
            raise Refusal(wanted)
        return number


@dataclass(frozen=True)
class Style:
    """A BlockStyle or its name."""

    def __call__(self, value: object) -> str:
        """The style's name as a plain string."""
        if not isinstance(value, str):
            raise Refusal("the name of a style", TypeError)
        if value not in BlockStyle.__members__:
            raise Refusal("one of " + ", ".join(BlockStyle))
        return str(value)


@dataclass(frozen=True)
class Activation:
    """relu or relu6: the factory, its name, or a layer it made."""

    def __call__(self, value: object) -> str:
        """The activation's name."""
        if isinstance(value, Layer):
            name: object = value.kind if value.name is None else None
        elif callable(value):
            name = getattr(cast(Any, value), "__name__", None)
        else:
            name = value
        if name not in ("relu", "relu6"):
            raise Refusal("relu or relu6", ValueError if isinstance(name, str) else TypeError)
        return str(name)


@dataclass(frozen=True)
class Child:
    """A layer inside another."""

    def __call__(self, value: object) -> Layer:
        """The layer itself."""
        if not isinstance(value, Layer):
            raise Refusal("a layer", TypeError)
        if value.kind == "input" or (value.kind == "seq" and value.children[0].kind == "input"):
            raise Refusal("a layer without input(...), which may only stand first in the outermost seq")
        return value


REQUIRED: Final = object()
"""The default of an argument that must be given."""


@dataclass(frozen=True)
class Parameter:
    """One argument of a factory. With `keyword` it prints as `name=value`, and only if it differs from the default."""

    name: str
    check: Check
    default: object = REQUIRED
    keyword: bool = False


@dataclass(frozen=True)
class Signature:
    """A factory's arguments and what they become.

    `check` looks at all arguments together and raises ArgumentProblem. `arrange` sorts given values by parameter name
    where that is not by position. `finish` turns the checked ones into the kind and arguments of the node, for
    factories that are another spelling of one. `size` is how many layers the node is when written out, inner ones not
    counted.
    """

    kind: str
    parameters: tuple[Parameter, ...] = ()
    size: int = 1
    variadic: bool = False
    check: Callable[[Mapping[str, Any]], None] | None = None
    finish: Callable[[Mapping[str, Any]], tuple[str, tuple[Value, ...]]] | None = None
    arrange: Callable[[Sequence[object], Mapping[str, object]], Mapping[str, object]] | None = None

    @property
    def usage(self) -> str:
        """How to call it, for messages: `conv(out_ch, k, s=1, p=0, bias=false)`."""
        from trc.blueprint.printing import print_value

        if self.variadic:
            return f"{self.kind}(layer, ...)"
        parts = [
            p.name if p.default is REQUIRED else f"{p.name}={print_value(cast(Value, p.default))}"
            for p in self.parameters
            if p.default is not None
        ]
        if self.arrange is not None:
            return f"{self.kind}([mid,] {', '.join(parts)})"
        return f"{self.kind}({', '.join(parts)})"

    def assign(self, positional: Sequence[object], keywords: Mapping[str, object]) -> dict[str, object]:
        """The given values by parameter name.

        Raises:
            ArgumentProblem: too many, unknown or doubly given; missing ones are found by `values`.
        """
        names = [p.name for p in self.parameters]
        for name in keywords:
            if name not in names:
                raise ArgumentProblem(
                    f"{self.kind}: no argument is called '{name}'{nearest(name, [*names, 'name'])}; write {self.usage}",
                    name,
                    TypeError,
                )
        if self.arrange is not None:
            return dict(self.arrange(positional, keywords))
        if len(positional) > len(names):
            raise ArgumentProblem(
                f"{self.kind}: takes at most {count(len(names), 'argument')}, not {len(positional)}; "
                f"write {self.usage}",
                None,
                TypeError,
            )
        given = dict(zip(names, positional, strict=False))
        for name, value in keywords.items():
            if name in given:
                raise ArgumentProblem(f"{self.kind}: argument '{name}' is given twice", name, TypeError)
            given[name] = value
        return given

    def values(self, given: Mapping[str, object]) -> dict[str, Any]:
        """All arguments by name, checked, defaults filled in.

        Raises:
            ArgumentProblem: one is missing, of the wrong type or out of range.
        """
        values: dict[str, Any] = {}
        for parameter in self.parameters:
            name = parameter.name
            value = given.get(name, parameter.default)
            if value is REQUIRED:
                raise ArgumentProblem(f"{self.kind}: argument '{name}' is missing; write {self.usage}", None, TypeError)
            # Only a default may be None, and defaults need no check.
            if name not in given:
                values[name] = value
                continue
            try:
                values[name] = parameter.check(value)
            except Refusal as refusal:
                raise ArgumentProblem(
                    f"{self.kind}: argument '{name}' must be {refusal.wanted}, not {describe(value)}",
                    name,
                    refusal.error,
                ) from None
        if self.check is not None:
            self.check(values)
        return values


def describe(value: object) -> str:
    """A given value as messages show it: short, and in the spelling of the text form."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Layer):
        return f"the layer {value.kind}(...)"
    if callable(value) and hasattr(value, "__name__"):
        return str(cast(Any, value).__name__)
    try:
        text = repr(str(value)) if isinstance(value, str) else repr(value)
    except ValueError:  # Python refuses to print integers of more than 4300 digits
        return "a number of thousands of digits"
    return text if len(text) <= 60 else text[:57] + "..."


def nearest(word: str, words: Sequence[str]) -> str:
    """The words `; did you mean 'x'?` when one of the known words is close, else nothing."""
    from difflib import get_close_matches

    # A long word is like none of ours, and comparing takes the product of the lengths.
    if len(word) > 40 or len(words) > 1000:
        return ""
    lowered = {known.lower(): known for known in words}
    close = get_close_matches(word.lower(), list(lowered), n=1, cutoff=0.6)
    return f" (did you mean '{lowered[close[0]]}'?)" if close else ""


def count(number: int, noun: str) -> str:
    """A number with its noun: `1 argument`, `2 arguments`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
