"""What all layers of the arch dialect share: shapes, parameters and their text, checks.

A value is a tensor `<batch x height x width x channels>` of f32 (NHWC). `?` is a size that is not known: the batch
always, the others until `arch-deduce-shapes` has run.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, ClassVar, TypeAlias, cast

from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    ArrayAttr,
    BoolAttr,
    Float64Type,
    FloatAttr,
    IntegerAttr,
    StringAttr,
    TensorType,
    UnitAttr,
    f32,
    f64,
)
from xdsl.dialects.utils import EnumAttribute
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import operand_def, opt_prop_def, result_def, traits_def
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException
from xdsl.utils.str_enum import StrEnum

from trc.dialects.attributes import (
    CheckedOp,
    float_text,
    hint,
    integer,
    parse_layer,
    print_extra_attributes,
    print_layer,
    string,
)

Shape: TypeAlias = tuple[int | None, int | None, int | None, int | None]
"""Batch, height, width, channels; None is unknown."""

Number: TypeAlias = int | float | bool | StrEnum | None
"""A parameter of a layer as a plain Python value; None leaves an optional one out."""

UNKNOWN: Shape = (None, None, None, None)
LARGEST = 2**31 - 1
"""The largest integer that a layer's parameter may be: sizes are 32-bit numbers in the kernels."""

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_$-]*(\.[A-Za-z0-9_$-]+)*")
"""A layer's name: it becomes part of the symbols of its tensors."""

FORM = re.compile(r"[a-z_]+(\+[a-z_]+)*")
"""A kernel form: words joined by plus signs."""


class ShapeProblem(Exception):
    """Why a layer cannot take the shapes that it is given; the message names the sizes, not the layer."""


@cache
def tensor_of(shape: Shape) -> TensorType[Attribute]:
    """The type of a value of this shape."""
    return TensorType(f32, [DYNAMIC_INDEX if n is None else n for n in shape])


@lru_cache(4096)
def shape_of_type(type_: Attribute) -> Shape:
    """The shape that a type says; VerifyException for a type that is none of a layer's value."""
    if not isinstance(type_, TensorType):
        raise VerifyException(f"{type_} is no tensor")
    sizes = type_.get_shape()
    if type_.get_element_type() != f32 or len(sizes) != 4:
        raise VerifyException(f"{type_} should be a tensor of f32 with four sizes: batch, height, width, channels")
    if sizes[0] != DYNAMIC_INDEX:
        raise VerifyException(f"the batch of {type_} should be unknown (?)")
    if 0 in sizes:
        raise VerifyException(f"{type_} is empty")
    n, h, w, c = (None if size == DYNAMIC_INDEX else size for size in sizes)
    return n, h, w, c


def shape_of(value: SSAValue) -> Shape:
    """The shape that a value's type says; unknown sizes are None."""
    return shape_of_type(value.type)


def is_static(shape: Shape) -> bool:
    """Whether everything but the batch is known."""
    return shape[1] is not None and shape[2] is not None and shape[3] is not None


def agree(a: Shape, b: Shape) -> bool:
    """Whether two shapes can be the same: an unknown size fits any."""
    return all(x is None or y is None or x == y for x, y in zip(a, b, strict=True))


def shape_text(shape: Shape) -> str:
    """Height, width and channels as in a type: `28x28x1`."""
    return "x".join("?" if n is None else str(n) for n in shape[1:])


def window(size: int | None, kernel: int, stride: int, padding: int, side: str) -> int | None:
    """How many places a sliding window has along one side: (size + 2 padding - kernel) / stride + 1, rounded down.

    Convolutions and pools share this formula; there is neither dilation nor rounding up.
    """
    if size is None:
        return None
    if size + 2 * padding < kernel:
        padded = f" padded by {padding}" if padding else ""
        raise ShapeProblem(f"a kernel of {kernel} does not fit into {side} {size}{padded}")
    return (size + 2 * padding - kernel) // stride + 1


