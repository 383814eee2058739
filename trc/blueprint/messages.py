"""Says what is wrong with the syntax of a .bp text, in words for people."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, cast

from lark import Token
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from trc.blueprint.parameters import nearest
from trc.diagnostics import Location

_WORDS = {
    "COMMA": "','",
    "RPAR": "')'",
    "LPAR": "'('",
    "SEMICOLON": "';'",
    "EQUAL": "'='",
    "NAME": "a name",
    "INT": "a number",
    "FLOAT": "a number",
    "STRING": "a string",
    "TRUE": "true or false",
    "FALSE": "true or false",
    "BLUEPRINT": "'BluePrint'",
    "LAYER": "'BluePrint'",
    "AUTO": "'BluePrint'",
    "$END": "the end of the text",
}
_VALUES = {"INT", "FLOAT", "STRING", "TRUE", "FALSE"}
_TYPES = {"BLUEPRINT", "LAYER", "AUTO"}
# What counts when brackets are matched: comments and strings hide them, `;` ends a statement.
_MARKS = re.compile(r'//[^\n]*|/\*[\s\S]*?\*/|"[^"\n]*"|([A-Za-z_][A-Za-z0-9_]*)\s*\(|[()]')
_SHOWN_WIDTH = 200


def shown_line(lines: Sequence[str], location: Location) -> str | None:
    """The line of a place as a message shows it: without control characters, and not endless."""
    if not 1 <= location.line <= len(lines):
        return None
    line = lines[location.line - 1].rstrip()
    if not line:
        return None
    if len(line) > _SHOWN_WIDTH:
        if location.column > _SHOWN_WIDTH:
            return None
        line = line[:_SHOWN_WIDTH] + "..."
    return "".join(ch if ch.isprintable() or ch == "\t" else "?" for ch in line)


def _open_call(text: str, end: int) -> tuple[int, str] | None:
    """Offset and name of the innermost call that is open before `end`."""
    stack: list[tuple[int, str]] = []
    for mark in _MARKS.finditer(text, 0, end):
        if mark.group().endswith("(") and not mark.group().startswith(("/", '"')):
            stack.append((mark.start(), mark.group(1) or ""))
        elif mark.group() == ")" and stack:
            stack.pop()
    return stack[-1] if stack else None


def _place(text: str, file: str, offset: int) -> Location:
    start = text.rfind("\n", 0, offset) + 1
    return Location(file, text.count("\n", 0, offset) + 1, offset - start + 1)


def _after_previous(text: str, file: str, offset: int) -> Location:
    """The place just behind the last text before `offset`, where something is missing."""
    before = re.sub(r"//[^\n]*|/\*[\s\S]*?\*/", lambda m: " " * len(m.group()), text[:offset])
    # A comment's characters became blanks, so offsets stay; a line end inside one is found in the text itself.
    return _place(text, file, max(len(before.rstrip()), 0))


def syntax_problem(text: str, file: str, err: UnexpectedInput) -> tuple[Location, str]:
    """The place and the message for an error of the parser."""
    if isinstance(err, UnexpectedCharacters):
        return Location(file, err.line, err.column), _characters(text, err)
    if isinstance(err, UnexpectedToken):
        return _token(text, file, err)
    return Location(file, 1, 1), "the text cannot be read as a BluePrint"


def _characters(text: str, err: UnexpectedCharacters) -> str:
    at: int = cast(Any, err).pos_in_stream or 0
    ch = text[at : at + 1]
    if ch == '"':
        return "this string does not end; add the closing '\"' in the same line"
    if text.startswith("/*", at):
        return "this comment does not end; add the closing '*/'"
    if ch == "#":
        return "unexpected '#'; comments begin with '//'"
    if ch == "'":
        return 'unexpected "\'"; strings stand in double quotes, as in name="head"'
    if ch in "{[":
        return f"unexpected '{ch}'; layers stand in parentheses, as in seq(fc(10), relu())"
    shown = ch if ch.isprintable() else f"character U+{ord(ch):04X}" if ch else "end"
    return f"unexpected '{shown}'" if ch.isprintable() else f"unexpected {shown}"


def _token(text: str, file: str, err: UnexpectedToken) -> tuple[Location, str]:
    token = cast(Token, cast(Any, err).token)
    expected = set(err.accepts or err.expected)
    offset = len(text) if token.type == "$END" or token.start_pos is None else token.start_pos
    here = _place(text, file, offset)
    history = cast("list[object]", cast(Any, err).token_history or [])
    before = history[-1] if history else None
    call = _open_call(text, offset)
    shown = _shown(token)
    if call is not None and (token.type in {"$END", "SEMICOLON"} | _TYPES):
        place = _place(text, file, call[0])
        found = "the text ends" if token.type == "$END" else f"{shown} in line {here.line} comes"
        return place, f"'{call[1]}(' is not closed: {found} before its ')'"
    if token.type == "$END":
        wanted = _wanted(expected)
        return _after_previous(text, file, len(text)), f"the text ends too early; expected {wanted}"
    if isinstance(before, Token) and before.type == "NAME" and token.type == "EQUAL" and call is None:
        place = Location(file, before.line or 1, before.column or 1)
        return place, f"a definition begins with 'BluePrint'; write BluePrint {_clip(before)} = ..."
    if isinstance(before, Token) and before.type == "NAME" and token.type == "NAME" and call is None:
        kinds = ["BluePrint", "Layer", "auto"]
        return (
            Location(file, before.line or 1, before.column or 1),
            f"unknown type '{_clip(before)}'{nearest(before, kinds)}; a definition begins with 'BluePrint'",
        )
    if call is not None and {"COMMA", "RPAR"} <= expected and token.type in _VALUES | {"NAME"}:
        return _after_previous(text, file, offset), f"a ',' is missing before {shown}"
    if call is not None and token.type == "COMMA":
        return here, "an argument is missing before this ','"
    if call is not None and token.type == "RPAR" and "NAME" in expected:
        return here, "a value is missing before this ')'"
    if token.type == "RPAR" and call is None:
        return here, "this ')' closes nothing"
    if expected and expected <= {"SEMICOLON", "$END"}:
        return _after_previous(text, file, offset), f"a ';' is missing before {shown}"
    return here, f"unexpected {shown}; expected {_wanted(expected)}"


def _shown(token: Token) -> str:
    return f"'{_clip(token)}'"


def _clip(text: str) -> str:
    return text if len(text) <= 40 else text[:37] + "..."


def _wanted(expected: set[str]) -> str:
    words = sorted({_WORDS.get(name, name) for name in expected})
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}" if words else "something else"
