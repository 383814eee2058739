"""A GPU made of host memory: the driver's calls are kept and carried out on the CPU.

Device memory is host memory. A graph launch runs its nodes in an order drawn at random among those that its edges
allow, so that a missing edge shows as a wrong number. Kernels are the emitted ones, compiled by the emulator; cuDNN
graphs are computed from their descriptions in NumPy. What is checked is everything around the kernels: addresses,
arguments, edges, captures, staging, results, counts. Importing this needs no compiler: a bundle runs without one.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import random
import re
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from trc_runtime.cpu import half
from trc_runtime.cuda import _cudnn, cubins, dnn
from trc_runtime.cuda import context as context_module
from trc_runtime.cuda import session as session_module
from trc_runtime.cuda._cuda import OUT_OF_MEMORY, Counters
from trc_runtime.cuda.cubins import Cubin
from trc_runtime.cuda.errors import DriverCallError
from trc_runtime.cuda.session import CudaSession
from trc_runtime.cuda.signatures import parse
from trc_runtime.schema.plan import Plan

Action = Callable[[], None]

COMPILER = shutil.which("g++")
HERE = Path(__file__).parents[2] / "codegen" / "cuda" / "emulator"

_EMULATOR = threading.Lock()
"""The emulator runs one kernel at a time."""


@dataclass(eq=False)
class FakeGraph:
    nodes: list[FakeNode] = field(default_factory=list)
    alive: bool = True

    def add(self, after: list[FakeNode], action: Action, what: str) -> FakeNode:
        assert self.alive
        assert all(any(a is n for n in self.nodes) for a in after), "a dependency of another graph"
        assert len({id(a) for a in after}) == len(after), "a dependency twice"
        node = FakeNode(action, list(after), what)
        self.nodes.append(node)
        return node


@dataclass(eq=False)
class FakeNode:
    action: Action
    after: list[FakeNode]
    what: str


class FakeDriver:
    """The interface of `_cuda.Driver`."""

    sessions: list[FakeDriver] = []  # noqa: RUF012 - the latest, for tests to look at
    memory_limit = 1 << 34
    driver_version = 13000
    devices = 1
    capability = (9, 0)

    def __init__(self) -> None:
        self.counters = Counters()
        self.blocks: dict[int, Any] = {}
        self.live = {"stream": 0, "event": 0, "graph": 0, "exec": 0, "module": 0, "context": 0}
        self.capturing: dict[int, FakeGraph] = {}
        self.random = random.Random(len(FakeDriver.sessions))
        self.graphs: list[FakeGraph] = []
        FakeDriver.sessions.append(self)

    # device

    def version(self) -> int:
        return self.driver_version

    def device_count(self) -> int:
        return self.devices

    def device(self, ordinal: int) -> int:
        return ordinal

    def device_name(self, device: int) -> str:
        return "NVIDIA Fake"

    def compute_capability(self, device: int) -> tuple[int, int]:
        return self.capability

    def shared_memory_limit(self, device: int) -> int:
        return 227 << 10

    def retain_context(self, device: int) -> str:
        self.live["context"] += 1
        return "context"

    def release_context(self, device: int) -> None:
        self.live["context"] -= 1

    def make_current(self, context: str) -> None:
        assert context == "context"

    @contextlib.contextmanager
    def current(self, context: str) -> Any:
        assert context == "context"
        yield

    def memory(self) -> tuple[int, int]:
        used = sum(ctypes.sizeof(b) for b in self.blocks.values())
        return self.memory_limit - used, self.memory_limit

    # memory

    def allocate(self, size: int) -> int:
        self.counters.allocations += 1
        if size > self.memory()[0]:
            raise DriverCallError("cuMemAlloc", "CUDA_ERROR_OUT_OF_MEMORY", "out of memory", OUT_OF_MEMORY)
        block = ctypes.create_string_buffer(size + 256)
        address = ctypes.addressof(block)
        address += -address % 256
        self.blocks[address] = block
        return address

    def free(self, address: int) -> None:
        del self.blocks[address]

    allocate_pinned, free_pinned = allocate, free

    def to_device(self, target: int, source: int, size: int) -> None:
        self.counters.wait()
        ctypes.memmove(target, source, size)

    to_host = to_device

    def fill(self, address: int, value: int, size: int, stream: int) -> None:
        assert not self.capturing
        ctypes.memset(address, value, size)

    def zero(self, address: int, size: int, stream: int) -> None:
        self.fill(address, 0, size, stream)

    def copy(self, target: int, source: int, size: int, stream: int) -> None:
        ctypes.memmove(target, source, size)

    # streams and events

    def stream(self) -> int:
        self.live["stream"] += 1
        number = 1000 * len(FakeDriver.sessions) + self.live["stream"]
        FakeHandle.drivers[number] = self
        return number

    def destroy_stream(self, stream: int) -> None:
        self.live["stream"] -= 1

    def synchronize(self, stream: int) -> None:
        assert not self.capturing
        self.counters.wait()

    def address_of(self, stream: int) -> int:
        return stream

    def event(self, timing: bool = False) -> list[int]:
        self.live["event"] += 1
        return [0]

    def destroy_event(self, event: list[int]) -> None:
        self.live["event"] -= 1

    def record(self, event: list[int], stream: int) -> None:
        event[0] += 1

    def wait_event(self, event: list[int]) -> None:
        self.counters.wait()  # of an event that was never recorded too: the driver returns at once

    def let_wait(self, stream: int, event: list[int]) -> None:
        assert event[0], "a stream waits for an event that was never recorded"

    # code

    def load_module(self, cubin: bytes) -> Any:
        self.live["module"] += 1
        return ctypes.CDLL(cubin.decode())

    def unload_module(self, module: Any) -> None:
        self.live["module"] -= 1

    def function(self, module: Any, name: str) -> Any:
        try:
            return getattr(module, f"run__{name}")
        except AttributeError:
            raise DriverCallError("cuModuleGetFunction", "CUDA_ERROR_NOT_FOUND", "symbol not found", 500) from None

    def launch(self, function: Any, grid, block, shared, stream, params) -> None:
        self.counters.launches += 1
        self._call(function, grid, block, params)

    @staticmethod
    def _call(function: Any, grid, block, params: int) -> None:
        with _EMULATOR:
            function(ctypes.c_void_p(params), (ctypes.c_uint * 3)(*grid), (ctypes.c_uint * 3)(*block))

    # graphs

    def graph(self) -> FakeGraph:
        self.live["graph"] += 1
        graph = FakeGraph()
        self.graphs.append(graph)
        return graph

    def destroy_graph(self, graph: FakeGraph) -> None:
        assert graph.alive
        graph.alive = False
        self.live["graph"] -= 1

    def add_kernel(self, graph, after, function, grid, block, shared, params) -> FakeNode:
        return graph.add(after, lambda: self._call(function, grid, block, params), "kernel")

    def add_child(self, graph, after, child: FakeGraph) -> FakeNode:
        assert child.alive
        actions = [n.action for n in child.nodes]
        return graph.add(after, lambda: [a() for a in actions] and None, "child")

    def add_copy(self, graph, after, context, target, source, size, way) -> FakeNode:
        assert way in ("device", "to_device", "to_host")
        return graph.add(after, lambda: ctypes.memmove(target, source, size) and None, way)

    def add_zero(self, graph, after, context, address, size) -> FakeNode:
        return graph.add(after, lambda: ctypes.memset(address, 0, size) and None, "zero")

    def add_record(self, graph, after, event) -> FakeNode:
        return graph.add(after, lambda: self.record(event, 0), "record")

    def instantiate(self, graph: FakeGraph) -> list[FakeNode]:
        self.live["exec"] += 1
        return list(graph.nodes)

    def destroy_exec(self, executable: list[FakeNode]) -> None:
        self.live["exec"] -= 1

    def upload(self, executable: list[FakeNode], stream: int) -> None:
        pass

    def launch_graph(self, executable: list[FakeNode], stream: int) -> None:
        self.counters.launches += 1
        self.graph_launch(executable, stream)

    def graph_launch(self, executable: list[FakeNode], stream: int) -> None:
        left = {id(n): {id(a) for a in n.after} for n in executable}
        by_id = {id(n): n for n in executable}
        while left:
            ready = [n for n, waits in left.items() if not waits]
            chosen = self.random.choice(ready)
            by_id[chosen].action()
            del left[chosen]
            for waits in left.values():
                waits.discard(chosen)

    def begin_capture(self, stream: int) -> None:
        assert stream not in self.capturing
        self.live["graph"] += 1
        self.capturing[stream] = FakeGraph()

    def end_capture(self, stream: int) -> FakeGraph:
        return self.capturing.pop(stream)

    def write_dot(self, graph: FakeGraph, path: str) -> None:
        Path(path).write_text("digraph {}")

    def node_count(self, graph: FakeGraph) -> int:
        return len(graph.nodes)


class FakeHandle:
    """The interface of `_cudnn.Handle`."""

    drivers: dict[int, FakeDriver] = {}  # noqa: RUF012 - by stream

    def __init__(self, stream: int) -> None:
        self.stream = stream
        self.driver = FakeHandle.drivers[stream]

    def close(self) -> None:
        pass

    def run(self, action: Action) -> None:
        graph = self.driver.capturing.get(self.stream)
        if graph is None:
            action()
        else:
            graph.add(graph.nodes[-1:], action, "cudnn")


class FakePlan:
    name = "numpy"
    workspace = 512

    def serialise(self) -> bytes:
        return b"plan"


class FakePlanned:
    """The interface of `dnn.Planned`, with a workspace that it fills with garbage."""

    workspace = 512

    def __init__(self, key: str, description: Mapping[str, Any]) -> None:
        assert not dnn.problems_of(description)
        self.key, self.description, self.plan = key, description, FakePlan()

    def execute(self, addresses: Mapping[str, int], workspace: int, handle: FakeHandle) -> None:
        assert set(addresses) == set(self.description["tensors"])
        handle.run(lambda: self._run(addresses, workspace))

    def _run(self, addresses: Mapping[str, int], workspace: int) -> None:
        ctypes.memset(workspace, 0xFF, self.workspace)
        views = {r: _view(addresses[r], t) for r, t in self.description["tensors"].items()}
        compute(self.description, views)


def _view(address: int, tensor: Mapping[str, Any]) -> np.ndarray:
    dtype = {"f16": np.float16, "bf16": np.uint16, "f32": np.float32}[tensor["dtype"]]
    size = dnn.tensor_bytes(tensor)
    flat = np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address)).view(dtype)
    strides = [s * flat.itemsize for s in tensor["stride"]]
    return np.lib.stride_tricks.as_strided(flat, tensor["dim"], strides)


def compute(d: Mapping[str, Any], t: Mapping[str, np.ndarray]) -> None:
    """A description in NumPy: float32 arithmetic, one rounding at the end."""
    op, pad, step, groups = d["op"], d["padding"], d["stride"], d["groups"]
    wide = {r: half.widened(a).astype(np.float32) for r, a in t.items() if r not in dnn.outputs_of(d)}
    if "scale" in wide:
        x = wide["x"] * wide["scale"] + wide["shift"]
        x = np.maximum(x, 0) if d["act"] != "none" else x
        x = np.minimum(x, 6) if d["act"] == "relu6" else x
        wide["x"] = half.widened(half.narrowed(x, t["x"].dtype))
    weight = t["weight"] if "weight" in t else t["dweight"]
    r, s = weight.shape[2:]
    image = t["x"] if "x" in t else t["dx"]
    out = t["y"] if "y" in t else t["dy"]
    oh, ow = out.shape[2:]
    n, c, h, w = image.shape
    padded = np.zeros((n, c, h + 2 * pad, w + 2 * pad), np.float32)
    if "x" in wide:
        padded[:, :, pad : pad + h, pad : pad + w] = wide["x"]
    per, k = c // groups, weight.shape[0] // groups
    result = np.zeros(t[dnn.outputs_of(d)[0]].shape, np.float32)
    for i in range(r):
        for j in range(s):
            rows, columns = slice(i, i + step * (oh - 1) + 1, step), slice(j, j + step * (ow - 1) + 1, step)
            for g in range(groups):
                ins, outs = slice(g * per, (g + 1) * per), slice(g * k, (g + 1) * k)
                window = padded[:, ins, rows, columns]
                if op.endswith("_fwd"):
                    result[:, outs] += np.einsum("nchw,kc->nkhw", window, wide["weight"][outs, :, i, j])
                elif op.endswith("_bwd_data"):
                    window += np.einsum("nkhw,kc->nchw", wide["dy"][:, outs], wide["weight"][outs, :, i, j])
                else:
                    result[outs, :, i, j] = np.einsum("nkhw,nchw->kc", wide["dy"][:, outs], window)
    if op.endswith("_bwd_data"):
        t["dx"][...] = half.narrowed(padded[:, :, pad : pad + h, pad : pad + w], t["dx"].dtype)
        return
    if "bias" in wide:
        result += wide["bias"]
    target = t[dnn.outputs_of(d)[0]]
    target[...] = half.narrowed(result, target.dtype)
    if "sum" in t:
        kept = half.widened(target)
        t["sum"][0, :, 0, 0] = kept.sum((0, 2, 3))
        t["sumsq"][0, :, 0, 0] = (kept**2).sum((0, 2, 3))


def compile_for_host(source: str, architecture: str, **options: Any) -> Cubin:
    """The interface of `compile_cubin`: the code is the path of a library with the emulated kernels."""
    begin = time.perf_counter()
    text = '#include "emulator.h"\n' + re.sub(r"__launch_bounds__\([^)]*\)", "", source)
    for kernel in parse(source).values():
        kinds = [
            p.text.replace("__restrict__", " ").rpartition("*" if "*" in p.text else " ") for p in kernel.parameters
        ]
        values = ", ".join(f"*({kind}{star.strip()}*)a[{n}]" for n, (kind, star, _) in enumerate(kinds))
        text += (
            f"static void call__{kernel.name}(void** a) {{ {kernel.name}({values}); }}\n"
            f'extern "C" void run__{kernel.name}(void** a, const unsigned* grid, const unsigned* block)\n'
            f"{{ emulator::launch(call__{kernel.name}, a, grid, block); }}\n"
        )
    flags = ("-std=c++17", "-O1", "-w", "-fPIC", "-shared", "-ffp-contract=off", "-fno-strict-aliasing")
    headers = b"".join(p.read_bytes() for p in sorted(HERE.glob("*.h")))
    key = hashlib.sha256(text.encode() + headers + repr(flags).encode()).hexdigest()[:24]
    folder = Path(tempfile.gettempdir()) / f"trc-fake-{os.getuid()}"
    folder.mkdir(exist_ok=True)
    library = folder / f"{key}.so"
    if not (hit := library.exists()):
        made = folder / f"{key}.{os.getpid()}.so"
        source_file = made.with_suffix(".cpp")
        source_file.write_text(text)
        subprocess.run([str(COMPILER), *flags, "-I", str(HERE), "-o", str(made), str(source_file)], check=True)
        source_file.unlink()
        made.rename(library)
    return Cubin(str(library).encode(), architecture, hit, time.perf_counter() - begin)


def install(monkeypatch: Any) -> None:
    """Put the fakes in the places of driver, handles, plans and device code."""
    monkeypatch.setattr(context_module, "Driver", FakeDriver)
    monkeypatch.setattr(_cudnn, "Handle", FakeHandle)
    monkeypatch.setattr(session_module, "Planner", lambda handle: None)
    monkeypatch.setattr(dnn, "make_plan", lambda planner, key, description, choice=None: FakePlanned(key, description))
    monkeypatch.setattr(dnn, "load_plan", lambda planner, key, description, saved: FakePlanned(key, description))
    monkeypatch.setattr(session_module, "compile_cubin", compile_for_host)
    monkeypatch.setattr(cubins, "check_architecture", lambda architecture: None)


def fake_session(plan: Plan, **options: Any) -> CudaSession:
    """A session of a plan on the fake GPU (after `install`)."""
    from trc.codegen.cuda.bundle import generate

    code = generate(plan)
    return CudaSession(plan, code.kernels, code.driver, **options)


def driver_of(session: CudaSession) -> FakeDriver:
    """The driver of a session made by `fake_session`."""
    driver = session._driver
    assert isinstance(driver, FakeDriver)
    return driver
