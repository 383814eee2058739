"""Attributes of memplan: what a tensor holds at first, element types, precisions, shape columns."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache

from xdsl.dialects.builtin import (
    DenseArrayBase,
    IntegerType,
    Signedness,
    bf16,
    f16,
    f32,
    f64,
    i8,
    i32,
    i64,
)
from xdsl.ir import Attribute, Data, TypeAttribute
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer

from trc.dialects.attributes import CACHED, float_text, hint, ints64, read_ints64
from trc_runtime.schema.dtypes import DType, Precision
from trc_runtime.schema.graphs import Variant
from trc_runtime.schema.plan import INITIAL_RULES, Initial, Shape

COLUMNS = len(Variant)
"""How many shape columns the layout table has: one a variant."""

PURPOSES = {
    "train": frozenset(v.value for v in Variant if v.is_train),
    "val": frozenset(v.value for v in Variant if not v.is_train),
}
"""The columns of training and those of validation."""

RANK = 4
"""Every shape is N, H, W, C."""

Columns = tuple[Shape | None, ...]
"""One shape a variant; None where no graph of that variant touches the tensor."""

TYPES: dict[DType, TypeAttribute] = {
    DType.F16: f16,
    DType.BF16: bf16,
    DType.F32: f32,
    DType.F64: f64,
    DType.I8: i8,
    DType.U8: IntegerType(8, Signedness.UNSIGNED),
    DType.I32: i32,
    DType.I64: i64,
}
"""The builtin type of each element type."""

DTYPES: dict[Attribute, DType] = {attribute: dtype for dtype, attribute in TYPES.items()}
"""The element type of each builtin type."""


@irdl_attr_definition
class PrecisionAttr(Data[Precision]):
    """What a network is computed in: `#memplan.precision<amp_fp16>`, in operations `amp_fp16`."""

    name = "memplan.precision"

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> Precision:
        """Read `<keyword>`."""
        with parser.in_angle_brackets():
            return parse_precision(parser)

    def print_parameter(self, printer: Printer) -> None:
        """Write `<keyword>`."""
        with printer.in_angle_brackets():
            printer.print_string(self.data.keyword)


@lru_cache(CACHED)
def precision_attr(precision: Precision) -> PrecisionAttr:
    """The attribute of a precision."""
    return PrecisionAttr(precision)


def parse_precision(parser: AttrParser) -> Precision:
    """A precision's keyword."""
    start = parser.pos
    word = parser.parse_identifier(context_msg=" (a precision)")
    try:
        return Precision.from_text(word)
    except ValueError as err:
        return parser.raise_error(str(err), start, start + len(word))


def parse_dtype(parser: AttrParser) -> DType:
    """An element type's name."""
    start = parser.pos
    word = parser.parse_identifier(context_msg=" (an element type)")
    try:
        return DType(word)
    except ValueError:
        choices = ", ".join(d.value for d in DType)
        message = f"unknown element type {word}{hint(word, list(DType))} (choose one of {choices})"
        return parser.raise_error(message, start, start + len(word))


def initial_text(initial: Initial) -> str:
    """`constant 1.0`, `kaiming_uniform fan 784`, `zeros`, `values [0.5, -1.0]`."""
    text = initial.rule
    if initial.values:
        text += f" [{', '.join(map(float_text, initial.values))}]"
    if initial.value != 0:
        text += f" {float_text(initial.value)}"
    if initial.fan != 0:
        text += f" fan {initial.fan}"
    return text


def parse_initial(parser: AttrParser) -> Initial:
    """Read what `initial_text` writes."""
    start = parser.pos
    rule = parser.parse_identifier(context_msg=" (how the tensor is initialised)")
    if rule not in INITIAL_RULES:
        message = f"unknown rule {rule}{hint(rule, INITIAL_RULES)} (choose one of {', '.join(INITIAL_RULES)})"
        return parser.raise_error(message, start, start + len(rule))
    values: list[float] | None = None
    if rule == "values":
        values = parser.parse_comma_separated_list(
            parser.Delimiter.SQUARE, lambda: _parse_float(parser, parser.parse_number)
        )
    number = _parse_float(parser, parser.parse_optional_number)
    fan = parser.parse_integer(allow_boolean=False) if parser.parse_optional_keyword("fan") else 0
    return Initial(rule, number, fan, tuple(values or ()))


