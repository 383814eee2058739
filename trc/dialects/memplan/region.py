"""`memplan.region`: the bytes of a region."""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.dialects.builtin import I64, IntegerAttr, LocationAttr, StringAttr
from xdsl.ir import Operation
from xdsl.irdl import irdl_op_definition, prop_def
from xdsl.parser import Parser
from xdsl.printer import Printer

from trc.dialects.attributes import (
    CheckedOp,
    hint,
    integer,
    parse_extra_attributes,
    print_extra_attributes,
    print_word,
    string,
)
from trc.dialects.memplan.attributes import parse_int64
from trc_runtime.schema.plan import POOL
from trc_runtime.schema.regions import SLOT_ALIGNMENT, Region

SPAN_NAMES = (*Region.__members__, POOL)
"""What a span may be called."""


@irdl_op_definition
class RegionOp(CheckedOp):
    """A span of the arena: `memplan.region W_FC_BIAS at 0 bytes 9216`.

    The name is a region's, or POOL for the bytes that transient tensors share in packed mode.
    """

    name = "memplan.region"
    span = prop_def(StringAttr)
    offset = prop_def(IntegerAttr[I64])
    bytes = prop_def(IntegerAttr[I64])

    def __init__(self, name: Region | str, offset: int, bytes: int, *, location: LocationAttr | None = None) -> None:
        Operation.__init__(
            self,
            properties={
                "span": string(name if isinstance(name, str) else name.name),
                "offset": integer(offset),
                "bytes": integer(bytes),
            },
            location=location,
        )

    @property
    def name_(self) -> str:
        """The region's name, or POOL."""
        return self.span.data

    @property
    def offset_(self) -> int:
        """Bytes from the beginning of the arena."""
        return self.offset.value.data

    @property
    def bytes_(self) -> int:
        """Length in bytes."""
        return self.bytes.value.data

    def problems(self) -> Iterator[str]:
        """A known name, an aligned span."""
        name = self.span.data
        if name not in SPAN_NAMES:
            yield f"unknown region {name}{hint(name, SPAN_NAMES)}"
        for what, value in (("offset", self.offset_), ("length", self.bytes_)):
            if value < 0 or value % SLOT_ALIGNMENT:
                yield f"region {name}: the {what} {value} is no multiple of {SLOT_ALIGNMENT} from 0 on"

    def print(self, printer: Printer) -> None:
        """Write the text shown above."""
        printer.print_string(" ")
        print_word(printer, self.span.data)
        printer.print_string(f" at {self.offset.value.data} bytes {self.bytes.value.data}")
        print_extra_attributes(printer, self)

    @classmethod
    def parse(cls, parser: Parser) -> RegionOp:
        """Read the text shown above."""
        name = parser.parse_identifier_or_str_literal()
        parser.parse_keyword("at")
        offset = parse_int64(parser)
        parser.parse_keyword("bytes")
        op = cls(name, offset, parse_int64(parser))
        parse_extra_attributes(parser, op)
        return op
