"""Graphs made node by node: dependencies come from the plan, not from the order of a stream.

Kernels, copies and fills become nodes of their own. cuDNN only knows streams: each of its executions is captured once
into a child graph, which every step that has the node embeds.
"""

from __future__ import annotations

import gc
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial

from trc_runtime.cuda._cuda import Event, Graph, GraphExec, GraphNode, Stream
from trc_runtime.cuda.context import Context
from trc_runtime.cuda.link import Copy, Dnn, Launch, Linked, Op, Zero
from trc_runtime.cuda.order import Order
from trc_runtime.cuda.release import release


@contextmanager
def collector_off() -> Generator[None]:
    """Keep Python's collector off: destructors that it ran during a capture would be captured, or break it."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@dataclass(frozen=True)
class Built:
    """An executable step. `nodes` says for each graph node which position of the step it belongs to.

    The copies of results count as the position behind the last, the event at the end as the one behind that.
    """

    executable: GraphExec
    nodes: tuple[int, ...]


class GraphBuilder:
    """Makes executables from linked definitions."""

    def __init__(self, context: Context, linked: Mapping[int, Linked]) -> None:
        self._context = context
        self._driver = context.driver
        self._linked = linked
        self._children: list[Graph] = []

    @property
    def captured(self) -> int:
        """How many executions of cuDNN have been captured."""
        return len(self._children)

    def warm(self) -> None:
        """Run every cuDNN execution once: what libraries load or allocate lazily must not happen in a capture.

        Tensors hold garbage afterwards.
        """
        handle = None
        for op in self._dnn_ops():
            handle = handle or self._context.handle()
            op.planned.execute(op.addresses, op.workspace, handle)
        if handle is not None:
            self._driver.synchronize(self._context.main)

    def capture(self) -> None:
        """Capture every cuDNN execution into a graph of its own."""
        stream = self._context.main
        with collector_off():
            for op in self._dnn_ops():
                handle = self._context.handle()
                self._driver.begin_capture(stream)
                try:
                    op.planned.execute(op.addresses, op.workspace, handle)
                except BaseException:
                    self._abandon(stream)
                    raise
                op.graph = self._driver.end_capture(stream)
                self._children.append(op.graph)

    def _abandon(self, stream: Stream) -> None:
        with suppress(RuntimeError):  # the capture is invalid already; the error that made it so is being raised
            self._driver.destroy_graph(self._driver.end_capture(stream))

    def _dnn_ops(self) -> Iterator[Dnn]:
        for linked in self._linked.values():
            for ops in linked.values():
                for op in ops:
                    if isinstance(op, Dnn):
                        yield op

    def build(self, order: Order, results: Sequence[Copy], event: Event) -> Built:
        """An executable of a launch; `results` are copied to the host once their writers are done.

        The event is recorded at the end: a record call behind the launch would cost the host as much again when the
        driver has been idle (H200: 42 us after 30 ms).
        """
        with collector_off():
            graph = self._driver.graph()
            try:
                positions = self._fill(graph, order, results, event)
                return Built(self._driver.instantiate(graph), tuple(positions))
            finally:
                self._driver.destroy_graph(graph)

    def write_dot(self, order: Order, path: str) -> None:
        """Write a launch's graph as DOT text."""
        graph = self._driver.graph()
        try:
            self._fill(graph, order, (), None)
            self._driver.write_dot(graph, path)
        finally:
            self._driver.destroy_graph(graph)

    def _fill(self, graph: Graph, order: Order, results: Sequence[Copy], event: Event | None) -> list[int]:
        tails: list[list[GraphNode]] = []
        positions: list[int] = []
        ends: dict[int, GraphNode] = {}

        def add(after: list[GraphNode], op: Op) -> GraphNode:
            for node in after:
                ends.pop(id(node), None)
            node = self._add(graph, after, op)
            ends[id(node)] = node
            return node

        for position, ((index, capture), before) in enumerate(zip(order.items, order.after, strict=True)):
            heads = _joined([tails[p] for p in before])
            for op in self._linked[capture][index]:
                heads = [add(heads, op)]
                positions.append(position)
            tails.append(heads)
        heads = _joined([tails[p] for p in order.results])
        for copy in results:
            add(heads, copy)
            positions.append(len(order.items))
        if event is not None:
            self._driver.add_record(graph, list(ends.values()), event)
            positions.append(len(order.items) + 1)
        return positions

    def _add(self, graph: Graph, after: list[GraphNode], op: Op) -> GraphNode:
        if isinstance(op, Launch):
            return self._driver.add_kernel(graph, after, op.function, op.grid, op.block, op.shared, op.params.address)
        if isinstance(op, Dnn):
            assert op.graph is not None, "cuDNN executions are captured before graphs are built"
            return self._driver.add_child(graph, after, op.graph)
        if isinstance(op, Zero):
            return self._driver.add_zero(graph, after, self._context.context, op.address, op.size)
        return self._driver.add_copy(graph, after, self._context.context, op.target, op.source, op.size, op.way)

    def close(self) -> None:
        """Destroy the captured graphs; executables stay."""
        children, self._children = self._children, []
        release(partial(self._driver.destroy_graph, child) for child in children)


def _joined(groups: Sequence[list[GraphNode]]) -> list[GraphNode]:
    """Each node once; the driver refuses duplicates. A node is one Python object wherever it is kept."""
    return list({id(node): node for group in groups for node in group}.values())
