"""`graph.step`: an order of nodes that can be launched."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, chain, pairwise

from xdsl.dialects.builtin import (
    ArrayAttr,
    DenseArrayBase,
    LocationAttr,
    SymbolNameConstraint,
    SymbolRefAttr,
    i32,
)
from xdsl.ir import Operation
from xdsl.irdl import irdl_op_definition, prop_def, traits_def
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import SymbolOpInterface

from trc.dialects.attributes import (
    CheckedOp,
    ints32,
    parse_extra_attributes,
    print_extra_attributes,
    read_ints32,
    string,
    symbol,
)
from trc.dialects.graph.attributes import GraphIdAttr, graph_id_attr, parse_graph_id
from trc.dialects.memplan.attributes import COLUMNS
from trc_runtime.schema.graphs import GraphId

_NODES_A_LINE = 16


@irdl_op_definition
class StepOp(CheckedOp):
    """Buckets of a computation as one launch, its nodes ordered as a DAG.

    `graph.step @train_a of @train columns [0, 2] buckets [ZERO_GRAD, DEEP_FWD_BWD] after [[], [0], [0, 1]]`

    The nodes are those of the buckets, one bucket after the other; `after[i]` are the positions that must have
    finished before position i. `starts` and `after` hold it as one list and where each node's part begins.
    """

    name = "graph.step"
    sym_name = prop_def(SymbolNameConstraint())
    computation = prop_def(SymbolRefAttr)
    columns = prop_def(DenseArrayBase.constr(i32))
    buckets = prop_def(ArrayAttr[GraphIdAttr])
    starts = prop_def(DenseArrayBase.constr(i32))
    after = prop_def(DenseArrayBase.constr(i32))
    traits = traits_def(SymbolOpInterface())

    def __init__(
        self,
        name: str,
        computation: str,
        columns: Sequence[int],
        buckets: Sequence[GraphId],
        after: Sequence[Sequence[int]],
        *,
        location: LocationAttr | None = None,
    ) -> None:
        Operation.__init__(
            self,
            properties={
                "sym_name": string(name),
                "computation": symbol(computation),
                "columns": ints32(columns),
                "buckets": ArrayAttr(map(graph_id_attr, buckets)),
                "starts": ints32((0, *accumulate(map(len, after)))),
                "after": ints32(tuple(chain.from_iterable(after))),
            },
            location=location,
        )

    @property
    def name_(self) -> str:
        """The symbol."""
        return self.sym_name.data

    @property
    def computation_(self) -> str:
        """The name of the computation."""
        return self.computation.root_reference.data

    @property
    def columns_(self) -> tuple[int, ...]:
        """The columns (variants) in which the step runs."""
        return read_ints32(self.columns)

    @property
    def buckets_(self) -> tuple[GraphId, ...]:
        """The buckets, in order."""
        return tuple([attribute.data for attribute in self.buckets.data])

    @property
    def after_(self) -> tuple[tuple[int, ...], ...]:
        """For each node the positions that must have finished before it."""
        starts, after = read_ints32(self.starts), read_ints32(self.after)
        return tuple([after[a:b] for a, b in pairwise(starts)])

    def problems(self) -> Iterator[str]:
        """Columns, buckets, and edges that only run backwards. The node count is the module check's matter."""
        name = f"step @{self.sym_name.data}"
        columns = self.columns_
        if not columns or list(columns) != sorted(set(columns)) or columns[0] < 0 or columns[-1] >= COLUMNS:
            yield f"{name}: columns are some of 0 to {COLUMNS - 1} in rising order, not {list(columns)}"
        buckets = self.buckets_
        for graph_id in dict.fromkeys(buckets):
            if buckets.count(graph_id) > 1:
                yield f"{name}: bucket {graph_id.name} is listed twice"
        starts, after = read_ints32(self.starts), read_ints32(self.after)
        if not starts or starts[0] != 0 or starts[-1] != len(after) or list(starts) != sorted(starts):
            yield f"{name}: starts must rise from 0 to {len(after)}, the number of edges"
            return
        for node, before in enumerate(self.after_):
            for position in before:
                if not 0 <= position < node:
                    yield f"{name}: node {node} is after {position}, which does not stand before it"
            if list(before) != sorted(set(before)):
                yield f"{name}: the positions before node {node} must rise, not {list(before)}"

    def print(self, printer: Printer) -> None:
        """Write the text shown above, the edges of several nodes on a line."""
        printer.print_string(" ")
        printer.print_symbol_name(self.sym_name)
        printer.print_string(" of ")
        printer.print_attribute(self.computation)
        buckets = ", ".join(graph_id.name for graph_id in self.buckets_)
        printer.print_string(f" columns {list(self.columns_)} buckets [{buckets}] after [")
        lists = [str(list(before)) for before in self.after_]
        with printer.indented():
            for n in range(0, len(lists), _NODES_A_LINE):
                if len(lists) > _NODES_A_LINE:
                    printer.print_string("\n")
                last = n + _NODES_A_LINE >= len(lists)
                printer.print_string(", ".join(lists[n : n + _NODES_A_LINE]) + ("" if last else ","))
        if len(lists) > _NODES_A_LINE:
            printer.print_string("\n")
        printer.print_string("]")
        print_extra_attributes(printer, self)

    @classmethod
    def parse(cls, parser: Parser) -> StepOp:
        """Read the text shown above."""

        def numbers() -> list[int]:
            return parser.parse_comma_separated_list(parser.Delimiter.SQUARE, lambda: parse_int32(parser))

        name = parser.parse_symbol_name().data
        parser.parse_keyword("of")
        computation = parser.parse_symbol_name().data
        parser.parse_keyword("columns")
        columns = numbers()
        parser.parse_keyword("buckets")
        buckets = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, lambda: parse_graph_id(parser))
        parser.parse_keyword("after")
        after = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, numbers)
        op = cls(name, computation, columns, buckets, after)
        parse_extra_attributes(parser, op)
        return op


def parse_int32(parser: Parser) -> int:
    """An integer of 32 bits."""
    start = parser.pos
    value = parser.parse_integer(allow_boolean=False)
    if not -(1 << 31) <= value < 1 << 31:
        parser.raise_error(f"{value} does not fit into 32 bits", start, parser.pos)
    return value
