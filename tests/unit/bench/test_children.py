"""Processes that are asked in JSON lines, and a race of made-up contenders."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.unit.bench.conftest import BENCH

SCRIPT = """
import os, sys, time
sys.path.insert(0, {bench!r})
from children import serve

def work(n):
    print("a library that talks")
    os.write(1, b"and one that does it in C\\n")
    return {{"twice": 2 * n}}

def fail():
    raise ValueError("no such thing")

serve({{"work": work, "fail": fail, "nothing": lambda: None, "die": lambda: os._exit(3),
        "sleep": lambda: time.sleep(60)}})
"""

CONTENDER = """
import sys, time
sys.path.insert(0, {bench!r})
from step_contenders import MODELS, Contender, Setting, child

milliseconds, bad = float(sys.argv[1]), sys.argv[2]

def make(setting):
    if bad == "prepare":
        raise RuntimeError("out of memory")
    steps = [0]
    def step():
        steps[0] += 1
        if bad == "time" and steps[0] > 30:
            raise RuntimeError("it broke")
        time.sleep(milliseconds / 1e3)
    return Contender(step, lambda: None, lambda: 1.5, {{"seconds_to_first_step": 0.5}})

child(Setting("compile", "mlp", MODELS["mlp"], 200, "amp-fp16"), make)
"""


@pytest.fixture
def child(tmp_path: Path):
    from children import Child

    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(bench=str(BENCH)))
    made = Child("it", [sys.executable, str(script)])
    yield made
    made.close()


def test_answers_in_order_and_errors_keep_the_child(child) -> None:
    from children import ChildError

    assert child.ask("work", n=4) == {"twice": 8}
    with pytest.raises(ChildError, match="it: ValueError: no such thing"):
        child.ask("fail")
    assert child.ask("nothing") == {}
    child.send("work", n=1)
    assert child.receive() == {"twice": 2}


def test_a_child_that_ends_is_an_error(child) -> None:
    from children import ChildError

    with pytest.raises(ChildError, match="exit code 3"):
        child.ask("die")
    with pytest.raises(ChildError):
        child.ask("work", n=1)


def test_a_child_that_takes_too_long_is_given_up(child) -> None:
    from children import ChildError

    with pytest.raises(ChildError, match="did not answer within"):
        child.ask("sleep", 0.3)


def test_a_race_keeps_what_the_others_measured(tmp_path: Path) -> None:
    from gpu_step import Race, compare

    script = tmp_path / "contender.py"
    script.write_text(CONTENDER.format(bench=str(BENCH)))
    runs = {"trc": ("1", "-"), "eager": ("3", "-"), "compile": ("2", "prepare"), "graph": ("5", "time")}
    race = Race({name: [sys.executable, str(script), *options] for name, options in runs.items()})
    try:
        race.start()
        assert sorted(race.entries) == ["eager", "graph", "trc"]
        race.measure(3, 0.0)
        found = race.figures(100)
    finally:
        race.close()
    assert list(found) == list(runs)
    assert len(found["trc"]["ms_of_groups"]) == 3
    assert 1 <= found["trc"]["ms_per_step"] < 3 <= found["eager"]["ms_per_step"]
    assert found["eager"]["host_us_per_step"] >= 3000
    assert found["trc"]["loss_at_end"] == 1.5
    assert found["compile"]["error"] == "compile: RuntimeError: out of memory"
    assert found["graph"]["error"] == "graph: RuntimeError: it broke"
    assert found["graph"]["seconds_to_first_step"] == 0.5
    speed = compare(found)
    assert speed == pytest.approx(found["eager"]["ms_per_step"] / found["trc"]["ms_per_step"])
    assert compare({"eager": found["eager"]}) is None
