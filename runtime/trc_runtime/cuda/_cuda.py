# pyright: basic, reportMissingImports=false, reportMissingModuleSource=false, reportAttributeAccessIssue=false
"""The facade of the CUDA driver and of NVRTC: the only module that imports `cuda.*`.

Everything here checks return codes and speaks in plain types, so that the rest of the package can be typed strictly.
Handles are opaque; addresses and sizes are integers. `Driver` counts launches, waiting calls by thread, and
allocations, which tests assert on.
"""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NewType

from trc_runtime.cuda.errors import CompileProblem, CudaError, DeviceError, DriverCallError, MissingExtra

Context = NewType("Context", object)
Stream = NewType("Stream", object)
Event = NewType("Event", object)
Graph = NewType("Graph", object)
GraphNode = NewType("GraphNode", object)
GraphExec = NewType("GraphExec", object)
Module = NewType("Module", object)
Function = NewType("Function", object)

OUT_OF_MEMORY = 2
NO_DEVICE = 100
NOT_READY = 600
_STREAM_NON_BLOCKING = 1
_EVENT_BLOCKING_NO_TIMING = 1 | 2
_HOST_PORTABLE = 1
_MAJOR, _MINOR, _MULTIPROCESSORS, _MAX_SHARED_OPTIN = 75, 76, 16, 97
_MAX_DYNAMIC_SHARED = 8
_CAPTURE_THREAD_LOCAL = 1
_HOST_MEMORY, _DEVICE_MEMORY = 1, 2
_CUBIN_MAGIC = b"\x7fELF"


def _import(name: str) -> Any:
    try:
        if name == "driver":
            from cuda.bindings import driver as module
        else:
            from cuda.bindings import nvrtc as module
    except ImportError as err:
        raise MissingExtra("cuda", "cuda-bindings", str(err)) from None
    return module


@dataclass
class Counters:
    """What a session has asked of the driver."""

    launches: int = 0
    """Graph launches, or kernel launches in per-kernel mode."""
    allocations: int = 0
    """Device and pinned allocations."""
    waits: dict[int, int] = field(default_factory=dict[int, int])
    """Calls that block until the device is done, by thread identifier."""

    def wait(self) -> None:
        """Count a waiting call of this thread."""
        me = threading.get_ident()
        self.waits[me] = self.waits.get(me, 0) + 1

    def waits_here(self) -> int:
        """Waiting calls of the calling thread."""
        return self.waits.get(threading.get_ident(), 0)


