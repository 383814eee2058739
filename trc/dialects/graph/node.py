"""`graph.compute` and `graph.range`: the nodes of a computation graph."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, TypeVar, cast

from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, LocationAttr, StringAttr, SymbolRefAttr
from xdsl.ir import Attribute, Operation
from xdsl.irdl import irdl_op_definition, opt_prop_def, prop_def
from xdsl.parser import Parser
from xdsl.printer import Printer

from trc.diagnostics import CompileError
from trc.dialects.attributes import (
    CheckedOp,
    RangeAttr,
    hint,
    parse_extra_attributes,
    parse_layer,
    print_extra_attributes,
    print_layer,
    print_word,
    range_text,
    string,
    symbols,
)
from trc.dialects.graph.attributes import (
    OperandRef,
    Param,
    StreamAttr,
    params_attr,
    parse_params,
    parse_refs,
    parse_stream,
    print_params,
    print_refs,
    read_param,
    read_ref,
    refs_attr,
    stream_attr,
    symbol_list,
)
from trc_runtime.schema.graphs import StreamKind
from trc_runtime.schema.kinds import KINDS, Access, Kind

HOST_SCALARS = frozenset(
    {
        "applied",
        "batch_size",
        "bias_correction1",
        "bias_correction2",
        "epoch",
        "iteration",
        "learning_rate",
        "loss_scale",
        "lr",
        "rate",
        "scale",
        "scaling",
        "seed",
        "step",
        "steps",
    }
)
"""Names of what changes between steps; such a thing is a device scalar, never a parameter."""

_EXPECTED: dict[type, str] = {int: "an integer", float: "a float", bool: "true or false", str: "a string"}

_GROUPS: tuple[tuple[Access, str], ...] = tuple((access, access.value) for access in Access)

NodeT = TypeVar("NodeT", bound="NodeOp")


class NodeOp(CheckedOp):
    """What `graph.compute` and `graph.range` share: a kind, operands by access, scalars, parameters."""

    STAYS_READABLE: ClassVar[bool] = True
    ON_RANGE: ClassVar[bool]
    """Whether the kinds of this operation work on ranges of regions."""

    kind = prop_def(StringAttr)
    reads = opt_prop_def(ArrayAttr[SymbolRefAttr | RangeAttr])
    updates = opt_prop_def(ArrayAttr[SymbolRefAttr | RangeAttr])
    writes = opt_prop_def(ArrayAttr[SymbolRefAttr | RangeAttr])
    scalars = opt_prop_def(ArrayAttr[SymbolRefAttr])
    params = opt_prop_def(DictionaryAttr)
    layer = opt_prop_def(StringAttr)
    stream = opt_prop_def(StreamAttr)

    def __init__(
        self,
        kind: str,
        reads: Sequence[OperandRef] = (),
        updates: Sequence[OperandRef] = (),
        writes: Sequence[OperandRef] = (),
        scalars: Sequence[str] = (),
        params: Mapping[str, Param] | None = None,
        layer: str | None = None,
        stream: StreamKind | None = None,
        *,
        location: LocationAttr | None = None,
    ) -> None:
        properties: dict[str, Attribute] = {"kind": string(kind)}
        if reads:
            properties["reads"] = refs_attr(reads)
        if updates:
            properties["updates"] = refs_attr(updates)
        if writes:
            properties["writes"] = refs_attr(writes)
        if scalars:
            properties["scalars"] = symbols(scalars)
        if params:
            properties["params"] = params_attr(params)
        if layer is not None:
            properties["layer"] = string(layer)
        if stream is not None:
            properties["stream"] = stream_attr(stream)
        Operation.__init__(self, properties=properties, location=location)

    @property
    def kind_(self) -> str:
        """The name of the kind."""
        return self.kind.data

    @property
    def layer_(self) -> str | None:
        """The layer that the node belongs to."""
        return None if self.layer is None else self.layer.data

    @property
    def stream_(self) -> StreamKind | None:
        """The stream, where it is not the bucket's."""
        return None if self.stream is None else self.stream.data

    def operand_refs(self, access: Access) -> tuple[OperandRef, ...]:
        """The operands of one access: symbols, and intervals of regions."""
        group = self.properties.get(access.value)
        if group is None:
            return ()
        return tuple([read_ref(ref) for ref in cast(ArrayAttr[SymbolRefAttr | RangeAttr], group).data])

    @property
    def reads_(self) -> tuple[OperandRef, ...]:
        """What the node reads."""
        return self.operand_refs(Access.READ)

    @property
    def updates_(self) -> tuple[OperandRef, ...]:
        """What the node reads, then writes."""
        return self.operand_refs(Access.UPDATE)

    @property
    def writes_(self) -> tuple[OperandRef, ...]:
        """What the node writes."""
        return self.operand_refs(Access.WRITE)

    @property
    def scalars_(self) -> tuple[str, ...]:
        """The device scalars that the node reads."""
        group = self.properties.get("scalars")
        return () if group is None else symbol_list(cast(ArrayAttr[SymbolRefAttr], group))

    @property
    def params_(self) -> dict[str, Param]:
        """The parameters; those whose attribute is none of i1, i64, f64 and string are left out."""
        if self.params is None:
            return {}
        values = {name: read_param(attribute) for name, attribute in self.params.data.items()}
        return {name: value for name, value in values.items() if value is not None}

    @property
    def record_(self) -> Kind | None:
        """The kind's record, or None if no such kind is registered."""
        return KINDS.get(self.kind.data)

    def problems(self) -> Iterator[str]:
        """The node against its kind's record."""
        record = self.record_
        if record is None:
            from trc.dialects.plugins import load_unless

            try:
                load_unless(lambda: self.record_ is not None)
            except CompileError as err:
                yield from (problem.message for problem in err.problems)
            record = self.record_
        if record is None:
            kind = self.kind.data
            yield f"unknown kind {kind}{hint(kind, KINDS.names())}"
            return
        if record.on_range != self.ON_RANGE:
            wanted = "graph.range" if record.on_range else "graph.compute"
            yield f"kind {record.name} is written as {wanted}, not {self.name}"
        for access, _ in _GROUPS:
            yield from self._operand_problems(record, access)
        if len(self.scalars_) != len(record.scalars):
            names = ", ".join(record.scalars) or "nothing"
            yield f"kind {record.name} takes {len(record.scalars)} scalars ({names}), not {len(self.scalars_)}"
        yield from self._param_problems(record)

    def _operand_problems(self, record: Kind, access: Access) -> Iterator[str]:
        refs = self.operand_refs(access)
        problem = record.arity_problem(access, len(refs))
        if problem is not None:
            yield problem
            return
        for operand, ref in zip(record.group(access), refs, strict=False):
            if isinstance(ref, str):
                if operand.is_range:
                    yield f"operand {operand.name} of kind {record.name} is a range of regions, not @{ref}"
                continue
            if not operand.is_range:
                yield f"operand {operand.name} of kind {record.name} is a tensor, not the range {range_text(ref)}"
            if ref[0].ordinal > ref[1].ordinal:
                yield f"the range {range_text(ref)} runs backwards"

    def _param_problems(self, record: Kind) -> Iterator[str]:
        params: Mapping[str, Attribute] = {} if self.params is None else self.params.data
        declared = dict(record.params)
        for name, attribute in params.items():
            if name not in declared:
                if name in HOST_SCALARS or name in record.scalars:
                    yield f"parameter {name} changes between steps: pass a device scalar, as in scalars(@{name})"
                else:
                    takes = ", ".join(declared) or "none"
                    yield f"kind {record.name} has no parameter {name}{hint(name, declared)} (it takes {takes})"
                continue
            value, wanted = read_param(attribute), declared[name]
            # bool is a subclass of int, so the type is compared, not the instance.
            if type(value) is not wanted:
                yield f"parameter {name} of kind {record.name} is {_EXPECTED[wanted]}, not {attribute}"
            elif isinstance(value, float) and not math.isfinite(value):
                yield f"parameter {name} of kind {record.name} must be finite, not {value}"
        missing = [name for name in declared if name not in params]
        if missing:
            yield f"kind {record.name} needs the parameter {', '.join(missing)}"

    def print(self, printer: Printer) -> None:
        """Write the text shown at the classes."""
        printer.print_string(" ")
        print_word(printer, self.kind.data)
        for access, keyword in _GROUPS:
            print_refs(printer, keyword, self.operand_refs(access))
        print_refs(printer, "scalars", self.scalars_)
        if self.params is not None:
            print_params(printer, self.params)
        if self.stream is not None:
            printer.print_string(f" on {self.stream.data.name}")
        print_layer(printer, self)
        print_extra_attributes(printer, self)

    @classmethod
    def parse(cls: type[NodeT], parser: Parser) -> NodeT:
        """Read the text shown at the classes."""
        kind = parser.parse_identifier_or_str_literal()
        groups = [parse_refs(parser, keyword) for _, keyword in _GROUPS]
        scalars: list[str] = []
        if parser.parse_optional_keyword("scalars"):
            scalars = parser.parse_comma_separated_list(parser.Delimiter.PAREN, lambda: parser.parse_symbol_name().data)
        params = parse_params(parser)
        stream = parse_stream(parser) if parser.parse_optional_keyword("on") else None
        op = cls(kind, *groups, scalars=scalars, layer=parse_layer(parser), stream=stream)
        if params is not None:
            op.properties["params"] = params
        parse_extra_attributes(parser, op)
        return op


@irdl_op_definition
class ComputeOp(NodeOp):
    """A node on named tensors.

    `graph.compute fc_fwd reads(@x, @fc2.weight) writes(@fc2.output) scalars(@seed) {p = 0.5} on COMP_2 layer "fc2"`
    """

    name = "graph.compute"
    ON_RANGE: ClassVar[bool] = False


@irdl_op_definition
class RangeOp(NodeOp):
    """A node on closed intervals of regions (and on tensors, where the kind says so).

    `graph.range sgd_update reads(G_FC_WEIGHT to G_DEEP_CONV) updates(W_FC_WEIGHT to W_DEEP_CONV) scalars(@lr)`
    """

    name = "graph.range"
    ON_RANGE: ClassVar[bool] = True
