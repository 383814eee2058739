"""The moving average in the loop: results, logs, checkpoints, and what begins it anew."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.unit.runtime.train.fakes import CLASSES, SHAPE, FakeSession, linear_plan
from trc_runtime.data.dataset import Dataset
from trc_runtime.data.synthetic import synthetic
from trc_runtime.schema.config import EMA
from trc_runtime.train import choices
from trc_runtime.train.average import AverageError
from trc_runtime.train.checkpoint import CheckpointError
from trc_runtime.train.choices import ChoiceError
from trc_runtime.train.console import ConsoleListener
from trc_runtime.train.jsonlog import JsonLog
from trc_runtime.train.metrics import EpochResult, EvalResult, summarise
from trc_runtime.train.runner import Runner

AVERAGE = EMA(0.9)


@pytest.fixture(scope="module")
def data() -> Dataset:
    return synthetic(SHAPE, CLASSES, train=36, val=20)


def runner_of(ema: EMA | None = AVERAGE, poison: tuple[int, ...] = (), **settings: Any) -> Runner:
    plan = linear_plan(ema=ema, **settings)
    return Runner(plan, FakeSession(plan, poison))


def test_each_epoch_has_both_results_of_one_pass(data: Dataset) -> None:
    runner = runner_of()
    result = runner.run(data)
    last = result.epochs[-1]
    assert (last.val, last.ema) == runner.evaluate_both(data.val)
    assert last.val == runner.evaluate(data.val)
    assert last.ema == runner.evaluate(data.val, ema=True) == result.last_ema
    assert last.ema is not None
    assert last.ema.samples == 20
    assert last.ema.loss != runner.evaluate(data.val).loss
    assert runner_of(None).run(data).last_ema is None


def test_a_validation_transfers_each_batch_once(data: Dataset) -> None:
    """20 samples in batches of 8: three of them, each tried with both."""
    for ema, kinds in ((AVERAGE, ("infer", "infer_ema")), (None, ("infer",))):
        runner = runner_of(ema)
        runner.run(data, 1)
        session = runner.session
        assert isinstance(session, FakeSession)
        session.calls.clear()
        weights, average = runner.validate(data.val)
        names = [name[:-2] for name, _ in session.calls if name.startswith(("transfer", "infer"))]
        assert names == [
            name for last in ("", "", "_last") for name in ("transfer", *(f"{kind}{last}" for kind in kinds))
        ]
        assert weights == runner.evaluate(data.val)
        assert average == (None if ema is None else runner.evaluate(data.val, ema=True))


def test_the_average_is_the_evaluation_of_a_network_with_its_weights(data: Dataset) -> None:
    runner = runner_of()
    runner.run(data)
    other = runner_of(None)
    other.tensors["fc1.weight"] = runner.tensors["fc1.weight.ema"]
    assert other.evaluate(data.val) == runner.evaluate(data.val, ema=True)


def test_the_best_of_both() -> None:
    def epoch(n: int, top1: float, ema: float | None) -> EpochResult:
        averaged = None if ema is None else EvalResult(1.0, ema, 1.0, 10)
        return EpochResult(n, 0.1, 1.0, 0.5, 10, 0, EvalResult(1.0, top1, 1.0, 10), 1.0, 1.0, averaged)

    both = summarise([epoch(1, 0.5, 0.1), epoch(2, 0.7, 0.8), epoch(3, 0.7, 0.8)], 3.0)
    assert (both.best_epoch, both.best_top1, both.best_ema_epoch, both.best_ema_top1) == (2, 0.7, 2, 0.8)
    assert both.last_ema is both.epochs[2].ema
    alone = summarise([epoch(1, 0.5, None)], 1.0)
    assert (alone.best_epoch, alone.best_ema_epoch, alone.best_ema_top1, alone.last_ema) == (1, None, None, None)


def test_the_log_and_the_table_show_both(data: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    console, log = ConsoleListener(), JsonLog(tmp_path / "log.jsonl")
    result = runner_of().run(data, listeners=[console, log])
    log.close()
    console.table(result)
    events = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert events[0]["config"]["ema"] == {"type": "EMA", "decay": 0.9, "warmup": False}
    last, done = [e for e in events if e["event"] == "eval"][-1], events[-1]
    ema = result.epochs[-1].ema
    assert ema is not None
    assert (last["ema_loss"], last["ema_top1"], last["ema_top5"]) == (ema.loss, ema.top1, ema.top5)
    assert last["samples"] == 20
    assert done["ema_top1"] == ema.top1
    assert (done["best_ema_epoch"], done["best_ema_top1"]) == (result.best_ema_epoch, result.best_ema_top1)
    out = capsys.readouterr().out
    assert f" ema_top1 {100 * ema.top1:.2f} rate" in out
    assert "ema top-1" in out
    assert out.splitlines()[-1].startswith(f"best moving average: epoch {result.best_ema_epoch}, top-1 ")


def test_without_one_nothing_speaks_of_it(data: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    console, log = ConsoleListener(), JsonLog(tmp_path / "log.jsonl")
    console.table(runner_of(None).run(data, listeners=[console, log]))
    log.close()
    assert "ema" not in (tmp_path / "log.jsonl").read_text()
    out = capsys.readouterr().out
    assert "ema" not in out
    assert "moving" not in out


@pytest.mark.parametrize("poison", [(), (2, 8)])
def test_resuming_gives_the_same_bytes(data: Dataset, tmp_path: Path, poison: tuple[int, ...]) -> None:
    whole = runner_of(poison=poison)
    whole.run(data, 3)
    first = runner_of(poison=poison)
    first.run(data, 2, checkpoint_to=tmp_path / "part")
    second = runner_of(poison=poison)
    second.load_checkpoint(tmp_path / "part")
    second.run(data, 3)
    assert second.checkpoint_bytes() == whole.checkpoint_bytes()
    assert not np.array_equal(whole.tensors["fc1.weight.ema"], whole.tensors["fc1.weight"])


def test_a_checkpoint_with_another_average_is_refused(data: Dataset, tmp_path: Path) -> None:
    runner_of().run(data, 1, checkpoint_to=tmp_path / "with")
    runner_of(None).run(data, 1, checkpoint_to=tmp_path / "without")
    advice = r"with was written with a moving .* keeps none: compile it with ema= \(--ema\), or"
    with pytest.raises(CheckpointError, match=advice):
        runner_of(None).load_checkpoint(tmp_path / "with")
    advice = r"without was written without .* keeps one: compile it without ema= \(--ema\), or"
    with pytest.raises(CheckpointError, match=advice):
        runner_of().load_checkpoint(tmp_path / "without")
    message = r"other settings: ema was EMA\(decay=0\.9, warmup=false\), now EMA\(decay=0\.99, warmup=false\)"
    with pytest.raises(CheckpointError, match=message):
        runner_of(EMA(0.99)).load_checkpoint(tmp_path / "with")


def test_parameters_are_taken_from_either(data: Dataset, tmp_path: Path) -> None:
    runner = runner_of()
    runner.run(data, checkpoint_to=tmp_path / "c")
    weights, average = runner.evaluate_both(data.val)
    runner.save_parameters(tmp_path / "w")
    runner.save_parameters(tmp_path / "e", ema=True)
    for settings in (None, EMA(0.5)):
        other = runner_of(settings)
        for file, ema, wanted in (("c", False, weights), ("c", True, average), ("w", False, weights),
                                  ("e", False, average)):  # fmt: skip
            other.load_parameters(tmp_path / file, ema=ema)
            assert other.evaluate(data.val) == wanted
            if settings is not None:  # the average begins anew
                assert other.evaluate(data.val, ema=True) == wanted
    with pytest.raises(CheckpointError, match=r"w holds no moving average: only checkpoints of a network that"):
        other.load_parameters(tmp_path / "w", ema=True)


def runner_with_a_parameter_called_ema(ema: EMA | None) -> Runner:
    """Names are free: a layer's own tensor may be called as averages are."""
    plan = linear_plan(ema=ema)
    own = {"fc1.weight": "fc1.ema", "fc1.weight.ema": "fc1.ema.ema"}
    added = tuple(replace(t, name=own[t.name]) for t in plan.tensors if t.name in own)
    plan = replace(plan, tensors=(*plan.tensors, *added))
    return Runner(plan, FakeSession(plan))


