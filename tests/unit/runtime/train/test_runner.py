from __future__ import annotations

import io
import json
import logging
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.unit.runtime.train.fakes import CLASSES, SHAPE, FakeSession, linear_plan
from trc_runtime.data.dataset import Dataset
from trc_runtime.data.idx import DataError
from trc_runtime.data.loader import shuffled_order
from trc_runtime.data.synthetic import synthetic
from trc_runtime.schema.config import SGD, Constant, CosineAnnealing
from trc_runtime.schema.normalise import normalised
from trc_runtime.schema.plan import Plan
from trc_runtime.train.checkpoint import CheckpointError
from trc_runtime.train.jsonlog import JsonLog
from trc_runtime.train.metrics import EpochResult, TrainingResult
from trc_runtime.train.runner import Runner
from trc_runtime.train.schedules import ScheduleError
from trc_runtime.train.tensors import TensorNameError


def make(poison: tuple[int, ...] = (), plan: Plan | None = None) -> tuple[Runner, FakeSession]:
    plan = plan or linear_plan()
    session = FakeSession(plan, poison)
    return Runner(plan, session), session


@pytest.fixture(scope="module")
def data() -> Dataset:
    return synthetic(SHAPE, CLASSES, train=36, val=20)


def batch(n: int = 8) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    rng = np.random.default_rng(n)
    return rng.normal(size=(n, *SHAPE)).astype(np.float32), rng.integers(0, CLASSES, n)


# ---------------------------------------------------------------- steps


def test_a_step_gives_loss_and_counts_and_alternates_buffers() -> None:
    runner, session = make()
    images, labels = batch()
    first = runner.step(images, labels)
    assert first.loss == pytest.approx(np.log(CLASSES))
    assert (first.top5, first.skipped) == (8, False)
    losses = [runner.step(images, labels).loss for _ in range(5)]
    assert losses == sorted(losses, reverse=True)
    trained = [c for c in session.calls if c[0].startswith("train")]
    assert trained[:3] == [("train_a", 0), ("train_b", 0), ("train_a", 0)]
    assert session.calls[1:3] == [("transfer_a", 0), ("train_a", 0)]


def test_the_last_batch_has_its_own_variant() -> None:
    runner, session = make()
    runner.step(*batch(4))
    assert session.calls[-1] == ("train_last_a", 1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x, y: (x[:5], y[:5]), r"images 5 x 2 x 2 x 1 .* compiled for 8 x 2 x 2 x 1 and 4 x 2 x 2 x 1"),
        (lambda x, y: (x[..., 0], y), r"\[samples, height, width, channels\]"),
        (lambda x, y: (x.astype(np.uint8), y), r"compile with normalise=trc.Normalise\(mean, std\), or normalise them"),
        (lambda x, y: (x.astype(np.int32), y), "int32"),
        (lambda x, y: (x, y.astype(np.float32)), "labels must be whole numbers, not float32"),
        (lambda x, y: (x, y[:-1]), r"8 images need labels of shape \(8,\), not \(7,\)"),
        (lambda x, y: (x, np.where(np.arange(8) == 3, 4, y)), "label 3 is 4; the network has classes 0 to 3"),
        (lambda x, y: (x, np.where(np.arange(8) == 3, -1, y)), "label 3 is -1"),
        (lambda x, y: (x, np.where(np.arange(8) == 3, 1 << 32, y)), "label 3 is 4294967296"),
        (lambda x, y: (np.where(np.arange(8).reshape(8, 1, 1, 1) == 6, np.inf, x), y), "image 6 holds inf"),
        (lambda x, y: (x.astype(np.float64) + 1e300, y), r"image 0 holds 1e\+300 at .*; beyond 3.4028e\+38"),
        (lambda x, y: ([[1.0], [1.0, 2.0]], y), "the images are not one array"),
        (lambda x, y: (x, [[1], [2, 3]]), "the labels are not one array"),
    ],
)
def test_bad_batches_are_refused_before_anything_runs(change: object, message: str) -> None:
    runner, session = make()
    before = list(session.calls)
    with pytest.raises(DataError, match=message):
        runner.step(*change(*batch()))  # type: ignore[operator]
    assert session.calls == before


def test_a_skipped_step_says_so() -> None:
    runner, session = make(poison=(1,))
    results = [runner.step(*batch()) for _ in range(3)]
    assert [r.skipped for r in results] == [False, True, False]
    assert (session.read("iteration").item(), session.read("applied").item()) == (3, 2)


