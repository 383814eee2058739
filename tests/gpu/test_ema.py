"""The moving average of the weights on the GPU: its values, skipped steps, and its inference."""

from __future__ import annotations

import numpy as np
import pytest

from tests.gpu.harness import EMA_CASES, batch_of, open_session, plan_of, skip_a_step
from trc_runtime.cpu.session import CpuSession
from trc_runtime.schema.plan import Plan
from trc_runtime.train import checkpoint
from trc_runtime.train.runner import Runner
from trc_runtime.train.tensors import is_averaged

pytestmark = pytest.mark.gpu

STEPS = 6


def averaged(plan: Plan) -> list[str]:
    return [t.name for t in plan.tensors if is_averaged(t)]


@pytest.mark.parametrize("key", EMA_CASES, ids=lambda k: "-".join(map(str, k[:2])))
def test_it_is_the_average_of_the_weights(key) -> None:
    """Against a float64 loop over the weights that the GPU has after each step."""
    plan, session = open_session(*key)
    ema = key[4]
    with session:
        runner = Runner(plan, session)
        names = averaged(plan)
        assert any("running_var" in n for n in names)
        wanted = {n: session.read(n).astype(np.float64) for n in names}
        largest = dict.fromkeys(names, 0.0)
        for name in names:
            assert session.read(f"{name}.ema").tobytes() == session.read(name).tobytes(), name
        for t in range(1, STEPS + 1):
            runner.step(*batch_of(plan, t))
            applied = session.read("applied").item()
            decay = min(ema.decay, (1 + applied) / (10 + applied)) if ema.warmup else ema.decay
            for name in names:
                w = session.read(name).astype(np.float64)
                if applied:
                    wanted[name] = decay * wanted[name] + (1 - decay) * w
                largest[name] = max(largest[name], float(np.abs(w).max()), float(np.abs(wanted[name]).max()))
        assert session.read("applied").item() > 0
        for name in names:
            # A step adds at most 2 u |w - e| alpha + u |e| + what alpha is rounded by; older errors shrink.
            off = np.abs(session.read(f"{name}.ema") - wanted[name]).max()
            assert off <= STEPS * 6 * 2.0**-24 * largest[name], name


@pytest.mark.parametrize("key", EMA_CASES, ids=lambda k: "-".join(map(str, k[:2])))
def test_its_inference_is_that_of_a_network_with_its_weights(key, tmp_path) -> None:
    """On the GPU to the bit, in one pass with the weights or alone; and near what the CPU makes of the same state."""
    plan, session = open_session(*key)
    images, labels = (np.concatenate(parts) for parts in zip(*(batch_of(plan, n) for n in (91, 92)), strict=True))
    with session:
        runner = Runner(plan, session)
        for n in range(STEPS):
            runner.step(*batch_of(plan, n))
        state = runner.checkpoint_bytes()
        weights, average = runner.evaluate_both(images, labels)
        assert weights == runner.evaluate(images, labels)
        assert average == runner.evaluate(images, labels, ema=True)
        assert average.loss != weights.loss
        runner.save_parameters(tmp_path / "average", ema=True)
        assert session.allocations_after_capture == 0
    plan_alone, alone = open_session(*key[:4])
    with alone:
        runner = Runner(plan_alone, alone)
        runner.load_parameters(tmp_path / "average")
        assert runner.evaluate(images, labels) == average
    (tmp_path / "state").write_bytes(state)
    cpu = Runner(plan, CpuSession(plan))
    cpu.restore(checkpoint.read(tmp_path / "state"))
    bound = {"fp32": 1e-4, "amp-fp16": 2e-2, "amp-bf16": 1e-1}[key[1]]
    for got, want in zip((weights, average), cpu.evaluate_both(images, labels), strict=True):
        assert got.loss == pytest.approx(want.loss, rel=bound)


@pytest.mark.parametrize("key", EMA_CASES, ids=lambda k: "-".join(map(str, k[:2])))
def test_a_skipped_step_leaves_it_alone(key) -> None:
    plan, session = open_session(*key)
    with session:
        runner = Runner(plan, session)
        runner.step(*batch_of(plan, 0))
        kept = [t.name for t in plan.tensors if t.name.endswith(".ema")]
        skip_a_step(session, plan, kept)


def test_graphs_and_single_kernels_agree_to_the_byte() -> None:
    found = []
    for graphs in (True, False):
        plan, session = open_session(*EMA_CASES[2], graphs=graphs)
        with session:
            runner = Runner(plan, session)
            for n in range(3):
                runner.step(*batch_of(plan, n))
            result = runner.evaluate_both(*batch_of(plan, 7))
            found.append((result, [session.read(f"{n}.ema").tobytes() for n in averaged(plan)]))
    assert found[0] == found[1]


def test_the_training_is_the_same_without_it() -> None:
    found = []
    for key in (EMA_CASES[2], EMA_CASES[2][:4]):
        plan, session = open_session(*key)
        with session:
            runner = Runner(plan, session)
            for n in range(3):
                runner.step(*batch_of(plan, n))
            found.append([session.read(n).tobytes() for n in averaged(plan)])
    assert plan_of(*EMA_CASES[2]).total > plan_of(*EMA_CASES[2][:4]).total
    assert found[0] == found[1]
