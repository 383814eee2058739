"""`// expected-error {{...}}` comments: which messages a test file announces, and whether they come."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from trc.diagnostics import Diagnostic, Location

_COMMENT = re.compile(r"expected-error\s*(?:@([+-]\d+|unknown)\s*)?\{\{(.*?)\}\}")


@dataclass(frozen=True)
class Expected:
    """A message that must come: a part of its text and its line, or None for one without a place."""

    line: int | None
    text: str
    written: int
    """The line of the comment."""


def read_expected(text: str) -> list[Expected]:
    """The announcements in a text.

    `// expected-error {{part of the message}}` is for its own line, `@+1` and `@-2` before the braces are for
    lines relative to it, `@unknown` for a message without a place.
    """
    found: list[Expected] = []
    for number, line in enumerate(text.splitlines(), 1):
        comment = line.find("//")
        if comment < 0:
            continue
        for match in _COMMENT.finditer(line, comment):
            offset, part = match[1], match[2]
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
