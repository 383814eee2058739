"""What can go wrong on the CUDA target, as messages for people."""

from __future__ import annotations


class CudaError(RuntimeError):
    """Something that the CUDA target cannot do; the message says what, and what to do about it."""


ANEW = "was it made by another version of trc? compile the network again"
"""What to do about a file of a bundle whose contents make no sense here."""

_OUT_OF_MEMORY = 2


class MissingExtra(CudaError):
    """Packages of an optional extra are not installed."""

    def __init__(self, extra: str, what: str, cause: str) -> None:
        super().__init__(
            f"target cuda needs {what} (extra '{extra}'): install it with  pip install 'trc[{extra}]'  ({cause})"
        )


class DeviceError(CudaError):
    """There is no usable GPU: no driver, no device, a driver that is too old, or a GPU of another architecture."""


class DriverCallError(CudaError):
    """A call of the CUDA driver failed. `code` is its CUresult."""

    def __init__(self, call: str, name: str, text: str, code: int) -> None:
        advice = (
            "; other programs may hold the memory, and a smaller batch needs less" if code == _OUT_OF_MEMORY else ""
        )
        super().__init__(f"{call} failed: {name} ({text}){advice}")
        self.call = call
        self.code = code


class CompileProblem(CudaError):
    """NVRTC refused a source."""


class DnnError(CudaError):
    """cuDNN has no engine for a graph, or a saved plan does not load."""


class EngineError(DnnError):
    """An engine that was chosen for a graph cannot be had. `key` is the graph's."""

    def __init__(self, key: str, engine: str, text: str) -> None:
        super().__init__(text)
        self.key = key
        self.engine = engine
