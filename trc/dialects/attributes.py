"""Attributes that memplan and graph share: cheap makers, cheap readers, and their texts.

A network of a thousand layers makes a hundred thousand attributes, nearly all of them equal to an earlier one.
The makers here are cached, so that building an operation costs a few dictionary look-ups.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches
from functools import lru_cache
from struct import pack, unpack
from typing import ClassVar, cast

from xdsl.dialects.builtin import (
    ArrayAttr,
    BytesAttr,
    DenseArrayBase,
    IntAttr,
    IntegerAttr,
    IntegerType,
    StringAttr,
    SymbolRefAttr,
    i32,
    i64,
)
from xdsl.ir import Data, Operation
from xdsl.irdl import IRDLOperation, irdl_attr_definition
from xdsl.parser import AttrParser, Parser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from trc_runtime.schema.regions import Region

CACHED = 1 << 16
"""How many attributes each maker remembers."""

I64_MIN, I64_MAX = -(1 << 63), (1 << 63) - 1


@lru_cache(CACHED)
def string(text: str) -> StringAttr:
    """A string attribute."""
    return StringAttr(text)


@lru_cache(CACHED)
def symbol(name: str) -> SymbolRefAttr:
    """A reference to a module-level symbol."""
    return SymbolRefAttr(string(name))


@lru_cache(CACHED)
def integer(value: int) -> IntegerAttr[IntegerType]:
    """A 64-bit integer; ValueError for one that does not fit."""
    if not I64_MIN <= value <= I64_MAX:
        raise ValueError(f"{value} does not fit into 64 bits")
    # `new` leaves out the checks of `__init__`, which are most of its cost.
    return cast(IntegerAttr[IntegerType], IntegerAttr.new((IntAttr(value), i64)))


@lru_cache(CACHED)
def ints64(values: tuple[int, ...]) -> DenseArrayBase[IntegerType]:
    """A dense array of 64-bit integers."""
    return DenseArrayBase(i64, BytesAttr(pack(f"<{len(values)}q", *values)))


def ints32(values: Sequence[int]) -> DenseArrayBase[IntegerType]:
    """A dense array of 32-bit integers; ValueError for one that does not fit."""
    try:
        return DenseArrayBase(i32, BytesAttr(pack(f"<{len(values)}i", *values)))
    except Exception as err:
        raise ValueError(f"an integer does not fit into 32 bits: {err}") from None


def read_ints32(array: DenseArrayBase[IntegerType]) -> tuple[int, ...]:
    """The numbers of a dense array of 32-bit integers."""
    data = array.data.data
    return unpack(f"<{len(data) // 4}i", data)


@lru_cache(CACHED)
def read_ints64(array: DenseArrayBase[IntegerType]) -> tuple[int, ...]:
    """The numbers of a dense array of 64-bit integers."""
    data = array.data.data
    return unpack(f"<{len(data) // 8}q", data)


def symbols(names: Iterable[str]) -> ArrayAttr[SymbolRefAttr]:
    """References to module-level symbols."""
    return ArrayAttr(map(symbol, names))


def hint(word: str, choices: Iterable[str]) -> str:
    """The end of a message about an unknown word: the most similar one, or nothing."""
    close = get_close_matches(word, list(choices), n=1)
    return f"; did you mean {close[0]}?" if close else ""


def float_text(value: float) -> str:
    """The shortest spelling that MLIR reads back as the same finite number (`1.0e-05`, not `1e-05`)."""
    text = repr(value)
    mantissa, e, exponent = text.partition("e")
    if not e or "." in mantissa or not math.isfinite(value):
        return text
    return f"{mantissa}.0e{exponent}"


@lru_cache(CACHED)
def is_word(name: str) -> bool:
    """Whether the text reads back as an MLIR identifier."""
    return name.isascii() and name.replace(".", "_").replace("$", "_").isidentifier()


def print_word(printer: Printer, word: str) -> None:
    """An identifier, in quotes if it is none."""
    if is_word(word):
        printer.print_string(word)
    else:
        printer.print_string_literal(word)


def parse_region_word(parser: AttrParser) -> Region:
    """The name of a region."""
    start = parser.pos
    word = parser.parse_identifier(context_msg=" (the name of a memory region)")
    try:
        return Region[word]
    except KeyError:
        message = f"unknown region {word}{hint(word, Region.__members__)}"
        return parser.raise_error(message, start, start + len(word))


@irdl_attr_definition
class RegionAttr(Data[Region]):
    """A memory region: `#memplan.region<W_FC_WEIGHT>`, in operations `W_FC_WEIGHT`."""

    name = "memplan.region"

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> Region:
        """Read `<NAME>`."""
        with parser.in_angle_brackets():
            return parse_region_word(parser)

    def print_parameter(self, printer: Printer) -> None:
        """Write `<NAME>`."""
        with printer.in_angle_brackets():
            printer.print_string(self.data.name)


@irdl_attr_definition
class RangeAttr(Data[tuple[Region, Region]]):
    """A closed interval of regions: `#graph.range<G_BN_BIAS to G_DEEP_CONV>`."""

    name = "graph.range"

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> tuple[Region, Region]:
        """Read `<FIRST to LAST>`."""
        with parser.in_angle_brackets():
            return parse_range_words(parser)

    def print_parameter(self, printer: Printer) -> None:
        """Write `<FIRST to LAST>`."""
        with printer.in_angle_brackets():
            printer.print_string(range_text(self.data))


def parse_range_words(parser: AttrParser) -> tuple[Region, Region]:
    """`FIRST to LAST`."""
    first = parse_region_word(parser)
    parser.parse_keyword("to")
    return first, parse_region_word(parser)


def range_text(span: tuple[Region, Region]) -> str:
    """The text of an interval of regions."""
    return f"{span[0].name} to {span[1].name}"


@lru_cache(CACHED)
def region_attr(region: Region) -> RegionAttr:
    """The attribute of a region."""
    return RegionAttr(region)


@lru_cache(CACHED)
def range_attr(first: Region, last: Region) -> RangeAttr:
    """The attribute of a closed interval of regions."""
    return RangeAttr((first, last))


class CheckedOp(IRDLOperation):
    """An operation whose verifier can name every problem, not only the first."""

    STAYS_READABLE: ClassVar[bool] = False
    """Whether its accessors work even when `problems` finds some, so that checks across operations may look at it."""

    def problems(self) -> Iterator[str]:
        """What is wrong with this operation alone, constraints aside. Symbols are checked by the module's check."""
        raise NotImplementedError

    def verify_(self) -> None:
        """Raise the problems as one exception (xDSL's interface)."""
        found = list(self.problems())
        if found:
            raise VerifyException("; ".join(found))


def print_extra_attributes(printer: Printer, op: Operation) -> None:
    """Discardable attributes: ` attributes {...}`, or nothing."""
    printer.print_op_attributes(op.attributes, print_keyword=True)


def parse_extra_attributes(parser: Parser, op: Operation) -> None:
    """Read what `print_extra_attributes` writes into the operation."""
    attributes = parser.parse_optional_attr_dict_with_keyword()
    if attributes is not None:
        op.attributes.update(attributes.data)


def print_layer(printer: Printer, op: Operation) -> None:
    """` layer "fc1"`, or nothing."""
    layer = op.properties.get("layer")
    if isinstance(layer, StringAttr):
        printer.print_string(" layer ")
        printer.print_string_literal(layer.data)


def parse_layer(parser: Parser) -> str | None:
    """Read what `print_layer` writes."""
    return parser.parse_str_literal() if parser.parse_optional_keyword("layer") else None