# --- parameters -----------------------------------------------------------------------------------------------------


@lru_cache(4096)
def real(value: float) -> FloatAttr[Float64Type]:
    """A 64-bit float."""
    return FloatAttr(value, f64)


TRUE, FALSE, UNIT = BoolAttr.from_bool(True), BoolAttr.from_bool(False), UnitAttr()


@dataclass(frozen=True)
class Field(ABC):
    """A parameter of a layer: `name = value` in its text, left out where it has its default.

    Without a default it must be given, unless it is `optional`.
    """

    name: str
    default: Number = None
    optional: bool = False

    @abstractmethod
    def attribute(self, value: Number) -> Attribute:
        """The attribute of a Python value."""

    @abstractmethod
    def parse(self, parser: Parser) -> Number:
        """Read a value."""

    @abstractmethod
    def text(self, attr: Attribute) -> str:
        """The value as text."""

    def problem(self, attr: Attribute) -> str | None:
        """What is wrong with a value."""
        return None


@dataclass(frozen=True)
class IntField(Field):
    """An integer, at least `least`."""

    least: int = 1

    def attribute(self, value: Number) -> Attribute:
        """A 64-bit integer."""
        if not isinstance(value, int):
            raise TypeError(f"{self.name} is {value!r} and should be an integer")
        return integer(value)

    def parse(self, parser: Parser) -> Number:
        """Read an integer."""
        return parser.parse_integer(allow_boolean=False, context_msg=f" for {self.name}")

    def text(self, attr: Attribute) -> str:
        """Decimal digits."""
        return str(int_of(attr))

    def problem(self, attr: Attribute) -> str | None:
        """Name a value out of bounds."""
        value = int_of(attr)
        if self.least <= value <= LARGEST:
            return None
        return f"{self.name} is {value} and should be " + (
            f"at least {self.least}" if value < self.least else f"at most {LARGEST}"
        )


@dataclass(frozen=True)
class FloatField(Field):
    """A real number between `least` and `most`; `bounds` says which of them are allowed, as in `[)`."""

    least: float = -math.inf
    most: float = math.inf
    bounds: str = "()"

    def attribute(self, value: Number) -> Attribute:
        """A 64-bit float."""
        if not isinstance(value, int | float):
            raise TypeError(f"{self.name} is {value!r} and should be a number")
        return real(float(value))

    def parse(self, parser: Parser) -> Number:
        """Read a number, with or without a point."""
        return parser.parse_number(context_msg=f" for {self.name}")

    def text(self, attr: Attribute) -> str:
        """The shortest text that reads back as the same number."""
        return float_text(float_of(attr))

    def problem(self, attr: Attribute) -> str | None:
        """Name a value out of bounds."""
        value = float_of(attr)
        above = value >= self.least if self.bounds[0] == "[" else value > self.least
        below = value <= self.most if self.bounds[1] == "]" else value < self.most
        if above and below and math.isfinite(value):
            return None
        limits = [
            "" if math.isfinite(value) else "finite",
            f"{'at least' if self.bounds[0] == '[' else 'above'} {self.least}" if math.isfinite(self.least) else "",
            f"{'at most' if self.bounds[1] == ']' else 'below'} {self.most}" if math.isfinite(self.most) else "",
        ]
        return f"{self.name} is {value} and should be {' and '.join(filter(None, limits)) or 'finite'}"


@dataclass(frozen=True)
class BoolField(Field):
    """True or false."""

    def attribute(self, value: Number) -> Attribute:
        """A one-bit integer."""
        if not isinstance(value, bool):
            raise TypeError(f"{self.name} is {value!r} and should be true or false")
        return TRUE if value else FALSE

    def parse(self, parser: Parser) -> Number:
        """Read `true` or `false`."""
        return parser.parse_boolean(context_msg=f" for {self.name}")

    def text(self, attr: Attribute) -> str:
        """`true` or `false`."""
        return "true" if bool_of(attr) else "false"


