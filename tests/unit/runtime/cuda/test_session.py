"""Sessions on the fake GPU: the emitted kernels, emulated, in graphs whose nodes run in any order the edges allow."""

from __future__ import annotations

import gc
import threading
import time

import numpy as np
import pytest

import trc
from tests.unit.codegen.cuda.emulator import COMPILER
from tests.unit.runtime.cpu.plans import mlp_plan
from tests.unit.runtime.cuda.fake import FakeDriver, driver_of, fake_session, install
from trc_runtime.cpu.arena import ArenaError
from trc_runtime.cpu.session import CpuSession
from trc_runtime.cuda import host
from trc_runtime.cuda.errors import CudaError, DeviceError, DriverCallError
from trc_runtime.cuda.launches import LANES
from trc_runtime.cuda.reader import Reader
from trc_runtime.schema.dtypes import Precision

pytestmark = pytest.mark.skipif(COMPILER is None, reason="needs g++")

SIZES, BATCHES = (12, 16, 8, 5), (6, 4, 5)


@pytest.fixture(autouse=True)
def _fakes(monkeypatch):
    install(monkeypatch)


def batch(seed: int, n: int = 6, classes: int = 5):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, 1, 1, 12)).astype(np.float32), rng.integers(0, classes, n).astype(np.int32)


def fill(session, buffer: str, column: int, images, labels) -> None:
    into_labels, into_images = session.staging(buffer, column)
    into_labels[:] = labels
    into_images[...] = images


def train(session, steps: int, buffers: str = "a") -> list[float]:
    losses = []
    session.write("lr_table", np.full((1, 1, 1, 4), 1e-2, np.float32))
    for i in range(steps):
        letter = buffers[i % len(buffers)]
        fill(session, letter.upper(), 0, *batch(i))
        session.run(f"transfer_{letter}", 0)
        session.run(f"train_{letter}", 0)
        losses.append(float(session.read("loss").item()))
    return losses


@pytest.fixture(scope="module")
def plan():
    return mlp_plan(SIZES, BATCHES)


@pytest.mark.parametrize("graphs", [True, False])
def test_trains_like_the_cpu(plan, graphs: bool) -> None:
    cpu = CpuSession(plan)
    cpu.initialise()
    with fake_session(plan, graphs=graphs) as gpu:
        gpu.initialise()
        for tensor in plan.tensors:
            if not tensor.region.transient:
                assert gpu.read(tensor.name).tobytes() == cpu.read(tensor.name).tobytes(), tensor.name
        np.testing.assert_allclose(train(gpu, 4), train(cpu, 4), rtol=1e-5)
        for name in ("fc0.weight", "fc2.bias", "fc1.weight.m", "applied", "iteration", "accum_loss"):
            np.testing.assert_allclose(gpu.read(name), cpu.read(name), rtol=2e-4, atol=1e-6, err_msg=name)
        assert gpu.allocations_after_capture == 0


def test_one_launch_a_step_and_results_from_the_ring(plan) -> None:
    with fake_session(plan) as gpu:
        gpu.initialise()
        train(gpu, 1)
        driver = driver_of(gpu)
        before = driver.counters.launches
        fill(gpu, "A", 0, *batch(1))
        waits = driver.counters.waits_here()
        transfer = gpu.launch("transfer_a", 0)
        step = gpu.launch("train_a", 0)
        assert driver.counters.waits_here() == waits, "the launching thread waits"
        assert driver.counters.launches == before + 2
        assert transfer.wait() is None
        metrics = step.wait()
        assert metrics is not None
        assert metrics.loss == gpu.read("loss").item()
        assert metrics.top1 == gpu.read("top1").item()
        assert not metrics.skipped
        assert gpu.allocations_after_capture == 0


