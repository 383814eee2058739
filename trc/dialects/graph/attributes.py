"""Attributes of graph: graph ids, streams, operands and parameters."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import cast

from xdsl.dialects.builtin import (
    ArrayAttr,
    DictionaryAttr,
    Float64Type,
    FloatAttr,
    IntegerAttr,
    IntegerType,
    StringAttr,
    SymbolRefAttr,
    f64,
    i1,
    i64,
)
from xdsl.ir import Attribute, Data
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser, Parser
from xdsl.printer import Printer

from trc.dialects.attributes import (
    CACHED,
    RangeAttr,
    float_text,
    hint,
    integer,
    parse_range_words,
    print_word,
    range_attr,
    range_text,
    string,
    symbol,
)
from trc_runtime.schema.graphs import GraphId, StreamKind
from trc_runtime.schema.regions import Region

Range = tuple[Region, Region]
"""A closed interval of regions."""

OperandRef = str | Range
"""An operand in Python: a tensor's symbol, or an interval of regions."""

Param = bool | int | float | str
"""A parameter in Python."""


@irdl_attr_definition
class GraphIdAttr(Data[GraphId]):
    """A sub-graph: `#graph.id<DEEP_FWD_BWD>`, in operations `DEEP_FWD_BWD`."""

    name = "graph.id"

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> GraphId:
        """Read `<NAME>`."""
        with parser.in_angle_brackets():
            return parse_graph_id(parser)

    def print_parameter(self, printer: Printer) -> None:
        """Write `<NAME>`."""
        with printer.in_angle_brackets():
            printer.print_string(self.data.name)


@irdl_attr_definition
class StreamAttr(Data[StreamKind]):
    """A stream: `#graph.stream<COMP_1>`, in operations `COMP_1`."""

    name = "graph.stream"

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> StreamKind:
        """Read `<NAME>`."""
        with parser.in_angle_brackets():
            return parse_stream(parser)

    def print_parameter(self, printer: Printer) -> None:
        """Write `<NAME>`."""
        with printer.in_angle_brackets():
            printer.print_string(self.data.name)


@lru_cache(CACHED)
def graph_id_attr(graph_id: GraphId) -> GraphIdAttr:
    """The attribute of a graph id."""
    return GraphIdAttr(graph_id)


@lru_cache(CACHED)
def stream_attr(stream: StreamKind) -> StreamAttr:
    """The attribute of a stream."""
    return StreamAttr(stream)


def parse_graph_id(parser: AttrParser) -> GraphId:
    """The name of a graph id."""
    start = parser.pos
    word = parser.parse_identifier(context_msg=" (a graph id)")
    try:
        return GraphId[word]
    except KeyError:
        message = f"unknown graph id {word}{hint(word, GraphId.__members__)}"
        return parser.raise_error(message, start, start + len(word))


def parse_stream(parser: AttrParser) -> StreamKind:
    """The name of a stream."""
    start = parser.pos
    word = parser.parse_identifier(context_msg=" (a stream)")
    try:
        return StreamKind[word]
    except KeyError:
        choices = ", ".join(StreamKind.__members__)
        message = f"unknown stream {word}{hint(word, StreamKind.__members__)} (choose one of {choices})"
        return parser.raise_error(message, start, start + len(word))


def ref_attr(ref: OperandRef) -> SymbolRefAttr | RangeAttr:
    """The attribute of an operand."""
    return symbol(ref) if isinstance(ref, str) else range_attr(*ref)


def refs_attr(refs: Sequence[OperandRef]) -> ArrayAttr[SymbolRefAttr | RangeAttr]:
    """The attribute of a group of operands."""
    return ArrayAttr(map(ref_attr, refs))


def read_ref(attribute: SymbolRefAttr | RangeAttr) -> OperandRef:
    """An operand in Python."""
    return attribute.data if isinstance(attribute, RangeAttr) else attribute.root_reference.data


def parse_ref(parser: AttrParser) -> OperandRef:
    """`@tensor`, or `FIRST to LAST`."""
    name = parser.parse_optional_symbol_name()
    return parse_range_words(parser) if name is None else name.data


