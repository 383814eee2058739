# pyright: basic, reportMissingImports=false, reportMissingModuleSource=false, reportAttributeAccessIssue=false
"""The facade of cuDNN's Python frontend: the only module that imports `cudnn`.

Written against nvidia-cudnn-frontend 1.18.0, the last release that plans without a device. `Planner` makes and loads
plans; `DnnPlan` is one of them, ready to run on a handle (with a device) or to be saved (without).
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from trc_runtime.cuda.errors import DnnError, MissingExtra

Tensor = Any
"""A tensor of a graph under construction."""

Graph = Any
"""A graph under construction."""

_MODES = ("A", "B", "FALLBACK")


class _NoTorch:
    """Keeps one thread from importing PyTorch."""

    def __init__(self) -> None:
        self._thread = threading.get_ident()

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        """The interface of `sys.meta_path`."""
        if name == "torch" and threading.get_ident() == self._thread:
            raise ModuleNotFoundError("not needed by cuDNN's frontend", name=name)


@contextmanager
def _without_torch() -> Generator[None]:
    # The frontend imports PyTorch where it finds it, which takes seconds, only to accept its tensors: ours are numbers.
    finder: Any = _NoTorch()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


def _import() -> Any:
    try:
        with _without_torch():
            import cudnn
    except (ImportError, OSError) as err:
        raise MissingExtra("cudnn", "nvidia-cudnn-frontend", str(err)) from None
    return cudnn


def _errors() -> tuple[type[BaseException], ...]:
    # The frontend's own error derives from Exception alone.
    return (RuntimeError, ValueError, _import().cudnnGraphNotSupportedError)


def versions() -> tuple[str, str]:
    """Versions of the frontend and of cuDNN. MissingExtra where one is missing."""
    cudnn = _import()
    try:
        return str(cudnn.__version__), str(cudnn.backend_version_string())
    except RuntimeError as err:
        raise MissingExtra("cudnn", "nvidia-cudnn-cu13", str(err)) from None


def device_properties(ordinal: int) -> str:
    """What plans depend on of a device, as JSON; `Planner` takes it where the device is not. Needs the device."""
    versions()
    try:
        return str(_import().create_device_properties(ordinal).serialize())
    except _errors() as err:
        raise DnnError(f"cuDNN cannot say what device {ordinal} is: {_first_line(err)}") from None


class Handle:
    """A cuDNN handle bound to a stream; needs a current context."""

    def __init__(self, stream: int) -> None:
        versions()
        self._cudnn = _import()
        self.number = int(self._call("create_handle", self._cudnn.create_handle))
        try:
            self._call("set_stream", lambda: self._cudnn.set_stream(handle=self.number, stream=stream))
        except DnnError:
            with suppress(DnnError):  # the first error is the one to show
                self.close()
            raise

    def _call(self, what: str, action: Callable[[], Any]) -> Any:
        try:
            return action()
        except _errors() as err:
            raise DnnError(f"cuDNN: {what} failed: {err}") from None

    def close(self) -> None:
        """Destroy the handle."""
        if self.number:
            number, self.number = self.number, 0
            self._call("destroy_handle", lambda: self._cudnn.destroy_handle(number))


class DnnPlan:
    """A plan of a graph: its engine's name, its workspace in bytes, and how to run or save it."""

    def __init__(self, graph: Graph, name: str, workspace: int, keep: Any) -> None:
        self._graph = graph
        self._keep = keep  # the frontend holds no reference to a device property
        self.name = name
        self.workspace = workspace

    def execute(self, addresses: Mapping[int, int], workspace: int, handle: Handle) -> None:
        """Run on the handle's stream: device addresses by tensor number."""
        try:
            self._graph.execute(dict(addresses), workspace, handle=handle.number)
        except _errors() as err:
            raise DnnError(f"cuDNN: running plan {self.name} failed: {err}") from None

    def serialise(self) -> bytes:
        """The plan as bytes, which load on a machine with this architecture and cuDNN version."""
        return bytes(self._graph.serialize())


