"""The model, and the structure that `arch-expand-tree` takes away: sequences, repetitions, sums, named blocks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

from xdsl.dialects.builtin import I64, IntegerAttr, SymbolNameConstraint, TensorType
from xdsl.ir import Attribute, Region, SSAValue
from xdsl.irdl import (
    IRDLOperation,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    region_def,
    result_def,
    traits_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import IsolatedFromAbove, IsTerminator, SymbolOpInterface
from xdsl.utils.exceptions import VerifyException

from trc.dialects.arch.base import (
    UNKNOWN,
    ArchOp,
    EnumField,
    Field,
    IntField,
    Number,
    parse_value,
    shape_of,
    tensor_of,
)
from trc.dialects.arch.enums import Style, StyleAttr
from trc.dialects.attributes import (
    CheckedOp,
    parse_extra_attributes,
    parse_layer,
    print_extra_attributes,
    print_layer,
    string,
)


class EndOp(IRDLOperation):
    """Ends a body with one value. Its text has no type: the value's definition says it, and is checked there."""

    value = operand_def(TensorType)
    traits = traits_def(IsTerminator())

    def __init__(self, value: SSAValue) -> None:
        super().__init__(operands=[value])

    def print(self, printer: Printer) -> None:
        """Write the value."""
        printer.print_string(" ")
        printer.print_ssa_value(self.value)
        print_extra_attributes(printer, self)

    @classmethod
    def parse(cls, parser: Parser) -> EndOp:
        """Read the value."""
        op = cls.create(operands=[parse_value(parser)])
        parse_extra_attributes(parser, op)
        return op


@irdl_op_definition
class OutputOp(EndOp):
    """What a model gives: `arch.output %y`."""

    name = "arch.output"


@irdl_op_definition
class YieldOp(EndOp):
    """What a part of the structure gives: `arch.yield %y`."""

    name = "arch.yield"


def body_problems(region: Region, end: type[EndOp], type_: Attribute, what: str) -> Iterator[str]:
    """What is wrong with a body of one block that takes one value."""
    if len(region.blocks) != 1:
        yield f"{what} should be one block"
        return
    block = region.block
    if len(block.args) != 1:
        yield f"{what} takes {len(block.args)} values and should take one"
    elif block.args[0].type != type_:
        yield f"{what} takes {block.args[0].type}, but it is given {type_}"
    if not isinstance(block.last_op, end):
        yield f"{what} should end in {end.name}"


@irdl_op_definition
class ModelOp(CheckedOp):
    """A network: `arch.model @mlp(%input: tensor<?x28x28x1xf32>) { ... arch.output %y }`."""

    name = "arch.model"
    sym_name = prop_def(SymbolNameConstraint())
    body = region_def("single_block")
    traits = traits_def(IsolatedFromAbove(), SymbolOpInterface())

    def __init__(self, name: str, body: Region) -> None:
        super().__init__(properties={"sym_name": string(name)}, regions=[body])

    @property
    def input(self) -> SSAValue:
        """The images."""
        return self.body.block.args[0]

    @property
    def end(self) -> OutputOp:
        """The operation that names the result; VerifyException for a body without it."""
        last = self.body.block.last_op
        if not isinstance(last, OutputOp):
            raise VerifyException(f"model @{self.sym_name.data} should end in arch.output")
        return last

    def problems(self) -> Iterator[str]:
        """A body that is none of a model's, or an input that is none of a layer's."""
        given = self.body.block.args[0].type if len(self.body.blocks) == 1 and self.body.block.args else None
        if given is not None:
            try:
                shape_of(self.input)
            except VerifyException as err:
                yield f"the input of model @{self.sym_name.data}: {err}"
        yield from body_problems(self.body, OutputOp, given or tensor_of(UNKNOWN), f"model @{self.sym_name.data}")

    def print(self, printer: Printer) -> None:
        """Write name, input and body."""
        printer.print_string(" ")
        printer.print_symbol_name(self.sym_name.data)
        with printer.in_parens():
            printer.print_list(self.body.block.args, printer.print_block_argument)
        print_extra_attributes(printer, self)
        printer.print_string(" ")
        printer.print_region(self.body, print_entry_block_args=False)

    @classmethod
    def parse(cls, parser: Parser) -> ModelOp:
        """Read name, input and body."""
        name = parser.parse_symbol_name()
        with parser.in_parens():
            given = parser.parse_argument()
        attributes = parser.parse_optional_attr_dict_with_keyword()
        op = cls.create(properties={"sym_name": name}, regions=[parser.parse_region([given])])
        if attributes is not None:
            op.attributes.update(attributes.data)
        return op


