from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.unit.codegen.cuda.emulator import COMPILER
from tests.unit.runtime.cpu.plans import mlp_plan
from tests.unit.runtime.cuda.fake import FakeDriver, FakePlanned, install
from trc.codegen.cuda.bundle import generate
from trc_runtime.cpu.arena import ArenaError
from trc_runtime.cuda import autotune, dnn
from trc_runtime.cuda.autotune import keys_of, read_engines, tune
from trc_runtime.cuda.bundle import Sources, read_sources
from trc_runtime.cuda.errors import CudaError, DnnError

pytestmark = pytest.mark.skipif(COMPILER is None, reason="needs g++")

ENTRY = {"engine": "e", "microseconds": 1, "heuristic_microseconds": 1}
TIMES = {"first": 10.0, "refused": 1.0, "hungry": 2.0, "fast": 6.0, "even": 9.9}


class Clock:
    """Times that follow from the engine that ran last, and what was asked of it."""

    running = ""
    planned: list[tuple[str, str]]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    clock.planned = []

    def make(planner: object, key: str, description: Any, choice: str | None = None) -> FakePlanned:
        if choice == "refused":
            raise DnnError("no plan")
        made = FakePlanned(key, description)
        made.plan.name = choice or "first"
        if choice == "hungry":
            made.workspace = dnn.WORKSPACE_LIMIT + 1
        clock.planned.append((key, made.plan.name))
        run = made.execute

        def execute(*args: Any) -> None:
            clock.running = made.plan.name
            run(*args)

        made.execute = execute  # type: ignore[method-assign]
        return made

    install(monkeypatch)
    monkeypatch.setattr(dnn, "make_plan", make)
    monkeypatch.setattr(dnn, "candidates", lambda planner, description: list(TIMES))
    monkeypatch.setattr(dnn, "versions", lambda: ("1.18.0", "9.19.0"))
    monkeypatch.setattr(dnn, "WORKSPACE_LIMIT", 1 << 16)
    monkeypatch.setattr(autotune, "Planner", lambda handle: None)
    monkeypatch.setattr(autotune, "_PATTERN_BYTES", 1 << 10)
    monkeypatch.setattr(
        FakeDriver, "milliseconds", lambda *_: TIMES[clock.running] * autotune.RUNS / 1e3, raising=False
    )
    return clock


@pytest.fixture(scope="module")
def sources() -> Sources:
    plan = mlp_plan((12, 16, 8, 5), (6, 4, 5))
    code = generate(plan)
    return read_sources(plan, code.kernels, code.driver)


def test_the_fastest_engine_that_fits_is_written_down(clock: Clock, sources: Sources, tmp_path: Path) -> None:
    path = tmp_path / "engines.json"
    engines = tune(sources, path)
    keys = keys_of(sources)
    assert keys
    assert engines.choices == dict.fromkeys(keys, "fast")
    assert engines.found[keys[0]] == (("fast", pytest.approx(6.0), pytest.approx(10.0)))
    assert read_engines(path).choices == engines.choices
    clock.planned.clear()
    assert tune(sources, path).choices == engines.choices
    assert clock.planned == []  # nothing is measured twice


