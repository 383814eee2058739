"""From a BluePrint to IR, to a plan, and to something that runs."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Unpack, cast

from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from trc.blueprint import BluePrint, Layer, import_blueprint, load_blueprint
from trc.codegen.plan_lowering import lower_module
from trc.diagnostics import CompileError
from trc.dialects.context import make_context
from trc.dialects.verifier import verify
from trc.passes.pipelines import PHASES, build_pipeline
from trc.session.executable import Executable
from trc.session.infer import output_channels
from trc.session.options import (
    CompileOptions,
    choose_planner,
    choose_target,
    make_config,
    resolve_input,
    with_defaults,
)
from trc_runtime.cpu.registry import PluginError
from trc_runtime.cpu.session import CpuSession, missing_kernels
from trc_runtime.schema.config import RunConfig
from trc_runtime.schema.dtypes import Precision
from trc_runtime.schema.plan import Plan

Model = BluePrint | Layer | str | os.PathLike[str]
"""What can be compiled: a BluePrint, a bare layer, or the path of a .bp file."""

AfterPhase = Callable[[str, ModuleOp], None]
"""Called with a phase's name and the module when the phase is complete."""


@dataclass(frozen=True)
class Lowered:
    """A module that has passed some phases, what it was compiled for, and how long each pass took."""

    module: ModuleOp
    config: RunConfig
    seconds: tuple[tuple[str, float], ...]


def blueprint_of(model: Model) -> BluePrint:
    """The BluePrint of whatever names a model; CompileError for a file that cannot be read."""
    if isinstance(model, BluePrint):
        return model
    if isinstance(model, Layer):
        try:
            return BluePrint(model)
        except ValueError as err:
            raise CompileError(str(err)) from None
    if isinstance(cast(object, model), str | os.PathLike):
        return load_blueprint(Path(model))
    raise CompileError(f"a model is a trc.BluePrint, a layer or the path of a .bp file, not {model!r}")


def run_phases(
    model: Model, options: CompileOptions, to: str = "atlas", after_phase: AfterPhase | None = None
) -> Lowered:
    """Import a model and run the passes of every phase up to `to`, verifying after import and at the end.

    Raises CompileError with every problem of the stage that fails.
    """
    order = list(PHASES)
    if to not in order:
        raise CompileError(f"unknown phase '{to}'; choose one of {', '.join(order)}")
    complete = with_defaults(options)
    blueprint = blueprint_of(model)
    size = resolve_input(blueprint, complete.get("input"))
    begin = time.perf_counter()
    module = import_blueprint(blueprint, size)
    verify(module)
    seconds = [("import", time.perf_counter() - begin)]
    classes = complete.get("num_classes")
    config = make_config(blueprint, complete, output_channels(module) if classes is None else classes)
    passes = build_pipeline(
        config,
        fuse=bool(complete.get("fuse")),
        planner=choose_planner(str(complete.get("planner"))),
        target=choose_target(str(complete.get("target"))),
        choices=None if (choices := complete.get("choices")) is None else os.fspath(choices),
    )
    ctx = make_context()
    with _no_collection():
        for phase in order[: order.index(to) + 1]:
            for step in _passes_of(phase, passes):
                begin = time.perf_counter()
                step.apply(ctx, module)
                seconds.append((step.name, time.perf_counter() - begin))
            if after_phase is not None:
                after_phase(phase, module)
        verify(module)
    return Lowered(module, config, tuple(seconds))


@contextmanager
def _no_collection() -> Generator[None]:
    """Without the search for cycles: the IR only grows, and searching all of it again and again is not linear."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _passes_of(phase: str, passes: list[ModulePass]) -> list[ModulePass]:
    return [p for p in passes if p.name in PHASES[phase]]


def lower(model: Model, *, to: str = "atlas", **options: Unpack[CompileOptions]) -> ModuleOp:
    """The IR of a model after the phase `to`, without code or device.

    Phases: import, arch, kernels, shapes, plan, graph, schedule, atlas. Options are those of `compile`.
    Raises CompileError.
    """
    return run_phases(model, options, to).module


def lower_to_plan(model: Model, **options: Unpack[CompileOptions]) -> Plan:
    """The Plan of a model, without code or device. Raises CompileError."""
    lowered = run_phases(model, options)
    return lower_module(lowered.module, lowered.config)


def compile(model: Model, **options: Unpack[CompileOptions]) -> Executable:
    """Compile a model and make it ready to train.

    Only the model is obligatory when it carries `input(...)`. Raises CompileError for a mistake in the model or the
    options, and names the layers for which the target has no kernel. Target cuda needs a GPU, and the extras `cuda`
    and `cudnn`; what is missing is a CompileError too.
    """
    target = choose_target(str(with_defaults(options).get("target")))
    lowered = run_phases(model, options)
    refuse_ranks(lowered.config)
    plan = lower_module(lowered.module, lowered.config)
    if target == "cuda":
        from trc.session import cuda

        files = cuda.build(plan)
        return Executable(
            plan, cuda.open_session(plan, files, options.get("autotune")), module=lowered.module, cuda=files
        )
    refuse_missing_kernels(plan)
    try:
        return Executable(plan, CpuSession(plan), module=lowered.module)
    except (MemoryError, ValueError) as err:  # no room, or two random streams with one name's checksum
        raise CompileError(str(err)) from None


def refuse_ranks(config: RunConfig) -> None:
    """CompileError for several ranks: IR, plan and driver can be looked at for them, but nothing runs them yet."""
    if config.world_size > 1:
        raise CompileError(
            f"world_size={config.world_size}: several ranks cannot be run yet, since the runtime has no collectives; "
            "compile for world_size=1. trc.lower(...) and trc-compile --emit show the plan for more"
        )


def refuse_missing_kernels(plan: Plan) -> None:
    """CompileError that names each layer and kind without a kernel on the CPU."""
    if plan.config.precision is Precision.TF32:
        raise CompileError(
            "precision tf32 does not exist on the CPU; use fp32, fp64, amp-fp16 or amp-bf16. trc.lower(...) and "
            "trc-compile show the plan for it"
        )
    try:
        missing = missing_kernels(plan)
    except PluginError as err:
        raise CompileError(str(err)) from None
    if missing:
        names = sorted({f"{n.kind} (layer '{n.layer}')" if n.layer else n.kind for n in missing})
        raise CompileError(f"the CPU has no kernel for: {', '.join(names)}")
