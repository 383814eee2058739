"""Reading IR text: every operation gets its place, and any text at all gives a module or a message."""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections import defaultdict
from typing import Literal, overload

from xdsl.context import Context
from xdsl.dialects.builtin import (
    UNKNOWN_LOC,
    AnyFloat,
    ComplexType,
    FileLineColLoc,
    IndexType,
    IntAttr,
    IntegerType,
    ModuleOp,
    RankedStructure,
    StringAttr,
)
from xdsl.ir import Operation, TypeAttribute
from xdsl.parser import AttrParser, Parser, ParserState
from xdsl.utils.exceptions import MultipleSpansParseError, ParseError
from xdsl.utils.lexer import Input
from xdsl.utils.mlir_lexer import MLIRLexer

from trc.diagnostics import CompileError, Diagnostic, Location
from trc.dialects.attributes import hint
from trc.dialects.context import make_context

MAX_NESTING = 60
"""How deeply brackets may nest. The parser, the printer and the passes recurse, so that a limit exists anyway."""

MAX_ELEMENTS = 1 << 20
"""The largest dense constant. xDSL writes out one that is a single value for a huge type; trc's IR has none."""

MAX_WIDTH = 1 << 12
"""The widest integer type. xDSL computes with powers of two of this size."""

_TOKENS = re.compile(r'//[^\n]*|"(?:[^"\\\n]|\\.)*+"|->|[\[({<]|[\])}>]')

_INTEGER_TYPE = re.compile(r"[su]?i(\d+)")


class PlacedLexer(MLIRLexer):
    """xDSL's lexer with linear strings.

    The pattern of the base class backtracks: on a string without an end its time doubles with every character. The
    possessive quantifiers here match the same strings and give up at once on the others.
    """

    _unescaped_characters_regex = re.compile(r'"(?:[^"\\\n\v\f]++|\\(?:["nt\\]|[0-9A-Fa-f]{2}))*+"')


class PlacedParser(Parser):
    """A parser that gives each operation the place in the file where its text begins."""

    def __init__(self, ctx: Context, input: str | bytes, name: str = "<unknown>") -> None:
        text = input.decode("utf-8") if isinstance(input, bytes) else input
        # Parser.__init__ makes its own lexer, and would read the first token with it.
        AttrParser.__init__(self, ParserState(PlacedLexer(Input(text, name))), ctx)
        self.ssa_values = {}
        self.blocks = {}
        self.forward_block_references = defaultdict(list)
        self.forward_ssa_references = {}
        self._operation = 0
        self._file = StringAttr(name)
        self._starts = [0, *(m.end() for m in re.finditer("\n", text))]

    @property
    def here(self) -> int:
        """Where the next token begins."""
        return self._current_token.span.start

    def place(self, position: int) -> tuple[int, int]:
        """Line and column, both from 1, of a position in the text."""
        line = bisect_right(self._starts, position)
        return line, position - self._starts[line - 1] + 1

    def parse_operation(self) -> Operation:
        """Read an operation; one without a written `loc(...)` gets its own place."""
        position = self._operation = self.here
        op = super().parse_operation()
        if op.location == UNKNOWN_LOC:
            line, column = self.place(position)
            op.location = FileLineColLoc(self._file, IntAttr(line), IntAttr(column))
        return op

    def _get_op_by_name(self, name: str) -> type[Operation]:
        op_type = self.ctx.get_optional_op(name, dialect_stack=self._parser_state.dialect_stack)
        if op_type is None:
            # The name has been read already; the base class would point behind it.
            start = max(self.lexer.input.content.find(name, self._operation), 0)
            known = [op.name for op in self.ctx.loaded_ops]
            self.raise_error(f"unknown operation {name}{hint(name, known)}", start, start + len(name))
        return op_type

    @overload
    def parse_optional_argument(self, expect_type: Literal[True] = True) -> Parser.Argument | None: ...

    @overload
    def parse_optional_argument(self, expect_type: Literal[False]) -> Parser.UnresolvedArgument | None: ...

    @overload
    def parse_optional_argument(
        self, expect_type: bool = True
    ) -> Parser.UnresolvedArgument | Parser.Argument | None: ...

    def parse_optional_argument(self, expect_type: bool = True) -> Parser.UnresolvedArgument | Parser.Argument | None:
        """Read `%name : type` with the `loc(...)` that the printer writes after it when places are asked for."""
        argument = super().parse_optional_argument(expect_type)
        if isinstance(argument, Parser.Argument):
            argument.location = self.parse_optional_location()
        return argument

    def _parse_dense_literal_type(self) -> RankedStructure[IntegerType | IndexType | AnyFloat | ComplexType]:
        start = self.here
        literal = super()._parse_dense_literal_type()
        if math.prod(literal.get_shape()) > MAX_ELEMENTS:
            self.raise_error(f"a dense constant has at most {MAX_ELEMENTS} elements", start, self.pos)
        return literal

    def _parse_optional_integer_or_float_type(self) -> TypeAttribute | None:
        match = _INTEGER_TYPE.fullmatch(self._current_token.text)
        if match and (len(match[1]) > 6 or int(match[1]) > MAX_WIDTH):
            self.raise_error(f"an integer type has at most {MAX_WIDTH} bits")
        return super()._parse_optional_integer_or_float_type()


