"""A session on a GPU: an arena, captured definitions, and one executable graph a step."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trc_runtime.cpu import initial
from trc_runtime.cuda import dnn, host
from trc_runtime.cuda._cuda import Counters, Driver, Event, Function, GraphExec, Module
from trc_runtime.cuda._cudnn import Planner
from trc_runtime.cuda.arena import DeviceArena
from trc_runtime.cuda.bundle import bundle_parts, read_sources
from trc_runtime.cuda.calls import DriverError, KernelCall
from trc_runtime.cuda.context import Context
from trc_runtime.cuda.cubins import compile_cubin
from trc_runtime.cuda.errors import ANEW, CudaError, DriverCallError
from trc_runtime.cuda.graph import GraphBuilder
from trc_runtime.cuda.launches import LANES, Executable, Lane, Ticket
from trc_runtime.cuda.link import Copy, Linked, Linker
from trc_runtime.cuda.order import Order, check_pair, compose, place_scratch, scratch_sizes
from trc_runtime.cuda.pinned import pinned
from trc_runtime.cuda.planning import plan_graphs
from trc_runtime.cuda.reader import Reader
from trc_runtime.cuda.release import release
from trc_runtime.cuda.report import Clock, Report
from trc_runtime.cuda.ring import Metrics, Ring
from trc_runtime.cuda.stepwise import Stepwise
from trc_runtime.rng import Philox, check_streams
from trc_runtime.schema.bundle import CUDNN_PLANS, DRIVER, PLAN, Bundle
from trc_runtime.schema.plan import Plan, Step, Tensor
from trc_runtime.schema.staging import BUFFERS, staged_parts

Array = NDArray[Any]
Key = tuple[str, int, str | None, int | None]

_STATIC_SHARED = 48 << 10
_NOT_FOUND = 500


class CudaSession:
    """Everything that a plan needs to run on a GPU. Sessions share nothing but the device.

    One thread at a time launches, reads, writes and closes; `staging`, `pack` and tickets are for any thread.

    All memory is allocated, all code loaded and every step's graph made here; afterwards a step is one launch. `device`
    is the GPU's number. `cubin` and `plans` are a bundle's device code (for `architecture`) and all its cuDNN plans;
    where one is None it is made here. `choices` names the cuDNN engine of a graph by key. With `graphs=False` the same
    calls run kernel by kernel, on five streams. Messages name the files of `folder`, the bundle's; `plan_sha256` is the
    hash of the plan's text, where it is known.

    Raises DeviceError, MissingExtra, ArenaError, CompileProblem, DnnError or DriverError, each with one message that
    says what to do.
    """

    def __init__(
        self,
        plan: Plan,
        kernels: str,
        driver: str,
        *,
        device: int = 0,
        architecture: str | None = None,
        cubin: bytes | None = None,
        plans: bytes | None = None,
        choices: Mapping[str, str] | None = None,
        graphs: bool = True,
        cache: Path | None = None,
        folder: Path | None = None,
        plan_sha256: str | None = None,
    ) -> None:
        self.plan = plan
        self._closed = False
        self._executables: dict[Key, Executable] = {}
        self._same: dict[object, Executable] = {}
        self._graphs: list[GraphExec] = []
        self._events: list[Event] = []
        self._staged: dict[str, host.StagedInput] = {}
        self._linked: dict[int, Linked] = {}
        self._ring: Ring | None = None
        self._arena: DeviceArena | None = None
        self._module: Module | None = None
        self._builder: GraphBuilder | None = None
        self._stepwise: Stepwise | None = None
        self._reader: Reader | None = None
        self._clock = Clock()
        self._steps: dict[str, Step] = {s.name: s for s in plan.steps}
        self._by_name: dict[str, Tensor] = {t.name: t for t in plan.tensors}
        self._files = Path() if folder is None else folder
        self._sources = read_sources(plan, kernels, driver, str(self._files / DRIVER), plan_sha256)
        check_streams(
            [initial.stream_name(t) for t in plan.tensors if initial.is_random(t)]
            + sorted({f"dropout/{n.layer}" for n in plan.nodes if n.kind == "dropout_fwd"})
        )
        self._clock.lap("driver")
        self._context = Context(device, architecture)
        self._driver = self._context.driver
        self._clock.lap("device")
        try:
            self._start(cubin, plans, choices or {}, graphs, cache)
        except BaseException:
            with suppress(Exception):  # the first error is the one to show
                self.close()
            raise
        self._allocated = self.counters.allocations

    @classmethod
    def of_bundle(cls, bundle: Bundle, **options: Any) -> CudaSession:
        """The session of a bundle that was compiled for CUDA, with the cubin and cuDNN plans that it carries.

        Options are those of the constructor. BundleError for a bundle of another target, or one whose parts do not
        belong together.
        """
        parts = bundle_parts(bundle)
        given: dict[str, Any] = {"architecture": parts.architecture, "cubin": parts.cubin, "plans": parts.plans}
        given |= {"folder": bundle.path, "plan_sha256": bundle.files[PLAN]}
        return cls(bundle.plan, parts.kernels, parts.driver, **(given | options))

    # ------------------------------------------------------------ start

    def _start(
        self, cubin: bytes | None, plans: bytes | None, choices: Mapping[str, str], graphs: bool, cache: Path | None
    ) -> None:
        context, sources, plan = self._context, self._sources, self.plan
        functions, self._hit = self._load(cubin, cache)
        self._clock.lap("kernels")
        self._planned = self._plan_graphs(plans, choices)
        self._clock.lap("cudnn")
        workspaces = {key: p.workspace for key, p in self._planned.items()}
        places, self.scratch_bytes = place_scratch(plan, scratch_sizes(sources.definitions, workspaces))
        arena = self._arena = DeviceArena(self._driver, plan, self.scratch_bytes, context.main)
        staging = self._stage()
        self._ring = Ring(context, plan, arena.address)
        linker = Linker(arena.address, plan.total, arena.scratch, places, functions, self._planned, staging)
        linked = self._linked = {
            i: linker.link(d, str(self._files / DRIVER)) for i, d in enumerate(sources.definitions)
        }
        self._reader = Reader(context)
        self._clock.lap("memory")
        if graphs:
            builder = self._builder = GraphBuilder(context, linked)
            builder.warm()
            builder.capture()
            self._driver.zero(arena.address, arena.size, context.main)  # warming up left garbage
            self._driver.synchronize(context.main)
        else:
            self._stepwise = Stepwise(context, plan, linked)
        self._clock.lap("capture")
        for step in plan.steps:
            for column in step.columns:
                self._executable(step.name, column)
        self._clock.lap("instantiate")

    def _load(self, cubin: bytes | None, cache: Path | None) -> tuple[dict[str, Function], bool]:
        names = self._sources.kernel_names
        if not names:
            return {}, True
        hit = cubin is not None
        if cubin is None:
            made = compile_cubin(
                self._sources.kernels, self._context.architecture, cache=cache, users=self._sources.users
            )
            cubin, hit = made.code, made.hit
        module = self._module = self._driver.load_module(cubin)
        functions = {name: self._function(module, name) for name in names}
        shared: dict[str, int] = {}
        for definition in self._sources.definitions:
            for node in definition.nodes.values():
                for call in node.calls:
                    if isinstance(call, KernelCall):
                        shared[call.name] = max(shared.get(call.name, 0), call.shared)
        for name, size in shared.items():
            if size > _STATIC_SHARED:
                self._driver.allow_shared(functions[name], size)
        return functions, hit

    def _function(self, module: Module, name: str) -> Function:
        try:
            return self._driver.function(module, name)
        except DriverCallError as err:
            if err.code != _NOT_FOUND:
                raise
            raise DriverError(
                f"{self._files / DRIVER} launches the kernel {name}, which the device code does not have; {ANEW}"
            ) from None

    def _plan_graphs(self, saved: bytes | None, choices: Mapping[str, str]) -> dict[str, dnn.Planned]:
        if not self._sources.cudnn_users:
            return {}
        planner = Planner(self._context.handle())
        file = str(self._files / CUDNN_PLANS)
        return plan_graphs(planner, self._sources, self._context.architecture, saved, choices, file)

    def _stage(self) -> dict[tuple[str, str], int]:
        """Pinned memory for the input buffers; addresses by (buffer, part)."""
        places: dict[tuple[str, str], int] = {}
        for buffer in BUFFERS:
            parts = staged_parts(self._by_name, buffer)
            if not parts:
                continue
            (label, images), where = parts.values(), f"input buffer {buffer}"
            labels, pixels = (pinned(self._context, t.slot, where) for t in (label, images))
            places |= {(buffer, p): m.ctypes.data for p, m in zip(parts, (labels, pixels), strict=True)}
            self._staged[buffer] = host.StagedInput(label, images, labels, pixels)
        return places

    # ------------------------------------------------------------ tensors

    def initialise(self, *, draw: bool = True) -> None:
        """Zero the arena and write every tensor's initial value; the same bytes as on the CPU.

        Without `draw`, random ones stay zero: for a session that a checkpoint fills next.
        """
        driver, arena = self._ready()
        driver.zero(arena.address, arena.size, self._context.main)
        driver.synchronize(self._context.main)
        generator = Philox()
        copies: list[tuple[Tensor, str]] = []
        for tensor in self.plan.tensors:
            if (source := initial.counterpart(tensor)) is not None:
                copies.append((tensor, source))
                continue
            if not draw and initial.is_random(tensor):
                continue
            if (memory := host.first_values(tensor, self.plan.config.seed, generator)) is not None:
                driver.to_device(arena.address + tensor.offset, memory.ctypes.data, memory.size)
        for tensor, source in copies:
            origin = host.find(self.plan, self._by_name, source)
            size = min(tensor.slot, origin.slot)
            driver.copy(arena.address + tensor.offset, arena.address + origin.offset, size, self._context.main)
        driver.synchronize(self._context.main)

    def read(self, name: str) -> Array:
        """A copy of a tensor in the shape of the first variant it exists in, half types as float32.

        Waits for everything launched before. ValueError for an unknown name.
        """
        tensor = host.find(self.plan, self._by_name, name)
        memory = self.read_bytes(tensor.offset, host.stored_bytes(tensor, host.first_shape(tensor)))
        return host.decode(tensor, memory)

    def write(self, name: str, array: ArrayLike) -> None:
        """Set a tensor, in the shape of the first variant it exists in; waits for everything launched before.

        Floating-point types convert into each other, everything else must convert exactly. ValueError names the tensor
        and what does not fit.
        """
        tensor = host.find(self.plan, self._by_name, name)
        self.write_bytes(tensor.offset, host.encode(tensor, array))

    def read_bytes(self, offset: int, size: int) -> NDArray[np.uint8]:
        """A copy of bytes of the arena. ValueError for bytes outside it."""
        driver, arena = self._ready()
        self._check_bytes(offset, size)
        memory = np.empty(size, np.uint8)
        driver.synchronize(self._context.main)
        driver.to_host(memory.ctypes.data, arena.address + offset, size)
        return memory

    def write_bytes(self, offset: int, memory: NDArray[np.uint8]) -> None:
        """Set bytes of the arena. ValueError for bytes outside it."""
        driver, arena = self._ready()
        source = np.ascontiguousarray(memory)
        self._check_bytes(offset, source.nbytes)
        driver.synchronize(self._context.main)
        driver.to_device(arena.address + offset, source.ctypes.data, source.nbytes)

    def _check_bytes(self, offset: int, size: int) -> None:
        if offset < 0 or size < 0 or offset + size > self.arena_bytes:
            raise ValueError(f"bytes {offset} to {offset + size} lie outside the arena's {self.arena_bytes} bytes")

    def poison(self, value: int = 0xA5) -> None:
        """Set every byte of the arena and of the scratch memory, for tests: what nothing writes is then garbage."""
        driver, arena = self._ready()
        driver.fill(arena.address, value, arena.size, self._context.main)
        driver.synchronize(self._context.main)

    def staging(self, buffer: str, column: int) -> tuple[Array, Array]:
        """Host memory of input buffer "A" or "B" in the shape of a column, for the caller to fill.

        Labels as int32 [n] and images [n, h, w, c] with their real channels: unsigned bytes where the plan normalises
        them, float32 where the network keeps them in half precision. Waits until the last launch that copies from the
        buffer is done; any thread may call it. The arrays stay valid after the session's end, when nothing reads them
        any more.
        """
        staged = self._buffer(buffer)
        self._check_column(column)
        if staged.reading is not None:
            staged.reading.settle()
        return staged.arrays(column)

    def pack(self, buffer: str) -> None:
        """Bring what was filled into a buffer's staging into the form that the device stores.

        A launch does it where it has not been done; calling it earlier, in the thread that fills, takes it off the
        launching thread.
        """
        self._buffer(buffer).pack()

    def _buffer(self, buffer: str) -> host.StagedInput:
        self._check_open()
        if buffer not in BUFFERS:
            raise ValueError(f"there are the input buffers A and B, not '{buffer}'")
        staged = self._staged.get(buffer)
        if staged is None:
            self._check_open()  # another thread may have closed it meanwhile
            raise ValueError(f"the plan '{self.plan.name}' has no input buffer {buffer}")
        return staged

    # ------------------------------------------------------------ steps

    def run(self, step: str, column: int) -> None:
        """Run a step in a column to its end. ValueError for an unknown step, or one that does not run in the column."""
        self.launch(step, column).settle()

    def launch(self, step: str, column: int, beside: str | None = None, beside_column: int | None = None) -> Ticket:
        """Launch a step and return at once; with `beside` a second step runs in the same launch.

        As `Executable.launch`; `Ticket.wait` gives the batch's results. ValueError for two steps that would race:
        beside a training or inference step there can be the transfer into the other input buffer.
        """
        executable = self._executables.get((step, column, beside, beside_column))
        if executable is None:
            executable = self._executable(step, column, beside, beside_column)
        return executable.launch()

    def results(self, step: str, column: int) -> Metrics | None:
        """What the last finished run of a step left in the ring: loss, top-1, top-5, and whether it was skipped.

        Zeros before the first run; None for a step without results.
        """
        self._check_open()
        return self._executable(step, column).latest.metrics()

    def prepare(
        self, step: str, column: int, beside: str | None = None, beside_column: int | None = None
    ) -> Executable:
        """Make the graph of a launch now, so that its first launch allocates nothing. ValueError as for `launch`.

        What is returned launches it, and saves a loop the search by name. It does not keep the session, whose end is
        its end too.
        """
        self._ready()
        executable = self._executable(step, column, beside, beside_column)
        self._allocated = self.counters.allocations
        return executable

    def _executable(
        self, step: str, column: int, beside: str | None = None, beside_column: int | None = None
    ) -> Executable:
        self._check_open()
        key = (step, column, beside, beside_column)
        found = self._executables.get(key)
        if found is None:
            parts = [(self._step(step, column), column)]
            if beside is not None:
                other = column if beside_column is None else beside_column
                parts.append((self._step(beside, other), other))
                check_pair(step, beside)
            order = compose(self.plan, parts)
            found = self._same.get(order.key)
            if found is None:
                found = self._same[order.key] = self._make(order)
            self._executables[key] = found
        return found

    def _make(self, order: Order) -> Executable:
        reads = [op.buffer for n, c in order.items for op in self._linked[c][n] if isinstance(op, Copy)]
        inputs = tuple(self._staged[b] for b in dict.fromkeys(reads) if b)
        assert self._reader is not None
        (one, nodes), (two, _) = (self._lane(order) for _ in range(LANES))
        return Executable(order, inputs, (one, two), self._reader.pending, nodes)

    def _lane(self, order: Order) -> tuple[Lane, tuple[int, ...]]:
        """A lane, and which position of the step each node of its graph belongs to (none in per-kernel mode)."""
        self._ready()
        assert self._ring is not None
        assert self._reader is not None
        event = self._driver.event()
        self._events.append(event)
        results, copies = self._ring.slot() if order.results else (None, ())
        nodes: tuple[int, ...] = ()
        if self._builder is not None:
            built = self._builder.build(order, copies, event)
            self._graphs.append(built.executable)
            self._driver.upload(built.executable, self._context.main)
            start, nodes = partial(self._driver.launch_graph, built.executable, self._context.main), built.nodes
        else:
            assert self._stepwise is not None
            start = partial(self._stepwise.start, order, copies, event)
        return Lane(start, results, event, self._reader.wake), nodes

    def _step(self, name: str, column: int) -> Step:
        step = self._steps.get(name)
        if step is None:
            raise ValueError(f"the plan '{self.plan.name}' has no step '{name}'; it has {', '.join(self._steps)}")
        self._check_column(column)
        if column not in step.columns:
            columns = ", ".join(self.plan.variants[c].name for c in step.columns)
            raise ValueError(
                f"step '{name}' does not run in variant {self.plan.variants[column].name}; it runs in {columns}"
            )
        return step

    def _check_column(self, column: int) -> None:
        if not 0 <= column < len(self.plan.variants):
            raise ValueError(f"there are the columns 0 to {len(self.plan.variants) - 1}, not {column}")

    # ------------------------------------------------------------ facts

    @property
    def counters(self) -> Counters:
        """Launches, allocations and waiting calls so far."""
        return self._driver.counters

    @property
    def allocations_after_capture(self) -> int:
        """Allocations since the session was ready (or since the last `prepare`): must stay 0."""
        return self.counters.allocations - self._allocated

    @property
    def arena_bytes(self) -> int:
        """Bytes of the one device allocation: the plan's total and the scratch memory."""
        return self._ready()[1].size

    def free_memory(self) -> int:
        """Free bytes of the device, as the driver says."""
        return self._ready()[0].memory()[0]

    def node_map(self, step: str, column: int) -> list[tuple[int, str, str | None]]:
        """For each graph node of a step, in order: the plan's node, its kind and its layer.

        The node is -1 for the copies of results and the event at the end. Empty in per-kernel mode.
        """
        self._ready()
        executable = self._executable(step, column)
        found: list[tuple[int, str, str | None]] = []
        for position in executable.nodes:
            if position >= (ordinary := len(executable.order.items)):
                found.append((-1, "results" if position == ordinary else "end", None))
            else:
                index = executable.order.items[position][0]
                found.append((index, self.plan.nodes[index].kind, self.plan.nodes[index].layer))
        return found

    def write_dot(self, step: str, column: int, path: str) -> None:
        """Write a step's CUDA graph as DOT text. ValueError in per-kernel mode."""
        self._ready()
        if self._builder is None:
            raise ValueError("there are no graphs in per-kernel mode")
        self._builder.write_dot(self._executable(step, column).order, path)

    def report(self) -> Report:
        """What it took to make the session ready."""
        return Report(
            device=self._context.name,
            architecture=self._context.architecture,
            seconds=dict(self._clock.seconds),
            cubin_hit=self._hit,
            kernels=len(self._sources.kernel_names),
            definitions=len(self._sources.definitions),
            captured=self._builder.captured if self._builder else 0,
            executables=len(self._same),
            arena=self.arena_bytes,
            scratch=self.scratch_bytes,
            engines={key: p.plan.name for key, p in self._planned.items()},
        )

    def save_plans(self) -> bytes:
        """The cuDNN plans in use, to be loaded on the same architecture without planning."""
        self._check_open()
        return dnn.save_plans(self._planned, self._context.architecture)

    # ------------------------------------------------------------ end

    def _check_open(self) -> DeviceArena:
        if self._closed or self._arena is None:
            raise CudaError("the session is closed")
        return self._arena

    def _ready(self) -> tuple[Driver, DeviceArena]:
        arena = self._check_open()
        self._context.use()
        return self._driver, arena

    def close(self) -> None:
        """Wait for the device and give everything back; once.

        Everything is given back also where something fails, and the first error is raised then. What a user still
        holds of the host memory goes when the user lets it go.
        """
        if self._closed:
            return
        self._closed = True
        self._executables.clear()
        for executable in self._same.values():
            executable.close()
        if self._reader is not None:
            self._reader.close(self._release)
        else:
            self._release()

    def _release(self) -> None:
        release([self._destroy, self._forget, self._context.close])

    def _destroy(self) -> None:
        context, driver = self._context, self._driver
        parts = [part for part in (self._builder, self._stepwise, self._arena) if part is not None]
        with driver.current(context.context):
            release(
                [
                    context.synchronize,
                    *(partial(driver.destroy_exec, graph) for graph in self._graphs),
                    *(part.close for part in parts),
                    *(partial(driver.destroy_event, event) for event in self._events),
                    *([] if self._module is None else [partial(driver.unload_module, self._module)]),
                ]
            )

    def _forget(self) -> None:
        """Let go of the host memory, which is freed when nobody else holds it."""
        for held in (self._executables, self._same, self._staged, self._linked):
            held.clear()
        self._ring = None

    def __enter__(self) -> CudaSession:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        # A session that was never finished has no attribute to close by; errors at exit have nobody to tell.
        if getattr(self, "_context", None) is not None and not self._closed:
            with suppress(Exception):
                self.close()
