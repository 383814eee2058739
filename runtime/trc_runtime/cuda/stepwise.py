"""The per-kernel mode: the same plan without graphs, on five streams with events, for debugging and profiles."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from typing import Any

from trc_runtime.cuda._cuda import Event, Stream
from trc_runtime.cuda.context import Context
from trc_runtime.cuda.link import Copy, Dnn, Launch, Linked, Op, Zero
from trc_runtime.cuda.order import Order
from trc_runtime.cuda.release import release
from trc_runtime.schema.graphs import StreamKind
from trc_runtime.schema.plan import Plan

Annotate = Callable[[str], AbstractContextManager[Any]]


def ranges() -> Annotate:
    """NVTX ranges, where the package nvtx is installed; else ranges that do nothing."""
    try:
        nvtx: Any = importlib.import_module("nvtx")
    except ImportError:
        return lambda name: nullcontext()
    return lambda name: nvtx.annotate(name, domain="trc")


class Stepwise:
    """Runs launches node by node. Each node goes to the stream that the plan names; events order the streams."""

    def __init__(self, context: Context, plan: Plan, linked: Mapping[int, Linked]) -> None:
        self._context = context
        self._driver = context.driver
        self._plan = plan
        self._linked = linked
        self._events: list[Event] = []
        self._annotate = ranges()

    def start(self, order: Order, results: Sequence[Copy], event: Event) -> None:
        """Run a launch and record the event behind it. Where that fails, nothing is under way any more."""
        self._context.use()
        try:
            self.run(order, results)
            self._driver.record(event, self._context.main)
        except BaseException:
            with suppress(Exception):  # the first error is the one to show
                self._context.synchronize()  # no event stands behind what has been sent
            raise

    def run(self, order: Order, results: Sequence[Copy] = ()) -> None:
        """Send a launch's operations to the streams and make the main stream wait for all of them."""
        driver, context = self._driver, self._context
        last = len(order.items)
        self._reserve(last + 2)
        driver.record(self._events[last + 1], context.main)  # what ran before ends before any stream begins
        for stream in context.streams.values():
            driver.let_wait(stream, self._events[last + 1])
        kinds: list[StreamKind] = []
        for position, ((index, capture), before) in enumerate(zip(order.items, order.after, strict=True)):
            node = self._plan.nodes[index]
            kinds.append(node.stream)
            stream = context.streams[node.stream]
            for p in before:
                if kinds[p] is not node.stream:
                    driver.let_wait(stream, self._events[p])
            with self._annotate(f"{node.layer or node.bucket.name} {node.kind}"):
                for op in self._linked[capture][index]:
                    self._send(op, stream, node.stream)
            driver.record(self._events[position], stream)
        for position in range(last):
            if kinds[position] is not StreamKind.COMP_1:
                driver.let_wait(context.main, self._events[position])
        for copy in results:
            self._send(copy, context.main, StreamKind.COMP_1)

    def _send(self, op: Op, stream: Stream, kind: StreamKind) -> None:
        if isinstance(op, Launch):
            self._driver.launch(op.function, op.grid, op.block, op.shared, stream, op.params.address)
        elif isinstance(op, Dnn):
            op.planned.execute(op.addresses, op.workspace, self._context.handle(kind))
        elif isinstance(op, Zero):
            self._driver.zero(op.address, op.size, stream)
        else:
            self._driver.copy(op.target, op.source, op.size, stream)

    def _reserve(self, count: int) -> None:
        while len(self._events) < count:
            self._events.append(self._driver.event())

    def close(self) -> None:
        """Destroy the events."""
        events, self._events = self._events, []
        release(partial(self._driver.destroy_event, event) for event in events)