class Driver:
    """The CUDA driver, initialised. Raises MissingExtra without bindings and DeviceError without driver or device."""

    def __init__(self) -> None:
        self.counters = Counters()
        self._d = d = _import("driver")
        try:
            result = d.cuInit(0)
        except RuntimeError as err:  # also cuda.pathfinder's DynamicLibNotFoundError
            raise DeviceError(
                f"no NVIDIA driver was found ({err}): target cuda needs a machine with an NVIDIA GPU and its driver"
            ) from None
        if int(result[0]) == NO_DEVICE:
            raise DeviceError("the NVIDIA driver sees no GPU (is one visible to this process? CUDA_VISIBLE_DEVICES)")
        self._check("cuInit", result)
        self.graph_launch: Any = d.cuGraphLaunch
        """The one call of a step: found without a search in the bindings' thousands of names, and where to time it."""

    def _check(self, call: str, result: Any) -> Any:
        error = int(result[0])
        if error:
            name, text = self._describe(result[0])
            raise DriverCallError(call, name, text, error)
        return result[1] if len(result) == 2 else result[1:]

    def _describe(self, error: Any) -> tuple[str, str]:
        texts: list[str] = []
        for call in (self._d.cuGetErrorName, self._d.cuGetErrorString):
            code, text = call(error)
            texts.append(str(error) if int(code) or text is None else text.decode("utf-8", "replace"))
        return texts[0], texts[1]

    # ------------------------------------------------------------ device and context

    def version(self) -> int:
        """The CUDA version that the driver supports, as 1000 * major + 10 * minor."""
        return int(self._check("cuDriverGetVersion", self._d.cuDriverGetVersion()))

    def device_count(self) -> int:
        """How many devices this process sees."""
        return int(self._check("cuDeviceGetCount", self._d.cuDeviceGetCount()))

    def device(self, ordinal: int) -> Any:
        """The handle of a device."""
        return self._check("cuDeviceGet", self._d.cuDeviceGet(ordinal))

    def device_name(self, device: Any) -> str:
        """The device's name, such as "NVIDIA H200"."""
        raw = self._check("cuDeviceGetName", self._d.cuDeviceGetName(128, device))
        return bytes(raw).split(b"\0")[0].decode("utf-8", "replace")

    def _attribute(self, number: int, device: Any) -> int:
        attribute = self._d.CUdevice_attribute(number)
        return int(self._check("cuDeviceGetAttribute", self._d.cuDeviceGetAttribute(attribute, device)))

    def compute_capability(self, device: Any) -> tuple[int, int]:
        """Major and minor number of the architecture."""
        return self._attribute(_MAJOR, device), self._attribute(_MINOR, device)

    def multiprocessors(self, device: Any) -> int:
        """How many multiprocessors the device has."""
        return self._attribute(_MULTIPROCESSORS, device)

    def shared_memory_limit(self, device: Any) -> int:
        """The most shared memory that a block can have, in bytes."""
        return self._attribute(_MAX_SHARED_OPTIN, device)

    def retain_context(self, device: Any) -> Context:
        """The device's primary context, which cuDNN and other libraries use too."""
        return Context(self._check("cuDevicePrimaryCtxRetain", self._d.cuDevicePrimaryCtxRetain(device)))

    def release_context(self, device: Any) -> None:
        """Give the primary context back."""
        self._check("cuDevicePrimaryCtxRelease", self._d.cuDevicePrimaryCtxRelease(device))

    def make_current(self, context: Context) -> None:
        """Use the context in the calling thread."""
        self._check("cuCtxSetCurrent", self._d.cuCtxSetCurrent(context))

    @contextmanager
    def current(self, context: Context) -> Generator[None]:
        """Use the context in a block; afterwards the one that was current before is it again.

        For what runs wherever Python's collector happens to run: another session may be in the middle of something.
        """
        self._check("cuCtxPushCurrent", self._d.cuCtxPushCurrent(context))
        try:
            yield
        finally:
            self._check("cuCtxPopCurrent", self._d.cuCtxPopCurrent())

    def memory(self) -> tuple[int, int]:
        """Free and total bytes of the device."""
        free, total = self._check("cuMemGetInfo", self._d.cuMemGetInfo())
        return int(free), int(total)

    # ------------------------------------------------------------ memory

    def allocate(self, size: int) -> int:
        """Device memory; its address is a multiple of 256."""
        self.counters.allocations += 1
        return int(self._check("cuMemAlloc", self._d.cuMemAlloc(size)))

    def free(self, address: int) -> None:
        """Free device memory."""
        self._check("cuMemFree", self._d.cuMemFree(address))

    def allocate_pinned(self, size: int) -> int:
        """Page-locked host memory; its address."""
        self.counters.allocations += 1
        return int(self._check("cuMemHostAlloc", self._d.cuMemHostAlloc(size, _HOST_PORTABLE)))

    def free_pinned(self, address: int) -> None:
        """Free page-locked host memory."""
        self._check("cuMemFreeHost", self._d.cuMemFreeHost(address))

    def to_device(self, target: int, source: int, size: int) -> None:
        """Copy from host memory and wait."""
        self.counters.wait()
        self._check("cuMemcpyHtoD", self._d.cuMemcpyHtoD(target, source, size))
        # From pageable memory the call returns when the bytes are staged, not when they have arrived, and our streams
        # do not wait for the default one.
        self._check("cuCtxSynchronize", self._d.cuCtxSynchronize())

    def to_host(self, target: int, source: int, size: int) -> None:
        """Copy to host memory and wait."""
        self.counters.wait()
        self._check("cuMemcpyDtoH", self._d.cuMemcpyDtoH(target, source, size))

    def zero(self, address: int, size: int, stream: Stream) -> None:
        """Zero device memory, in the order of a stream."""
        self._check("cuMemsetD8Async", self._d.cuMemsetD8Async(address, 0, size, stream))

    def fill(self, address: int, value: int, size: int, stream: Stream) -> None:
        """Set every byte of device memory, in the order of a stream."""
        self._check("cuMemsetD8Async", self._d.cuMemsetD8Async(address, value, size, stream))

    def copy(self, target: int, source: int, size: int, stream: Stream) -> None:
        """Copy between any two places (unified addressing), in the order of a stream."""
        self._check("cuMemcpyAsync", self._d.cuMemcpyAsync(target, source, size, stream))

    # ------------------------------------------------------------ streams and events

    def stream(self) -> Stream:
        """A stream that does not synchronise with the default one."""
        return Stream(self._check("cuStreamCreate", self._d.cuStreamCreate(_STREAM_NON_BLOCKING)))

    def destroy_stream(self, stream: Stream) -> None:
        """Destroy a stream."""
        self._check("cuStreamDestroy", self._d.cuStreamDestroy(stream))

    def synchronize(self, stream: Stream) -> None:
        """Wait until everything on the stream is done."""
        self.counters.wait()
        self._check("cuStreamSynchronize", self._d.cuStreamSynchronize(stream))

    def address_of(self, stream: Stream) -> int:
        """The stream's handle as a number, for libraries."""
        return int(stream)  # type: ignore[call-overload]

    def event(self, timing: bool = False) -> Event:
        """An event; waiting for it yields the processor."""
        flags = 0 if timing else _EVENT_BLOCKING_NO_TIMING
        return Event(self._check("cuEventCreate", self._d.cuEventCreate(flags)))

    def destroy_event(self, event: Event) -> None:
        """Destroy an event."""
        self._check("cuEventDestroy", self._d.cuEventDestroy(event))

    def record(self, event: Event, stream: Stream) -> None:
        """Record an event behind what the stream holds."""
        self._check("cuEventRecord", self._d.cuEventRecord(event, stream))

    def wait_event(self, event: Event) -> None:
        """Wait until an event has passed."""
        self.counters.wait()
        self._check("cuEventSynchronize", self._d.cuEventSynchronize(event))

    def passed(self, event: Event) -> bool:
        """Whether an event has passed; does not wait."""
        result = self._d.cuEventQuery(event)
        if int(result[0]) == NOT_READY:
            return False
        if int(result[0]):
            self._check("cuEventQuery", result)
        return True

    def milliseconds(self, begin: Event, end: Event) -> float:
        """The time between two events that have passed and record times."""
        return float(self._check("cuEventElapsedTime", self._d.cuEventElapsedTime(begin, end)))

    def let_wait(self, stream: Stream, event: Event) -> None:
        """Make later work of a stream wait for an event; the caller does not."""
        self._check("cuStreamWaitEvent", self._d.cuStreamWaitEvent(stream, event, 0))

    # ------------------------------------------------------------ modules and kernels

    def load_module(self, cubin: bytes) -> Module:
        """Load device code."""
        return Module(self._check("cuModuleLoadData", self._d.cuModuleLoadData(cubin)))

    def unload_module(self, module: Module) -> None:
        """Unload device code."""
        self._check("cuModuleUnload", self._d.cuModuleUnload(module))

    def function(self, module: Module, name: str) -> Function:
        """A kernel of a module, by its extern "C" name."""
        result = self._check("cuModuleGetFunction", self._d.cuModuleGetFunction(module, name.encode()))
        return Function(result)

    def allow_shared(self, function: Function, size: int) -> None:
        """Let a kernel take that much dynamic shared memory (more than 48 KiB must be asked for)."""
        attribute = self._d.CUfunction_attribute(_MAX_DYNAMIC_SHARED)
        self._check("cuFuncSetAttribute", self._d.cuFuncSetAttribute(function, attribute, size))

    def launch(
        self,
        function: Function,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        shared: int,
        stream: Stream,
        params: int,
    ) -> None:
        """Launch a kernel; `params` is the address of an array of pointers to its arguments."""
        self.counters.launches += 1
        self._check("cuLaunchKernel", self._d.cuLaunchKernel(function, *grid, *block, shared, stream, params, 0))

    # ------------------------------------------------------------ graphs

    def graph(self) -> Graph:
        """An empty graph."""
        return Graph(self._check("cuGraphCreate", self._d.cuGraphCreate(0)))

    def destroy_graph(self, graph: Graph) -> None:
        """Destroy a graph; executables made of it stay."""
        self._check("cuGraphDestroy", self._d.cuGraphDestroy(graph))

    def add_kernel(
        self,
        graph: Graph,
        after: list[GraphNode],
        function: Function,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        shared: int,
        params: int,
    ) -> GraphNode:
        """Add a kernel node. The arguments behind `params` are copied."""
        p = self._d.CUDA_KERNEL_NODE_PARAMS()
        p.func = function
        p.gridDimX, p.gridDimY, p.gridDimZ = grid
        p.blockDimX, p.blockDimY, p.blockDimZ = block
        p.sharedMemBytes = shared
        p.kernelParams = params
        return GraphNode(self._check("cuGraphAddKernelNode", self._d.cuGraphAddKernelNode(graph, after, len(after), p)))

    def add_child(self, graph: Graph, after: list[GraphNode], child: Graph) -> GraphNode:
        """Add a copy of a graph as one node."""
        result = self._d.cuGraphAddChildGraphNode(graph, after, len(after), child)
        return GraphNode(self._check("cuGraphAddChildGraphNode", result))

    def add_copy(
        self, graph: Graph, after: list[GraphNode], context: Context, target: int, source: int, size: int, way: str
    ) -> GraphNode:
        """Add a copy of `size` bytes; `way` is "device", "to_device" or "to_host"."""
        kind = self._d.CUmemorytype
        p = self._d.CUDA_MEMCPY3D()
        if way == "to_device":
            p.srcMemoryType, p.srcHost = kind(_HOST_MEMORY), source
        else:
            p.srcMemoryType, p.srcDevice = kind(_DEVICE_MEMORY), self._d.CUdeviceptr(source)
        if way == "to_host":
            p.dstMemoryType, p.dstHost = kind(_HOST_MEMORY), target
        else:
            p.dstMemoryType, p.dstDevice = kind(_DEVICE_MEMORY), self._d.CUdeviceptr(target)
        p.srcPitch = p.dstPitch = size
        p.srcHeight = p.dstHeight = 1
        p.WidthInBytes, p.Height, p.Depth = size, 1, 1
        result = self._d.cuGraphAddMemcpyNode(graph, after, len(after), p, context)
        return GraphNode(self._check("cuGraphAddMemcpyNode", result))

    def add_zero(self, graph: Graph, after: list[GraphNode], context: Context, address: int, size: int) -> GraphNode:
        """Add a node that zeroes `size` bytes."""
        unit = 4 if address % 4 == 0 and size % 4 == 0 else 1
        p = self._d.CUDA_MEMSET_NODE_PARAMS()
        p.dst = self._d.CUdeviceptr(address)
        p.value, p.elementSize, p.pitch = 0, unit, 0
        p.width, p.height = size // unit, 1
        result = self._d.cuGraphAddMemsetNode(graph, after, len(after), p, context)
        return GraphNode(self._check("cuGraphAddMemsetNode", result))

    def add_record(self, graph: Graph, after: list[GraphNode], event: Event) -> GraphNode:
        """Add a node that records an event. From a launch until the node has run the event has not passed."""
        result = self._d.cuGraphAddEventRecordNode(graph, after, len(after), event)
        return GraphNode(self._check("cuGraphAddEventRecordNode", result))

    def instantiate(self, graph: Graph) -> GraphExec:
        """Make a graph executable."""
        return GraphExec(self._check("cuGraphInstantiate", self._d.cuGraphInstantiate(graph, 0)))

    def destroy_exec(self, executable: GraphExec) -> None:
        """Destroy an executable graph."""
        self._check("cuGraphExecDestroy", self._d.cuGraphExecDestroy(executable))

    def upload(self, executable: GraphExec, stream: Stream) -> None:
        """Send an executable graph to the device before its first launch."""
        self._check("cuGraphUpload", self._d.cuGraphUpload(executable, stream))

    def launch_graph(self, executable: GraphExec, stream: Stream) -> None:
        """Launch an executable graph. Graph and stream know their context: it need not be the calling thread's."""
        self.counters.launches += 1
        error = self.graph_launch(executable, stream)
        if error[0]:
            self._check("cuGraphLaunch", error)

    def begin_capture(self, stream: Stream) -> None:
        """Record what this thread sends to the stream instead of running it."""
        mode = self._d.CUstreamCaptureMode(_CAPTURE_THREAD_LOCAL)
        self._check("cuStreamBeginCapture", self._d.cuStreamBeginCapture(stream, mode))

    def end_capture(self, stream: Stream) -> Graph:
        """The graph of what was recorded."""
        return Graph(self._check("cuStreamEndCapture", self._d.cuStreamEndCapture(stream)))

    def node_count(self, graph: Graph) -> int:
        """How many nodes a graph has, children counted as one."""
        _, count = self._check("cuGraphGetNodes", self._d.cuGraphGetNodes(graph))
        return int(count)

    def write_dot(self, graph: Graph, path: str) -> None:
        """Write a graph as DOT text."""
        self._check("cuGraphDebugDotPrint", self._d.cuGraphDebugDotPrint(graph, path.encode(), 0))