# ---------------------------------------------------------------- evaluation


def test_evaluation_folds_first_and_counts_every_sample(data: Dataset) -> None:
    runner, session = make()
    session.calls.clear()
    result = runner.evaluate(data.val)
    names = [c[0] for c in session.calls]
    assert names[:2] == ["fold_bn", "clear_metrics"]
    assert [c for c in session.calls if c[0].startswith("infer")] == [
        ("infer_a", 4),
        ("infer_b", 4),
        ("infer_last_a", 5),
    ]
    assert result.samples == 20
    assert result.loss == pytest.approx(np.log(CLASSES))
    assert (result.top1, result.top5) == (1.0, 1.0)  # all logits are equal: nothing beats the label
    how = data.val.normalisation
    assert how is not None
    images = normalised(data.val.images, how)
    assert runner.evaluate(images, data.val.labels) == result


def test_batch_sizes_are_announced_where_training_and_validation_differ(data: Dataset) -> None:
    plan = linear_plan()
    variants = list(plan.variants)
    variants[4] = replace(variants[4], batch=10)
    variants[5] = replace(variants[5], batch=10)
    runner, session = make(plan=replace(plan, variants=tuple(variants)))
    runner.step(*batch())
    assert session.read("batch_size").item() == 8
    result = runner.evaluate(data.val)
    assert session.read("batch_size").item() == 10
    runner.step(*batch())
    assert session.read("batch_size").item() == 8
    assert result.samples == 20


def test_evaluating_other_numbers_of_samples(data: Dataset, caplog: pytest.LogCaptureFixture) -> None:
    runner, _ = make()
    images, labels = batch(24)
    assert runner.evaluate(images[:16], labels[:16]).samples == 16
    with pytest.raises(DataError, match=r"21 samples are 2 batches of 8 and 5 more, .* compile with val_samples=21"):
        runner.evaluate(images[:21], labels[:21])
    unknown, _ = make(plan=linear_plan(val_samples=None))
    logging.getLogger("trc").propagate = True
    with caplog.at_level(logging.WARNING, "trc"):
        assert unknown.evaluate(images[:21], labels[:21]).samples == 16
    assert "the last 5 are left out" in caplog.text
    with pytest.raises(DataError, match="do not fill one batch"):
        unknown.evaluate(images[:5], labels[:5])
    with pytest.raises(DataError, match="needs labels"):
        runner.evaluate(images)


# ---------------------------------------------------------------- runs


class Recorder:
    def __init__(self) -> None:
        self.events: list[object] = []

    def start(self, plan: Plan, data: Dataset, first_epoch: int, epochs: int, steps: int) -> None:
        self.events.append((first_epoch, epochs, steps))

    def step(self, epoch: int, done: int, steps: int) -> None:
        self.events.append((epoch, done))

    def epoch(self, result: EpochResult, epochs: int) -> None:
        self.events.append(result.epoch)

    def done(self, result: TrainingResult) -> None:
        self.events.append("done")


def test_a_run_trains_and_reports(data: Dataset) -> None:
    runner, session = make()
    recorder = Recorder()
    result = runner.run(data, listeners=[recorder])
    assert len(result.epochs) == 3
    assert result.epochs[-1].train_loss < result.epochs[0].train_loss
    assert [e.train_samples for e in result.epochs] == [36] * 3
    assert result.last is not None
    assert result.last.samples == 20
    assert result.best_top1 == max(e.val.top1 for e in result.epochs if e.val)
    assert recorder.events[:7] == [(1, 3, 5), (1, 1), (1, 2), (1, 3), (1, 4), (1, 5), 1]
    assert recorder.events[-1] == "done"
    trained = [c[1] for c in session.calls if c[0].startswith("train")]
    assert trained == [0, 0, 0, 0, 1] * 3


def test_the_order_of_the_samples_is_that_of_seed_and_epoch(data: Dataset) -> None:
    runner, session = make()
    seen: list[int] = []

    class Spy(Recorder):
        def step(self, epoch: int, done: int, steps: int) -> None:
            letter = session.calls[-1][0][-1]
            seen.extend(session._input[letter][0].tolist())

    runner.run(data, 2, listeners=[Spy()])
    seed = runner.plan.config.seed
    expected = [data.train.labels[shuffled_order(36, seed, e)] for e in range(2)]
    assert seen == np.concatenate(expected).tolist()


