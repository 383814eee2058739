from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.codegen.cuda.emulator import COMPILER
from tests.unit.runtime.cpu.plans import mlp_plan
from tests.unit.runtime.cuda.fake import FakeDriver, FakePlanned, install
from trc.codegen.cuda.bundle import generate
from trc_runtime.cuda import autotune, dnn
from trc_runtime.cuda.autotune import keys_of, read_engines, tune
from trc_runtime.cuda.bundle import Sources, read_sources
from trc_runtime.cuda.errors import CudaError, DnnError

pytestmark = pytest.mark.skipif(COMPILER is None, reason="needs g++")

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
        ({"engines": {"a": {}}}, "cannot read the measured engines"),
    ],
)
def test_other_files_are_refused(
    change: dict[str, Any], message: str, clock: Clock, sources: Sources, tmp_path: Path
) -> None:
    path = tmp_path / "engines.json"
    tune(sources, path)
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(CudaError, match=message):
        tune(sources, path)