def test_what_is_hardly_faster_is_not_chosen(clock: Clock, sources: Sources, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setitem(TIMES, "fast", 9.95)
    assert set(tune(sources, tmp_path / "e.json").choices.values()) == {"first"}


def test_the_file_grows(clock: Clock, sources: Sources, tmp_path: Path) -> None:
    path = tmp_path / "engines.json"
    tune(sources, path)
    document = json.loads(path.read_text())
    key = keys_of(sources)[0]
    document["engines"] = {"other": document["engines"].pop(key)}
    path.write_text(json.dumps(document))
    assert set(tune(sources, path).choices) == {"other", *keys_of(sources)}
    assert set(read_engines(path).choices) == {"other", *keys_of(sources)}


def test_everything_is_given_back(clock: Clock, sources: Sources, tmp_path: Path) -> None:
    before = len(FakeDriver.sessions)
    tune(sources, tmp_path / "e.json")
    assert not any(any(d.live.values()) for d in list(FakeDriver.sessions)[before:])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"device": "Tesla T4"}, "was measured on"),
        ({"cudnn": "9.20.0"}, "was measured on"),
        ({"format": "x"}, "not a file of measured engines"),
        ({"engines": 3}, "cannot read the measured engines"),
        ({"engines": {"a": {}}}, "the entry 'a' is damaged: its 'engine' is None; delete it to measure again"),
        ({"engines": {"a": 3}}, "the entry 'a' is damaged"),
        ({"engines": {"a": ENTRY | {"engine": ""}}}, "the entry 'a' is damaged: its 'engine' is ''"),
        ({"engines": {"a": ENTRY | {"engine": 3}}}, "its 'engine' is 3"),
        ({"engines": {"a": ENTRY | {"microseconds": 10**400}}}, "its 'microseconds' are 10000"),
        ({"engines": {"a": ENTRY | {"microseconds": -1}}}, "its 'microseconds' are -1"),
        ({"engines": {"a": ENTRY | {"heuristic_microseconds": float("inf")}}}, "'heuristic_microseconds' are inf"),
        ({"engines": {"a": ENTRY | {"heuristic_microseconds": float("nan")}}}, "'heuristic_microseconds' are nan"),
        ({"engines": {"a": ENTRY | {"microseconds": True}}}, "its 'microseconds' are True"),
        ({"cudnn": None}, "damaged; delete it to measure again"),
    ],
)
def test_other_files_are_refused(
    change: dict[str, Any], message: str, clock: Clock, sources: Sources, tmp_path: Path
) -> None:
    path = tmp_path / "engines.json"
    tune(sources, path)
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(CudaError, match=message) as caught:
        tune(sources, path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("text", ["", "{", "[]", "3", "null", '"x"', "\0\0", "[" * 100_000, "1" * 5000])
def test_files_of_something_else(text: str, clock: Clock, sources: Sources, tmp_path: Path) -> None:
    path = tmp_path / "engines.json"
    path.write_text(text)
    with pytest.raises(CudaError, match=r"engines\.json: .*; delete it to measure again"):
        tune(sources, path)


def test_what_is_no_file(clock: Clock, sources: Sources, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe", Path()):
        with pytest.raises(CudaError, match="is not a file"):
            tune(sources, path)
    assert clock.planned == []


@pytest.mark.parametrize("name", ["file/engines.json", "/proc/x/engines.json", "/dev/full/x", "a\0b"])
def test_a_file_that_cannot_be_written_is_not_measured_for(
    name: str, clock: Clock, sources: Sources, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CudaError, match="the measured engines cannot be written there"):
        tune(sources, tmp_path / name)
    assert clock.planned == []


def test_what_was_measured_is_kept_when_a_measurement_fails(
    clock: Clock, sources: Sources, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, original = tmp_path / "engines.json", autotune._Bench.best

    def best(self: Any, planner: Any, key: str, *rest: Any) -> Any:
        if key == keys_of(sources)[1]:
            raise KeyboardInterrupt
        return original(self, planner, key, *rest)

    monkeypatch.setattr(autotune._Bench, "best", best)
    with pytest.raises(KeyboardInterrupt):
        tune(sources, path)
    assert list(read_engines(path).choices) == keys_of(sources)[:1]
    assert not any(FakeDriver.sessions[-1].live.values())
    assert not FakeDriver.sessions[-1].blocks


def test_too_little_memory_to_measure(
    clock: Clock, sources: Sources, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for limit, wanted in (
        (sources.plan.total - 1, r"for the plan '.*': it needs .* free are .*\nlargest regions: "),
        (sources.plan.total + 1, r"for measuring cuDNN's engines \(.*64\.0 KiB of workspace\): it needs .* free are "),
    ):
        monkeypatch.setattr(FakeDriver, "memory_limit", limit)
        with pytest.raises(ArenaError, match=f"not enough GPU memory {wanted}"):
            tune(sources, tmp_path / "engines.json")
        assert not any(FakeDriver.sessions[-1].live.values())
    assert clock.planned == []