def test_skipped_steps_are_counted_and_leave_the_means_alone(data: Dataset, caplog: pytest.LogCaptureFixture) -> None:
    runner, _ = make(poison=(1, 4, 5, 6, 7, 8, 9))
    logging.getLogger("trc").propagate = True
    with caplog.at_level(logging.WARNING, "trc"):
        result = runner.run(data)
    # epoch 1 loses a full batch and the last, epoch 2 everything
    assert [(e.skipped, e.train_samples) for e in result.epochs] == [(2, 24), (5, 0), (0, 36)]
    assert result.skipped == 7
    assert np.isnan(result.epochs[1].train_loss)
    assert "2 of 5 steps were skipped" in caplog.text


def test_unknown_sample_counts_mean_full_batches() -> None:
    runner, session = make(plan=linear_plan(train_samples=None, val_samples=None, epochs=None))
    result = runner.run(synthetic(SHAPE, CLASSES, train=36, val=20), 2)
    assert [e.train_samples for e in result.epochs] == [32, 32]
    assert all(c[1] in (0, 4) for c in session.calls if c[0].startswith(("train", "infer_")))


def test_validation_every_other_epoch_and_at_the_end(data: Dataset) -> None:
    runner, _ = make()
    result = runner.run(data, validate_every=2)
    assert [e.val is not None for e in result.epochs] == [False, True, True]


def test_the_rates_are_in_the_plan(data: Dataset) -> None:
    plan = linear_plan(schedule=CosineAnnealing(base_lr=0.1, warmup=1), epochs=3)
    runner, session = make(plan=plan)
    table = session.read("lr_table").reshape(-1)
    assert table[0] == pytest.approx(0.02)
    assert table[4] == pytest.approx(0.1)
    result = runner.run(data, 2)  # the first two epochs of a schedule of three
    assert np.array_equal(session.read("lr_table").reshape(-1), table)
    assert result.epochs[0].rate == pytest.approx(0.02)


@pytest.mark.parametrize(
    ("plan", "epochs", "error", "message"),
    [
        (linear_plan(epochs=None), None, ScheduleError, "number of epochs is unknown"),
        (linear_plan(train_samples=40), None, DataError, "compiled for 40 training samples, synthetic has 36"),
        (linear_plan(schedule=CosineAnnealing()), 4, ScheduleError, "the run has 20 steps, .* room for 15"),
        (linear_plan(num_classes=3), None, DataError, "label 3 is 3; the network has classes 0 to 2"),
        (linear_plan(), 0, ScheduleError, "at least 1"),
    ],
)
def test_what_is_wrong_is_said_before_the_first_step(
    plan: Plan, epochs: int | None, error: type[Exception], message: str, data: Dataset
) -> None:
    runner, session = make(plan=plan)
    with pytest.raises(error, match=message):
        runner.run(data, epochs)
    assert not any(c[0].startswith("train") for c in session.calls)


def test_images_of_another_size() -> None:
    runner, _ = make()
    with pytest.raises(DataError, match="training images are 3 x 3 x 1, the network was compiled for 2 x 2 x 1"):
        runner.run(synthetic((3, 3, 1), CLASSES, train=36, val=20))


def test_a_schedule_that_cannot_be_tabulated_stops_steps_but_not_evaluation(data: Dataset) -> None:
    runner, _ = make(plan=linear_plan(schedule=CosineAnnealing(), epochs=None))
    assert runner.evaluate(data.val).samples == 20
    with pytest.raises(ScheduleError, match="CosineAnnealing needs the number of epochs"):
        runner.step(*batch())


# ---------------------------------------------------------------- tensors


def test_tensors_are_copies_and_assignable() -> None:
    runner, session = make()
    value = runner.tensors["fc1.weight"]
    value += 1
    assert not session.read("fc1.weight").any()
    casts = session.calls.count(("cast_main", 0))
    runner.tensors["fc1.weight"] = value
    assert session.read("fc1.weight").all()
    assert session.calls.count(("cast_main", 0)) == casts + 1
    with pytest.raises(ValueError, match="shape"):
        runner.tensors["fc1.weight"] = value[1:]
    assert "fc1.weight" in runner.tensors
    assert "fc1.output" not in runner.tensors
    assert len(list(runner.tensors)) == len(runner.tensors)
    with pytest.raises(TypeError):
        del runner.tensors["fc1.weight"]


