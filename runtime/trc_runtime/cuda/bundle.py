"""The two sources of a CUDA bundle, read: kernels.cu and driver.py.

driver.py is executed. The manifest's hashes show damage, not malice: load bundles only from where you would run
programs from.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

from trc_runtime.cuda.calls import Calls, CudnnCall, Definition, DriverError, KernelCall, record
from trc_runtime.cuda.signatures import Signature, parse
from trc_runtime.schema.bundle import DRIVER, KERNELS, Bundle
from trc_runtime.schema.plan import Plan


def plan_hash(plan: Plan) -> str:
    """What a driver's PLAN_SHA256 is compared with."""
    return hashlib.sha256(plan.to_json().encode()).hexdigest()


@dataclass(frozen=True)
class Sources:
    """A driver, executed, with its kernels' source. `definitions` has one entry a capture of the plan."""

    plan: Plan
    kernels: str
    driver: str
    definitions: tuple[Definition, ...]
    cudnn: Mapping[str, Mapping[str, Any]]

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


def read_sources(plan: Plan, kernels: str, driver: str, path: str = DRIVER) -> Sources:
    """Execute a driver and record its definitions. DriverError where it does not belong to the plan or is damaged."""
    space: dict[str, Any] = {"__name__": "trc_driver", "__file__": path}
    try:
        exec(compile(driver, path, "exec"), space)
    except Exception as err:
        raise DriverError(f"{path} cannot be executed: {type(err).__name__}: {err}") from err
    wanted = plan_hash(plan)
    if (found := space.get("PLAN_SHA256")) != wanted:
        raise DriverError(
            f"{path} was made for another plan (SHA-256 {str(found)[:16]}..., this one's is {wanted[:16]}...)"
        )
    captures = space.get("CAPTURES")
    if not isinstance(captures, list | tuple) or len(cast(list[object], captures)) != len(plan.captures):
        raise DriverError(
            f"{path}: CAPTURES must list one function for each of the plan's {len(plan.captures)} captures"
        )
    functions = list(cast("list[Callable[[Calls], None]]", captures))
    by_name = {getattr(f, "__name__", str(i)): f for i, f in enumerate(functions)}
    definitions = tuple(record(f, by_name) for f in functions)
    graphs = space.get("CUDNN", {})
    if not isinstance(graphs, dict):
        raise DriverError(f"{path}: CUDNN must be a dictionary of descriptions")
    return Sources(plan, kernels, driver, definitions, cast("dict[str, Mapping[str, Any]]", graphs))


def source_texts(bundle: Bundle) -> tuple[str, str]:
    """kernels.cu and driver.py of a bundle; DriverError where it was compiled for another target."""
    if missing := [n for n in (KERNELS, DRIVER) if n not in bundle.files]:
        raise DriverError(
            f"{bundle.path} was compiled for target {bundle.target} and has no {' and no '.join(missing)}: "
            "compile it with target cuda"
        )
    return bundle.text(KERNELS), bundle.text(DRIVER)


def bundle_sources(bundle: Bundle) -> Sources:
    """The sources of a bundle for CUDA; DriverError where it was compiled for another target or is damaged."""
    return read_sources(bundle.plan, *source_texts(bundle), str(bundle.path / DRIVER))
