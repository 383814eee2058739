"""A GPU ready for use: checked, with its context, five streams and cuDNN handles."""

from __future__ import annotations

from contextlib import suppress
from functools import partial

from trc_runtime.cuda import _cudnn
from trc_runtime.cuda._cuda import Driver, Stream
from trc_runtime.cuda.errors import DeviceError
from trc_runtime.cuda.release import release
from trc_runtime.schema.graphs import StreamKind

MINIMUM_DRIVER = 13000
"""The CUDA version that a driver must support: device code and cuDNN are those of CUDA 13.0."""


MINIMUM_ARCHITECTURE = 80
"""Products of matrices are emitted with instructions of sm_80."""


def cuda_version(number: int) -> str:
    """A version such as 13020 as people write it."""
    return f"{number // 1000}.{number % 1000 // 10}"


def architecture_name(capability: tuple[int, int]) -> str:
    """Compute capability 9.0 as "sm_90"."""
    return f"sm_{capability[0]}{capability[1]}"


def check_driver(version: int) -> None:
    """DeviceError for a driver that is too old."""
    if version < MINIMUM_DRIVER:
        raise DeviceError(
            f"the NVIDIA driver supports CUDA {cuda_version(version)}, trc needs {cuda_version(MINIMUM_DRIVER)} or "
            "newer: install a newer driver"
        )


def check_ordinal(ordinal: int, count: int) -> None:
    """DeviceError for a GPU that does not exist."""
    if not 0 <= ordinal < count:
        seen = "no GPU" if count == 0 else f"{count} GPU{'s' if count > 1 else ''} (0 to {count - 1})"
        raise DeviceError(f"there is no GPU {ordinal}: this process sees {seen}")


def check_architecture(wanted: str | None, found: str, name: str) -> None:
    """DeviceError for a GPU that is too old, or of another architecture than a bundle's; `wanted` None is any."""
    if int(found.removeprefix("sm_")) < MINIMUM_ARCHITECTURE:
        raise DeviceError(f"this GPU ({name}) is {found}, target cuda needs sm_{MINIMUM_ARCHITECTURE} or newer")
    if wanted is not None and wanted != found:
        raise DeviceError(
            f"the bundle was compiled for {wanted}, this GPU ({name}) is {found}: compile it again for this GPU"
        )


class Context:
    """One GPU in use by one session. `architecture` names the only one that will do, None for any.

    Raises MissingExtra, or DeviceError with what is missing: driver, device, a new enough driver, the architecture.
    """

    def __init__(self, ordinal: int = 0, architecture: str | None = None) -> None:
        self.driver = driver = Driver()
        check_driver(driver.version())
        check_ordinal(ordinal, driver.device_count())
        self.device = driver.device(ordinal)
        self.name = driver.device_name(self.device)
        self.architecture = architecture_name(driver.compute_capability(self.device))
        check_architecture(architecture, self.architecture, self.name)
        self.shared_limit = driver.shared_memory_limit(self.device)
        self.context = driver.retain_context(self.device)
        self._open = True
        self.streams: dict[StreamKind, Stream] = {}
        self._handles: dict[StreamKind, _cudnn.Handle] = {}
        try:
            self.use()
            for kind in StreamKind:
                self.streams[kind] = driver.stream()
        except BaseException:
            with suppress(Exception):  # the first error is the one to show
                self.close()
            raise

    @property
    def main(self) -> Stream:
        """The stream that steps are launched on."""
        return self.streams[StreamKind.COMP_1]

    def use(self) -> None:
        """Make the context current in the calling thread."""
        self.driver.make_current(self.context)

    def handle(self, kind: StreamKind = StreamKind.COMP_1) -> _cudnn.Handle:
        """The cuDNN handle of a stream, made on first use."""
        if kind not in self._handles:
            self._handles[kind] = _cudnn.Handle(self.driver.address_of(self.streams[kind]))
        return self._handles[kind]

    def synchronize(self) -> None:
        """Wait for everything that the session has sent."""
        for stream in self.streams.values():
            self.driver.synchronize(stream)

    def close(self) -> None:
        """Destroy handles and streams and give the context back; once. The calling thread's context stays current."""
        if not self._open:
            return
        self._open = False
        release([self._destroy, partial(self.driver.release_context, self.device)])

    def _destroy(self) -> None:
        with self.driver.current(self.context):
            release(
                [
                    *(handle.close for handle in self._handles.values()),
                    *(partial(self.driver.destroy_stream, stream) for stream in self.streams.values()),
                ]
            )