def test_gradients_are_unscaled() -> None:
    runner, session = make()
    session.write("scaling", np.full((1, 1, 1, 1), 8.0))
    runner.step(*batch())
    np.testing.assert_allclose(runner.tensors["fc1.weight.grad"] * 8, session.read("fc1.weight.grad"))
    runner.tensors["fc1.weight.grad"] = np.ones((CLASSES, 1, 1, 4), np.float32)
    assert (session.read("fc1.weight.grad") == 8).all()


def test_wrong_names_get_a_hint() -> None:
    runner, _ = make()
    with pytest.raises(TensorNameError, match=r"no tensor 'fc1\.weigth'; did you mean fc1\.weight"):
        runner.tensors["fc1.weigth"]
    with pytest.raises(TensorNameError, match="lives only within a step"):
        runner.tensors["fc1.output"]


# ---------------------------------------------------------------- checkpoints


def test_resuming_gives_the_same_bytes(data: Dataset, tmp_path: Path) -> None:
    whole, _ = make(poison=(2,))
    whole.run(data, checkpoint_to=tmp_path / "whole")
    part, _ = make(poison=(2,))
    part.run(data, 1, checkpoint_to=tmp_path / "part")
    other, _ = make(poison=(2,))
    other.load_checkpoint(tmp_path / "part")
    assert other.epoch == 1
    result = other.run(data, checkpoint_to=tmp_path / "rest")
    assert [e.epoch for e in result.epochs] == [2, 3]
    assert (tmp_path / "rest").read_bytes() == (tmp_path / "whole").read_bytes()
    assert other.checkpoint_bytes() == whole.checkpoint_bytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["part", "rest", "whole"]


def test_what_a_checkpoint_holds(data: Dataset, tmp_path: Path) -> None:
    import safetensors.numpy

    runner, _ = make()
    runner.run(data, 1, checkpoint_to=tmp_path / "c")
    held = safetensors.numpy.load_file(tmp_path / "c")
    assert sorted(held) == ["applied", "fc1.weight", "fc1.weight.m", "iteration", "scaling"]
    runner.save_parameters(tmp_path / "p")
    assert list(safetensors.numpy.load_file(tmp_path / "p")) == ["fc1.weight"]


def test_parameters_are_taken_from_either_file(data: Dataset, tmp_path: Path) -> None:
    trained, _ = make()
    trained.run(data, checkpoint_to=tmp_path / "checkpoint")
    trained.save_parameters(tmp_path / "parameters")
    for name in ("checkpoint", "parameters"):
        other, session = make()
        other.load_parameters(tmp_path / name)
        assert other.evaluate(data.val) == trained.evaluate(data.val)
        assert session.read("iteration").item() == 0
    with pytest.raises(CheckpointError, match="parameters only: training cannot be continued"):
        other.load_checkpoint(tmp_path / "parameters")


def test_parameters_of_another_origin_and_type(tmp_path: Path) -> None:
    import safetensors.numpy

    value = np.arange(CLASSES * 4, dtype=np.float64).reshape(CLASSES, 1, 1, 4)
    safetensors.numpy.save_file({"fc1.weight": value}, tmp_path / "p")
    runner, _ = make()
    runner.load_parameters(tmp_path / "p")
    assert np.array_equal(runner.tensors["fc1.weight"], value)
    safetensors.numpy.save_file({"fc1.weight": value.astype(np.int32)}, tmp_path / "p")
    with pytest.raises(CheckpointError, match=r"fc1\.weight is int32 there, not a floating-point type"):
        runner.load_parameters(tmp_path / "p")


