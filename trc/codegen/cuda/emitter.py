"""kernels.cu: the kernels that a plan needs, as one source.

The families of `kernels/` that are used are written out one after another, common.cuh first, then one `extern "C"`
kernel an instance, sorted by name. The text follows from the plan alone, byte by byte.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from trc.codegen.cuda.lowering import Instance, lower, owns
from trc_runtime.schema.plan import Plan

KERNELS = Path(__file__).parent / "kernels"
"""The hand-written families."""

FAMILY_ORDER = (
    "elementwise",
    "copies",
    "input",
    "columns",
    "matmul",
    "norm",
    "pool",
    "dropout",
    "depthwise",
    "loss",
    "optimizer",
    "ema",
    "scalars",
)
"""Families in the order in which they are written; each needs common.cuh and what stands in `NEEDS` only."""

NEEDS = {"scalars": ("optimizer",)}
"""Families that use functions of others."""


@dataclass(frozen=True)
class Source:
    """The text of kernels.cu, and its kernels by name."""

    text: str
    instances: dict[str, Instance]


def captured_nodes(plan: Plan) -> list[tuple[int, int]]:
    """(node, column) of every node in every captured definition, in the plan's order."""
    in_bucket: dict[tuple[str, object], list[int]] = {}
    for index, node in enumerate(plan.nodes):
        in_bucket.setdefault((node.computation, node.bucket), []).append(index)
    return [(n, c.column) for c in plan.captures for n in in_bucket.get((c.computation, c.bucket), [])]


def collect(plan: Plan, more: Iterable[Instance] = ()) -> dict[str, Instance]:
    """The instances that a plan's nodes launch, and `more`, by name."""
    found = [
        launch.instance
        for n, column in captured_nodes(plan)
        if owns(plan, n, column)
        for launch in lower(plan, n, column).launches
    ]
    instances: dict[str, Instance] = {}
    for instance in (*found, *more):
        if instances.setdefault(instance.name, instance) != instance:
            raise ValueError(f"two different kernels are called {instance.name}")
    return dict(sorted(instances.items()))


def source_of(instances: dict[str, Instance]) -> str:
    """The text of kernels.cu for these instances."""
    used = {i.family for i in instances.values()}
    used |= {needed for family in used for needed in NEEDS.get(family, ())}
    unknown = used - set(FAMILY_ORDER)
    if unknown:
        raise ValueError(f"unknown kernel families: {', '.join(sorted(unknown))}")
    parts = [
        family_text("common"),
        "namespace trc {\n",
        *(family_text(f) for f in FAMILY_ORDER if f in used),
        "}  // namespace trc\n",
    ]
    kernels = [i.source for i in instances.values()]
    return "\n".join((*parts, "using namespace trc;\n", *kernels))


def family_text(family: str) -> str:
    """A file of `kernels/`."""
    return (KERNELS / f"{family}.cuh").read_text(encoding="utf-8")


def emit(plan: Plan, more: Iterable[Instance] = ()) -> Source:
    """kernels.cu for a plan.

    `more` are instances that other lowerings use besides, such as `add_bias` behind a cuDNN call.
    Raises CompileError for a node that has no kernel.
    """
    instances = collect(plan, more)
    return Source(source_of(instances), instances)
