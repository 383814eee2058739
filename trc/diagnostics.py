"""Problems in a user's input: where they are and what to do about them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # what only runs a bundle has problems too, and should not wait for xDSL
    from xdsl.ir import Attribute, Operation


@dataclass(frozen=True)
class Location:
    """A place in a file; line and column count from 1."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"

    @classmethod
    def from_attribute(cls, loc: Attribute) -> Location | None:
        """The place that an operation's location attribute names, or None for an unknown one."""
        from xdsl.dialects.builtin import FileLineColLoc, NameLoc

        while isinstance(loc, NameLoc):
            loc = loc.location
        if isinstance(loc, FileLineColLoc):
            return cls(loc.filename.data, loc.line.data, loc.column.data)
        return None


_WIDEST = 240
"""Lines longer than this are shown around the column."""


def _window(source: str, column: int) -> tuple[str, int]:
    """What to show of a line, and where the column is in it."""
    if len(source) <= _WIDEST:
        return source, column
    begin = max(0, min(column - 1 - _WIDEST // 2, len(source) - _WIDEST))
    end = begin + _WIDEST
    head, tail = "..." if begin else "", "..." if end < len(source) else ""
    return f"{head}{source[begin:end]}{tail}", column - begin + len(head)


@dataclass(frozen=True)
class Diagnostic:
    """One problem. `source` is the text of the line, shown with a marker below the column."""

    message: str
    location: Location | None = None
    layer: str | None = None
    source: str | None = None

    def __str__(self) -> str:
        where = f"{self.location}: " if self.location else ""
        layer = f"layer '{self.layer}': " if self.layer else ""
        text = f"{where}error: {layer}{self.message}"
        if self.source is not None and self.location is not None:
            line, column = _window(self.source, self.location.column)
            # Keep tabs, so that the marker stands below its column in any terminal.
            indent = "".join("\t" if ch == "\t" else " " for ch in line[: column - 1])
            text += f"\n  {line}\n  {indent}^"
        return text

    def with_source(self, text: str) -> Diagnostic:
        """The same problem with its line taken from the file's text, unless it has one."""
        if self.location is None or self.source is not None:
            return self
        lines = text.splitlines()
        n = self.location.line
        return replace(self, source=lines[n - 1]) if 1 <= n <= len(lines) else self


class CompileError(Exception):
    """The input cannot be compiled; `problems` lists every reason that was found."""

    def __init__(self, problems: Sequence[Diagnostic] | Diagnostic | str) -> None:
        if isinstance(problems, str):
            problems = [Diagnostic(problems)]
        elif isinstance(problems, Diagnostic):
            problems = [problems]
        self.problems: tuple[Diagnostic, ...] = tuple(problems)
        super().__init__("\n".join(str(p) for p in self.problems))

    def __reduce__(self) -> tuple[type[CompileError], tuple[Sequence[Diagnostic]]]:
        """Travel between processes as the problems, not as their text."""
        return type(self), (self.problems,)

    @classmethod
    def at(cls, op: Operation, message: str, layer: str | None = None) -> CompileError:
        """An error at the place of an operation."""
        return cls(diagnostic_at(op, message, layer))


def diagnostic_at(op: Operation, message: str, layer: str | None = None) -> Diagnostic:
    """A problem at the place of an operation; the layer's name is read off the operation if not given."""
    if layer is None:
        name = op.properties.get("layer")
        layer = getattr(name, "data", None)
    return Diagnostic(message, Location.from_attribute(op.location), layer)