def test_nan_skips_exactly_that_step(plan) -> None:
    with fake_session(plan) as gpu:
        gpu.initialise()
        train(gpu, 2)
        before = {n: gpu.read(n) for n in ("fc0.weight", "fc0.weight.m", "applied", "accum_loss")}
        images, labels = batch(7)
        images[0, 0, 0, 0] = np.nan
        fill(gpu, "A", 0, images, labels)
        gpu.run("transfer_a", 0)
        metrics = gpu.launch("train_a", 0).wait()
        assert metrics is not None
        assert metrics.skipped
        for name, value in before.items():
            assert gpu.read(name).tobytes() == value.tobytes(), name
        assert gpu.read("iteration").item() == 3
        fill(gpu, "A", 0, *batch(8))
        gpu.run("transfer_a", 0)
        metrics = gpu.launch("train_a", 0).wait()
        assert metrics is not None
        assert not metrics.skipped
        assert gpu.read("fc0.weight").tobytes() != before["fc0.weight"].tobytes()


def test_a_transfer_beside_a_step(plan) -> None:
    with fake_session(plan) as gpu:
        gpu.initialise()
        fill(gpu, "A", 0, *batch(0))
        fill(gpu, "B", 0, *batch(1))
        gpu.run("transfer_a", 0)
        gpu.prepare("train_a", 0, "transfer_b", 0)
        launches = driver_of(gpu).counters.launches
        gpu.launch("train_a", 0, "transfer_b", 0).wait()
        assert driver_of(gpu).counters.launches == launches + 1
        np.testing.assert_array_equal(gpu.read("data_b"), batch(1)[0])
        assert gpu.allocations_after_capture == 0


def test_staging_waits_for_its_reader(plan) -> None:
    with fake_session(plan) as gpu:
        gpu.initialise()
        for i in range(20):
            fill(gpu, "A", 0, *batch(i))
            gpu.launch("transfer_a", 0)
            gpu.launch("train_a", 0)
        np.testing.assert_array_equal(gpu.read("data_a"), batch(19)[0])


def test_a_launch_wakes_nobody(plan, monkeypatch) -> None:
    with fake_session(plan) as gpu:
        gpu.initialise()
        fill(gpu, "A", 0, *batch(0))
        gpu.run("transfer_a", 0)
        gpu.run("train_a", 0)
        woken: list[int] = []
        original = Reader.wake
        monkeypatch.setattr(Reader, "wake", lambda self: (woken.append(1), original(self)))
        tickets = [gpu.launch("train_a", 0) for _ in range(LANES)]
        assert not woken
        while not all(t.done for t in tickets):  # asks, and does not wait
            time.sleep(0.001)
        assert all(t.wait() is not None for t in tickets)
        assert len({t.wait().loss for t in tickets}) == LANES


def test_a_prepared_step_is_launched_without_its_name(plan) -> None:
    with fake_session(plan) as gpu, fake_session(plan) as other:
        for session in (gpu, other):
            session.initialise()
            fill(session, "A", 0, *batch(0))
            session.run("transfer_a", 0)
        prepared = gpu.prepare("train_a", 0)
        assert prepared is gpu.prepare("train_a", 0, None, 0)
        for _ in range(LANES + 1):
            assert prepared.launch().wait() == other.launch("train_a", 0).wait()
        last = prepared.launch().wait()
        assert gpu.results("train_a", 0) == last
        launches = driver_of(gpu).counters.launches
    with pytest.raises(CudaError, match="the session is closed"):
        prepared.launch()
    assert driver_of(gpu).counters.launches == launches


def test_launches_that_nobody_waits_for(plan) -> None:
    with fake_session(plan) as gpu:
        gpu.initialise()
        fill(gpu, "A", 0, *batch(0))
        gpu.launch("transfer_a", 0)
        for _ in range(9):
            gpu.launch("train_a", 0)
        last = gpu.launch("train_a", 0)
    assert last.done
    assert driver_of(gpu).counters.launches == 11


