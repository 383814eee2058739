"""The fastest cuDNN engine of each graph, measured once and written down.

Heuristics order a graph's engines; a measurement on the device at hand orders them better. Only engines that a session
may use take part (deterministic, and of full precision where that is asked for). The file names the GPU and the
versions it holds for, and grows with the graphs of other networks.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np

from trc_runtime.cpu.arena import format_bytes
from trc_runtime.cpu.half import narrowed
from trc_runtime.cuda import dnn
from trc_runtime.cuda._cuda import Event
from trc_runtime.cuda._cudnn import Planner
from trc_runtime.cuda.arena import allocate, check_room
from trc_runtime.cuda.bundle import Sources
from trc_runtime.cuda.calls import CudnnCall
from trc_runtime.cuda.context import Context
from trc_runtime.cuda.errors import CudaError, DnnError, DriverCallError
from trc_runtime.cuda.release import release
from trc_runtime.schema.dtypes import DType
from trc_runtime.schema.files import write_atomically
from trc_runtime.schema.regions import SLOT_ALIGNMENT, align_up

CANDIDATES = 8
"""Engines of a graph that are tried, in the heuristics' order."""

RUNS, ROUNDS = 5, 3
"""Executions in a captured graph, and launches of that graph; the fastest launch counts."""

_LONGEST = 1e12
"""More microseconds than any execution takes, and fewer than a float cannot hold."""

GAIN = 0.02
"""By how much an engine must be faster than the heuristics' first to be chosen."""

_FORMAT, _VERSION = "trc-engines", 1
_PATTERN_BYTES = 32 << 20


@dataclass(frozen=True)
class Machine:
    """What measurements hold for."""

    device: str
    frontend: str
    cudnn: str

    def __str__(self) -> str:
        return f"{self.device} with cuDNN {self.cudnn} and its frontend {self.frontend}"


@dataclass
class Engines:
    """Measured choices by their graph's key: the engine, its time and that of the heuristics' first in microseconds."""

    machine: Machine
    found: dict[str, tuple[str, float, float]] = field(default_factory=dict[str, tuple[str, float, float]])

    @property
    def choices(self) -> dict[str, str]:
        """What a session takes as `choices`."""
        return {key: name for key, (name, _, _) in self.found.items()}

    def to_json(self) -> str:
        """The file's text."""
        machine = {"device": self.machine.device, "frontend": self.machine.frontend, "cudnn": self.machine.cudnn}
        engines = {
            key: {"engine": name, "microseconds": round(best, 2), "heuristic_microseconds": round(first, 2)}
            for key, (name, best, first) in sorted(self.found.items())
        }
        return json.dumps({"format": _FORMAT, "version": _VERSION, **machine, "engines": engines}, indent=1) + "\n"


def read_engines(path: Path) -> Engines:
    """Read a file of measurements; CudaError says what is wrong with it."""
    try:
        if path.exists() and not path.is_file():  # reading a pipe would wait for ever
            raise CudaError(f"{path}: is not a file")
        parsed: object = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as err:
        raise CudaError(f"{path}: cannot read the measured engines: {err}; {_DELETE}") from None
    document = cast("dict[str, object]", parsed) if isinstance(parsed, dict) else {}
    if (document.get("format"), document.get("version")) != (_FORMAT, _VERSION):
        raise CudaError(f"{path}: not a file of measured engines that this version reads; {_DELETE}")
    facts = [document.get(name) for name in ("device", "frontend", "cudnn")]
    engines = document.get("engines")
    if not all(isinstance(fact, str) for fact in facts) or not isinstance(engines, dict):
        raise CudaError(f"{path}: cannot read the measured engines: damaged; {_DELETE}")
    found = {key: _entry(path, key, entry) for key, entry in cast("dict[str, object]", engines).items()}
    return Engines(Machine(*map(str, facts)), found)


def _entry(path: Path, key: str, entry: object) -> tuple[str, float, float]:
    fields = cast("dict[str, object]", entry) if isinstance(entry, dict) else {}
    name = fields.get("engine")
    if not isinstance(name, str) or not name:
        raise _damaged(path, key, f"its 'engine' is {name!r}")
    times: list[float] = []
    for field_name in ("microseconds", "heuristic_microseconds"):
        time = fields.get(field_name)
        if isinstance(time, bool) or not isinstance(time, int | float) or not 0 <= time <= _LONGEST:
            raise _damaged(path, key, f"its '{field_name}' are {str(time)[:40]}")
        times.append(float(time))
    return name, times[0], times[1]


def _damaged(path: Path, key: str, what: str) -> CudaError:
    return CudaError(f"{path}: cannot read the measured engines: the entry {key!r} is damaged: {what}; {_DELETE}")


_DELETE = "delete it to measure again"


def keys_of(sources: Sources, column: int = 0) -> list[str]:
    """The graphs of the definitions that were captured for a column, in order."""
    keys = (
        call.key
        for capture, definition in zip(sources.plan.captures, sources.definitions, strict=True)
        if capture.column == column
        for node in definition.nodes.values()
        for call in node.calls
        if isinstance(call, CudnnCall)
    )
    return list(dict.fromkeys(keys))