@dataclass(frozen=True)
class UnitField(Field):
    """A mark that is there or not: its text is the bare name."""

    optional: bool = True

    def attribute(self, value: Number) -> Attribute:
        """The unit attribute."""
        return UNIT

    def parse(self, parser: Parser) -> Number:
        """Nothing follows the name."""
        return True

    def text(self, attr: Attribute) -> str:
        """Nothing follows the name."""
        return ""


@dataclass(frozen=True)
class EnumField(Field):
    """One word of a list."""

    kind: type[EnumAttribute[Any]] | None = None

    def attribute(self, value: Number) -> Attribute:
        """The attribute of the word; ValueError for a word that is none of the list."""
        assert self.kind is not None
        return enum_attr(self.kind, str(value))

    def parse(self, parser: Parser) -> Number:
        """Read one of the words."""
        assert self.kind is not None
        return parser.parse_str_enum(self.kind.enum_type)

    def text(self, attr: Attribute) -> str:
        """The word."""
        return str(cast(EnumAttribute[Any], attr).data)


@cache
def enum_attr(kind: type[EnumAttribute[Any]], word: str) -> Attribute:
    """The attribute of a word; ValueError with the list for a word that is none of it."""
    words = [str(member) for member in kind.enum_type]
    if word not in words:
        raise ValueError(f"'{word}' is none of {', '.join(words)}")
    return kind(kind.enum_type(word))


def int_of(attr: Attribute) -> int:
    """The value of an integer parameter."""
    assert isinstance(attr, IntegerAttr)
    return attr.value.data


def float_of(attr: Attribute) -> float:
    """The value of a real parameter."""
    assert isinstance(attr, FloatAttr)
    return attr.value.data


def bool_of(attr: Attribute) -> bool:
    """The value of a yes-or-no parameter."""
    assert isinstance(attr, IntegerAttr)
    return attr.value.data != 0


# --- operations -----------------------------------------------------------------------------------------------------


class ArchOp(CheckedOp):
    """An operation with parameters, listed in `FIELDS` in the order of its text, and, perhaps, a name."""

    FIELDS: ClassVar[tuple[Field, ...]] = ()

    layer = opt_prop_def(StringAttr)

    @classmethod
    def fields_from(cls, values: Mapping[str, Number]) -> dict[str, Attribute]:
        """The properties for parameters given as Python values."""
        return {
            field.name: field.attribute(value)
            for field in cls.FIELDS
            if (value := values.get(field.name, field.default)) is not None and (value or type(field) is not UnitField)
        }

    @property
    def layer_name(self) -> str:
        """The layer's name, or its kind while it has none."""
        return self.name.removeprefix("arch.") if self.layer is None else self.layer.data

    def field_problems(self) -> Iterator[str]:
        """Parameters out of bounds and a name that cannot be part of a symbol."""
        if self.layer is not None and NAME.fullmatch(self.layer.data) is None:
            yield f"'{self.layer.data}' is no name for a layer: letters, digits, _, -, $ and single dots inside"
        for field in self.FIELDS:
            attr = self.properties.get(field.name)
            if attr is not None and (found := field.problem(attr)) is not None:
                yield found

    def problems(self) -> Iterator[str]:
        """What is wrong with this operation alone."""
        yield from self.field_problems()

    def verify_(self) -> None:
        """Raise all problems as one exception that names the layer."""
        found = list(self.problems())
        if found:
            raise VerifyException(f"layer '{self.layer_name}': {'; '.join(found)}")

    def print_fields(self, printer: Printer) -> None:
        """` {name = value, ...}` with what differs from the defaults."""
        texts: list[str] = []
        for field in self.FIELDS:
            attr = self.properties.get(field.name)
            if attr is None or (field.default is not None and attr == field.attribute(field.default)):
                continue
            text = field.text(attr)
            texts.append(f"{field.name} = {text}" if text else field.name)
        if texts:
            printer.print_string(f" {{{', '.join(texts)}}}")

    @classmethod
    def parse_fields(cls, parser: Parser, start: int) -> dict[str, Attribute]:
        """Read what `print_fields` writes; the defaults are filled in. What is missing is reported at `start`."""
        known = {field.name: field for field in cls.FIELDS}
        found: dict[str, Attribute] = {}

        def parse_field() -> None:
            at = parser.pos
            name = parser.parse_identifier(context_msg=f" (a parameter of {cls.name})")
            if name not in known:
                allowed = f"it has {', '.join(known)}" if known else "it has none"
                parser.raise_error(
                    f"{cls.name} has no parameter {name}{hint(name, known) or f': {allowed}'}", at, at + len(name)
                )
            if name in found:
                parser.raise_error(f"{name} is given twice", at, at + len(name))
            field = known[name]
            if type(field) is not UnitField:
                parser.parse_punctuation("=")
            try:
                found[name] = field.attribute(field.parse(parser))
            except ValueError as err:
                parser.raise_error(str(err), at, parser.pos)

        if cls.FIELDS:
            parser.parse_optional_comma_separated_list(parser.Delimiter.BRACES, parse_field)
        for field in cls.FIELDS:
            if field.name in found or field.optional:
                continue
            if field.default is None:
                parser.raise_error(f"{cls.name} needs {field.name}", start, start + 1)
            found[field.name] = field.attribute(field.default)
        return {field.name: found[field.name] for field in cls.FIELDS if field.name in found}


