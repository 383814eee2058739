"""Training steps of whole networks on the GPU against float64 and the CPU target, from the same parameters."""

from __future__ import annotations

import os

import numpy as np
import pytest
import torch

from tests.gpu.harness import SEEDS, STEP_CASES, batch_of, open_session, source_of_model
from tests.unit.session.rounding import applied_step, inference_loss, yardstick
from trc_runtime.cpu.session import CpuSession
from trc_runtime.train.runner import Runner
from trc_runtime.train.tensors import is_parameter

pytestmark = pytest.mark.gpu

torch.backends.cudnn.allow_tf32 = False  # PyTorch's float32 is a yardstick


@pytest.mark.parametrize("key", STEP_CASES, ids=lambda k: f"{k[0]}-{k[1]}")
def test_step(key, capsys) -> None:
    """Loss, every gradient and the parameters' step, against float64: within what rounding can do to this very step.

    The CPU target does the same beside it, and skips the same steps where half overflows.
    """
    plan, session = open_session(*key)
    model, precision, _, size = key
    with session:
        gpu, cpu = Runner(plan, session), Runner(plan, CpuSession(plan))
        images, labels = batch_of(plan, SEEDS.get((model, precision), 1))
        allowed = yardstick(source_of_model(model), precision, cpu, images, labels, input=size)
        before = {t.name: cpu.tensors[t.name] for t in plan.tensors if is_parameter(t)}
        (result, skipped), (other, also) = (applied_step(r, images, labels) for r in (gpu, cpu))
        distances = allowed.distances(gpu.tensors)
        report, worst = session.report(), max(distances, key=lambda n: distances[n])
        with capsys.disabled():
            print(
                f"\n{model:<13} {precision:<9} gradients from float64: gpu {allowed.distance(gpu.tensors):.2e}, cpu "
                f"{allowed.distance(cpu.tensors):.2e}; by bound {distances[worst]:.2f} ({worst}), "
                f"cpu {max(allowed.distances(cpu.tensors).values()):.2f}; loss {result.loss:.6f} {other.loss:.6f} "
                f"{allowed.loss:.6f} (+- {allowed.loss_bound:.1e}); skipped {skipped} {also}; start "
                + " ".join(f"{k} {v:.2f}" for k, v in report.seconds.items())
                + f"; scratch {report.scratch >> 20} MiB; {report.executables} launches"
            )
        assert skipped == also
        assert abs(result.loss - allowed.loss) <= allowed.loss_bound
        assert distances[worst] <= 1, {n: d for n, d in distances.items() if d > 1}
        assert gpu.session.read("iteration").item() == 1
        assert session.allocations_after_capture == 0
        for name, old in before.items():
            moved, wanted = gpu.tensors[name] - old, cpu.tensors[name] - old
            assert np.isfinite(moved).all(), name
            assert moved.any() == wanted.any(), name


@pytest.mark.parametrize("key", STEP_CASES, ids=lambda k: f"{k[0]}-{k[1]}")
def test_inference(key) -> None:
    """With the CPU target's parameters and statistics of two steps: the loss within what rounding can do to it."""
    plan, session = open_session(*key)
    model, precision, _, size = key
    with session:
        gpu, cpu = Runner(plan, session), Runner(plan, CpuSession(plan))
        images, labels = batch_of(plan, 1)
        applied_step(cpu, images, labels)
        applied_step(cpu, *batch_of(plan, 2))
        for tensor in plan.tensors:
            if is_parameter(tensor) or tensor.name.rpartition(".")[2] in ("running_mean", "running_var"):
                gpu.tensors[tensor.name] = cpu.tensors[tensor.name]
        loss, bound = inference_loss(source_of_model(model), precision, cpu, images, labels, input=size)
        found, other = (r.evaluate(images, labels).loss for r in (gpu, cpu))
        assert abs(found - loss) <= bound, (found, other, loss, bound)


def test_training_goes_like_on_the_cpu() -> None:
    key = ("small_mlp", "fp32", 37, (8, 8, 1))
    plan, session = open_session(*key)
    with session:
        gpu, cpu = Runner(plan, session), Runner(plan, CpuSession(plan))
        losses = np.array([[r.step(*batch_of(plan, i % 5)).loss for r in (gpu, cpu)] for i in range(40)])
        assert losses[-5:].mean() < losses[:5].mean()
        np.testing.assert_allclose(losses[:, 0], losses[:, 1], rtol=2e-2)


@pytest.mark.skipif(bool(os.environ.get("TRC_FAKE_GPU")), reason="the fake GPU computes tf32 in float32")
def test_precisions_are_what_they_say() -> None:
    """tf32 rounds where fp32 must not: their results differ, and fp32's is much nearer to float64."""
    distances: list[float] = []
    for precision in ("fp32", "tf32"):
        plan, session = open_session("mlp", precision, 64, (28, 28, 1))
        with session:
            runner = Runner(plan, session)
            images, labels = batch_of(plan, 2)
            allowed = yardstick(source_of_model("mlp"), precision, runner, images, labels, input=(28, 28, 1))
            runner.step(images, labels)
            distances.append(allowed.distance(runner.tensors))
            assert max(allowed.distances(runner.tensors).values()) <= 1
    assert distances[0] < 5e-6, distances
    assert distances[1] > 100 * distances[0], distances
