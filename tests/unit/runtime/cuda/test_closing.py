"""The end of a session: nothing is left behind, nothing dangles, whatever fails and wherever it happens."""

from __future__ import annotations

import ctypes
import gc
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any

import numpy as np
import pytest

import trc
from tests.unit.codegen.cuda.emulator import COMPILER
from tests.unit.runtime.cpu.plans import mlp_plan
from tests.unit.runtime.cuda.fake import FakeDriver, driver_of, fake_session, install
from trc_runtime.cpu.arena import ArenaError
from trc_runtime.cuda.context import Context
from trc_runtime.cuda.errors import CudaError, DriverCallError
from trc_runtime.cuda.release import release
from trc_runtime.cuda.session import CudaSession
from trc_runtime.schema.plan import Plan

pytestmark = pytest.mark.skipif(COMPILER is None, reason="needs g++")

Patch = pytest.MonkeyPatch


@pytest.fixture(autouse=True)
def _fakes(monkeypatch: Patch) -> None:
    install(monkeypatch)


@cache
def plan() -> Plan:
    return mlp_plan((12, 16, 8, 5), (6, 4, 5))


def left(driver: FakeDriver) -> dict[str, int]:
    """What has not been given back."""
    return {k: n for k, n in {**driver.live, "block": len(driver.blocks)}.items() if n}


def fail(call: str, code: int = 700) -> Callable[..., Any]:
    name = "CUDA_ERROR_OUT_OF_MEMORY" if code == 2 else "CUDA_ERROR_ILLEGAL_ADDRESS"

    def action(*_: object, **__: object) -> None:
        raise DriverCallError(call, name, name.lower(), code)

    return action


USES: dict[str, Callable[[CudaSession], object]] = {
    "staging": lambda s: s.staging("A", 0),
    "pack": lambda s: s.pack("A"),
    "run": lambda s: s.run("train_a", 0),
    "launch": lambda s: s.launch("train_a", 0),
    "results": lambda s: s.results("train_a", 0),
    "prepare": lambda s: s.prepare("train_a", 0),
    "prepare another": lambda s: s.prepare("train_a", 0, "transfer_b", 0),
    "read": lambda s: s.read("loss"),
    "write": lambda s: s.write("lr", np.zeros((1, 1, 1, 1), np.float32)),
    "read_bytes": lambda s: s.read_bytes(0, 4),
    "write_bytes": lambda s: s.write_bytes(0, np.zeros(4, np.uint8)),
    "initialise": lambda s: s.initialise(),
    "poison": lambda s: s.poison(),
    "node_map": lambda s: s.node_map("train_a", 0),
    "write_dot": lambda s: s.write_dot("train_a", 0, "/dev/null"),
    "report": lambda s: s.report(),
    "save_plans": lambda s: s.save_plans(),
    "free_memory": lambda s: s.free_memory(),
    "arena_bytes": lambda s: s.arena_bytes,
}


@pytest.mark.parametrize("use", USES)
def test_a_closed_session_says_so(use: str) -> None:
    session = fake_session(plan())
    USES[use](session)  # also what was used before
    driver = driver_of(session)
    session.close()
    launches = driver.counters.launches
    with pytest.raises(CudaError, match="the session is closed"):
        USES[use](session)
    assert driver.counters.launches == launches


def test_a_step_after_the_end() -> None:
    exe = trc.compile(trc.BluePrint(trc.seq(trc.fc(3)), name="n", input=(6, 6, 2)), target="cuda", batch=4)
    images, labels = np.zeros((4, 6, 6, 2), np.float32), np.zeros(4, int)
    exe.step(images, labels)
    assert isinstance(exe.session, CudaSession)
    exe.session.close()
    for use in (exe.step, exe.evaluate):
        with pytest.raises(CudaError, match="the session is closed"):
            use(images, labels)


def test_arrays_of_staging_outlive_the_session() -> None:
    session = fake_session(plan())
    driver = driver_of(session)
    labels, images = session.staging("A", 0)
    part = images[1:3]
    labels[:], images[...] = 3, 0.5
    session.close()
    assert left(driver) == {"block": 2, "context": 2}, "the memory and what it lies in"
    assert labels.tolist() == [3] * len(labels)
    images += 1
    assert np.all(part == 1.5)
    del images
    assert left(driver) == {"block": 2, "context": 2}, "part lies in it too"
    del labels, part
    assert left(driver) == {}


def test_a_result_may_be_kept() -> None:
    session = fake_session(plan())
    driver = driver_of(session)
    ticket = session.launch("train_a", 0)
    session.close()
    assert ticket.wait() is not None
    assert left(driver) == {}


