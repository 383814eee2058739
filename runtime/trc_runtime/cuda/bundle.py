"""The two sources of a CUDA bundle, read: kernels.cu and driver.py.

driver.py is executed. The manifest's hashes show damage, not malice: load bundles only from where you would run
programs from.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

from trc_runtime.cuda.calls import Calls, CaptureFunction, CudnnCall, Definition, DriverError, KernelCall, record
from trc_runtime.cuda.errors import ANEW
from trc_runtime.cuda.signatures import Signature, parse
from trc_runtime.schema.bundle import (
    CUDNN_PLANS,
    DRIVER,
    KERNELS,
    MANIFEST,
    Bundle,
    BundleError,
    cubin_name,
    seal_of,
)
from trc_runtime.schema.plan import Plan


@dataclass(frozen=True)
class Sources:
    """A driver, executed, with its kernels' source. `definitions` has one entry a capture of the plan."""

    plan: Plan
    kernels: str
    driver: str
    definitions: tuple[Definition, ...]
    cudnn: Mapping[str, Mapping[str, Any]]
    path: str = DRIVER
    """The driver's file, for messages."""

    @cached_property
    def signatures(self) -> dict[str, Signature]:
        """The kernels of the source."""
        return parse(self.kernels)

    @cached_property
    def kernel_names(self) -> list[str]:
        """The kernels that the driver launches."""
        names = (
            c.name for d in self.definitions for n in d.nodes.values() for c in n.calls if isinstance(c, KernelCall)
        )
        return sorted(set(names))

    @cached_property
    def users(self) -> dict[str, list[str]]:
        """The layers that use each kernel (a node without a layer counts by its kind)."""
        found: dict[str, dict[str, None]] = {}
        for definition in self.definitions:
            for node in definition.nodes.values():
                for call in node.calls:
                    if isinstance(call, KernelCall):
                        found.setdefault(call.name, {})[node.layer or node.kind] = None
        return {name: list(layers) for name, layers in found.items()}

    @cached_property
    def cudnn_users(self) -> dict[str, list[str]]:
        """The layers that use each cuDNN graph."""
        found: dict[str, dict[str, None]] = {}
        for definition in self.definitions:
            for node in definition.nodes.values():
                for call in node.calls:
                    if isinstance(call, CudnnCall):
                        found.setdefault(call.key, {})[node.layer or node.kind] = None
        return {key: list(layers) for key, layers in found.items()}


def read_sources(plan: Plan, kernels: str, driver: str, path: str = DRIVER, plan_sha256: str | None = None) -> Sources:
    """Execute a driver and record its definitions. DriverError where it does not belong to the plan or is damaged.

    `plan_sha256` is the plan's hash where the caller knows it: to find it takes a tenth of a second for a deep net.
    """
    space: dict[str, Any] = {"__name__": "trc_driver", "__file__": path}
    try:
        exec(compile(driver, path, "exec"), space)
    except (Exception, SystemExit) as err:
        raise DriverError(f"{path} cannot be executed: {type(err).__name__}: {err}; {ANEW}") from err
    wanted = plan_sha256 or plan.sha256()
    if (found := space.get("PLAN_SHA256")) != wanted:
        raise DriverError(
            f"{path} was made for another plan (SHA-256 {str(found)[:16]}..., this one's is {wanted[:16]}...); {ANEW}"
        )
    captures = space.get("CAPTURES")
    if not isinstance(captures, list | tuple) or len(cast(list[object], captures)) != len(plan.captures):
        raise DriverError(
            f"{path}: CAPTURES must list one function for each of the plan's {len(plan.captures)} captures; {ANEW}"
        )
    functions = list(cast("list[Callable[[Calls], None]]", captures))
    by_name = {getattr(f, "__name__", str(i)): f for i, f in enumerate(functions)}
    definitions = tuple(_recorded(f, by_name, path) for f in functions)
    _check_nodes(plan, definitions, path)
    graphs = space.get("CUDNN", {})
    if not isinstance(graphs, dict):
        raise DriverError(f"{path}: CUDNN must be a dictionary of descriptions; {ANEW}")
    return Sources(plan, kernels, driver, definitions, cast("dict[str, Mapping[str, Any]]", graphs), path)