def tune(sources: Sources, path: Path, device: int = 0) -> Engines:
    """The engines for the full training batch of a network: read from the file, and measured where it lacks them.

    Whether the file can be written is tried before anything is measured, and what has been measured is written also
    where a later measurement fails. CudaError for a file of another GPU or version, or one that cannot be read or
    written; ArenaError where the network, or a measurement, does not fit the device.
    """
    context = Context(device)
    try:
        machine = Machine(context.name, *dnn.versions())
        engines = read_engines(path) if path.exists() else Engines(machine)
        if engines.machine != machine:
            raise CudaError(
                f"{path} was measured on {engines.machine}, here is {machine}: measure again in another file"
            )
        missing = [key for key in keys_of(sources) if key not in engines.found]
        if missing:
            check_room(sources.plan, 0, sources.plan.total, *context.driver.memory())
            _write(path, engines)
            try:
                for key, found in measure(context, {key: sources.cudnn[key] for key in missing}):
                    engines.found[key] = found
            finally:
                _write(path, engines)
        return engines
    finally:
        context.close()


def _write(path: Path, engines: Engines) -> None:
    try:
        write_atomically(path, engines.to_json().encode())
    except OSError as err:
        raise CudaError(f"{path}: the measured engines cannot be written there: {err.strerror or err}") from None


def measure(context: Context, graphs: Mapping[str, dnn.Description]) -> Iterator[tuple[str, tuple[str, float, float]]]:
    """For each graph its key, the fastest engine, its time and that of the heuristics' first, in microseconds."""
    planner = Planner(context.handle())
    sizes = {
        key: [align_up(dnn.tensor_bytes(t), SLOT_ALIGNMENT) for t in d["tensors"].values()] for key, d in graphs.items()
    }
    tensors = max(sum(s) for s in sizes.values())
    bench = _Bench(context, tensors, {str(d["dtype"]) for d in graphs.values()})
    try:
        bench.fill()
        for key, description in graphs.items():
            yield key, bench.best(planner, key, description, sizes[key])
    finally:
        bench.close()


class _Bench:
    """Device memory with numbers in it, and a clock."""

    def __init__(self, context: Context, tensors: int, dtypes: set[str]) -> None:
        self._context = context
        self._driver = driver = context.driver
        self._tensors, self._dtype = tensors, min(dtypes)
        self._memory = allocate(
            driver,
            tensors + dnn.WORKSPACE_LIMIT,
            f"measuring cuDNN's engines (the tensors of the largest graph, and {format_bytes(dnn.WORKSPACE_LIMIT)} of "
            "workspace)",
        )
        self._workspace = self._memory + tensors
        self._events: list[Event] = []

    def fill(self) -> None:
        """Put numbers into the tensors."""
        driver = self._driver
        self._events += [driver.event(timing=True) for _ in range(2)]
        pattern = _pattern(self._dtype)
        done = min(pattern.nbytes, self._tensors)
        driver.to_device(self._memory, pattern.ctypes.data, done)
        while done < self._tensors:
            part = min(done, self._tensors - done)
            driver.copy(self._memory + done, self._memory, part, self._context.main)
            done += part
        driver.synchronize(self._context.main)

    def best(
        self, planner: Planner, key: str, description: dnn.Description, sizes: Sequence[int]
    ) -> tuple[str, float, float]:
        """The fastest engine of a graph."""
        begins = np.cumsum([0, *sizes[:-1]])
        places = {r: self._memory + int(b) for r, b in zip(description["tensors"], begins, strict=True)}
        times: dict[str, float] = {}
        for name in dnn.candidates(planner, description)[:CANDIDATES]:
            try:
                planned = dnn.make_plan(planner, key, description, name)
                if planned.workspace <= dnn.WORKSPACE_LIMIT:
                    times[planned.plan.name] = self._microseconds(planned, places)
            except (DnnError, DriverCallError):
                continue  # a candidate need not build, be deterministic, or allow a capture
        if not times:
            return dnn.make_plan(planner, key, description).plan.name, 0.0, 0.0
        first = next(iter(times))
        fastest = min(times, key=lambda name: times[name])
        chosen = fastest if times[fastest] < (1 - GAIN) * times[first] else first
        return chosen, times[chosen], times[first]

    def _microseconds(self, planned: dnn.Planned, places: Mapping[str, int]) -> float:
        """The time of one execution among several in a captured graph."""
        driver, stream, handle = self._driver, self._context.main, self._context.handle()
        planned.execute(places, self._workspace, handle)  # what is loaded lazily is loaded now
        driver.synchronize(stream)
        driver.begin_capture(stream)
        try:
            for _ in range(RUNS):
                planned.execute(places, self._workspace, handle)
        finally:
            graph = driver.end_capture(stream)
        executable = driver.instantiate(graph)
        begin, end = self._events
        found: list[float] = []
        try:
            driver.launch_graph(executable, stream)
            for _ in range(ROUNDS):
                driver.record(begin, stream)
                driver.launch_graph(executable, stream)
                driver.record(end, stream)
                driver.wait_event(end)
                found.append(1e3 * driver.milliseconds(begin, end) / RUNS)
        finally:
            driver.destroy_exec(executable)
            driver.destroy_graph(graph)
        return min(found)

    def close(self) -> None:
        """Give everything back."""
        events = [partial(self._driver.destroy_event, event) for event in self._events]
        release([*events, partial(self._driver.free, self._memory)])


def _pattern(dtype: str) -> np.ndarray[Any, Any]:
    """Numbers such as activations are: kernels can run faster on zeros."""
    kind = DType(dtype)
    count = _PATTERN_BYTES // kind.itemsize
    numbers = np.random.default_rng(0).standard_normal(count, dtype=np.float32)
    return narrowed(numbers, kind.numpy) if kind.is_half else numbers
