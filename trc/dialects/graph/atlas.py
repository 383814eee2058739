"""`graph.atlas`: what is captured, and which capture each variant uses for each graph id."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

from xdsl.dialects.builtin import ArrayAttr, DenseArrayBase, LocationAttr, SymbolRefAttr, i32
from xdsl.ir import Operation
from xdsl.irdl import irdl_op_definition, prop_def
from xdsl.parser import Parser
from xdsl.printer import Printer

from trc.dialects.attributes import (
    CheckedOp,
    hint,
    ints32,
    parse_extra_attributes,
    print_extra_attributes,
    read_ints32,
    symbols,
)
from trc.dialects.graph.attributes import parse_graph_id, symbol_list
from trc.dialects.graph.step import parse_int32
from trc.dialects.memplan.attributes import COLUMNS
from trc.dialects.memplan.spec import VARIANTS
from trc_runtime.schema.graphs import GraphId, ShapeId, Variant
from trc_runtime.schema.plan import Capture

IDS = len(GraphId)
"""How many graph ids there are: the length of a row of the table."""

_WIDTH = 7
"""Numbers a capture: computation, graph id, N, H, W, C, column."""

Table = tuple[tuple[int, ...], ...]
"""For each variant and graph id an index into the captures, or -1."""


@irdl_op_definition
class AtlasOp(CheckedOp):
    """The captured definitions and the table of 6 variants by 33 graph ids that refers to them.

    ```
    graph.atlas captures [
      @train ZERO_GRAD [0, 0, 0, 0] column 0,
      @train DEEP_FWD_BWD [200, 28, 28, 1] column 0
    ] table {
      train_base [ZERO_GRAD = 0, DEEP_FWD_BWD = 1],
      ...
    }
    ```

    A shape of zeros stands for a capture that no shape enters.
    """

    name = "graph.atlas"
    computations = prop_def(ArrayAttr[SymbolRefAttr])
    captures = prop_def(DenseArrayBase.constr(i32))
    table = prop_def(DenseArrayBase.constr(i32))

    def __init__(
        self,
        captures: Sequence[Capture],
        table: Sequence[Sequence[int]],
        *,
        location: LocationAttr | None = None,
    ) -> None:
        if len(table) != COLUMNS or any(len(row) != IDS for row in table):
            raise ValueError(f"the atlas is a table of {COLUMNS} by {IDS}, not of rows {[len(row) for row in table]}")
        names = list(dict.fromkeys(capture.computation for capture in captures))
        index = {name: n for n, name in enumerate(names)}
        numbers = chain.from_iterable((index[c.computation], c.bucket.value, *c.shape, c.column) for c in captures)
        Operation.__init__(
            self,
            properties={
                "computations": symbols(names),
                "captures": ints32(tuple(numbers)),
                "table": ints32(tuple(chain.from_iterable(table))),
            },
            location=location,
        )

    @property
    def captures_(self) -> tuple[Capture, ...]:
        """The captures; IndexError or ValueError for numbers that the verifier refuses."""
        names = symbol_list(self.computations)
        numbers = read_ints32(self.captures)
        rows = [numbers[i : i + _WIDTH] for i in range(0, len(numbers), _WIDTH)]
        return tuple([Capture(names[r[0]], GraphId(r[1]), ShapeId(*r[2:6]), r[6]) for r in rows])

    @property
    def table_(self) -> Table:
        """For each variant and graph id an index into the captures, or -1."""
        numbers = read_ints32(self.table)
        return tuple([numbers[i : i + IDS] for i in range(0, len(numbers), IDS)])

    def _shape_problem(self) -> str | None:
        captures, table = read_ints32(self.captures), read_ints32(self.table)
        if len(table) != COLUMNS * IDS:
            return f"the atlas is a table of {COLUMNS} by {IDS}, not of {len(table)} numbers"
        if len(captures) % _WIDTH:
            return f"a capture is {_WIDTH} numbers; {len(captures)} are no multiple of that"
        for n in range(0, len(captures), _WIDTH):
            row = captures[n : n + _WIDTH]
            if not (0 <= row[0] < len(self.computations) and 0 <= row[1] < IDS):
                return f"capture {n // _WIDTH} refers to computation {row[0]} and graph id {row[1]}, which do not exist"
        return None

    def problems(self) -> Iterator[str]:
        """Indices in range, each key once, each capture used, each entry under its own graph id."""
        problem = self._shape_problem()
        if problem is not None:
            yield problem
            return
        captures = self.captures_
        keys: dict[tuple[str, GraphId, ShapeId], int] = {}
        for n, capture in enumerate(captures):
            what = f"capture {n} ({capture.computation} {capture.bucket.name})"
            key = (capture.computation, capture.bucket, capture.shape)
            if key in keys:
                yield f"{what} is the same as capture {keys[key]}"
            keys.setdefault(key, n)
            if not 0 <= capture.column < COLUMNS:
                yield f"{what}: column {capture.column} is none of 0 to {COLUMNS - 1}"
            shape = capture.shape
            if min(shape) < 0 or (any(shape) and not all(shape)):
                yield f"{what}: the shape {list(shape)} is neither all zeros nor all above zero"
        used: set[int] = set()
        for variant, row in zip(Variant, self.table_, strict=True):
            for graph_id, index in zip(GraphId, row, strict=True):
                if index == -1:
                    continue
                used.add(index)
                if not 0 <= index < len(captures):
                    yield f"{variant.symbol} {graph_id.name} = {index}: there are {len(captures)} captures"
                elif captures[index].bucket is not graph_id:
                    yield f"{variant.symbol} {graph_id.name} = {index}, which captures {captures[index].bucket.name}"
        for n in range(len(captures)):
            if n not in used:
                yield f"capture {n} ({captures[n].computation} {captures[n].bucket.name}) is used by no variant"

    def print(self, printer: Printer) -> None:
        """Write the text shown above."""
        problem = self._shape_problem()
        if problem is not None:
            raise ValueError(f"{problem}; print the generic form")
        printer.print_string(" captures [")
        with printer.indented():
            for n, capture in enumerate(self.captures_):
                printer.print_string(",\n" if n else "\n")
                printer.print_symbol_name(capture.computation)
                printer.print_string(f" {capture.bucket.name} {list(capture.shape)} column {capture.column}")
        printer.print_string("\n] table {")
        with printer.indented():
            for n, (variant, row) in enumerate(zip(Variant, self.table_, strict=True)):
                entries = [f"{g.name} = {index}" for g, index in zip(GraphId, row, strict=True) if index != -1]
                printer.print_string(",\n" if n else "\n")
                printer.print_string(f"{variant.symbol} [{', '.join(entries)}]")
        printer.print_string("\n}")
        print_extra_attributes(printer, self)

    @classmethod
    def parse(cls, parser: Parser) -> AtlasOp:
        """Read the text shown above."""

        def capture() -> Capture:
            computation = parser.parse_symbol_name().data
            bucket = parse_graph_id(parser)
            start = parser.pos
            shape = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, lambda: parse_int32(parser))
            if len(shape) != len(ShapeId._fields):
                parser.raise_error(f"a shape is N, H, W, C, not {shape}", start, parser.pos)
            parser.parse_keyword("column")
            return Capture(computation, bucket, ShapeId(*shape), parse_int32(parser))

        table: dict[Variant, list[int]] = {variant: [-1] * IDS for variant in Variant}
        rows: set[Variant] = set()

        def row() -> None:
            start = parser.pos
            word = parser.parse_identifier(context_msg=" (a variant)")
            variant = VARIANTS.get(word)
            if variant is None or variant in rows:
                what = "unknown variant" if variant is None else "second row of the variant"
                parser.raise_error(f"{what} {word}{hint(word, VARIANTS)}", start, parser.pos)
            rows.add(variant)

            def entry() -> None:
                graph_id = parse_graph_id(parser)
                parser.parse_punctuation("=")
                table[variant][graph_id.value] = parse_int32(parser)

            parser.parse_comma_separated_list(parser.Delimiter.SQUARE, entry)

        parser.parse_keyword("captures")
        captures = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, capture)
        parser.parse_keyword("table")
        parser.parse_comma_separated_list(parser.Delimiter.BRACES, row)
        op = cls(captures, [table[variant] for variant in Variant])
        parse_extra_attributes(parser, op)
        return op
