"""What a session promises on a real GPU: one launch, no waits, no allocations, the same bytes, no shared state."""

from __future__ import annotations

import gc
import os
import threading
import time
import weakref

import numpy as np
import pytest

from tests.gpu.harness import batch_of, open_session, plan_of, skip_a_step
from trc.codegen.cuda.bundle import generate
from trc_runtime.cpu.arena import ArenaError
from trc_runtime.cuda.session import CudaSession
from trc_runtime.data.dataset import CIFAR, MNIST
from trc_runtime.schema.config import Normalise
from trc_runtime.schema.normalise import normalised
from trc_runtime.schema.plan import Plan
from trc_runtime.train.runner import Runner

pytestmark = pytest.mark.gpu

CONV = ("small_conv", "amp-fp16", 16, (16, 16, 3))
MLP = ("small_mlp", "fp32", 37, (8, 8, 1))


def fill(session: CudaSession, buffer: str, plan: Plan, seed: int) -> None:
    labels, images = session.staging(buffer, 0)
    images[...], labels[:] = batch_of(plan, seed)


def pixels_of(plan: Plan, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A random batch of bytes."""
    spec, rng = plan.variants[0], np.random.default_rng(seed)
    images = rng.integers(0, 256, (spec.batch, spec.height, spec.width, spec.channels), dtype=np.uint8)
    return images, rng.integers(0, plan.config.num_classes, spec.batch).astype(np.int32)


def state(session: CudaSession, plan: Plan) -> bytes:
    return b"".join(session.read(t.name).tobytes() for t in plan.tensors if not t.region.transient)


@pytest.mark.parametrize("key", [CONV, MLP])
def test_the_same_bytes_twice(key) -> None:
    found = []
    for _ in range(2):
        plan, session = open_session(*key)
        with session:
            runner = Runner(plan, session)
            for i in range(5):
                runner.step(*batch_of(plan, i))
            found.append(state(session, plan))
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("model", "precision", "batch", "size", "how"),
    [
        ("small_mlp", "fp32", 37, (8, 8, 1), MNIST),
        ("small_conv", "fp32", 16, (16, 16, 3), CIFAR),
        ("small_conv", "amp-fp16", 16, (16, 16, 3), CIFAR),
        ("small_conv", "amp-bf16", 16, (16, 16, 3), CIFAR),
        ("first_layers", "amp-fp16", 16, (16, 16, 4), Normalise((0.1, 0.2, 0.3, 0.4), (0.5, 0.6, 0.7, 0.8))),
    ],
)
def test_bytes_give_what_the_host_normalises(model, precision, batch, size, how) -> None:
    found = []
    for on_device in (False, True):
        plan = plan_of(model, precision, batch, size, normalise=how if on_device else None)
        code = generate(plan)
        with CudaSession(plan, code.kernels, code.driver) as session:
            runner = Runner(plan, session)
            for i in range(4):
                images, labels = pixels_of(plan, i)
                runner.step(images if on_device else normalised(images, how), labels)
            names = [
                t.name for t in plan.tensors if not t.region.transient and not t.name.startswith(("bytes", "input"))
            ]
            found.append({n: session.read(n).tobytes() for n in names})
    assert found[0] == found[1]


def test_graphs_and_single_kernels_agree_to_the_byte() -> None:
    found = []
    for graphs in (True, False):
        plan, session = open_session(*CONV, graphs=graphs)
        with session:
            runner = Runner(plan, session)
            for i in range(3):
                runner.step(*batch_of(plan, i))
            found.append(state(session, plan))
    assert found[0] == found[1]


@pytest.mark.parametrize("key", [CONV, MLP])
def test_nan_skips_exactly_that_step(key) -> None:
    plan, session = open_session(*key)
    with session:
        runner = Runner(plan, session)
        runner.step(*batch_of(plan, 0))
        kept = [t.name for t in plan.tensors if t.region.name[:2] in ("W_", "M_", "V_", "A_") or t.name == "applied"]
        kept += [t.name for t in plan.tensors if t.region.name.startswith("B_PREV")]
        skip_a_step(session, plan, kept)
        assert session.read("iteration").item() == 2
        assert not runner.step(*batch_of(plan, 2)).skipped
        assert session.read("applied").item() == 2


def test_one_launch_no_wait_no_allocation() -> None:
    plan, session = open_session(*CONV)
    with session:
        session.initialise()
        for pair in (("train_a", 0, "transfer_b", 0), ("train_b", 0, "transfer_a", 0)):
            session.prepare(*pair)
        fill(session, "A", plan, 0)
        session.launch("transfer_a", 0).wait()
        session.launch("train_a", 0, "transfer_b", 0).wait()
        session.launch("train_b", 0, "transfer_a", 0).wait()
        free, counters = session.free_memory(), session.counters
        launches, waits = counters.launches, counters.waits_here()
        tickets = []
        for i in range(50):
            letter, other = "ab" if i % 2 == 0 else "ba"
            tickets.append(session.launch(f"train_{letter}", 0, f"transfer_{other}", 0))
        assert counters.launches == launches + 50
        assert counters.waits_here() == waits
        metrics = [t.wait() for t in tickets]
        assert all(m is not None and np.isfinite(m.loss) for m in metrics)
        assert session.allocations_after_capture == 0
        assert session.free_memory() == free


@pytest.mark.skipif("TRC_FAKE_GPU" in os.environ, reason="a time of a real GPU")
def test_host_time_of_a_launch(capsys) -> None:
    plan, session = open_session(*MLP)
    with session:
        session.initialise()
        fill(session, "A", plan, 0)
        session.run("transfer_a", 0)
        times = []
        for _ in range(200):
            session.launch("train_a", 0).wait()
            begin = time.perf_counter()
            ticket = session.launch("train_a", 0)
            times.append(time.perf_counter() - begin)
            ticket.wait()
        with capsys.disabled():
            middle, slow = 1e6 * np.median(times), 1e6 * np.quantile(times, 0.9)
            print(f"\nhost time of a launch: median {middle:.1f} us, 90% {slow:.1f}")
        assert np.median(times) < 100e-6


def test_results_in_the_ring_are_those_of_the_step() -> None:
    plan, session = open_session(*MLP)
    with session:
        session.initialise()
        for i in range(10):
            fill(session, "AB"[i % 2], plan, i)
            session.launch(f"transfer_{'ab'[i % 2]}", 0)
            metrics = session.launch(f"train_{'ab'[i % 2]}", 0).wait()
            assert metrics is not None
            assert metrics.loss == session.read("loss").item()
            assert (metrics.top1, metrics.top5) == (session.read("top1").item(), session.read("top5").item())


def test_rate_and_scale_change_between_replays() -> None:
    plan, session = open_session(*CONV)
    with session:
        runner = Runner(plan, session)
        shape = session.read("lr_table").shape
        weight = next(t.name for t in plan.tensors if t.region.name == "W_FC_WEIGHT")
        session.write("lr_table", np.zeros(shape, np.float32))
        before = session.read(weight)
        runner.step(*batch_of(plan, 0))
        assert session.read(weight).tobytes() == before.tobytes(), "rate 0 must change nothing"
        session.write("lr_table", np.full(shape, 0.05, np.float32))
        small, large = 256.0, 1024.0
        gradients = []
        for scale in (small, large):
            session.write("scaling", np.full((1, 1, 1, 1), scale, np.float32))
            session.write("lr_table", np.zeros(shape, np.float32))
            runner.step(*batch_of(plan, 1))
            gradients.append(session.read(f"{weight}.grad").astype(np.float64))
        ratio = np.linalg.norm(gradients[1]) / np.linalg.norm(gradients[0])
        assert ratio == pytest.approx(large / small, rel=2e-2), "the loss scale is read at each replay"


def test_two_sessions_in_one_process() -> None:
    plan, one = open_session(*CONV)
    _, two = open_session(*CONV)
    other_plan, other = open_session(*MLP)
    with one, two, other:
        runners = [Runner(plan, one), Runner(plan, two), Runner(other_plan, other)]
        for i in range(3):
            for runner in runners:
                runner.step(*batch_of(runner.plan, i))
        assert state(one, plan) == state(two, plan)
    alone_plan, alone = open_session(*CONV)
    with alone:
        runner = Runner(alone_plan, alone)
        for i in range(3):
            runner.step(*batch_of(alone_plan, i))
        last = state(alone, alone_plan)
    plan, again = open_session(*CONV)
    with again:
        runner = Runner(plan, again)
        for i in range(3):
            runner.step(*batch_of(plan, i))
        assert state(again, plan) == last


def test_sessions_in_threads() -> None:
    found: dict[int, bytes] = {}

    def work(number: int) -> None:
        plan, session = open_session(*MLP)
        with session:
            runner = Runner(plan, session)
            for i in range(5):
                runner.step(*batch_of(plan, i))
            found[number] = state(session, plan)

    plan_of(*MLP)
    threads = [threading.Thread(target=work, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 3
    assert len(set(found.values())) == 1


def test_capture_while_the_collector_has_work() -> None:
    """Cycles that hold a session are collected while another one captures."""

    class Cycle:
        def __init__(self, session: CudaSession) -> None:
            self.session, self.me = session, self

    _, victim = open_session(*MLP)
    victim.initialise()
    watch = weakref.ref(Cycle(victim))
    del victim
    threshold = gc.get_threshold()
    gc.set_threshold(1, 1, 1)
    try:
        plan, session = open_session(*CONV)
    finally:
        gc.set_threshold(*threshold)
    with session:
        runner = Runner(plan, session)
        assert np.isfinite(runner.step(*batch_of(plan, 0)).loss)
    gc.collect()
    assert watch() is None


def test_dropped_references_do_not_matter() -> None:
    plan, session = open_session(*CONV)
    with session:
        session.initialise()
        fill(session, "A", plan, 0)
        session.run("transfer_a", 0)
        gc.collect()
        metrics = session.launch("train_a", 0).wait()
        assert metrics is not None
        assert np.isfinite(metrics.loss)


def test_saved_plans_load(capsys) -> None:
    plan, session = open_session(*CONV)
    with session:
        runner = Runner(plan, session)
        runner.step(*batch_of(plan, 0))
        saved, engines, want = session.save_plans(), session.report().engines, state(session, plan)
        first = session.report().seconds
    plan, session = open_session(*CONV, plans=saved)
    with session:
        assert session.report().engines == engines
        runner = Runner(plan, session)
        runner.step(*batch_of(plan, 0))
        assert state(session, plan) == want
        with capsys.disabled():
            print(f"\ncuDNN: planned in {first['cudnn']:.3f} s, loaded in {session.report().seconds['cudnn']:.3f} s")


def test_memory_is_the_plans() -> None:
    plan, session = open_session(*CONV)
    with session:
        report = session.report()
        assert report.arena >= plan.total
        assert report.arena - report.scratch - plan.total < 256
        assert report.definitions == len(plan.captures)


def test_too_little_memory() -> None:
    plan, session = open_session(*CONV)
    session.close()
    from dataclasses import replace

    from trc.codegen.cuda.bundle import generate

    huge = replace(plan, total=1 << 42)
    code = generate(huge)
    with pytest.raises(ArenaError, match=r"it needs 4\.0 TiB .* free are .*\nlargest regions: ") as caught:
        CudaSession(huge, code.kernels, code.driver)
    assert "a smaller batch" in str(caught.value)


def test_the_graph_as_dot(tmp_path) -> None:
    _, session = open_session(*MLP)
    with session:
        session.write_dot("train_a", 0, str(tmp_path / "step.dot"))
        assert "digraph" in (tmp_path / "step.dot").read_text()
        kinds = [k for _, k, _ in session.node_map("train_a", 0)]
        assert "fc_fwd" in kinds
        assert kinds[-2:] == ["results", "end"]
