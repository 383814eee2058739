"""What the benchmarks of the GPU make of their numbers, and trc's side of them on the fake GPU."""

from __future__ import annotations

import json
from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
import torch

import trc
from tests.unit.bench import conftest  # noqa: F401 - so that bench/ is found
from tests.unit.codegen.cuda.emulator import COMPILER
from tests.unit.runtime.cuda.fake import install
from trc.models import ZOO


def test_means_are_of_whole_groups() -> None:
    from gpu_curves import means

    assert means([1, 3, 5, 7, 100], 2) == [2, 6]


def test_inside_the_band_and_inside_the_wide_one() -> None:
    from gpu_curves import band

    theirs = [[1.0, 1.0, 1.0, 1.0], [2.0, 2.0, 2.0, 1.0], [3.0, 3.0, 3.0, 1.0]]
    found = band([1.0, 3.5, 4.5, 1.0], theirs)
    assert [g["within"] for g in found["groups"]] == [True, False, False, True]
    assert [g["within_wide"] for g in found["groups"]] == [True, True, False, True]
    assert found["groups"][1] == {
        "trc": 3.5, "min": 1.0, "max": 3.0, "deviation": 1.0, "within": False, "within_wide": True,
    }  # fmt: skip
    assert (found["of"], found["within"], found["within_wide"]) == (4, 2, 3)
    assert not found["all_within_wide"]
    assert band([float("nan")], [[1.0], [2.0]])["within_wide"] == 0


def test_the_mean_of_all_runs_is_compared_and_each_run_too() -> None:
    from gpu_curves import add_bands

    result: dict[str, Any] = {
        "trc": {"1": {"losses": [1.0, 1.0, 9.0, 9.0]}, "2": {"losses": [4.0, 4.0, 3.0, 3.0]}},
        "torch": {"1": {"losses": [2.0, 2.0, 3.0, 3.0]}, "2": {"losses": [3.0, 3.0, 5.0, 5.0]}},
    }
    add_bands(result, 2)
    assert [g["trc"] for g in result["bands"]["mean"]["groups"]] == [2.5, 6.0]
    assert {name: found["within"] for name, found in result["bands"].items()} == {"mean": 1, "1": 0, "2": 1}
    result["torch"].pop("2")
    result.pop("bands")
    add_bands(result, 2)
    assert "bands" not in result, "one run has no spread"


def test_all_runs_see_the_same_batches() -> None:
    from gpu_curves import Task, batches_of

    task = Task("resnet18", 4, 20, 3, 2, 0.1, "fp32", "cpu")
    one, two = list(batches_of(task)), list(batches_of(task))
    assert len(one) == 2
    for (images, labels), (again, labels_again) in zip(one, two, strict=True):
        assert images.shape == (4, 20, 20, 3)
        assert np.array_equal(images, again)
        assert np.array_equal(labels, labels_again)
    assert not np.array_equal(one[0][0], one[1][0])


def test_curves_begin_with_the_weights_that_trc_draws(tmp_path: Path) -> None:
    from gpu_curves import Task, TrcSide

    side = TrcSide(Task("mobilenet_v2", 2, 32, 40, 1, 0.1, "fp32", "cpu"))
    found = side.weights([4, 5], 4, str(tmp_path))
    assert (found["scaling"], [p for _, p in found["dropouts"]]) == (1, [0.2])
    assert len(found["rates"]) == 40
    assert found["rates"][:2] == pytest.approx([0.005, 0.01])
    assert found["rates"][19:] == pytest.approx([0.1] * 21)
    own = side._exe.tensors
    drawn = [safetensors.numpy.load_file(tmp_path / f"{n}.safetensors") for n in (4, 5)]
    weight = own["conv1.weight"].transpose(0, 3, 1, 2)
    assert np.array_equal(drawn[0]["features.0.0.weight"], weight)
    assert not np.array_equal(drawn[1]["features.0.0.weight"], weight)
    assert (drawn[0]["features.0.1.running_var"] == 1).all()