def check_text(text: str, filename: str = "<text>") -> None:
    """Refuse text that is nested too deeply for a recursive parser: CompileError with the place."""
    depth = 0
    for match in _TOKENS.finditer(text):
        token = match[0]
        if token in "[({<":
            depth += 1
            if depth > MAX_NESTING:
                raise _error(text, filename, match.start(), f"brackets are nested more than {MAX_NESTING} deep")
        elif token in "])}>":
            depth = max(0, depth - 1)


def parse_module(text: str | bytes, filename: str = "<text>", context: Context | None = None) -> ModuleOp:
    """Read IR text into a module.

    Raises CompileError with file, line, column and the line itself for everything that is wrong with the text,
    whatever it holds. The module is not verified (see `trc.dialects.verifier`).
    """
    if isinstance(text, bytes):
        text = decode(text, filename)
    check_text(text, filename)
    if not text.strip():
        raise _error(text, filename, 0, "the file is empty; write for instance builtin.module {}")
    parser: PlacedParser | None = None
    try:
        parser = PlacedParser(context or make_context(), text, filename)
        return parser.parse_module()
    except ParseError as err:
        raise _error(text, filename, err.span.start, _message(err)) from None
    except CompileError as err:  # a package with layers that cannot be loaded
        message = "; ".join(problem.message for problem in err.problems)
    except RecursionError:
        message = "the text is nested too deeply"
    except Exception as err:
        # xDSL lets many exceptions escape for damaged text: a wrong value in an attribute, a number of 5,000 digits.
        detail = str(err).strip() or type(err).__name__
        message = f"this cannot be read: {detail.splitlines()[0]}"
    raise _error(text, filename, parser.here if parser is not None else 0, message)


def decode(data: bytes, filename: str) -> str:
    """The text of a file; CompileError with the place of the first byte that is not UTF-8.

    The mark that some editors put before UTF-8 is no part of the text.
    """
    try:
        return data.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as err:
        before = data[: err.start]
        line = before.count(b"\n") + 1
        column = err.start - (before.rfind(b"\n") + 1) + 1
        message = f"the file is no UTF-8 text (byte 0x{data[err.start]:02x})"
        raise CompileError(Diagnostic(message, Location(filename, line, column))) from None


def _message(err: ParseError) -> str:
    message = err.msg.strip()
    if isinstance(err, MultipleSpansParseError):
        notes = [note for _, note in err.refs if note]
        message = "; ".join([message, *notes])
    return message


def _error(text: str, filename: str, position: int, message: str) -> CompileError:
    position = min(position, len(text))
    line = text.count("\n", 0, position) + 1
    column = position - (text.rfind("\n", 0, position) + 1) + 1
    return CompileError(Diagnostic(message, Location(filename, line, column)).with_source(text))