def _parse_float(parser: AttrParser, parse: Callable[[], int | float | None]) -> float:
    """A number that fits a 64-bit float; 0 where there may be none and is none."""
    start = parser.pos
    value = parse()
    try:
        number = float(0 if value is None else value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        return parser.raise_error(f"{value} is too large for a 64-bit float", start, parser.pos)
    return number


@irdl_attr_definition
class InitialAttr(Data[Initial]):
    """What a tensor holds before the first step: `#memplan.initial<kaiming_uniform fan 784>`."""

    name = "memplan.initial"

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> Initial:
        """Read `<rule value fan n>`."""
        with parser.in_angle_brackets():
            return parse_initial(parser)

    def print_parameter(self, printer: Printer) -> None:
        """Write `<rule value fan n>`."""
        with printer.in_angle_brackets():
            printer.print_string(initial_text(self.data))


@lru_cache(CACHED)
def initial_attr(initial: Initial) -> InitialAttr:
    """The attribute of an initial value."""
    return InitialAttr(initial)


def initial_problems(initial: Initial) -> Iterator[str]:
    """What is wrong with an initial value."""
    rule, value, fan = initial.rule, initial.value, initial.fan
    if rule not in INITIAL_RULES:
        yield f"unknown initial rule {rule}{hint(rule, INITIAL_RULES)} (choose one of {', '.join(INITIAL_RULES)})"
        return
    if not math.isfinite(value):
        yield f"the value of the initial rule {rule} must be finite, not {value}"
    if rule.startswith("kaiming"):
        if fan < 1:
            yield f"the initial rule {rule} needs a fan of at least 1, not {fan}"
    elif fan != 0:
        yield f"the initial rule {rule} takes no fan ({fan})"
    if rule == "trunc_normal" and value <= 0:
        yield f"the initial rule trunc_normal needs a standard deviation above 0, not {float_text(value)}"
    if rule == "values":
        if not initial.values:
            yield "the initial rule values needs values, one an element"
        if bad := [v for v in initial.values if not math.isfinite(v)]:
            yield f"the values of the initial rule values must be finite, not {bad[0]}"
    elif initial.values:
        yield f"the initial rule {rule} takes no values ({len(initial.values)} are given)"
    if value != 0 and rule not in ("constant", "trunc_normal"):
        yield f"the initial rule {rule} takes no value ({float_text(value)})"


@lru_cache(CACHED)
def columns_attr(shapes: Columns) -> DenseArrayBase[IntegerType]:
    """Six shapes as numbers: four where all columns agree, else 24, where four zeros stand for no shape.

    ValueError where there are not six columns, or one is not a shape of rank four.
    """
    if len(shapes) != COLUMNS:
        raise ValueError(f"a tensor has {COLUMNS} shape columns, not {len(shapes)}")
    for shape in shapes:
        if shape is not None and len(shape) != RANK:
            raise ValueError(f"a shape is N, H, W, C, not {list(shape)}")
    first = shapes[0]
    if first is not None and all(shape == first for shape in shapes):
        return ints64(tuple(first))
    return ints64(tuple(n for shape in shapes for n in (shape or (0,) * RANK)))


@lru_cache(CACHED)
def read_columns(array: DenseArrayBase[IntegerType]) -> Columns:
    """The six shapes of what `columns_attr` made; ValueError for another number of numbers."""
    numbers = read_ints64(array)
    if len(numbers) == RANK:
        return (numbers,) * COLUMNS
    if len(numbers) != RANK * COLUMNS:
        raise ValueError(f"shapes are {RANK} or {RANK * COLUMNS} numbers, not {len(numbers)}")
    rows = [numbers[i : i + RANK] for i in range(0, len(numbers), RANK)]
    return tuple(row if any(row) else None for row in rows)


def columns_text(shapes: Columns) -> str:
    """`[1024, 1, 1, 784]`, the same `in train` or `in val`, or `[[200, 1, 1, 10], ..., -]` with one entry a column."""
    present = {shape for shape in shapes if shape is not None}
    if len(present) == 1:
        text = str(list(next(iter(present))))
        if None not in shapes:
            return text
        for word, columns in PURPOSES.items():
            if all((shape is not None) == (n in columns) for n, shape in enumerate(shapes)):
                return f"{text} in {word}"
    return f"[{', '.join('-' if shape is None else str(list(shape)) for shape in shapes)}]"


def parse_columns(parser: AttrParser) -> Columns:
    """Read what `columns_text` writes."""
    start = parser.pos
    entries = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, lambda: _parse_entry(parser))
    if len(entries) == RANK and all(isinstance(entry, int) for entry in entries):
        shape = tuple(entry for entry in entries if isinstance(entry, int))
        columns = _parse_purpose(parser)
        return tuple(shape if n in columns else None for n in range(COLUMNS))
    shapes = [entry for entry in entries if not isinstance(entry, int)]
    if len(shapes) != COLUMNS or len(entries) != COLUMNS:
        message = (
            f"expected one shape of {RANK} numbers, or {COLUMNS} shapes (`-` for none), not {len(entries)} entries"
        )
        return parser.raise_error(message, start, parser.pos)
    return tuple(shapes)


def _parse_purpose(parser: AttrParser) -> frozenset[int]:
    """` in train`, ` in val`, or nothing for all columns."""
    if parser.parse_optional_keyword("in") is None:
        return frozenset(range(COLUMNS))
    start = parser.pos
    word = parser.parse_identifier(context_msg=" (train or val)")
    columns = PURPOSES.get(word)
    if columns is None:
        return parser.raise_error(f"expected train or val, not {word}", start, start + len(word))
    return columns


def _parse_entry(parser: AttrParser) -> int | Shape | None:
    start = parser.pos
    if parser.parse_optional_punctuation("-") is not None:
        value = parser.parse_optional_integer(allow_boolean=False, allow_negative=False)
        return None if value is None else _fits(parser, -value, start)
    value = parser.parse_optional_integer(allow_boolean=False)
    if value is not None:
        return _fits(parser, value, start)
    shape = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, lambda: parse_int64(parser))
    if len(shape) != RANK:
        return parser.raise_error(f"a shape is N, H, W, C, not {shape}", start, parser.pos)
    return tuple(shape)


def parse_int64(parser: AttrParser) -> int:
    """An integer of 64 bits."""
    start = parser.pos
    return _fits(parser, parser.parse_integer(allow_boolean=False), start)


def _fits(parser: AttrParser, value: int, start: int) -> int:
    if abs(value) >= 1 << 63:
        return parser.raise_error(f"{value} does not fit into 64 bits", start, parser.pos)
    return value


def shape_sequence(shapes: Sequence[Shape | None]) -> Columns:
    """Six columns as the tuple that the caches need."""
    return tuple(shapes)