class Planner:
    """Makes plans with a handle (for the device at hand) or, without one, from a device's properties as JSON."""

    def __init__(self, handle: Handle | None = None, properties: str | None = None) -> None:
        versions()
        self._cudnn = _import()
        self._handle = handle
        self._properties: Any = None
        if handle is None:
            if properties is None:
                raise DnnError("planning needs a device or a device's properties")
            try:
                self._properties = self._cudnn.create_device_properties(properties)
            except (RuntimeError, ValueError) as err:
                raise DnnError(
                    f"these are no device properties of cuDNN's: {_first_line(err)}; on the machine with the GPU  "
                    "trc-run device FILE  writes them"
                ) from None

    def _dtype(self, name: str) -> Any:
        kind = self._cudnn.data_type
        return {"f16": kind.HALF, "bf16": kind.BFLOAT16, "f32": kind.FLOAT}[name]

    def _new(self, io: str) -> Graph:
        single = self._cudnn.data_type.FLOAT
        where = {"handle": self._handle.number} if self._handle else {"device_property": self._properties}
        return self._cudnn.pygraph(
            io_data_type=self._dtype(io), intermediate_data_type=single, compute_data_type=single, **where
        )

    def _unwanted(self, full_precision: bool) -> list[Any]:
        note = self._cudnn.numerical_note
        notes = [note.NONDETERMINISTIC, note.REDUCED_PRECISION_REDUCTION]
        return [*notes, note.DOWN_CONVERT_INPUTS, note.TENSOR_CORE] if full_precision else notes

    def plan(
        self,
        io: str,
        build: Callable[[Builder], None],
        full_precision: bool,
        limit: int,
        wanted: str | None = None,
        refused: Sequence[str] = (),
    ) -> DnnPlan:
        """The first deterministic plan that builds, heuristics A before B before FALLBACK.

        A plan whose workspace exceeds `limit` bytes is taken only where none is smaller, and then the one with the
        smallest. `full_precision` excludes engines that round float32 inputs. `wanted` names the plan to take;
        `refused` names plans to pass over. DnnError says why there is none.
        """
        reasons: list[str] = []
        for mode in _MODES:
            try:
                graph = self._candidates(io, build, full_precision, mode)
            except _errors() as err:
                reasons.append(f"{mode}: {_first_line(err)}")
                continue
            found, large = self._first(graph, limit, wanted, refused, reasons)
            if found is None and large is not None:
                # a graph runs the plan that was built last, and the smallest of the large ones was not
                graph = self._candidates(io, build, full_precision, mode)
                found = self._build(graph, large)
            if found is not None:
                return found
        what = f"no plan named {wanted}" if wanted is not None else "no deterministic plan"
        raise DnnError(f"{what} ({'; '.join(dict.fromkeys(reasons)) or 'no candidates'})")

    def _candidates(self, io: str, build: Callable[[Builder], None], full_precision: bool, mode: str) -> Graph:
        graph = self._new(io)
        build(Builder(self._cudnn, graph, self._dtype))
        graph.validate()
        graph.build_operation_graph()
        graph.create_execution_plans([getattr(self._cudnn.heur_mode, mode)])
        graph.deselect_numeric_notes(self._unwanted(full_precision))
        graph.check_support()
        return graph

    def _build(self, graph: Graph, index: int) -> DnnPlan:
        graph.build_plan_at_index(index)
        size = int(graph.get_workspace_size_plan_at_index(index))
        if int(graph.get_workspace_size()) != size:
            raise DnnError(f"cuDNN's frontend would run another plan than the one built ({index})")
        return DnnPlan(graph, str(graph.get_plan_name_at_index(index)), size, self._properties)

    def _first(
        self, graph: Graph, limit: int, wanted: str | None, refused: Sequence[str], reasons: list[str]
    ) -> tuple[DnnPlan | None, int | None]:
        """The first plan that will do; else the candidate with the smallest workspace."""
        large: tuple[int, int] | None = None
        for index in range(int(graph.get_execution_plan_count())):
            name = str(graph.get_plan_name_at_index(index))
            if (wanted is not None and name != wanted) or name in refused:
                continue
            try:
                plan = self._build(graph, index)
            except _errors() as err:
                reasons.append(_first_line(err))
                continue
            if plan.workspace <= limit or wanted is not None:
                return plan, None
            if large is None or plan.workspace < large[0]:
                large = (plan.workspace, index)
        return None, None if large is None else large[1]

    def names(self, io: str, build: Callable[[Builder], None], full_precision: bool) -> list[str]:
        """The names of heuristics A's candidates; not all of them need build, or be deterministic."""
        try:
            graph = self._candidates(io, build, full_precision, "A")
        except _errors() as err:
            raise DnnError(f"cuDNN has no candidates: {_first_line(err)}") from None
        count = int(graph.get_execution_plan_count())
        return list(dict.fromkeys(str(graph.get_plan_name_at_index(i)) for i in range(count)))

    def load(self, data: bytes, name: str) -> DnnPlan:
        """A saved plan, for the device at hand. DnnError for one of another device or version, or a damaged one."""
        if self._handle is None:
            raise DnnError("a saved cuDNN plan can be loaded only where there is a device")
        graph = self._cudnn.pygraph(handle=self._handle.number)
        try:
            graph.deserialize(self._handle.number, list(data))
            size = int(graph.get_workspace_size())
        except _errors() as err:
            raise DnnError(f"the saved cuDNN plan {name} does not load here: {_first_line(err)}") from None
        return DnnPlan(graph, name, size, None)