# ---------------------------------------------------------------- NVRTC


def nvrtc_version() -> tuple[int, int]:
    """The version of the run-time compiler. Needs no driver."""
    n = _import("nvrtc")
    try:
        code, major, minor = n.nvrtcVersion()
    except RuntimeError as err:
        raise MissingExtra("cuda", "NVRTC", str(err)) from None
    if int(code):
        raise CudaError(f"nvrtcVersion failed: {code}")
    return int(major), int(minor)


def nvrtc_architectures() -> list[str]:
    """The architectures that the run-time compiler makes code for, such as "sm_90". Needs no driver."""
    nvrtc_version()  # says it where the library is missing
    code, numbers = _import("nvrtc").nvrtcGetSupportedArchs()
    if int(code):
        raise CudaError(f"nvrtcGetSupportedArchs failed: {code}")
    return [f"sm_{number}" for number in numbers]


def nvrtc_compile(source: str, name: str, options: list[str]) -> tuple[bytes, str]:
    """Compile CUDA C++ to a cubin: (cubin, log). CompileProblem holds the log. Needs no driver."""
    n = _import("nvrtc")

    def check(call: str, result: Any) -> Any:
        if int(result[0]):
            raise CudaError(f"{call} failed: {result[0]}")
        return result[1] if len(result) == 2 else result[1:]

    program = check("nvrtcCreateProgram", n.nvrtcCreateProgram(source.encode(), name.encode(), 0, [], []))
    try:
        encoded = [o.encode() for o in options]
        (error,) = n.nvrtcCompileProgram(program, len(encoded), encoded)
        size = int(check("nvrtcGetProgramLogSize", n.nvrtcGetProgramLogSize(program)))
        raw = bytearray(size)
        check("nvrtcGetProgramLog", n.nvrtcGetProgramLog(program, raw))
        log = bytes(raw).split(b"\0")[0].decode("utf-8", "replace").strip()
        if int(error):
            raise CompileProblem(log or str(error))
        size = int(check("nvrtcGetCUBINSize", n.nvrtcGetCUBINSize(program)))
        room = bytearray(size)
        check("nvrtcGetCUBIN", n.nvrtcGetCUBIN(program, room))
        cubin = bytes(room)
        if not cubin.startswith(_CUBIN_MAGIC):
            raise CudaError(f"NVRTC gave no cubin for {name} ({options})")
        return cubin, log
    finally:
        n.nvrtcDestroyProgram(program)
