"""`memplan.spec`: one of the six shape variants."""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.dialects.builtin import I64, IntegerAttr, LocationAttr, SymbolNameConstraint
from xdsl.ir import Operation
from xdsl.irdl import irdl_op_definition, prop_def, traits_def
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import SymbolOpInterface

from trc.dialects.attributes import (
    CheckedOp,
    hint,
    integer,
    parse_extra_attributes,
    print_extra_attributes,
    string,
)
from trc.dialects.memplan.attributes import PrecisionAttr, parse_int64, parse_precision, precision_attr
from trc_runtime.schema.dtypes import Precision
from trc_runtime.schema.graphs import Variant

VARIANTS: dict[str, Variant] = {variant.symbol: variant for variant in Variant}
"""The variants by their names in IR."""

_SIZES = ("batch", "height", "width", "channels")


@irdl_op_definition
class SpecOp(CheckedOp):
    """Batch, resolution and precision of a variant.

    `memplan.spec @train_base {precision = fp32, batch = 200, height = 28, width = 28, channels = 1}`
    """

    name = "memplan.spec"
    sym_name = prop_def(SymbolNameConstraint())
    precision = prop_def(PrecisionAttr)
    batch = prop_def(IntegerAttr[I64])
    height = prop_def(IntegerAttr[I64])
    width = prop_def(IntegerAttr[I64])
    channels = prop_def(IntegerAttr[I64])
    traits = traits_def(SymbolOpInterface())

    def __init__(
        self,
        variant: Variant | str,
        precision: Precision,
        batch: int,
        height: int,
        width: int,
        channels: int,
        *,
        location: LocationAttr | None = None,
    ) -> None:
        Operation.__init__(
            self,
            properties={
                "sym_name": string(variant if isinstance(variant, str) else variant.symbol),
                "precision": precision_attr(precision),
                "batch": integer(batch),
                "height": integer(height),
                "width": integer(width),
                "channels": integer(channels),
            },
            location=location,
        )

    @property
    def name_(self) -> str:
        """The variant's name in IR."""
        return self.sym_name.data

    @property
    def variant_(self) -> Variant:
        """The variant; KeyError for a name that the verifier refuses."""
        return VARIANTS[self.sym_name.data]

    @property
    def precision_(self) -> Precision:
        """What the network is computed in."""
        return self.precision.data

    @property
    def batch_(self) -> int:
        """Samples in a step, on each rank."""
        return self.batch.value.data

    @property
    def height_(self) -> int:
        """Height of the images."""
        return self.height.value.data

    @property
    def width_(self) -> int:
        """Width of the images."""
        return self.width.value.data

    @property
    def channels_(self) -> int:
        """Channels of the images."""
        return self.channels.value.data

    def problems(self) -> Iterator[str]:
        """A known variant, sizes of at least 1."""
        name = self.sym_name.data
        if name not in VARIANTS:
            yield f"unknown variant @{name}{hint(name, VARIANTS)} (the variants are {', '.join(VARIANTS)})"
        for size in _SIZES:
            value = self.properties[size]
            if isinstance(value, IntegerAttr) and value.value.data < 1:
                yield f"variant @{name}: {size} must be at least 1, not {value.value.data}"

    def print(self, printer: Printer) -> None:
        """Write the text shown above."""
        printer.print_string(" ")
        printer.print_symbol_name(self.sym_name)
        sizes = ", ".join(f"{size} = {getattr(self, size).value.data}" for size in _SIZES)
        printer.print_string(f" {{precision = {self.precision.data.keyword}, {sizes}}}")
        print_extra_attributes(printer, self)

    @classmethod
    def parse(cls, parser: Parser) -> SpecOp:
        """Read the text shown above."""
        name = parser.parse_symbol_name().data
        with parser.in_braces():
            parser.parse_keyword("precision")
            parser.parse_punctuation("=")
            precision = parse_precision(parser)
            sizes: list[int] = []
            for size in _SIZES:
                parser.parse_punctuation(",")
                parser.parse_keyword(size)
                parser.parse_punctuation("=")
                sizes.append(parse_int64(parser))
        op = cls(name, precision, *sizes)
        parse_extra_attributes(parser, op)
        return op
