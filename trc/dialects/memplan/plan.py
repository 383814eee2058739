"""`memplan.plan`: which planner laid out the arena, and how large it is."""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.dialects.builtin import I64, IntegerAttr, LocationAttr, StringAttr, SymbolRefAttr
from xdsl.ir import Attribute, Operation
from xdsl.irdl import irdl_op_definition, opt_prop_def, prop_def
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
    symbol,
)
from trc.dialects.memplan.attributes import parse_int64
from trc_runtime.schema.regions import SLOT_ALIGNMENT

MODES = ("packed", "regions")
"""The planner modes."""


@irdl_op_definition
class PlanOp(CheckedOp):
    """The plan of a model: `memplan.plan @mlp {mode = packed, total = 123904}`.

    `@mlp` refers to the `arch.model`; the total, in bytes, is absent until every offset is known.
    """

    name = "memplan.plan"
    model = prop_def(SymbolRefAttr)
    mode = prop_def(StringAttr)
    total = opt_prop_def(IntegerAttr[I64])

    def __init__(
        self, model: str, mode: str = "packed", total: int | None = None, *, location: LocationAttr | None = None
    ) -> None:
        properties: dict[str, Attribute] = {"model": symbol(model), "mode": string(mode)}
        if total is not None:
            properties["total"] = integer(total)
        Operation.__init__(self, properties=properties, location=location)

    @property
    def name_(self) -> str:
        """The name of the model."""
        return self.model.root_reference.data

    @property
    def mode_(self) -> str:
        """`packed` or `regions`."""
        return self.mode.data

    @property
    def total_(self) -> int | None:
        """Bytes of the arena, or None before they are known."""
        return None if self.total is None else self.total.value.data

    @total_.setter
    def total_(self, value: int | None) -> None:
        if value is None:
            self.properties.pop("total", None)
        else:
            self.properties["total"] = integer(value)

    def problems(self) -> Iterator[str]:
        """A known mode, an aligned total."""
        mode, total = self.mode.data, self.total_
        if mode not in MODES:
            yield f"unknown planner mode {mode}{hint(mode, MODES)} (choose one of {', '.join(MODES)})"
        if total is not None and (total < 0 or total % SLOT_ALIGNMENT):
            yield f"the total of {total} bytes is no multiple of {SLOT_ALIGNMENT} from 0 on"

    def print(self, printer: Printer) -> None:
        """Write the text shown above."""
        printer.print_string(" ")
        printer.print_attribute(self.model)
        printer.print_string(" {mode = ")
        print_word(printer, self.mode.data)
        if self.total is not None:
            printer.print_string(f", total = {self.total.value.data}")
        printer.print_string("}")
        print_extra_attributes(printer, self)

    @classmethod
    def parse(cls, parser: Parser) -> PlanOp:
        """Read the text shown above."""
        model = parser.parse_symbol_name().data
        total = None
        with parser.in_braces():
            parser.parse_keyword("mode")
            parser.parse_punctuation("=")
            mode = parser.parse_identifier_or_str_literal()
            if parser.parse_optional_punctuation(",") is not None:
                parser.parse_keyword("total")
                parser.parse_punctuation("=")
                total = parse_int64(parser)
        op = cls(model, mode, total)
        parse_extra_attributes(parser, op)
        return op