def print_refs(printer: Printer, keyword: str, refs: Sequence[OperandRef]) -> None:
    """` keyword(@a, FIRST to LAST)`, or nothing for no operand."""
    if not refs:
        return
    printer.print_string(f" {keyword}(")
    for n, ref in enumerate(refs):
        if n:
            printer.print_string(", ")
        if isinstance(ref, str):
            printer.print_symbol_name(ref)
        else:
            printer.print_string(range_text(ref))
    printer.print_string(")")


def parse_refs(parser: AttrParser, keyword: str) -> list[OperandRef]:
    """Read what `print_refs` writes."""
    if not parser.parse_optional_keyword(keyword):
        return []
    return parser.parse_comma_separated_list(parser.Delimiter.PAREN, lambda: parse_ref(parser))


TRUE, FALSE = IntegerAttr(1, i1), IntegerAttr(0, i1)


def param_attr(value: Param) -> Attribute:
    """A parameter as an attribute: i1, i64, f64 or a string."""
    if isinstance(value, bool):
        return TRUE if value else FALSE
    if isinstance(value, int):
        return integer(value)
    if isinstance(value, float):
        return FloatAttr(value, f64)
    return string(value)


def read_param(attribute: Attribute) -> Param | None:
    """A parameter in Python; None for an attribute that is none."""
    if isinstance(attribute, IntegerAttr):
        number = cast(IntegerAttr[IntegerType], attribute)
        if number.type == i1:
            return bool(number.value.data)
        return number.value.data if number.type == i64 else None
    if isinstance(attribute, FloatAttr):
        real = cast(FloatAttr[Float64Type], attribute)
        return real.value.data if real.type == f64 else None
    return attribute.data if isinstance(attribute, StringAttr) else None


def params_attr(params: Mapping[str, Param]) -> DictionaryAttr:
    """Parameters as a dictionary, in the order given."""
    # The type belongs to the key because True, 1 and 1.0 are equal, the text because 0.0 and -0.0 are.
    return _params(tuple([(name, type(value), repr(value), value) for name, value in params.items()]))


@lru_cache(CACHED)
def _params(items: tuple[tuple[str, type, str, Param], ...]) -> DictionaryAttr:
    return DictionaryAttr({name: param_attr(value) for name, _, _, value in items})


def print_params(printer: Printer, params: DictionaryAttr) -> None:
    """` {slope = 0.1, stream = 7, nesterov = true, decay = "l2"}`."""
    printer.print_string(" {")
    for n, (name, attribute) in enumerate(params.data.items()):
        if n:
            printer.print_string(", ")
        print_word(printer, name)
        printer.print_string(" = ")
        value = read_param(attribute)
        if isinstance(value, str):
            printer.print_string_literal(value)
        elif isinstance(value, bool):
            printer.print_string("true" if value else "false")
        elif isinstance(value, int):
            printer.print_string(str(value))
        elif isinstance(value, float) and math.isfinite(value):
            printer.print_string(float_text(value))
        else:
            printer.print_attribute(attribute)
    printer.print_string("}")


def parse_params(parser: Parser) -> DictionaryAttr | None:
    """Read what `print_params` writes, or None. A bare number is i64 or f64; other attributes are read as written."""
    params: dict[str, Attribute] = {}

    def entry() -> None:
        start = parser.pos
        name = parser.parse_identifier_or_str_literal()
        if name in params:
            parser.raise_error(f"parameter {name} is given twice", start, parser.pos)
        parser.parse_punctuation("=")
        # Without a type, `3` is read as i64 and `0.1` as f64, which is just what a parameter is.
        params[name] = parser.parse_attribute()

    if parser.parse_optional_comma_separated_list(parser.Delimiter.BRACES, entry) is None:
        return None
    return DictionaryAttr(params)


def symbol_list(attribute: ArrayAttr[SymbolRefAttr]) -> tuple[str, ...]:
    """The names in an array of symbols."""
    return tuple([ref.root_reference.data for ref in attribute.data])