def test_dropout_in_pytorch_takes_the_masks_of_trc() -> None:
    from gpu_curves import drop_as_trc_does, dropouts

    layers = (trc.fc(8), trc.relu(), trc.dropout(0.5), trc.fc(6), trc.relu(), trc.dropout(0.25), trc.fc(5))
    exe = trc.compile(trc.BluePrint(trc.seq(*layers), name="n", input=(3, 3, 1)), batch=4, seed=7)
    images = np.random.default_rng(0).standard_normal((4, 3, 3, 1), dtype=np.float32)
    net = torch.nn.Sequential(
        *(torch.nn.Flatten(), torch.nn.Linear(9, 8), torch.nn.ReLU(), torch.nn.Dropout(0.5)),
        *(torch.nn.Linear(8, 6), torch.nn.ReLU(), torch.nn.Dropout(0.25), torch.nn.Linear(6, 5)),
    )
    streams = list(dict.fromkeys((n.params["stream"], n.params["p"]) for n in dropouts(exe.plan)))
    tell = drop_as_trc_does(net, 7, streams)
    losses: list[tuple[float, float]] = []
    for step in range(3):
        for place, name in ((1, "fc1"), (4, "fc2"), (7, "fc3")):
            for part in ("weight", "bias"):
                own = getattr(net[place], part).data
                own.copy_(torch.from_numpy(exe.tensors[f"{name}.{part}"].reshape(own.shape).copy()))
        tell(step)
        with torch.no_grad():
            found = torch.nn.functional.cross_entropy(net(torch.from_numpy(images)), torch.tensor([0, 1, 2, 3]))
        losses.append((found.item(), exe.step(images, np.arange(4)).loss))
    assert [a for a, _ in losses] == pytest.approx([b for _, b in losses], rel=1e-6)
    assert len({a for a, _ in losses}) == 3


def test_accuracy_reads_the_log_and_compares_bytes(tmp_path: Path) -> None:
    from gpu_accuracy import RECIPES, command_of, differences, judged, outcome

    log = tmp_path / "log.jsonl"
    events = [
        {"event": "epoch", "epoch": 1},
        {"event": "eval", "epoch": 1, "top1": 0.5, "loss": 2.0},
        {"event": "eval", "epoch": 2, "top1": 0.9851, "loss": 1.0},
        {"event": "done", "seconds": 3.0, "skipped": 1},
    ]
    log.write_text("".join(json.dumps(e) + "\n" for e in events))
    found = outcome(log)
    assert found["top1"] == pytest.approx(98.51)
    assert judged(RECIPES["mlp"], found, full=True)["good"] is True
    assert judged(RECIPES["lenet5"], found, full=True)["good"] is False
    assert judged(RECIPES["lenet5"], found, full=False)["good"] is None
    one, two = tmp_path / "1", tmp_path / "2"
    arrays = {"w": np.zeros(3, np.float32), "b": np.ones(2, np.float32)}
    safetensors.numpy.save_file(arrays, one)
    safetensors.numpy.save_file(arrays, two)
    assert differences(one, two) == {}
    safetensors.numpy.save_file(arrays | {"w": np.array([0, 0, 0.5], np.float32)}, two)
    assert differences(one, two) == {"w": 0.5}
    args = Namespace(target="cuda", precision="amp-fp16", epochs=None, data_root=Path("data"))
    command = command_of(RECIPES["mlp"], args, one, log)
    assert command[3:7] == ["train", str(RECIPES["mlp"].model), "--data", "mnist"]
    assert command[command.index("--data-dir") + 1] == str(Path("data").resolve())
    assert all(r.model.is_file() for r in RECIPES.values())


@pytest.mark.skipif(COMPILER is None, reason="needs g++")
def test_a_step_of_trc_is_measured(monkeypatch) -> None:
    import step_contenders as contenders

    install(monkeypatch)
    monkeypatch.setattr(contenders, "COUNTED_STEPS", 2)
    small = trc.BluePrint(trc.seq(trc.fc(16), trc.relu(), trc.fc(5)), "small", (4, 4, 1))
    monkeypatch.setitem(ZOO, "mlp", lambda: small)
    model = contenders.Model(6, (4, 4, 1), 5)
    made = contenders.trc_contender(contenders.Setting("trc", "mlp", model, 6, "amp-fp16"))
    with made.session:
        assert contenders.timed(made, 1) > 0
        found = contenders.figures(made, 2)
    assert (found["launches_per_step"], found["waits_per_step"], found["allocations_per_step"]) == (1, 0, 0)
    assert found["host_us_beside_launch"] == pytest.approx(found["host_us_with_timer"] - found["launch_us"])
    assert np.isfinite(found["loss_at_end"])
    assert made.facts["seconds_to_first_step"] > made.facts["seconds_to_compile"]


def test_a_trial_leaves_the_results_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import gpu_curves
    import results_file

    monkeypatch.setattr(results_file, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(results_file, "TRIALS", tmp_path / "trials")
    monkeypatch.setattr(gpu_curves, "run_model", lambda name, args: {"torch": {}, "trc": {}, "start": {}})
    monkeypatch.setattr(gpu_curves, "show", lambda result: None)
    for target, folder in (("cpu", "trials"), ("cuda", "results")):
        monkeypatch.setattr("sys.argv", ["gpu_curves.py", "--target", target, "--models", "resnet18"])
        gpu_curves.main()
        assert [p.name for p in (tmp_path / folder).iterdir()] == ["gpu_curves.json"]
        if target == "cpu":
            assert not (tmp_path / "results").exists()