def test_a_failure_that_nobody_waits_for_comes_with_a_later_launch(plan, monkeypatch) -> None:
    def failing(self: FakeDriver, event: list[int]) -> None:
        raise DriverCallError("cuEventSynchronize", "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal address", 700)

    with fake_session(plan) as gpu:
        monkeypatch.setattr(FakeDriver, "wait_event", failing)
        for _ in range(LANES):
            gpu.launch("train_a", 0)
        with pytest.raises(CudaError, match="a launch failed: cuEventSynchronize failed"):
            gpu.launch("train_a", 0)
        monkeypatch.undo()


def test_asking_a_launch_often_wakes_the_reader_once(plan, monkeypatch) -> None:
    go, original = threading.Event(), FakeDriver.wait_event
    with fake_session(plan) as gpu:
        gpu.initialise()
        gpu.run("transfer_a", 0)
        monkeypatch.setattr(FakeDriver, "wait_event", lambda self, event: (go.wait(10), original(self, event)))
        ticket = gpu.launch("train_a", 0)
        assert not any(ticket.done for _ in range(1000))
        assert gpu._reader is not None
        assert gpu._reader._calls.qsize() <= 1, "a call for each question would fill the memory"
        go.set()
        assert ticket.wait() is not None
        assert gpu.launch("train_a", 0).wait() is not None, "the reader hears the next one"


@pytest.mark.parametrize(("graphs", "call"), [(True, "graph_launch"), (False, "record")])
def test_ctrl_c_in_a_launch_leaves_the_session_in_order(plan, monkeypatch, graphs: bool, call: str) -> None:
    """Python raises it when the driver's call returns: the launch is under way then, and reads its input."""
    original, waited = getattr(FakeDriver, call), []

    def interrupted(self: FakeDriver, *args: object) -> None:
        original(self, *args)
        if graphs or args[0] is gpu._executables["transfer_a", 0, None, None]._lane.event:
            raise KeyboardInterrupt

    with fake_session(plan, graphs=graphs) as gpu:
        gpu.initialise()
        fill(gpu, "A", 0, *batch(0))
        monkeypatch.setattr(FakeDriver, call, interrupted)
        with pytest.raises(KeyboardInterrupt):
            gpu.launch("transfer_a", 0)
        monkeypatch.setattr(FakeDriver, call, original)
        wait = FakeDriver.wait_event
        monkeypatch.setattr(FakeDriver, "wait_event", lambda self, event: (waited.append(event), wait(self, event)))
        gpu.staging("A", 0)
        assert len(waited) == 1, "the host must not write over what the device still copies"
        for _ in range(2 * LANES + 1):
            gpu.launch("transfer_a", 0).settle()
        np.testing.assert_array_equal(gpu.read("data_a"), batch(0)[0])


def test_ctrl_c_between_the_kernels_of_a_launch_waits_for_those_that_run(plan, monkeypatch) -> None:
    with fake_session(plan, graphs=False) as gpu:
        gpu.initialise()
        fill(gpu, "A", 0, *batch(0))
        synchronized, original = [], FakeDriver.synchronize
        monkeypatch.setattr(
            FakeDriver, "synchronize", lambda self, stream: (synchronized.append(stream), original(self, stream))
        )
        copied = iter([None, KeyboardInterrupt()])

        def interrupted(*_: object) -> None:
            if (error := next(copied)) is not None:
                raise error

        with monkeypatch.context() as context:
            context.setattr(FakeDriver, "copy", interrupted)
            with pytest.raises(KeyboardInterrupt):
                gpu.launch("transfer_a", 0)
        assert set(synchronized) == set(gpu._context.streams.values())
        gpu.run("transfer_a", 0)
        np.testing.assert_array_equal(gpu.read("data_a"), batch(0)[0])