def test_a_parameter_called_ema_is_no_average(data: Dataset, tmp_path: Path) -> None:
    average, plain = (runner_with_a_parameter_called_ema(ema) for ema in (AVERAGE, None))
    assert average.average.names == ("fc1.weight", "fc1.ema")
    assert not plain.average
    for name, value in (("fc1.ema", 2.0), ("fc1.ema.ema", 3.0)):
        average.session.write(name, np.full_like(average.session.read(name), value))
    average.save_checkpoint(tmp_path / "with")
    plain.save_checkpoint(tmp_path / "without")
    with pytest.raises(CheckpointError, match=r"with was written with a moving average .* keeps none"):
        plain.load_checkpoint(tmp_path / "with")
    with pytest.raises(CheckpointError, match=r"without was written without a moving average .* keeps one"):
        average.load_checkpoint(tmp_path / "without")
    for ema, value in ((False, 2.0), (True, 3.0)):
        plain.load_parameters(tmp_path / "with", ema=ema)
        assert (plain.tensors["fc1.ema"] == value).all()
    with pytest.raises(CheckpointError, match="without holds no moving average"):
        plain.load_parameters(tmp_path / "without", ema=True)


def test_a_network_without_one_says_what_to_do(data: Dataset, tmp_path: Path) -> None:
    runner = runner_of(None)
    message = r"keeps no moving average of its weights: compile it with ema=trc\.EMA\(0\.999\) \(--ema 0\.999\)"
    with pytest.raises(AverageError, match=message):
        runner.evaluate(data.val, ema=True)
    with pytest.raises(AverageError, match=message):
        runner.evaluate_both(data.val)
    with pytest.raises(AverageError, match=message):
        runner.save_parameters(tmp_path / "x", ema=True)
    assert not (tmp_path / "x").exists()


def test_the_average_begins_where_the_user_sets_the_weights(data: Dataset) -> None:
    runner = runner_of()
    start = np.random.default_rng(0).standard_normal(runner.tensors["fc1.weight"].shape).astype(np.float32)
    runner.tensors["fc1.weight"] = start
    np.testing.assert_array_equal(runner.tensors["fc1.weight.ema"], start)
    runner.run(data, 1)
    before = runner.tensors["fc1.weight.ema"]
    runner.tensors["fc1.weight"] = start
    np.testing.assert_array_equal(runner.tensors["fc1.weight.ema"], before)


def test_words_for_it() -> None:
    assert choices.ema("0.999") == EMA(0.999)
    assert choices.ema("0.99:warmup=true") == EMA(0.99, warmup=True)
    for text, message in (
        ("much", "ema: expected a decay such as 0.999, not 'much'"),
        ("1", r"EMA: decay must be between 0 and 1 .*, not 1\.0"),
        ("nan", "decay must be between 0 and 1 .*, not nan"),
        ("0.9:warm=true", "unknown setting of ema 'warm'; did you mean 'warmup'"),
        ("0.9:warmup=2", "ema: warmup=2: expected true or false"),
        ("0.9:decay=0.5", "ema: decay is given twice, as 0.5 and 0.9"),
    ):
        with pytest.raises(ChoiceError, match=message):
            choices.ema(text)
