"""`graph.variant`: which computation a shape variant runs."""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.dialects.builtin import LocationAttr, SymbolRefAttr
from xdsl.ir import Operation
from xdsl.irdl import irdl_op_definition, prop_def
from xdsl.parser import Parser
from xdsl.printer import Printer

from trc.dialects.attributes import CheckedOp, hint, parse_extra_attributes, print_extra_attributes, symbol
from trc.dialects.memplan.spec import VARIANTS
from trc_runtime.schema.graphs import Variant


@irdl_op_definition
class VariantOp(CheckedOp):
    """A variant and its computation: `graph.variant @train_base uses @train`."""

    name = "graph.variant"
    variant = prop_def(SymbolRefAttr)
    computation = prop_def(SymbolRefAttr)

    def __init__(self, variant: Variant | str, computation: str, *, location: LocationAttr | None = None) -> None:
        name = variant if isinstance(variant, str) else variant.symbol
        Operation.__init__(
            self, properties={"variant": symbol(name), "computation": symbol(computation)}, location=location
        )

    @property
    def variant_(self) -> Variant:
        """The variant, whose value is the shape column; KeyError for a name that the verifier refuses."""
        return VARIANTS[self.variant.root_reference.data]

    @property
    def computation_(self) -> str:
        """The name of the computation."""
        return self.computation.root_reference.data

    def problems(self) -> Iterator[str]:
        """A known variant."""
        name = self.variant.root_reference.data
        if name not in VARIANTS:
            yield f"unknown variant @{name}{hint(name, VARIANTS)} (the variants are {', '.join(VARIANTS)})"

    def print(self, printer: Printer) -> None:
        """Write the text shown above."""
        printer.print_string(" ")
        printer.print_attribute(self.variant)
        printer.print_string(" uses ")
        printer.print_attribute(self.computation)
        print_extra_attributes(printer, self)

    @classmethod
    def parse(cls, parser: Parser) -> VariantOp:
        """Read the text shown above."""
        variant = parser.parse_symbol_name().data
        parser.parse_keyword("uses")
        op = cls(variant, parser.parse_symbol_name().data)
        parse_extra_attributes(parser, op)
        return op