def test_a_launch_that_the_driver_refuses_can_be_tried_again(plan, monkeypatch) -> None:
    def refused(self: FakeDriver, *_: object) -> None:
        raise DriverCallError("cuGraphLaunch", "CUDA_ERROR_OUT_OF_MEMORY", "out of memory", 2)

    with fake_session(plan) as gpu:
        gpu.initialise()
        fill(gpu, "A", 0, *batch(0))
        with monkeypatch.context() as context:
            context.setattr(FakeDriver, "graph_launch", refused)
            for _ in range(2 * LANES):
                with pytest.raises(DriverCallError, match="cuGraphLaunch failed"):
                    gpu.launch("transfer_a", 0)
        gpu.staging("A", 0)
        gpu.run("transfer_a", 0)
        np.testing.assert_array_equal(gpu.read("data_a"), batch(0)[0])


def test_ctrl_c_while_images_are_rounded_leaves_them_to_be_rounded(monkeypatch) -> None:
    net = trc.BluePrint(trc.seq(trc.fc(3)), name="n", input=(6, 6, 2))
    exe = trc.compile(net, target="cuda", batch=4, precision="amp-fp16")
    with exe.session as gpu:
        gpu.staging("A", 0)[1][...] = 1
        original, calls = host.narrowed, iter([False, True])

        def interrupted(values, dtype):
            if next(calls):
                raise KeyboardInterrupt
            return original(values, dtype)

        with monkeypatch.context() as context:
            context.setattr(host, "narrowed", interrupted)
            with pytest.raises(KeyboardInterrupt):
                gpu.launch("transfer_a", 0)
        gpu.run("transfer_a", 0)
        assert (gpu.read("data_a") == 1).all()


def test_staging_has_the_shape_of_its_column(plan) -> None:
    with fake_session(plan) as gpu:
        labels, images = gpu.staging("A", 1)
        assert (images.shape, images.dtype) == ((4, 1, 1, 12), np.float32)
        assert (labels.shape, labels.dtype) == ((4,), np.int32)


def test_rate_changes_between_replays(plan) -> None:
    with fake_session(plan) as gpu:
        gpu.initialise()
        fill(gpu, "A", 0, *batch(0))
        gpu.run("transfer_a", 0)
        gpu.write("lr_table", np.array([0.0, 0.5, 0.0, 0.0], np.float32).reshape(1, 1, 1, 4))
        first = gpu.read("fc1.bias")
        gpu.run("train_a", 0)
        assert gpu.read("fc1.bias").tobytes() == first.tobytes()
        gpu.run("train_a", 0)
        assert gpu.read("fc1.bias").tobytes() != first.tobytes()


def test_two_sessions_share_nothing(plan) -> None:
    with fake_session(plan) as one, fake_session(plan) as two:
        one.initialise()
        two.initialise()
        train(one, 2)
        assert two.read("iteration").item() == 0
        train(two, 2)
        assert one.read("fc0.weight").tobytes() == two.read("fc0.weight").tobytes()


def test_the_collector_is_off_while_capturing(plan, monkeypatch) -> None:
    seen: list[bool] = []
    original = FakeDriver.begin_capture

    def begin(self, stream) -> None:
        seen.append(gc.isenabled())
        original(self, stream)

    monkeypatch.setattr(FakeDriver, "begin_capture", begin)
    fake_session(plan).close()
    assert seen
    assert not any(seen)
    assert gc.isenabled()


def test_definitions_are_captured_once(plan) -> None:
    with fake_session(plan) as gpu:
        report = gpu.report()
        assert report.definitions == len(plan.captures)
        calls = sum(len(n.calls) for d in gpu._sources.definitions for n in d.nodes.values() for c in n.calls[:1])
        assert report.captured <= calls
        assert report.executables <= sum(len(s.columns) for s in plan.steps)
        assert set(report.engines.values()) == {"numpy"}
        nodes = gpu.node_map("train_a", 0)
        assert {k for _, k, _ in nodes} >= {"fc_fwd", "adam_update", "results"}


def test_closing_gives_everything_back(plan) -> None:
    gpu = fake_session(plan)
    gpu.launch("clear_metrics", 0).wait()
    driver = driver_of(gpu)
    gpu.close()
    gpu.close()
    assert not driver.blocks
    assert set(driver.live.values()) == {0}, driver.live
    assert not [t for t in threading.enumerate() if t.name == "trc-reader"]
    with pytest.raises(CudaError, match="closed"):
        gpu.read("loss")


