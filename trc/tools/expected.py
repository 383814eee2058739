"""`// expected-error {{...}}` comments: which messages a test file announces, and whether they come."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from trc.diagnostics import CompileError, Diagnostic, Location

_COMMENT = re.compile(r"expected-error\s*(?:@([+-]\d+|unknown)\s*)?\{\{(.*?)\}\}")
_BEGIN = re.compile(r"\bexpected-\w+")
_FORM = "write expected-error {{part of the message}}, with @+1, @-1 or @unknown before the braces for another place"


@dataclass(frozen=True)
class Expected:
    """A message that must come: a part of its text and its line, or None for one without a place."""

    line: int | None
    text: str
    written: int
    """The line of the comment."""


def _malformed(filename: str, line: int, column: int, source: str, why: str) -> CompileError:
    return CompileError(Diagnostic(f"malformed expectation: {why}", Location(filename, line, column), None, source))


def read_expected(text: str, filename: str = "<text>") -> list[Expected]:
    """The announcements in a text.

    CompileError for a comment that begins like one and is none: a check that is never made must not pass.

    `// expected-error {{part of the message}}` is for its own line, `@+1` and `@-2` before the braces are for
    lines relative to it, `@unknown` for a message without a place.
    """
    found: list[Expected] = []
    for number, line in enumerate(text.splitlines(), 1):
        comment = line.find("//")
        if comment < 0:
            continue
        matches = list(_COMMENT.finditer(line, comment))
        for begin in _BEGIN.finditer(line, comment):
            if all(not m.start() <= begin.start() < m.end() for m in matches):
                raise _malformed(filename, number, begin.start() + 1, line, _FORM)
        for match in matches:
            offset, part = match[1], match[2]
            if not part.strip():
                raise _malformed(filename, number, match.start() + 1, line, "it names no message")
            place = None if offset == "unknown" else number + int(offset or 0)
            found.append(Expected(place, part.strip(), number))
    return found


def compare(expected: Sequence[Expected], came: Sequence[Diagnostic], filename: str) -> list[Diagnostic]:
    """What does not agree: announced messages that did not come, and messages that nothing announced."""
    open_ = list(expected)
    wrong: list[Diagnostic] = []
    for problem in came:
        line = problem.location.line if problem.location else None
        message = str(Diagnostic(problem.message, None, problem.layer))
        match = next((e for e in open_ if e.line == line and e.text in message), None)
        if match is None:
            text = message.removeprefix("error: ")
            wrong.append(Diagnostic(f"unexpected error: {text}", problem.location, None, problem.source))
        else:
            open_.remove(match)
    for missing in open_:
        place = Location(filename, missing.written, 1)
        where = "without a place" if missing.line is None else f"in line {missing.line}"
        wrong.append(Diagnostic(f"expected error {where} did not occur: {missing.text}", place))
    return wrong
