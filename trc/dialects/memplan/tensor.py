"""`memplan.tensor`: a row of the layout table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

from xdsl.dialects.builtin import (
    I64,
    DenseArrayBase,
    IntegerAttr,
    LocationAttr,
    StringAttr,
    SymbolNameConstraint,
    i64,
)
from xdsl.ir import Attribute, Operation, TypeAttribute
from xdsl.irdl import BaseAttr, irdl_op_definition, opt_prop_def, prop_def, traits_def
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import SymbolOpInterface

from trc.dialects.attributes import (
    CheckedOp,
    RegionAttr,
    integer,
    parse_extra_attributes,
    parse_layer,
    parse_region_word,
    print_extra_attributes,
    print_layer,
    read_ints64,
    region_attr,
    string,
)
from trc.dialects.memplan.attributes import (
    COLUMNS,
    DTYPES,
    RANK,
    TYPES,
    Columns,
    InitialAttr,
    columns_attr,
    columns_text,
    initial_attr,
    initial_problems,
    initial_text,
    parse_columns,
    parse_dtype,
    parse_initial,
    parse_int64,
    read_columns,
)
from trc_runtime.schema.dtypes import DType
from trc_runtime.schema.graphs import Variant
from trc_runtime.schema.plan import Initial, Shape
from trc_runtime.schema.regions import SLOT_ALIGNMENT, Region, slot_bytes

ZEROS = Initial("zeros")
"""The initial value of a tensor that states none."""


@irdl_op_definition
class TensorOp(CheckedOp):
    """A named tensor: region, element type, one shape or six columns, then slot and offset once they are known.

    `memplan.tensor @fc1.output F_FEATURE_FP32 f32 [[200, 1, 1, 10], ..., -] layer "fc1" slot 16384 at 512`

    Shapes are logical; the slot counts the channel padding. Six equal columns print as one shape, and a tensor
    without an initial value starts as zeros.
    """

    name = "memplan.tensor"
    sym_name = prop_def(SymbolNameConstraint())
    region = prop_def(RegionAttr)
    dtype = prop_def(BaseAttr(TypeAttribute))
    shapes = prop_def(DenseArrayBase.constr(i64))
    initial = opt_prop_def(InitialAttr)
    layer = opt_prop_def(StringAttr)
    slot = opt_prop_def(IntegerAttr[I64])
    offset = opt_prop_def(IntegerAttr[I64])
    channels = opt_prop_def(IntegerAttr[I64])
    traits = traits_def(SymbolOpInterface())

    def __init__(
        self,
        name: str,
        region: Region,
        dtype: DType,
        shapes: Sequence[Shape | None],
        initial: Initial = ZEROS,
        layer: str | None = None,
        slot: int | None = None,
        offset: int | None = None,
        *,
        channels: int | None = None,
        location: LocationAttr | None = None,
    ) -> None:
        properties: dict[str, Attribute] = {
            "sym_name": string(name),
            "region": region_attr(region),
            "dtype": TYPES[dtype],
            "shapes": columns_attr(tuple(shapes)),
        }
        if initial != ZEROS:
            properties["initial"] = initial_attr(initial)
        if layer is not None:
            properties["layer"] = string(layer)
        if slot is not None:
            properties["slot"] = integer(slot)
        if offset is not None:
            properties["offset"] = integer(offset)
        if channels is not None:
            properties["channels"] = integer(channels)
        Operation.__init__(self, properties=properties, location=location)

    @property
    def name_(self) -> str:
        """The symbol."""
        return self.sym_name.data

    @property
    def region_(self) -> Region:
        """The memory region."""
        return self.region.data

    @property
    def dtype_(self) -> DType:
        """The element type; KeyError for a type that the verifier refuses."""
        return DTYPES[self.dtype]

    @property
    def shapes_(self) -> Columns:
        """One shape a variant; None where no graph of that variant touches the tensor."""
        return read_columns(self.shapes)

    @property
    def initial_(self) -> Initial:
        """What the tensor holds before the first step."""
        return ZEROS if self.initial is None else self.initial.data

    @property
    def layer_(self) -> str | None:
        """The layer it belongs to."""
        return None if self.layer is None else self.layer.data

    @property
    def slot_(self) -> int | None:
        """Bytes of the slot, or None before they are computed."""
        return None if self.slot is None else self.slot.value.data

    @slot_.setter
    def slot_(self, value: int | None) -> None:
        self._set("slot", value)

    @property
    def offset_(self) -> int | None:
        """Bytes from the beginning of the arena, or None before they are assigned."""
        return None if self.offset is None else self.offset.value.data

    @offset_.setter
    def offset_(self, value: int | None) -> None:
        self._set("offset", value)

    @property
    def channels_(self) -> int | None:
        """How many of the innermost channels are real, None for all; the others hold zeros and are never shown."""
        return None if self.channels is None else self.channels.value.data

    def _set(self, key: str, value: int | None) -> None:
        if value is None:
            self.properties.pop(key, None)
        else:
            self.properties[key] = integer(value)

    def problems(self) -> Iterator[str]:
        """Columns, element type, initial value, slot and offset. The precision is the module check's matter."""
        name = f"tensor @{self.sym_name.data}"
        dtype = DTYPES.get(self.dtype)
        if dtype is None:
            yield f"{name}: {self.dtype} is no element type (choose one of {', '.join(DTYPES.values())})"
        for problem in initial_problems(self.initial_):
            yield f"{name}: {problem}"
        numbers = read_ints64(self.shapes)
        if len(numbers) not in (RANK, RANK * COLUMNS):
            yield f"{name}: shapes are {RANK} or {RANK * COLUMNS} numbers, not {len(numbers)}"
            return
        shapes = self.shapes_
        if not any(shapes):
            yield f"{name}: no column has a shape; a tensor that no graph touches has no place in the table"
        real = self.channels_
        if real is not None and not all(shape is None or 0 < real < shape[-1] for shape in shapes):
            yield f"{name}: {real} real channels should be fewer than the shape has, and at least 1"
        needed, largest = 0, None
        for variant, shape in zip(Variant, shapes, strict=True):
            if shape is None:
                continue
            if min(shape) < 1:
                yield f"{name}: column {variant.symbol} has the shape {list(shape)}; every dimension is at least 1"
                return
            if (count := len(self.initial_.values)) and prod(shape) != count:
                yield f"{name}: column {variant.symbol} has {prod(shape)} elements, its initial value {count} numbers"
                return
            if dtype is not None and (least := slot_bytes(shape, dtype, self.region.data)) > needed:
                needed, largest = least, variant
        yield from self._place_problems(name, needed, largest)

    def _place_problems(self, name: str, needed: int, largest: Variant | None) -> Iterator[str]:
        slot, offset = self.slot_, self.offset_
        if slot is not None:
            if slot < needed and largest is not None:
                yield f"{name}: the slot of {slot} bytes is too small; column {largest.symbol} needs {needed}"
            if slot % SLOT_ALIGNMENT:
                yield f"{name}: the slot of {slot} bytes is no multiple of {SLOT_ALIGNMENT}"
        if offset is not None:
            if slot is None:
                yield f"{name}: has an offset ({offset}) but no slot"
            if offset < 0 or offset % SLOT_ALIGNMENT:
                yield f"{name}: the offset {offset} is no multiple of {SLOT_ALIGNMENT} from 0 on"

    def print(self, printer: Printer) -> None:
        """Write the text shown above."""
        printer.print_string(" ")
        printer.print_symbol_name(self.sym_name)
        dtype = DTYPES.get(self.dtype)
        element = str(self.dtype) if dtype is None else dtype.value
        printer.print_string(f" {self.region.data.name} {element} {columns_text(self.shapes_)}")
        if self.channels is not None:
            printer.print_string(f" of {self.channels.value.data}")
        if self.initial is not None:
            printer.print_string(f" init {initial_text(self.initial.data)}")
        print_layer(printer, self)
        if self.slot is not None:
            printer.print_string(f" slot {self.slot.value.data}")
        if self.offset is not None:
            printer.print_string(f" at {self.offset.value.data}")
        print_extra_attributes(printer, self)

    @classmethod
    def parse(cls, parser: Parser) -> TensorOp:
        """Read the text shown above."""
        name = parser.parse_symbol_name().data
        region = parse_region_word(parser)
        dtype = parse_dtype(parser)
        shapes = parse_columns(parser)
        channels = parse_int64(parser) if parser.parse_optional_keyword("of") else None
        initial = parse_initial(parser) if parser.parse_optional_keyword("init") else ZEROS
        layer = parse_layer(parser)
        slot = parse_int64(parser) if parser.parse_optional_keyword("slot") else None
        offset = parse_int64(parser) if parser.parse_optional_keyword("at") else None
        op = cls(name, region, dtype, shapes, initial, layer, slot, offset, channels=channels)
        parse_extra_attributes(parser, op)
        return op
