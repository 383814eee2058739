"""Batches into a session's two input buffers, and steps on them.

A session that runs steps one after another gets, for each batch, the transfer and then the step. One that can launch
without waiting (`OverlappingSession`) gets one launch a step: the step on one buffer together with the transfer of
the next batch into the other; only the first batch is transferred by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from trc_runtime.data.idx import DataError
from trc_runtime.data.loader import Batch, Filler
from trc_runtime.schema.graphs import Variant
from trc_runtime.schema.plan import Plan, Step
from trc_runtime.schema.staging import BUFFERS

_LETTERS = tuple(buffer.lower() for buffer in BUFFERS)
"""Of the buffers in names of steps and tensors."""


class Session(Protocol):
    """What the loop needs of a device's session; `CpuSession` is one."""

    def initialise(self, *, draw: bool = True) -> None:
        """Write every tensor's first value; the same plan gives the same bytes. Without `draw` random ones are zero."""
        ...

    def read(self, name: str) -> NDArray[Any]:
        """A copy of a tensor, in its logical shape."""
        ...

    def write(self, name: str, array: NDArray[Any]) -> None:
        """Fill a tensor; ValueError if the shape or type does not fit."""
        ...

    def staging(self, buffer: str, column: int) -> tuple[NDArray[np.int32], NDArray[Any]]:
        """Host memory for the labels [n] and images [n, h, w, c] that buffer "A" or "B" is filled from."""
        ...

    def run(self, step: str, column: int) -> None:
        """Execute a step of the plan in a variant."""
        ...


class Ticket(Protocol):
    """A launch under way."""

    def settle(self) -> None:
        """Wait until it is over; raises what went wrong."""
        ...


@runtime_checkable
class OverlappingSession(Protocol):
    """What a session has that can launch without waiting; `staging` then waits for a buffer that is still read."""

    def launch(self, step: str, column: int, beside: str | None = None, beside_column: int | None = None) -> Ticket:
        """Start a step, and with `beside` a second one that may overlap with it, after all launched before."""
        ...

    def prepare(self, step: str, column: int, beside: str | None = None, beside_column: int | None = None) -> object:
        """Make everything that a launch needs, so that none of them allocates."""
        ...


class Feeder:
    """Fills the input buffers in turn and runs steps on them, unchecked."""

    def __init__(self, plan: Plan, session: Session) -> None:
        self._plan = plan
        self._session = session
        self._overlapping = session if isinstance(session, OverlappingSession) else None
        self._steps: dict[str, Step] = {s.name: s for s in plan.steps}
        self._buffer = 1
        self._sizes: dict[str, int] = {}
        self._last: Ticket | None = None

    @property
    def overlaps(self) -> bool:
        """Whether `each` returns before a step is over."""
        return self._overlapping is not None

    def one(self, kind: str, filler: Filler, batch: Batch, column: int, before: str | None = None) -> None:
        """Run a "train", "infer" or "infer_ema" step on a batch to its end, and one of another kind `before` it."""
        letter = self._fill(filler, batch, column)
        steps = [self._step_for(k, letter, column) for k in (before, kind) if k is not None]
        for step in steps:
            self._announce(step, batch.size)
        self._session.run(f"transfer_{letter}", column)
        for step in steps:
            self._session.run(step.name, column)

    def each(
        self, kind: str, filler: Filler, batches: Iterable[tuple[Batch, int]], before: str | None = None
    ) -> Iterator[Batch]:
        """Run a step on each batch (with its column), and with `before` one of another kind on the same batch first.

        Yields the batch once its steps have been started.
        """
        if self._overlapping is None:
            for batch, column in batches:
                self.one(kind, filler, batch, column, before)
                yield batch
            return
        pairs = list(batches)
        self._prepare(kind, [column for _, column in pairs])
        ready: tuple[Batch, int, str] | None = None
        for batch, column in pairs:
            letter = self._fill(filler, batch, column)
            if ready is None:
                self._last = self._overlapping.launch(f"transfer_{letter}", column)
            else:
                self._start(kind, *ready, beside=f"transfer_{letter}", beside_column=column)
                yield ready[0]
            if before is not None:
                self._start(before, batch, column, letter)  # runs while the next batch is filled in
            ready = (batch, column, letter)
        if ready is not None:
            self._start(kind, *ready)
            yield ready[0]

    def wait(self) -> None:
        """Return when everything that `each` has started is over."""
        if self._last is not None:
            self._last.settle()

    def _prepare(self, kind: str, columns: list[int]) -> None:
        """Make the launches of steps in these columns, in turn, whichever buffer comes first."""
        assert self._overlapping is not None
        for column, following in dict.fromkeys(pairwise(columns)):
            for letter, other in (_LETTERS, _LETTERS[::-1]):
                step = self._step_for(kind, letter, column).name
                self._overlapping.prepare(step, column, f"transfer_{other}", following)

    def _start(
        self,
        kind: str,
        batch: Batch,
        column: int,
        letter: str,
        beside: str | None = None,
        beside_column: int | None = None,
    ) -> None:
        assert self._overlapping is not None
        step = self._step_for(kind, letter, column)
        self._announce(step, batch.size)
        self._last = self._overlapping.launch(step.name, column, beside, beside_column)

    def _fill(self, filler: Filler, batch: Batch, column: int) -> str:
        """Write a batch to the other buffer's host memory; the buffer's letter."""
        self._buffer = 1 - self._buffer
        letter = _LETTERS[self._buffer]
        labels, images = self._session.staging(letter.upper(), column)
        filler.fill(batch, labels, images)
        return letter

    def _step_for(self, kind: str, letter: str, column: int) -> Step:
        for name in (f"{kind}_{letter}", f"{kind}_last_{letter}"):
            step = self._steps.get(name)
            if step is not None and column in step.columns:
                return step
        raise DataError(f"the plan has no step '{kind}' for variant {Variant(column).symbol}")

    def _announce(self, step: Step, size: int) -> None:
        """Tell the step's metrics how many samples the batch has, where they do not know it yet."""
        for number in step.nodes:
            node = self._plan.nodes[number]
            if node.kind != "accumulate_metrics":
                continue
            name = self._plan.tensors[dict(node.scalars)["batch_size"]].name
            if self._sizes.get(name) != size:
                self._session.write(name, np.full((1, 1, 1, 1), size, np.int32))
                self._sizes[name] = size
