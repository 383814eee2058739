"""Training steps of whole networks on the GPU against the CPU target, from the same parameters and batches."""

from __future__ import annotations

import numpy as np
import pytest

from tests.gpu.harness import STEP_CASES, batch_of, open_session, plan_of
from trc.session.compiling import lower_to_plan
from trc_runtime.cpu.session import CpuSession
from trc_runtime.schema.plan import Plan
from trc_runtime.train.runner import Runner
from trc_runtime.train.tensors import is_gradient, is_parameter

pytestmark = pytest.mark.gpu

LOOSE = {"fp32": 1e-4, "tf32": 5e-3, "amp-fp16": 2e-2, "amp-bf16": 1e-1}
"""What is allowed at least, whatever the yardstick: distance by norm of all gradients together."""


def gradients(runner: Runner, plan: Plan) -> dict[str, np.ndarray]:
    names = [t.name for t in plan.tensors if is_gradient(t)]
    return {n: runner.tensors[n].astype(np.float64).reshape(-1) for n in names}


def far(got: dict[str, np.ndarray], want: dict[str, np.ndarray]) -> float:
    a, b = (np.concatenate([d[n] for n in want]) for d in (got, want))
    return float(np.linalg.norm(a - b) / np.linalg.norm(b))


@pytest.mark.parametrize("key", STEP_CASES, ids=lambda k: f"{k[0]}-{k[1]}")
def test_step(key, capsys) -> None:
    """The GPU's distance to float64 is at most four times the CPU's in the same precision, plus a little."""
    plan, session = open_session(*key)
    exact_plan = plan_of_exact(key)
    with session:
        gpu, cpu, exact = (
            Runner(plan, session), Runner(plan, CpuSession(plan)), Runner(exact_plan, CpuSession(exact_plan)),
        )  # fmt: skip
        images, labels = batch_of(plan, 1)
        results = [r.step(images, labels) for r in (gpu, cpu, exact)]
        want = gradients(exact, exact_plan)
        got, mine = far(gradients(gpu, plan), want), far(gradients(cpu, plan), want)
        apart = far(gradients(gpu, plan), gradients(cpu, plan))
        report = session.report()
        with capsys.disabled():
            print(
                f"\n{key[0]:<13} {key[1]:<9} gradients from float64: gpu {got:.2e}, cpu {mine:.2e}, apart {apart:.2e}; "
                f"loss {results[0].loss:.6f} {results[1].loss:.6f} {results[2].loss:.6f}; start "
                + " ".join(f"{k} {v:.2f}" for k, v in report.seconds.items())
                + f"; scratch {report.scratch >> 20} MiB; {report.executables} launches"
            )
        assert not results[0].skipped
        assert got <= max(4 * mine + 1e-6, LOOSE[key[1]]), f"{got:.3e} against {mine:.3e}"
        assert results[0].loss == pytest.approx(results[2].loss, rel=LOOSE[key[1]])
        worst = {
            t.name: float(np.linalg.norm(gpu.tensors[t.name] - cpu.tensors[t.name]))
            for t in plan.tensors
            if is_parameter(t)
        }
        assert all(np.isfinite(v) for v in worst.values()), worst
        assert gpu.session.read("iteration").item() == 1
        evaluation = [r.evaluate(images, labels) for r in (gpu, cpu)]
        assert evaluation[0].loss == pytest.approx(evaluation[1].loss, rel=max(LOOSE[key[1]], 1e-3))
        assert session.allocations_after_capture == 0


def plan_of_exact(key) -> Plan:
    """The same network in float64, which exists on the CPU."""
    from tests.gpu.harness import MODELS, NETS

    model, _, batch, size = key
    source = NETS[model]() if model in NETS else MODELS / f"{model}.bp"
    return lower_to_plan(source, precision="fp64", batch=batch, input=size, val_batch=batch)


def test_training_goes_like_on_the_cpu() -> None:
    key = ("small_mlp", "fp32", 37, (8, 8, 1))
    plan, session = open_session(*key)
    with session:
        gpu, cpu = Runner(plan, session), Runner(plan, CpuSession(plan))
        losses = np.array([[r.step(*batch_of(plan, i % 5)).loss for r in (gpu, cpu)] for i in range(40)])
        assert losses[-5:].mean() < losses[:5].mean()
        np.testing.assert_allclose(losses[:, 0], losses[:, 1], rtol=2e-2)


def test_precisions_are_what_they_say() -> None:
    """tf32 rounds where fp32 must not: their results differ, and fp32's is nearer to float64."""
    keys = [("mlp", p, 64, (28, 28, 1)) for p in ("fp32", "tf32")]
    exact_plan = plan_of_exact(keys[0])
    exact = Runner(exact_plan, CpuSession(exact_plan))
    images, labels = batch_of(plan_of(*keys[0]), 2)
    exact.step(images, labels)
    want, distances = gradients(exact, exact_plan), []
    for key in keys:
        plan, session = open_session(*key)
        with session:
            runner = Runner(plan, session)
            runner.step(images, labels)
            distances.append(far(gradients(runner, plan), want))
    assert distances[0] < 5e-6, distances
    assert distances[0] < distances[1] < 5e-3, distances
