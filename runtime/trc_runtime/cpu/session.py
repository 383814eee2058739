"""A session on the CPU: an arena, nodes bound to it once, and their replay."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

import trc_runtime.cpu.kernels as _kernels
from trc_runtime.cpu import arena, initial
from trc_runtime.cpu.bind import Array, BoundNode, Memory, visible_shape
from trc_runtime.cpu.half import narrowed, widened
from trc_runtime.cpu.registry import Bind, Run, lookup
from trc_runtime.rng import Philox, check_streams
from trc_runtime.schema.plan import Node, Plan, Step, Tensor
from trc_runtime.schema.staging import BUFFERS

SEED = "seed"
"""The tensor that holds the seed of the run, low word first; `initialise` writes it."""

_kernels.load()


def missing_kernels(plan: Plan) -> list[Node]:
    """The nodes whose kind has no kernel on the CPU."""
    return [n for n in plan.nodes if lookup(n.kind) is None]


class CpuSession:
    """Everything that a plan needs to run on the CPU. Sessions share nothing.

    The arena is allocated at once and holds zeros; `initialise` writes the first values. A step is bound when it
    first runs in a column: each capture of the atlas once, whatever number of steps it appears in.

    Raises ArenaError for a lack of memory, ValueError for a kind without kernel.
    """

    def __init__(self, plan: Plan) -> None:
        _check_kernels(plan)
        self.plan = plan
        self._memory = Memory(plan, arena.allocate(plan))
        self._steps: dict[str, Step] = {s.name: s for s in plan.steps}
        self._captures: dict[int, dict[int, Run]] = {}
        self._bound: dict[tuple[str, int], list[Run]] = {}
        self._nodes_of: dict[tuple[str, object], list[int]] = {}
        for index, node in enumerate(plan.nodes):
            self._nodes_of.setdefault((node.computation, node.bucket), []).append(index)
        check_streams(
            [initial.stream_name(t) for t in plan.tensors if initial.is_random(t)]
            + sorted({f"dropout/{n.layer}" for n in plan.nodes if n.kind == "dropout_fwd"})
        )

    # ------------------------------------------------------------ tensors

    @property
    def arena(self) -> NDArray[np.uint8]:
        """All bytes of the plan, live."""
        return self._memory.arena

    def initialise(self, *, draw: bool = True) -> None:
        """Zero the arena and write every tensor's initial value; the same plan gives the same bytes.

        Without `draw`, random ones stay zero: for a session that a checkpoint fills next.
        """
        self._memory.arena.fill(0)
        generator = Philox()
        seed = self.plan.config.seed
        copies: list[tuple[Tensor, str]] = []
        for tensor in self.plan.tensors:
            if tensor.name == SEED:
                words = self._view(tensor).reshape(-1)
                words.view(np.uint32)[:] = (seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF)
            elif (source := initial.counterpart(tensor)) is not None:
                copies.append((tensor, source))
            elif tensor.initial.rule not in ("zeros", "table") and (draw or not initial.is_random(tensor)):
                initial.fill(tensor, self._view(tensor), seed, generator)
        for tensor, source in copies:
            self._view(tensor)[...] = self._view(self._tensor(source))

    def read(self, name: str) -> Array:
        """A copy of a tensor in the shape of the first variant it exists in, half types as float32.

        Only real channels are in it. ValueError for an unknown name.
        """
        return widened(self._view(self._tensor(name)))

    def write(self, name: str, array: ArrayLike) -> None:
        """Set a tensor, in the shape of the first variant it exists in.

        Floating-point types convert into each other (to half types through float32); everything else must convert
        exactly. ValueError names the tensor and what does not fit.
        """
        tensor = self._tensor(name)
        view = self._view(tensor)
        given: Array = np.asarray(array)
        if given.shape != view.shape:
            raise ValueError(f"tensor '{name}' has the shape {view.shape}, the given array {given.shape}")
        kind, wanted = given.dtype.kind, "float" if tensor.dtype.is_float else "integer"
        if kind not in "fiu":
            raise ValueError(f"tensor '{name}' is of type {tensor.dtype.value}, the given array of {given.dtype}")
        with np.errstate(all="ignore"):
            converted = narrowed(given, view.dtype) if tensor.dtype.is_half else given.astype(view.dtype)
            exact = kind == "f" if tensor.dtype.is_float else False
            if not exact and not _same_values(widened(converted), given):
                raise ValueError(
                    f"tensor '{name}' is of type {tensor.dtype.value}: the given {given.dtype} values do not fit this "
                    f"{wanted} type exactly"
                )
        view[...] = converted

    def staging(self, buffer: str, column: int) -> tuple[Array, Array]:
        """Host memory of input buffer "A" or "B" in the shape of a column, for the caller to fill.

        Labels as int32 [n] and images [n, h, w, c]; the transfer step of that buffer copies them to the arena. The
        columns of one buffer share their memory. Images that the plan normalises are unsigned bytes; others that the
        network keeps in half precision are float32 here, and have their real channels only: the transfer rounds them.
        """
        if buffer not in BUFFERS:
            raise ValueError(f"there are the input buffers A and B, not '{buffer}'")
        staging = self._memory.staging(buffer, self._checked_column(column))
        return staging.labels, staging.images

    def _tensor(self, name: str) -> Tensor:
        if name not in self._memory.by_name:
            close = get_close_matches(name, self._memory.by_name, 3)
            hint = f"; did you mean {' or '.join(close)}?" if close else ""
            raise ValueError(f"the plan '{self.plan.name}' has no tensor '{name}'{hint}")
        return self._memory.tensor(name)

    def _view(self, tensor: Tensor) -> Array:
        shape = next((s for s in tensor.shapes if s is not None), None)
        if shape is None:
            raise ValueError(f"tensor '{tensor.name}' exists in no variant")
        return self._memory.view(tensor, shape)[..., : visible_shape(tensor, shape)[-1]]

    # ------------------------------------------------------------ steps

    def run(self, step: str, column: int) -> None:
        """Run a step in a column to its end. ValueError for an unknown step, or one that does not run in the column."""
        runs = self._bound.get((step, column))
        if runs is None:
            runs = self._bind_step(step, column)
        # overflow and NaN are results like others here: check_nan looks for them
        with np.errstate(all="ignore"):
            for run in runs:
                run()

    def kernels_for(self, kind: str) -> Bind | None:
        """The kernel of a kind, or None."""
        return lookup(kind)

    def _checked_column(self, column: int) -> int:
        if not 0 <= column < len(self.plan.variants):
            raise ValueError(f"there are the columns 0 to {len(self.plan.variants) - 1}, not {column}")
        return column

    def _bind_step(self, name: str, column: int) -> list[Run]:
        step = self._steps.get(name)
        if step is None:
            raise ValueError(f"the plan '{self.plan.name}' has no step '{name}'; it has {', '.join(self._steps)}")
        self._checked_column(column)
        if column not in step.columns:
            columns = ", ".join(self.plan.variants[c].name for c in step.columns)
            raise ValueError(
                f"step '{name}' does not run in variant {self.plan.variants[column].name}; it runs in {columns}"
            )
        runs = [self._capture_of(step, index, column)[index] for index in step.nodes]
        self._bound[name, column] = runs
        return runs

    def _capture_of(self, step: Step, index: int, column: int) -> dict[int, Run]:
        """The bound nodes of the capture that a step's node belongs to."""
        node = self.plan.nodes[index]
        number = self.plan.atlas[column][node.bucket.value]
        where = f"step '{step.name}' in variant {self.plan.variants[column].name}"
        if number < 0:
            raise ValueError(f"{where} uses {node.bucket.name}, but the atlas has no capture for it")
        bound = self._captures.get(number)
        if bound is None:
            capture = self.plan.captures[number]
            nodes = self._nodes_of.get((capture.computation, capture.bucket), [])
            bound = {n: bind_node(self.plan.nodes[n], capture.column, self._memory) for n in nodes}
            self._captures[number] = bound
        if index not in bound:
            raise ValueError(f"{where} uses {node.bucket.name} of '{node.computation}', the atlas's capture is another")
        return bound