def test_a_session_that_is_collected_by_the_reader(monkeypatch: Patch) -> None:
    """Python's collector runs in any thread; the reader cannot wait for itself to end."""
    go, waited = threading.Event(), []
    original = FakeDriver.wait_event

    def wait(self: FakeDriver, event: list[int]) -> None:
        go.wait(10)
        gc.collect()
        original(self, event)
        waited.append(self.live["event"])

    monkeypatch.setattr(FakeDriver, "wait_event", wait)
    monkeypatch.setattr(gc, "enable", lambda: None)
    gc.disable()
    try:
        session = fake_session(plan())
        driver = driver_of(session)
        session.me = session  # type: ignore[attr-defined]
        tickets = [session.launch(step, 0) for step in ("transfer_a", "train_a", "clear_metrics")]
        reader = next(t for t in threading.enumerate() if t.name == "trc-reader")
        del session
        go.set()
        results = [ticket.wait() for ticket in tickets]
        reader.join(10)
        assert not reader.is_alive()
    finally:
        monkeypatch.undo()
        gc.enable()
    assert [r is not None for r in results] == [False, True, False]
    assert all(waited), "events are waited for while they exist"
    assert left(driver) == {}


def test_closing_gives_everything_back_although_calls_fail(monkeypatch: Patch) -> None:
    session = fake_session(plan())
    driver = driver_of(session)
    session.launch("train_a", 0).wait()
    monkeypatch.setattr(FakeDriver, "synchronize", fail("cuStreamSynchronize"))
    with pytest.raises(DriverCallError, match="cuStreamSynchronize failed"):
        session.close()
    assert left(driver) == {}
    session.close()


@pytest.mark.parametrize("call", ["destroy_exec", "destroy_event", "destroy_graph", "unload_module", "destroy_stream"])
def test_each_part_is_given_back_although_another_is_not(call: str, monkeypatch: Patch) -> None:
    session = fake_session(plan(), graphs=True)
    driver = driver_of(session)
    monkeypatch.setattr(FakeDriver, call, fail(call))
    with suppress(DriverCallError):
        session.close()
    assert set(left(driver)) <= {call.partition("_")[2]}


def test_an_error_on_the_device_keeps_no_memory(monkeypatch: Patch) -> None:
    session = fake_session(plan())
    driver = driver_of(session)
    monkeypatch.setattr(FakeDriver, "wait_event", fail("cuEventSynchronize"))
    gc.disable()
    try:
        with pytest.raises(CudaError, match="a launch failed: cuEventSynchronize failed"):
            session.launch("train_a", 0).wait()
        session.close()
        assert left(driver) == {}
    finally:
        gc.enable()


@pytest.mark.parametrize("number", range(5))
def test_a_context_that_does_not_come_to_be(number: int, monkeypatch: Patch) -> None:
    original, made = FakeDriver.stream, []

    def stream(self: FakeDriver) -> int:
        if len(made) == number:
            fail("cuStreamCreate", 2)()
        made.append(1)
        return original(self)

    monkeypatch.setattr(FakeDriver, "stream", stream)
    with pytest.raises(DriverCallError, match=r"cuStreamCreate failed: CUDA_ERROR_OUT_OF_MEMORY .*a smaller batch"):
        Context()
    assert left(FakeDriver.sessions[-1]) == {}


@pytest.mark.parametrize(
    ("call", "later"),
    [
        ("zero", 0),
        ("load_module", 0),
        ("function", 1),
        ("event", 3),
        ("upload", 2),
        ("instantiate", 3),
        ("allocate_pinned", 2),
        ("add_kernel", 5),
    ],
)
def test_a_session_that_does_not_come_to_be(call: str, later: int, monkeypatch: Patch) -> None:
    original, count = getattr(FakeDriver, call), [0]

    def sometimes(self: FakeDriver, *args: Any) -> Any:
        count[0] += 1
        return fail(call)() if count[0] > later else original(self, *args)

    monkeypatch.setattr(FakeDriver, call, sometimes)
    with pytest.raises(DriverCallError, match=f"^{call} failed"):
        fake_session(plan())
    assert count[0] > later
    gc.collect()
    assert left(FakeDriver.sessions[-1]) == {}


def test_too_little_page_locked_memory(monkeypatch: Patch) -> None:
    monkeypatch.setattr(FakeDriver, "allocate_pinned", fail("cuMemHostAlloc", 2))
    with pytest.raises(
        ArenaError, match=r"page-locked host memory for input buffer A: it needs .*\(\d+ bytes\); a sma"
    ):
        fake_session(plan())
    assert left(FakeDriver.sessions[-1]) == {}


def test_release_goes_on_and_raises_the_first_failure() -> None:
    done: list[int] = []

    def action(number: int) -> None:
        done.append(number)
        if number in (1, 2):
            raise ValueError(number)

    with pytest.raises(ValueError, match="1"):
        release([lambda n=n: action(n) for n in range(4)])
    assert done == [0, 1, 2, 3]


def test_pinned_memory_is_zero() -> None:
    with fake_session(plan()) as session:
        labels, _ = session.staging("B", 0) if "B" in session._staged else session.staging("A", 0)
        assert labels.base is not None
        assert not labels.any()
        assert ctypes.c_int32.from_address(labels.ctypes.data).value == 0