def _recorded(function: CaptureFunction, functions: Mapping[str, CaptureFunction], path: str) -> Definition:
    """What a definition calls; DriverError for anything that it does beside calling what there is to call."""
    try:
        return record(function, functions)
    except DriverError as err:
        reason = str(err)
    except (Exception, SystemExit) as err:
        reason = f"{type(err).__name__}: {err}"
    raise DriverError(f"{path}: {getattr(function, '__name__', function)!s}: {reason}; {ANEW}")


def _check_nodes(plan: Plan, definitions: Sequence[Definition], path: str) -> None:
    """DriverError unless each definition has the nodes of its bucket."""
    wanted: dict[object, list[int]] = {}
    for index, node in enumerate(plan.nodes):
        wanted.setdefault((node.computation, node.bucket), []).append(index)
    for capture, definition in zip(plan.captures, definitions, strict=True):
        for index, node in definition.nodes.items():
            if index >= len(plan.nodes):
                raise DriverError(
                    f"{path}: {definition.name} has {node}, but the plan has {len(plan.nodes)} nodes; {ANEW}"
                )
            if (planned := plan.nodes[index]).kind != node.kind:
                raise DriverError(f"{path}: {definition.name} has {node}, in the plan it is {planned.kind}; {ANEW}")
        for index in wanted.get((capture.computation, capture.bucket), ()):
            if index not in definition.nodes:
                raise DriverError(f"{path}: {definition.name} lacks node {index} ({plan.nodes[index].kind}); {ANEW}")


# ---------------------------------------------------------------- a bundle's parts


@dataclass(frozen=True)
class Parts:
    """What a bundle for CUDA has beside its plan. The cuDNN plans and the cubin are for `architecture`."""

    kernels: str
    driver: str
    architecture: str | None
    cubin: bytes | None
    plans: bytes | None


def bundle_parts(bundle: Bundle) -> Parts:
    """The parts of a bundle. BundleError where one is missing, or they were not made from each other.

    A bundle without any device code is whole: it is compiled where it is loaded.
    """
    kernels, driver = source_texts(bundle)
    _check_compiled(bundle)
    cubin = None if bundle.architecture is None else bundle.read(cubin_name(bundle.architecture))
    return Parts(kernels, driver, bundle.architecture, cubin, bundle.read(CUDNN_PLANS))


def _check_compiled(bundle: Bundle) -> None:
    manifest = bundle.path / MANIFEST
    compiled = sorted(n for n in bundle.files if n.endswith(".cubin") or n == CUDNN_PLANS)
    if bundle.architecture is None:
        if compiled:
            raise BundleError(f"{manifest} lists {', '.join(compiled)} and no architecture that it is for; {ANEW}")
        return
    if (name := cubin_name(bundle.architecture)) not in compiled:
        raise BundleError(f"{manifest} says that there is device code for {bundle.architecture}, but no {name}; {ANEW}")
    if bundle.seal != seal_of(bundle.files):
        together = ", ".join((KERNELS, DRIVER, *compiled))
        raise BundleError(
            f"{bundle.path}: {together} do not belong together: one was exchanged, changed or taken away after they "
            f"were made from each other; {ANEW}"
        )


def source_texts(bundle: Bundle) -> tuple[str, str]:
    """kernels.cu and driver.py of a bundle; BundleError where it was compiled for another target or is damaged."""
    if missing := [n for n in (KERNELS, DRIVER) if n not in bundle.files]:
        lacks = f"has no {' and no '.join(missing)}"
        if bundle.target == "cuda":
            raise BundleError(f"{bundle.path} was compiled for target cuda, but {lacks}; {ANEW}")
        raise BundleError(f"{bundle.path} was compiled for target {bundle.target} and {lacks}: compile it for cuda")
    return _text(bundle, KERNELS), _text(bundle, DRIVER)


def _text(bundle: Bundle, name: str) -> str:
    try:
        return bundle.text(name)
    except UnicodeDecodeError as err:
        raise BundleError(f"{bundle.path / name} is not text in UTF-8: {err}; {ANEW}") from None