class LayerOp(ArchOp):
    """A layer: one or two values in, one value out.

    Text: `%y = arch.fc %x {out_features = 10} layer "fc1" : tensor<?x1x1x10xf32>`. The type is left out while nothing
    of it is known.
    """

    POSITIONWISE: ClassVar[bool] = False
    """Whether each element of the result depends on the element at the same place alone, everywhere alike."""

    MERGED: ClassVar[bool] = False
    """Whether the layer stands for several, whose names are its `parts`."""

    first = opt_prop_def(UnitAttr)
    parts = opt_prop_def(ArrayAttr[StringAttr])
    forms = opt_prop_def(ArrayAttr[StringAttr])
    result = result_def(TensorType)
    traits = traits_def(Pure())

    def __init__(self, inputs: Sequence[SSAValue], values: Mapping[str, Number], layer: str | None = None) -> None:
        properties = self.fields_from(values)
        if layer is not None:
            properties["layer"] = string(layer)
        super().__init__(operands=list(inputs), properties=properties, result_types=[tensor_of(UNKNOWN)])

    def infer_shape(self, inputs: Sequence[Shape]) -> Shape:
        """The shape of the result; ShapeProblem where the layer cannot take these inputs."""
        raise NotImplementedError

    @property
    def leaf_names(self) -> tuple[str, ...]:
        """The names of the layers that a merged one stands for; of any other, its own."""
        return (self.layer_name,) if self.parts is None else tuple(part.data for part in self.parts)

    @property
    def forms_(self) -> dict[str, str]:
        """The chosen kernel forms, by the name of the leaf: of `["conv1 = stats+norm"]` conv1's is `stats+norm`."""
        if self.forms is None:
            return {}
        pairs = (form.data.partition(" = ") for form in self.forms)
        return {leaf: words for leaf, _, words in pairs}

    def form_problems(self) -> Iterator[str]:
        """Kernel forms that are none, or of no layer that this one stands for."""
        seen: set[str] = set()
        for form in () if self.forms is None else self.forms:
            leaf, equals, words = form.data.partition(" = ")
            if not equals or FORM.fullmatch(words) is None:
                yield f"'{form.data}' is no choice of a form: it looks like 'conv1 = stats+norm'"
            elif leaf not in self.leaf_names:
                yield f"a form is chosen for '{leaf}'; the layer is {', '.join(self.leaf_names)}"
            elif leaf in seen:
                yield f"the form of '{leaf}' is chosen twice"
            seen.add(leaf)

    def problems(self) -> Iterator[str]:
        """Parameters, types, and a known result type that contradicts the inputs."""
        yield from self.field_problems()
        try:
            inputs = [shape_of(value) for value in self.operands]
            result = shape_of(self.result)
        except VerifyException as err:
            yield str(err)
            return
        if self.parts is not None and not self.MERGED:
            yield f"{self.name} stands for no other layers, so it has no parts"
        for name in self.leaf_names if self.parts is not None else ():
            if NAME.fullmatch(name) is None:
                yield f"'{name}' is no name for a layer: letters, digits, _, -, $ and single dots inside"
        yield from self.form_problems()
        if result == UNKNOWN or next(self.field_problems(), None) is not None:
            return
        try:
            inferred = self.infer_shape(inputs)
        except ShapeProblem as err:
            yield str(err)
            return
        if not agree(inferred, result):
            taken = " and ".join(map(shape_text, inputs))
            yield f"gives {shape_text(inferred)} for {taken}, but its type says {shape_text(result)}"

    def print(self, printer: Printer) -> None:
        """Write the layer's own text."""
        printer.print_string(" ")
        printer.print_list(self.operands, printer.print_ssa_value)
        self.print_fields(printer)
        print_layer(printer, self)
        if self.parts is not None:
            printer.print_string(" parts ")
            with printer.in_square_brackets():
                printer.print_list(self.parts, lambda part: printer.print_string_literal(part.data))
        if self.first is not None:
            printer.print_string(" first")
        if self.forms is not None:
            printer.print_string(" forms ")
            with printer.in_square_brackets():
                printer.print_list(self.forms, lambda form: printer.print_string_literal(form.data))
        print_extra_attributes(printer, self)
        if self.result.type != tensor_of(UNKNOWN):
            printer.print_string(" : ")
            printer.print_attribute(self.result.type)

    @classmethod
    def parse(cls, parser: Parser) -> LayerOp:
        """Read the layer's own text."""
        start = parser.pos
        operands: list[SSAValue] = []
        for n in range(len(cls.get_irdl_definition().operands)):
            if n:
                parser.parse_punctuation(",")
            operands.append(parse_value(parser))
        properties = cls.parse_fields(parser, start)
        if (layer := parse_layer(parser)) is not None:
            properties["layer"] = string(layer)
        if parser.parse_optional_keyword("parts"):
            names = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, parser.parse_str_literal)
            properties["parts"] = ArrayAttr(map(string, names))
        if parser.parse_optional_keyword("first"):
            properties["first"] = UNIT
        if parser.parse_optional_keyword("forms"):
            words = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, parser.parse_str_literal)
            properties["forms"] = ArrayAttr(map(string, words))
        attributes = parser.parse_optional_attr_dict_with_keyword()
        type_ = parser.parse_type() if parser.parse_optional_punctuation(":") else tensor_of(UNKNOWN)
        return cls.create(
            operands=operands,
            result_types=[type_],
            properties=properties,
            attributes={} if attributes is None else dict(attributes.data),
        )


def parse_value(parser: Parser) -> SSAValue:
    """A value that is already defined, so that its type need not be written."""
    found = parser.parse_unresolved_operand("a value, such as %0, is expected")
    values = parser.ssa_values.get(found.operand_name, ())
    if found.index >= len(values):
        parser.raise_error(f"{found.span.text} is not defined above this line", found.span.start, found.span.end)
    return values[found.index]


class UnaryOp(LayerOp):
    """A layer with one input."""

    input = operand_def(TensorType)


class SameShapeOp(UnaryOp):
    """A layer that keeps the shape."""

    def infer_shape(self, inputs: Sequence[Shape]) -> Shape:
        """The input's shape."""
        return inputs[0]
