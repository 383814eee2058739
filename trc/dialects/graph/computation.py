"""`graph.computation`: all buckets of one computation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from xdsl.dialects.builtin import LocationAttr, SymbolNameConstraint
from xdsl.ir import Block, Operation, Region
from xdsl.irdl import irdl_op_definition, prop_def, region_def, traits_def
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import NoTerminator, SymbolOpInterface

from trc.dialects.attributes import CheckedOp, parse_extra_attributes, print_extra_attributes, string
from trc.dialects.graph.attributes import GraphIdAttr
from trc.dialects.graph.bucket import BucketOp, parse_body
from trc_runtime.schema.graphs import GraphId


@irdl_op_definition
class ComputationOp(CheckedOp):
    """A computation without shapes: `graph.computation @train { graph.bucket ... }`."""

    name = "graph.computation"
    sym_name = prop_def(SymbolNameConstraint())
    body = region_def("single_block")
    traits = traits_def(NoTerminator(), SymbolOpInterface())

    def __init__(
        self, name: str, buckets: Sequence[BucketOp] | Region = (), *, location: LocationAttr | None = None
    ) -> None:
        Operation.__init__(
            self,
            properties={"sym_name": string(name)},
            regions=[buckets if isinstance(buckets, Region) else Region(Block(buckets))],
            location=location,
        )

    @property
    def name_(self) -> str:
        """The symbol: `train` or `infer`."""
        return self.sym_name.data

    @property
    def buckets_(self) -> dict[GraphId, BucketOp]:
        """The buckets by graph id, in order."""
        return {op.id_: op for op in self.regions[0].block.ops if isinstance(op, BucketOp)}

    def problems(self) -> Iterator[str]:
        """Nothing but buckets inside, each graph id once."""
        seen: set[GraphId] = set()
        for op in self.body.block.ops:
            if not isinstance(op, BucketOp):
                yield f"computation @{self.sym_name.data} holds graph.bucket only, not {op.name}"
                continue
            # A bucket without a proper id has its own message.
            attribute = op.properties.get("id")
            if isinstance(attribute, GraphIdAttr):
                if attribute.data in seen:
                    yield f"computation @{self.sym_name.data} has the bucket {attribute.data.name} twice"
                seen.add(attribute.data)

    def print(self, printer: Printer) -> None:
        """Write the text shown above."""
        printer.print_string(" ")
        printer.print_symbol_name(self.sym_name)
        print_extra_attributes(printer, self)
        printer.print_string(" ")
        printer.print_region(self.body, print_empty_block=False)

    @classmethod
    def parse(cls, parser: Parser) -> ComputationOp:
        """Read the text shown above."""
        op = cls(parser.parse_symbol_name().data, Region())
        parse_extra_attributes(parser, op)
        op.detach_region(0)
        op.add_region(parse_body(parser))
        return op