def test_messages(plan, monkeypatch) -> None:
    with fake_session(plan) as gpu:
        with pytest.raises(ValueError, match=r"no step 'nope'; it has transfer_a"):
            gpu.run("nope", 0)
        with pytest.raises(ValueError, match="does not run in variant v4; it runs in v0, v2"):
            gpu.run("train_a", 4)
        with pytest.raises(ValueError, match="columns 0 to 5, not 9"):
            gpu.run("train_a", 9)
        with pytest.raises(ValueError, match=r"no tensor 'fc0.wight'; did you mean fc0.weight"):
            gpu.read("fc0.wight")
        with pytest.raises(ValueError, match=r"has the shape \(1, 1, 1, 1\), the given array \(2,\)"):
            gpu.write("lr", np.zeros(2, np.float32))
        with pytest.raises(ValueError, match="buffers A and B, not 'C'"):
            gpu.staging("C", 0)
        with pytest.raises(ValueError, match="buffers A and B, not 'Z'"):
            gpu.pack("Z")
    monkeypatch.setattr(FakeDriver, "memory_limit", 1 << 14)
    with pytest.raises(ArenaError, match=r"needs .* free are .*\nlargest regions: (\w+ [0-9.]+ \w+(, )?){5}"):
        fake_session(plan)
    monkeypatch.setattr(FakeDriver, "driver_version", 12040)
    with pytest.raises(DeviceError, match=r"supports CUDA 12\.4, trc needs 13\.0"):
        fake_session(plan)
    monkeypatch.setattr(FakeDriver, "driver_version", 13000)
    with pytest.raises(DeviceError, match=r"was compiled for sm_100, this GPU .NVIDIA Fake. is sm_90"):
        fake_session(plan, architecture="sm_100")
    with pytest.raises(DeviceError, match=r"no GPU 3: this process sees 1 GPU \(0 to 0\)"):
        fake_session(plan, device=3)


def test_bytes_outside_the_arena(plan) -> None:
    with fake_session(plan) as gpu:
        size = gpu.arena_bytes
        assert gpu.read_bytes(size - 4, 4).size == 4
        gpu.write_bytes(0, np.arange(3, dtype=np.int32))
        assert gpu.read_bytes(0, 12).view(np.int32).tolist() == [0, 1, 2], "whatever the type, its bytes"
        for offset, count in ((-1, 4), (size - 3, 4), (0, size + 1), (0, -1), (1 << 62, 1)):
            with pytest.raises(ValueError, match=rf"bytes {offset} to {offset + count} lie outside the arena's {size}"):
                gpu.read_bytes(offset, count)
        with pytest.raises(ValueError, match="outside the arena"):
            gpu.write_bytes(size, np.zeros(1, np.uint8))


@pytest.mark.parametrize(
    ("step", "beside"),
    [
        ("train_a", "train_a"),
        ("train_a", "transfer_a"),
        ("train_a", "clear_metrics"),
        ("transfer_a", "transfer_b"),
        ("transfer_b", "train_a"),
        ("clear_metrics", "transfer_a"),
    ],
)
def test_steps_that_would_race(plan, step: str, beside: str) -> None:
    with fake_session(plan) as gpu:
        for use in (gpu.launch, gpu.prepare):
            with pytest.raises(ValueError, match=f"step '{beside}' cannot run beside '{step}'"):
                use(step, 0, beside, 0)


@pytest.mark.parametrize("precision", [Precision.FP32])
def test_same_bytes_twice(precision) -> None:
    plan = mlp_plan(SIZES, BATCHES, precision=precision, dropout=0.25)
    results = []
    for _ in range(2):
        with fake_session(plan) as gpu:
            gpu.initialise()
            train(gpu, 3)
            results.append(b"".join(gpu.read(t.name).tobytes() for t in plan.tensors if not t.region.transient))
    assert results[0] == results[1]
