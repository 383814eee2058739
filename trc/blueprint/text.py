"""Reads the text form of a BluePrint (.bp).

The grammar is `grammar.lark`. A text is parsed into `Call` nodes, then each definition is evaluated with the same
checks as the Python factories. All mistakes of meaning are reported together; a mistake of syntax ends the reading.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple, cast

from lark import Lark, Token, Transformer
from lark.exceptions import UnexpectedInput

from trc.blueprint.layer import MAX_DEPTH, Layer
from trc.blueprint.messages import shown_line, syntax_problem
from trc.blueprint.network import BluePrint, name_problem
from trc.blueprint.parameters import ArgumentProblem, BlockStyle, Signature, count, nearest
from trc.blueprint.signatures import SIGNATURES, find_signature, make
from trc.diagnostics import CompileError, Diagnostic, Location

MAX_TEXT = 2 * 1024 * 1024
"""The longest text that is read, in characters."""

_MAX_PROBLEMS = 20
_MAX_DIGITS = 18


class Call(NamedTuple):
    """`name(arguments)`; `depth` is how deeply calls nest in it."""

    name: Token
    arguments: list[Argument]
    depth: int


class Argument(NamedTuple):
    """One argument; `keyword` is None for one by position."""

    keyword: Token | None
    value: Token | Call

    @property
    def place(self) -> Token:
        """The token where the value begins."""
        return self.value if isinstance(self.value, Token) else self.value.name


class Definition(NamedTuple):
    """`BluePrint name = value`."""

    name: Token
    value: Token | Call


class _Build(Transformer[Token, Any]):
    """Makes the nodes while the parser runs, from the inside out, so that depth costs no recursion."""

    def start(self, items: list[Any]) -> list[Definition | Call]:
        return items

    def type(self, items: list[Token]) -> Token:
        return items[0]

    def definition(self, items: list[Any]) -> Definition:
        return Definition(items[1], items[2])

    def value(self, items: list[Any]) -> Token | Call:
        return items[0]

    def keyword(self, items: list[Any]) -> Argument:
        return Argument(items[0], items[1])

    def call(self, items: list[Any]) -> Call:
        arguments = [item if isinstance(item, Argument) else Argument(None, item) for item in items[1:] if item]
        inner = [a.value.depth for a in arguments if isinstance(a.value, Call)]
        return Call(items[0], arguments, 1 + max(inner, default=0))


@cache
def parser() -> Lark:
    """The parser of the grammar, made once."""
    grammar = files("trc.blueprint").joinpath("grammar.lark").read_text(encoding="utf-8")
    return Lark(grammar, parser="lalr", transformer=_Build(), maybe_placeholders=False, cache=False)


class _Unusable:
    """Stands for a value that has been reported, so that it is not reported again."""


_UNUSABLE = _Unusable()


class _Problems:
    """The mistakes found so far in one text."""

    def __init__(self, text: str, file: str) -> None:
        self.text = text
        self.file = file
        self.found: list[Diagnostic] = []
        self.hidden = 0
        self._lines: list[str] | None = None

    def location(self, token: Token) -> Location:
        return Location(self.file, token.line or 1, token.column or 1)

    def add(self, where: Token | Location, message: str, layer: str | None = None) -> _Unusable:
        if self.full:
            self.hidden += 1
            return _UNUSABLE
        location = where if isinstance(where, Location) else self.location(where)
        if self._lines is None:
            self._lines = self.text.split("\n")
        self.found.append(Diagnostic(message, location, layer, shown_line(self._lines, location)))
        return _UNUSABLE

    def error(self) -> CompileError:
        more = [Diagnostic(f"{count(self.hidden, 'more problem')} not shown")] if self.hidden else []
        return CompileError([*self.found, *more])

    @property
    def full(self) -> bool:
        """Whether further problems are only counted."""
        return len(self.found) >= _MAX_PROBLEMS

    def hint(self, word: str, known: Sequence[str]) -> str:
        """The nearest known word, unless there are too many problems to show it."""
        return "" if self.full else nearest(word, known)


class _Evaluator:
    """Turns definitions into layers, in order."""

    def __init__(self, problems: _Problems) -> None:
        self.problems = problems
        self.defined: dict[str, Layer | _Unusable] = {}
        self.places: dict[str, Token] = {}

    def define(self, definition: Definition) -> None:
        name, value = definition.name, self.layer(definition.value)
        text = str(name)
        if (problem := name_problem(text)) is not None:
            self.problems.add(name, problem)
        elif text in self.defined:
            line = self.places[text].line
            self.problems.add(name, f"'{text}' is defined twice, first in line {line}; choose another name")
        else:
            self.defined[text] = value
            self.places[text] = name

    def layer(self, value: Token | Call) -> Layer | _Unusable:
        """The layer that an expression stands for."""
        if isinstance(value, Call):
            return self._too_deep(value) if value.depth > MAX_DEPTH else self._call(value)
        found = self._token(value)
        if isinstance(found, Layer | _Unusable):
            return found
        return self.problems.add(value, f"a layer is needed here, such as fc(10), not {value}")

    def _too_deep(self, call: Call) -> _Unusable:
        for _ in range(MAX_DEPTH):
            inner = [a.value for a in call.arguments if isinstance(a.value, Call)]
            call = max(inner, key=lambda c: c.depth)
        return self.problems.add(
            call.name, f"layers nest more than {MAX_DEPTH} deep here; write the inner ones in sequence"
        )

    def _token(self, token: Token) -> object:
        """A literal, the name of a definition, of a style or of an activation."""
        text = str(token)
        if token.type == "INT":
            if len(text) > _MAX_DIGITS:
                return self.problems.add(token, f"the number is too large; it has {len(text)} digits")
            return int(text)
        if token.type == "FLOAT":
            return float(text.rstrip("fF"))
        if token.type in ("TRUE", "FALSE"):
            return token.type == "TRUE"
        if token.type == "STRING":
            return text[1:-1]
        if text in self.defined:
            return self.defined[text]
        if text in BlockStyle.__members__:
            return BlockStyle(text)
        if text in SIGNATURES:
            return SIGNATURES[text]
        known = [*self.defined, *BlockStyle.__members__, *SIGNATURES, "true", "false"]
        return self.problems.add(
            token,
            f"'{_short(text)}' is not defined{self.problems.hint(text, known)}; definitions come before their use",
        )

    def _call(self, call: Call) -> Layer | _Unusable:
        kind = str(call.name)
        if kind not in SIGNATURES and kind in self.defined:
            return self.problems.add(call.name, f"'{kind}' is a definition; use it without parentheses")
        broken = ""
        try:
            known = find_signature(kind) is not None
        except CompileError as err:  # a package with layers that cannot be loaded; perhaps it has this one
            known, broken = False, "".join(f"; {problem.message}" for problem in err.problems)
        if not known:
            # What stands inside is read too, so that its mistakes are found in the same run.
            for argument in call.arguments:
                self._value(argument)
            return self.problems.add(
                call.name, f"unknown layer '{_short(kind)}'{self.problems.hint(kind, list(SIGNATURES))}{broken}"
            )
        positional: list[object] = []
        keywords: dict[str, object] = {}
        places: dict[str, Token] = {}
        usable = True
        for argument in call.arguments:
            value = self._value(argument)
            usable = usable and not isinstance(value, _Unusable)
            if isinstance(value, _Unusable):
                continue
            if argument.keyword is None:
                if keywords and usable:
                    usable = False
                    self.problems.add(argument.place, f"{kind}: arguments by position come before those by keyword")
                positional.append(value)
                places[f"#{len(positional)}"] = argument.place
                continue
            keyword = str(argument.keyword)
            if keyword in keywords:
                usable = False
                self.problems.add(argument.keyword, f"{kind}: argument '{keyword}' is given twice")
            keywords[keyword] = value
            places[keyword] = argument.keyword
        if not usable:
            return _UNUSABLE
        name = keywords.pop("name", None)
        try:
            return make(kind, positional, keywords, name, self.problems.location(call.name))
        except ArgumentProblem as problem:
            place = self._place(call, problem.argument, places)
            return self.problems.add(place, problem.message, name if isinstance(name, str) else None)

    def _value(self, argument: Argument) -> object:
        """An argument's value. A bare factory's name stands for the activation, or is reported."""
        value = self._call(argument.value) if isinstance(argument.value, Call) else self._token(argument.value)
        if isinstance(value, Layer) and value.kind == "input" and argument.keyword is not None:
            return self.problems.add(argument.place, "input(...) may only stand first in the outermost seq")
        if isinstance(value, Signature):
            kind = str(argument.value)
            if argument.keyword is not None and argument.keyword == "act":
                return kind
            return self.problems.add(argument.place, f"'{kind}' is a layer; write {kind}()")
        return value

    def _place(self, call: Call, argument: str | None, places: dict[str, Token]) -> Token:
        """The token to point at for a problem with one argument, or with the whole call."""
        if argument is None:
            return call.name
        if argument in places:
            token = places[argument]
            # For a keyword argument point at the value, unless the keyword itself is wrong.
            names = [p.name for p in SIGNATURES[str(call.name)].parameters] + ["name"]
            if argument in names:
                for given in call.arguments:
                    if given.keyword is token:
                        return given.place
            return token
        names = [p.name for p in SIGNATURES[str(call.name)].parameters]
        if str(call.name) == "block" and len([a for a in call.arguments if a.keyword is None]) < 3:
            names = names[1:]
        if argument in names and (key := f"#{names.index(argument) + 1}") in places:
            return places[key]
        return call.name


def parse_blueprint(text: str, filename: str = "<text>") -> BluePrint:
    """The BluePrint that a text describes: its last definition, with the `input(...)` that the text gives.

    Raises:
        CompileError: with the place, the line and what to do, for every mistake that was found.
    """
    text = text.removeprefix("\ufeff")
    problems = _Problems(text, filename)
    if len(text) > MAX_TEXT:
        raise CompileError(
            Diagnostic(
                f"the text has {len(text):,} characters; at most {MAX_TEXT:,} are read", Location(filename, 1, 1)
            )
        )
    try:
        statements = cast("list[Definition | Call]", cast(Any, parser()).parse(text))
    except UnexpectedInput as err:
        location, message = syntax_problem(text, filename, err)
        problems.add(location, message)
        raise problems.error() from None
    blueprint = _evaluate(statements, problems)
    if problems.found or blueprint is None:
        raise problems.error()
    return blueprint


def _evaluate(statements: list[Definition | Call], problems: _Problems) -> BluePrint | None:
    evaluator = _Evaluator(problems)
    given: Layer | None = None
    model: Layer | _Unusable | None = None
    name, place = "model", None
    for number, statement in enumerate(statements, 1):
        if isinstance(statement, Definition):
            evaluator.define(statement)
            place, name = statement.name, str(statement.name)
            model = evaluator.defined.get(name, _UNUSABLE)
        elif statement.name == "input":
            layer = evaluator.layer(statement)
            if isinstance(layer, Layer):
                if given is not None:
                    problems.add(statement.name, "input(...) is given twice; keep one of the two")
                given = layer
        elif number < len(statements):
            problems.add(
                statement.name, f"{statement.name}(...) is not used; begin with 'BluePrint NAME =' to define a network"
            )
        else:
            model, place, name = evaluator.layer(statement), statement.name, "model"
    if model is None:
        where = Location(problems.file, 1, 1)
        problems.add(where, "the text defines no network; write for instance BluePrint net = seq(fc(10));")
    elif isinstance(model, Layer) and place is not None and not problems.found:
        size = None if given is None else cast("tuple[int, int, int]", given.args)
        try:
            return BluePrint(model, name, size)
        except ValueError as err:
            problems.add(place, str(err).removeprefix("BluePrint: "))
    return None


def _short(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "..."


def load_blueprint(path: str | Path) -> BluePrint:
    """The BluePrint in a .bp file.

    Raises:
        CompileError: the file cannot be read, is no UTF-8 text, or has a mistake; with place and reason.
    """
    name = str(path)
    place = Location(name, 1, 1)
    try:
        with open(path, "rb") as file:
            data = file.read(4 * MAX_TEXT + 1)
    except OSError as err:
        raise CompileError(Diagnostic(f"cannot read '{name}': {err.strerror or err}")) from None
    except ValueError as err:  # a zero byte in the path
        raise CompileError(Diagnostic(f"cannot read {name!r}: {err}")) from None
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as err:
        line = data.count(b"\n", 0, err.start) + 1
        column = err.start - (data.rfind(b"\n", 0, err.start) + 1) + 1
        raise CompileError(
            Diagnostic(f"byte {data[err.start]:#04x} is not UTF-8 text", Location(name, line, column))
        ) from None
    if not text:
        raise CompileError(Diagnostic("the file is empty; write for instance BluePrint net = seq(fc(10));", place))
    return parse_blueprint(text, name)
