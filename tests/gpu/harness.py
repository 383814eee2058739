"""Plans of one node and whole networks, on the GPU and on the CPU, from the same bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

import trc
from tests.unit.codegen.cuda import differential
from tests.unit.codegen.cuda.cases import every
from tests.unit.codegen.cuda.differential import Case
from trc.codegen.cuda.bundle import CudaCode, generate
from trc.codegen.cuda.emitter import source_of
from trc.codegen.cuda.lowering import Instance, Lowered
from trc.session.compiling import lower_to_plan
from trc_runtime.cpu.session import CpuSession
from trc_runtime.cuda import session as session_module
from trc_runtime.cuda.cubins import Cubin
from trc_runtime.cuda.session import CudaSession
from trc_runtime.schema.plan import Plan

ARCHITECTURE = "sm_90"
"""What `prepare.py` compiles for; the tests compile for the GPU at hand."""

MODELS = Path(__file__).resolve().parents[2] / "examples" / "models"


# ---------------------------------------------------------------- kinds of our own


@cache
def own_cases() -> dict[str, list[Case]]:
    """The cases that the emulator is tested with, by kind."""
    found: dict[str, list[Case]] = {}
    for case in every():
        found.setdefault(case.plan.nodes[0].kind, []).append(case)
    return found


@cache
def own_source(kind: str) -> str:
    """One kernels.cu with the kernels of all cases of a kind."""
    instances: dict[str, Instance] = {}
    for case in own_cases()[kind]:
        instances |= {launch.instance.name: launch.instance for launch in case.lowered.launches}
    return source_of(dict(sorted(instances.items())))


@cache
def own_cubin(kind: str, architecture: str) -> Cubin:
    """Its device code, compiled once."""
    return session_module.compile_cubin(own_source(kind), architecture)


class OnDevice:
    """A stand-in for the emulator: runs a case's step on the GPU, over a copy of the arena."""

    def __init__(self, case: Case, architecture: str, graphs: bool) -> None:
        self._case = case
        self._architecture = architecture
        self._graphs = graphs

    def run(self, launches: object, arena: np.ndarray, scratch: np.ndarray) -> None:
        """The interface of `Emulator`."""
        plan, code = self._case.plan, generate(self._case.plan)
        kind = plan.nodes[0].kind
        cubin = own_cubin(kind, self._architecture).code if code.program.instances else None
        with CudaSession(plan, code.kernels, code.driver, cubin=cubin, graphs=self._graphs) as session:
            session.poison(0xFF)
            session.write_bytes(0, arena)
            session.run("step", 0)
            arena[:] = session.read_bytes(0, arena.size)


def check_own(case: Case, architecture: str, graphs: bool = True) -> None:
    """The GPU against the CPU target; AssertionError names the tensor and the elements."""
    differential.compare(case, OnDevice(case, architecture, graphs))  # type: ignore[arg-type]


# ---------------------------------------------------------------- cuDNN's kinds


@dataclass(frozen=True)
class DnnCase:
    """A plan of one node that cuDNN computes; `bound` is for the distance by norm."""

    name: str
    plan: Plan
    values: Mapping[str, np.ndarray]
    outputs: Sequence[str]
    bound: float


def dnn_case(
    name: str, kind: str, inputs: Mapping[str, np.ndarray], outputs: Mapping[str, tuple[int, ...]], dtype: str,
    bound: float, regions: Mapping[str, Any] | None = None, **params: Any,
) -> DnnCase:  # fmt: skip
    """A case; regions as `differential.tensors` chooses them."""
    with patch.object(differential, "lower", lambda *_: Lowered((), 0)):  # there is nothing of ours to lower
        case = differential.tensors(name, kind, inputs, outputs, dtype, regions=regions, **params)
    return DnnCase(case.name, case.plan, case.values, tuple(outputs), bound)


def distance(got: np.ndarray, want: np.ndarray) -> float:
    """By norm, relative; infinite where something is not a number."""
    got, want = got.astype(np.float64), want.astype(np.float64)
    if not np.isfinite(got).all():
        return float("inf")
    return float(np.linalg.norm(got - want) / max(np.linalg.norm(want), 1e-30))


def run_dnn(case: DnnCase, graphs: bool = True) -> tuple[dict[str, float], Mapping[str, str]]:
    """Distances of the results by name, and the engines that made them. Results are NaN before."""
    cpu = CpuSession(case.plan)
    code = generate(case.plan)
    with CudaSession(case.plan, code.kernels, code.driver, graphs=graphs) as gpu:
        gpu.poison(0xFF)
        for name, value in case.values.items():
            cpu.write(name, value)
            gpu.write(name, cpu.read(name))
        cpu.run("step", 0)
        gpu.run("step", 0)
        return {n: distance(gpu.read(n), cpu.read(n)) for n in case.outputs}, gpu.report().engines


# ---------------------------------------------------------------- networks


@cache
def plan_of(
    model: str, precision: str, batch: int, size: tuple[int, int, int], ema: trc.EMA | None = None, **more: Any
) -> Plan:
    """A model of `examples/models` (or one of NETS) for target cuda, small."""
    common: Any = {"precision": precision, "batch": batch, "input": size, "val_batch": batch, "ema": ema}
    return lower_to_plan(source_of_model(model), target="cuda", **common, **more)


def source_of_model(model: str) -> Any:
    """What `trc.compile` takes for a name of `plan_of`."""
    return NETS[model]() if model in NETS else MODELS / f"{model}.bp"


@cache
def code_of(plan_key: tuple[Any, ...]) -> CudaCode:
    """The code of `plan_of(*plan_key)`."""
    return generate(plan_of(*plan_key))