def test_files_that_do_not_fit_are_refused_with_names(data: Dataset, tmp_path: Path) -> None:
    import safetensors.numpy

    runner, session = make()
    path = tmp_path / "p"
    safetensors.numpy.save_file({"fc1.weight": np.zeros((3, 1, 1, 4), np.float32)}, path)
    with pytest.raises(CheckpointError, match=r"fc1.weight is \[3, 1, 1, 4\] there, \[4, 1, 1, 4\] in the network"):
        runner.load_parameters(path)
    safetensors.numpy.save_file({"fc2.weight": np.zeros(3, np.float32)}, path)
    with pytest.raises(CheckpointError, match=r"it lacks fc1\.weight; the network has no fc2\.weight"):
        runner.load_parameters(path)
    runner.run(data, 1, checkpoint_to=path)
    other, session = make(plan=linear_plan(optimizer=SGD(momentum=0.5), seed=7))
    with pytest.raises(CheckpointError, match=r"other settings: optimizer was SGD\(.*momentum=0.9.*; seed was"):
        other.load_checkpoint(path)
    assert not session.read("fc1.weight").any()
    # epochs matter to schedules that look at them, and to no other
    longer, _ = make(plan=linear_plan(epochs=9))
    longer.load_checkpoint(path)
    a, _ = make(plan=linear_plan(schedule=CosineAnnealing()))
    a.run(data, 1, checkpoint_to=path)
    b, _ = make(plan=linear_plan(schedule=CosineAnnealing(), epochs=9))
    with pytest.raises(CheckpointError, match="epochs was 3, now 9"):
        b.load_checkpoint(path)


def test_damaged_files_are_refused(data: Dataset, tmp_path: Path) -> None:
    runner, _ = make()
    path = tmp_path / "c"
    runner.run(data, 1, checkpoint_to=path)
    good = path.read_bytes()
    for at in (0, 5, 30, len(good) // 2, len(good) - 1):
        path.write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
        with pytest.raises(CheckpointError):
            runner.load_checkpoint(path)
    for cut in (0, 4, 50, len(good) - 1):
        path.write_bytes(good[:cut])
        with pytest.raises(CheckpointError, match="damaged, or not a safetensors file"):
            runner.load_checkpoint(path)
    with pytest.raises(CheckpointError, match="no such file"):
        runner.load_checkpoint(tmp_path / "none")
    with pytest.raises(CheckpointError, match="is a folder"):
        runner.run(data, checkpoint_to=tmp_path)


def test_a_checkpoint_that_cannot_be_written_is_noticed_before_training(data: Dataset, tmp_path: Path) -> None:
    runner, session = make()
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="is not a folder"):
        runner.run(data, checkpoint_to=tmp_path / "file" / "c")
    assert not any(c[0].startswith("train") for c in session.calls)


# ---------------------------------------------------------------- the log


def test_the_log_is_json_lines_with_finite_numbers(data: Dataset, tmp_path: Path) -> None:
    runner, _ = make(poison=tuple(range(5)))
    log = JsonLog(tmp_path / "log")
    assert not (tmp_path / "log").exists()
    runner.run(data, 2, listeners=[log])
    log.close()
    lines = [json.loads(line) for line in io.StringIO((tmp_path / "log").read_text())]
    assert [line["event"] for line in lines] == ["config", "epoch", "eval", "epoch", "eval", "done"]
    assert lines[0]["config"]["batch"] == 8
    assert lines[0]["samples"] == {"train": 36, "val": 20}
    assert lines[1]["train_loss"] is None
    assert lines[1]["skipped"] == 5
    assert lines[3]["train_loss"] > 0
    assert lines[5]["epochs"] == 2


def test_a_constant_rate_without_any_counts() -> None:
    plan = linear_plan(schedule=Constant(base_lr=0.25), epochs=None, train_samples=None, rates=1)
    _, session = make(plan=plan)
    assert session.read("lr_table").reshape(-1).tolist() == [0.25]


# ---------------------------------------------------------------- other mistakes


@pytest.mark.parametrize("epochs", [1.5, "2", True])
def test_epochs_are_whole_numbers(data: Dataset, epochs: object) -> None:
    runner, _ = make()
    with pytest.raises(ScheduleError, match="epochs must be a whole number, not"):
        runner.run(data, epochs)  # type: ignore[arg-type]


def test_a_run_needs_a_data_set() -> None:
    runner, _ = make()
    with pytest.raises(DataError, match=r"run takes a .*Dataset, not tuple"):
        runner.run(batch(), 1)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", [5, None, ("fc1", "weight")])
def test_tensors_are_found_by_name(name: object) -> None:
    runner, _ = make()
    with pytest.raises(KeyError, match="tensors are found by their names, such as"):
        runner.tensors[name]  # type: ignore[index]


def test_counters_are_not_negative() -> None:
    """They index the table of rates."""
    runner, _ = make()
    for name in ("iteration", "applied"):
        with pytest.raises(ValueError, match=f"tensor '{name}' counts steps: it cannot be -5"):
            runner.tensors[name] = np.full((1, 1, 1, 1), -5)
