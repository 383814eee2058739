"""`graph.bucket`: the nodes of one graph id."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from xdsl.dialects.builtin import LocationAttr
from xdsl.ir import Block, Operation, Region
from xdsl.irdl import irdl_op_definition, prop_def, region_def, traits_def
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import NoTerminator

from trc.dialects.attributes import CheckedOp, parse_extra_attributes, print_extra_attributes
from trc.dialects.graph.attributes import (
    GraphIdAttr,
    StreamAttr,
    graph_id_attr,
    parse_graph_id,
    parse_stream,
    stream_attr,
)
from trc.dialects.graph.node import NodeOp
from trc_runtime.schema.graphs import GRAPH_STREAM, GraphId, StreamKind


def parse_body(parser: Parser) -> Region:
    """A region of one block, which may be empty."""
    region = parser.parse_region()
    if not region.blocks:
        region.add_block(Block())
    return region


@irdl_op_definition
class BucketOp(CheckedOp):
    """A named group of nodes and the stream on which they run unless they say otherwise.

    `graph.bucket DEEP_FWD_BWD on COMP_1 { ... }`
    """

    name = "graph.bucket"
    id = prop_def(GraphIdAttr)
    stream = prop_def(StreamAttr)
    body = region_def("single_block")
    traits = traits_def(NoTerminator())

    def __init__(
        self,
        graph_id: GraphId,
        stream: StreamKind | None = None,
        nodes: Sequence[NodeOp] | Region = (),
        *,
        location: LocationAttr | None = None,
    ) -> None:
        Operation.__init__(
            self,
            properties={"id": graph_id_attr(graph_id), "stream": stream_attr(stream or GRAPH_STREAM[graph_id])},
            regions=[nodes if isinstance(nodes, Region) else Region(Block(nodes))],
            location=location,
        )

    @property
    def id_(self) -> GraphId:
        """The graph id."""
        return self.id.data

    @property
    def stream_(self) -> StreamKind:
        """The default stream of the nodes."""
        return self.stream.data

    @property
    def nodes_(self) -> list[NodeOp]:
        """The nodes, in order."""
        return [op for block in self.regions[0].blocks for op in block.ops if isinstance(op, NodeOp)]

    def problems(self) -> Iterator[str]:
        """Nothing but nodes inside."""
        for op in self.body.block.ops:
            if not isinstance(op, NodeOp):
                yield f"bucket {self.id.data.name} holds graph.compute and graph.range only, not {op.name}"

    def print(self, printer: Printer) -> None:
        """Write the text shown above."""
        printer.print_string(f" {self.id.data.name} on {self.stream.data.name}")
        print_extra_attributes(printer, self)
        printer.print_string(" ")
        printer.print_region(self.body, print_empty_block=False)

    @classmethod
    def parse(cls, parser: Parser) -> BucketOp:
        """Read the text shown above."""
        graph_id = parse_graph_id(parser)
        parser.parse_keyword("on")
        op = cls(graph_id, parse_stream(parser), Region())
        parse_extra_attributes(parser, op)
        op.detach_region(0)
        op.add_region(parse_body(parser))
        return op