def open_session(*plan_key: Any, **options: Any) -> tuple[Plan, CudaSession]:
    """A plan by its key and a session of it."""
    code = code_of(plan_key)
    plan = plan_of(*plan_key)
    return plan, CudaSession(plan, code.kernels, code.driver, **options)


def small_mlp() -> trc.BluePrint:
    """Fully connected layers with a dropout."""
    return trc.BluePrint(
        trc.seq(trc.fc(128), trc.relu(), trc.dropout(0.2), trc.fc(64), trc.bn(), trc.relu(), trc.fc(10))
    )


def small_conv() -> trc.BluePrint:
    """Convolutions with everything that the fused forms have: statistics, prologues, a pool, a residual."""
    norm = (trc.bn(), trc.relu())
    return trc.BluePrint(
        trc.seq(
            *(trc.conv(16, 3, 1, 1, bias=False), *norm, trc.maxpool(2, 2)),
            trc.block(16, 32, trc.RESNET_1_3_1),
            trc.block(16, 32, trc.RESNET_1_3_1),
            *(trc.conv_dw(3, 1, 1), trc.bn(), trc.relu6(), trc.conv(24, 1, 1, 0), *norm),
            *(trc.gap(), trc.fc(10)),
        )
    )


def first_layers() -> trc.BluePrint:
    """What reads images, whose rows are padded to four elements in half precision, beside features, padded to eight."""
    return trc.BluePrint(
        trc.seq(
            trc.add2(
                trc.seq(trc.bn(), trc.maxpool(2, 2)), trc.seq(trc.conv_dw(3, 1, 1), trc.dropout(0.1), trc.avgpool(2, 2))
            ),
            *(trc.conv(16, 7, 1, 3, bias=True), trc.bn(), trc.relu(), trc.conv(16, 7, 1, 3), trc.bn(), trc.relu()),
            *(trc.gap(), trc.fc(32), trc.relu(), trc.fc(10)),
        )
    )


NETS = {"small_mlp": small_mlp, "small_conv": small_conv, "first_layers": first_layers}

STEP_CASES: tuple[tuple[str, str, int, tuple[int, int, int]], ...] = (
    ("small_mlp", "fp32", 37, (8, 8, 1)),
    ("small_mlp", "amp-fp16", 37, (8, 8, 1)),
    ("small_mlp", "amp-bf16", 37, (8, 8, 1)),
    ("mlp", "fp32", 64, (28, 28, 1)),
    ("mlp", "tf32", 64, (28, 28, 1)),
    ("mlp", "amp-fp16", 64, (28, 28, 1)),
    ("lenet5", "fp32", 32, (28, 28, 1)),
    ("lenet5", "amp-fp16", 32, (28, 28, 1)),
    ("small_conv", "fp32", 16, (16, 16, 3)),
    ("small_conv", "amp-fp16", 16, (16, 16, 3)),
    ("small_conv", "amp-bf16", 16, (16, 16, 3)),
    ("first_layers", "amp-fp16", 16, (16, 16, 3)),
    ("first_layers", "amp-bf16", 16, (16, 16, 1)),
    ("resnet18", "fp32", 8, (64, 64, 3)),
    ("resnet18", "amp-fp16", 8, (64, 64, 3)),
    ("resnet50", "amp-fp16", 8, (64, 64, 3)),
    ("vgg11_bn", "amp-fp16", 4, (64, 64, 3)),
    ("mobilenet_v2", "fp32", 8, (64, 64, 3)),
    ("mobilenet_v2", "amp-fp16", 8, (64, 64, 3)),
)
"""(model, precision, batch, input) whose training steps are compared with the CPU target's."""


EMA_CASES: tuple[tuple[str, str, int, tuple[int, int, int], trc.EMA], ...] = (
    ("small_mlp", "fp32", 37, (8, 8, 1), trc.EMA(0.9)),
    ("small_conv", "fp32", 16, (16, 16, 3), trc.EMA(0.9, warmup=True)),
    ("small_conv", "amp-fp16", 16, (16, 16, 3), trc.EMA(0.9)),
    ("small_conv", "amp-bf16", 16, (16, 16, 3), trc.EMA(0.9, warmup=True)),
)
"""The same with a moving average."""


SEEDS = {("lenet5", "fp32"): 2, ("small_conv", "fp32"): 2, ("resnet18", "fp32"): 7}
"""Of the batches in float32 where with 1, as with most, a ReLU or a maximum lies so near its kink that rounding passes
it, which moves gradients by 1e-3 to 1e-2, PyTorch's as well. (MobileNetV2 has millions: no batch is free of them.)"""


def batch_of(plan: Plan, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A random batch of the first training variant."""
    spec, rng = plan.variants[0], np.random.default_rng(seed)
    images = rng.standard_normal((spec.batch, spec.height, spec.width, spec.channels)).astype(np.float32)
    return images, rng.integers(0, plan.config.num_classes, spec.batch).astype(np.int32)


def skip_a_step(session: CudaSession, plan: Plan, kept: Sequence[str]) -> None:
    """Train on a batch with a NaN among its pixels, and see that the step was skipped and left `kept` alone."""
    before = {name: session.read(name) for name in kept}
    labels, images = session.staging("A", 0)
    images[...], labels[:] = batch_of(plan, 1)
    images.reshape(-1)[3] = np.nan
    session.run("transfer_a", 0)
    metrics = session.launch("train_a", 0).wait()
    assert metrics is not None
    assert metrics.skipped
    for name, value in before.items():
        assert session.read(name).tobytes() == value.tobytes(), name