class ContainerOp(ArchOp):
    """A part of the structure: one value in, bodies that take it, one value out; its name is a prefix of those inside.

    Text: `%y = arch.repeat %x {times = 3} layer "stage1" (%a) { ... arch.yield %b }`.
    """

    BODIES: ClassVar[tuple[str, ...]] = ("",)
    """What stands before each body in the text."""

    input = operand_def(TensorType)
    result = result_def(TensorType)

    def __init__(self, x: SSAValue, values: Mapping[str, Number], bodies: Sequence[Region], name: str | None) -> None:
        properties = self.fields_from(values)
        if name is not None:
            properties["layer"] = string(name)
        super().__init__(operands=[x], properties=properties, result_types=[tensor_of(UNKNOWN)], regions=list(bodies))

    def problems(self) -> Iterator[str]:
        """Parameters, types and bodies."""
        yield from self.field_problems()
        try:
            shape_of(self.input)
            shape_of(self.result)
        except VerifyException as err:
            yield str(err)
        for label, body in zip(self.BODIES, self.regions, strict=True):
            yield from body_problems(body, YieldOp, self.input.type, f"the {label or 'body'} of {self.name}")

    def print(self, printer: Printer) -> None:
        """Write the value, parameters and bodies."""
        printer.print_string(" ")
        printer.print_ssa_value(self.input)
        self.print_fields(printer)
        print_layer(printer, self)
        print_extra_attributes(printer, self)
        if self.result.type != tensor_of(UNKNOWN):
            printer.print_string(" : ")
            printer.print_attribute(self.result.type)
        for label, body in zip(self.BODIES, self.regions, strict=True):
            printer.print_string(f" {label} (" if label else " (")
            printer.print_list(body.block.args, lambda arg: printer.print_block_argument(arg, print_type=False))
            printer.print_string(") ")
            printer.print_region(body, print_entry_block_args=False)

    @classmethod
    def parse(cls, parser: Parser) -> ContainerOp:
        """Read the value, parameters and bodies; the bodies take the value's type."""
        start = parser.pos
        x = parse_value(parser)
        properties = cls.parse_fields(parser, start)
        if (name := parse_layer(parser)) is not None:
            properties["layer"] = string(name)
        attributes = parser.parse_optional_attr_dict_with_keyword()
        type_ = parser.parse_type() if parser.parse_optional_punctuation(":") else tensor_of(UNKNOWN)
        bodies: list[Region] = []
        for label in cls.BODIES:
            if label:
                parser.parse_keyword(label)
            with parser.in_parens():
                taken = parser.parse_argument(expect_type=False)
            bodies.append(parser.parse_region([taken.resolve(x.type)]))
        return cls.create(
            operands=[x],
            result_types=[type_],
            properties=properties,
            attributes={} if attributes is None else dict(attributes.data),
            regions=bodies,
        )


@irdl_op_definition
class SeqOp(ContainerOp):
    """Layers one after another: `%y = arch.seq %x layer "stem" (%a) { ... }`."""

    name = "arch.seq"
    body = region_def("single_block")
    traits = traits_def(IsolatedFromAbove())

    def __init__(self, x: SSAValue, body: Region, name: str | None = None) -> None:
        super().__init__(x, {}, [body], name)


@irdl_op_definition
class RepeatOp(ContainerOp):
    """Layers several times over, each time with weights of its own: `%y = arch.repeat %x {times = 3} (%a) { ... }`."""

    name = "arch.repeat"
    FIELDS: ClassVar[tuple[Field, ...]] = (IntField("times"),)
    body = region_def("single_block")
    times = prop_def(IntegerAttr[I64])
    traits = traits_def(IsolatedFromAbove())

    def __init__(self, x: SSAValue, body: Region, times: int, name: str | None = None) -> None:
        super().__init__(x, {"times": times}, [body], name)


@irdl_op_definition
class Add2Op(ContainerOp):
    """The sum of two branches: `%y = arch.add2 %x shortcut (%a) { ... } stem (%a) { ... }`."""

    name = "arch.add2"
    BODIES: ClassVar[tuple[str, ...]] = ("shortcut", "stem")
    shortcut = region_def("single_block")
    stem = region_def("single_block")
    traits = traits_def(IsolatedFromAbove())

    def __init__(self, x: SSAValue, shortcut: Region, stem: Region, name: str | None = None) -> None:
        super().__init__(x, {}, [shortcut, stem], name)


@irdl_op_definition
class BlockOp(ContainerOp):
    """A residual block by its style: `%y = arch.block %x {style = RESNET_1_3_1, mid = 64, out = 256} layer "b1"`."""

    name = "arch.block"
    BODIES: ClassVar[tuple[str, ...]] = ()
    FIELDS: ClassVar[tuple[Field, ...]] = (
        EnumField("style", kind=StyleAttr),
        IntField("mid", optional=True),
        IntField("out"),
    )
    style = prop_def(StyleAttr)
    mid = opt_prop_def(IntegerAttr[I64])
    out = prop_def(IntegerAttr[I64])

    def __init__(self, x: SSAValue, style: str, mid: int | None, out: int, name: str | None = None) -> None:
        super().__init__(x, {"style": Style(style), "mid": mid, "out": out}, [], name)

    def problems(self) -> Iterator[str]:
        """Also: an inner width where the style has none, or none where it has."""
        yield from super().problems()
        if self.style.data.is_bottleneck and self.mid is None:
            yield f"a block of style {self.style.data} needs mid, its inner width"
        if not self.style.data.is_bottleneck and self.mid is not None:
            yield f"a block of style {self.style.data} has no inner width, so it takes no mid"