def bind_node(node: Node, column: int, memory: Memory) -> Run:
    """A node ready to run. ValueError names the kind and layer that cannot be bound, and why."""
    bind = lookup(node.kind)
    bound = BoundNode(node, column, memory)
    if bind is None:
        raise bound.problem("the CPU target has no kernel for this kind")
    try:
        return bind(bound)
    except ValueError as err:
        message = str(err)
        if message.startswith(f"{bound}: "):
            raise
        raise bound.problem(message) from err


def _check_kernels(plan: Plan) -> None:
    problems: dict[str, None] = {}  # a dictionary keeps the order and drops repetitions
    for node in plan.nodes:
        name = f"{node.kind}" + (f" of layer '{node.layer}'" if node.layer else "")
        if lookup(node.kind) is None:
            problems[f"the CPU target has no kernel for {name}"] = None
    if problems:
        raise ValueError(_lines(list(problems)))


def _lines(problems: list[str], most: int = 10) -> str:
    more = [f"... and {len(problems) - most} more"] if len(problems) > most else []
    return "\n".join(problems[:most] + more)


def _same_values(converted: NDArray[Any], given: NDArray[Any]) -> bool:
    """Whether a conversion kept every value (signs included: -1 as an unsigned number is not kept)."""
    return bool(np.all(converted == given)) and bool(np.all((converted < 0) == (given < 0)))