class Builder:
    """The few operations that trc's graphs are made of."""

    def __init__(self, cudnn: Any, graph: Graph, dtype: Callable[[str], Any]) -> None:
        self._cudnn = cudnn
        self._g = graph
        self._dtype = dtype

    def tensor(self, number: int, dim: Sequence[int], stride: Sequence[int], dtype: str) -> Tensor:
        """An input."""
        return self._g.tensor(dim=list(dim), stride=list(stride), data_type=self._dtype(dtype), uid=number)

    def output(self, tensor: Tensor, number: int, dim: Sequence[int], stride: Sequence[int], dtype: str) -> None:
        """Make a tensor an output."""
        tensor.set_output(True).set_uid(number).set_dim(list(dim)).set_stride(list(stride))
        tensor.set_data_type(self._dtype(dtype))

    def scale_shift(self, x: Tensor, scale: Tensor, shift: Tensor, act: str) -> Tensor:
        """act(x * scale + shift), by channel; `act` is "none", "relu" or "relu6"."""
        return self.activation(self._g.bias(input=self._g.scale(input=x, scale=scale), bias=shift), act)

    def activation(self, x: Tensor, act: str) -> Tensor:
        """An activation by name."""
        if act == "relu6":
            return self._g.relu(input=x, lower_clip=0.0, upper_clip=6.0)
        return self._g.relu(input=x) if act == "relu" else x

    def bias(self, x: Tensor, bias: Tensor) -> Tensor:
        """X + bias, by channel."""
        return self._g.bias(input=x, bias=bias)

    def fprop(self, x: Tensor, weight: Tensor, padding: list[int], stride: list[int]) -> Tensor:
        """A convolution."""
        return self._g.conv_fprop(image=x, weight=weight, padding=padding, stride=stride, dilation=[1, 1])

    def dgrad(self, dy: Tensor, weight: Tensor, padding: list[int], stride: list[int]) -> Tensor:
        """The gradient of a convolution's input; its shape is set on the output."""
        return self._g.conv_dgrad(loss=dy, filter=weight, padding=padding, stride=stride, dilation=[1, 1])

    def wgrad(self, dy: Tensor, x: Tensor, padding: list[int], stride: list[int]) -> Tensor:
        """The gradient of a convolution's weight; its shape is set on the output."""
        return self._g.conv_wgrad(image=x, loss=dy, padding=padding, stride=stride, dilation=[1, 1])

    def genstats(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """Sum and sum of squares by channel."""
        total, squares = self._g.genstats(input=y)
        return total, squares

    def matmul(self, a: Tensor, b: Tensor) -> Tensor:
        """A product of matrices."""
        return self._g.matmul(A=a, B=b)


def _first_line(err: BaseException) -> str:
    lines = [line.strip() for line in str(err).splitlines() if line.strip()]
    return lines[0][:200] if lines else type(err).__name__
