from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import trc_runtime.__main__ as runtime_main
from trc.session import compile as trc_compile
from trc.tools.trc_run import main
from trc_runtime.data import idx
from trc_runtime.data.dataset import CIFAR, FASHION
from trc_runtime.data.synthetic import synthetic
from trc_runtime.schema.codec import from_json, to_json
from trc_runtime.schema.config import RunConfig
from trc_runtime.train.checkpoint import read
from trc_runtime.train.schedules import rate_table

BP = """input(28, 28, 1);
BluePrint small = seq(fc(24, true), bn(), relu(), dropout(0.1), fc(10, true));
"""

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def bp(tmp_path: Path) -> Path:
    path = tmp_path / "small.bp"
    path.write_text(BP)
    return path


def run(capsys: Capture, *words: object) -> tuple[int, list[str], str]:
    try:
        code = main([str(w) for w in words])
    except SystemExit as exit_:
        code = int(str(exit_.code))
    captured = capsys.readouterr()
    return code, captured.out.splitlines(), captured.err


def test_train_then_eval_gives_the_same_accuracy(bp: Path, tmp_path: Path, capsys: Capture) -> None:
    checkpoint, log = tmp_path / "c.safetensors", tmp_path / "log.jsonl"
    code, lines, err = run(
        capsys,
        *("train", bp, "--data", "synthetic", "--epochs", 2, "--batch", 150),
        *("--checkpoint", checkpoint, "--log", log),
    )
    assert (code, err) == (0, "")
    assert re.fullmatch(r"top1=\d+\.\d epochs=2 seconds=\d+\.\d", lines[-1])
    assert any("train loss" in line for line in lines)
    events = [json.loads(line) for line in log.read_text().splitlines()]
    assert [e["event"] for e in events] == ["config", "epoch", "eval", "epoch", "eval", "done"]
    code, lines, _ = run(capsys, "eval", bp, "--data", "synthetic", "--checkpoint", checkpoint)
    assert code == 0
    last = events[-2]
    assert lines[-1] == f"top1={100 * last['top1']:.1f} loss={last['loss']:.4f} samples=500"


def test_resuming_gives_the_same_bytes(bp: Path, tmp_path: Path, capsys: Capture) -> None:
    options = ("--data", "synthetic", "--batch", 150, "--schedule", "constant", "-q", "--seed", 3)
    assert run(capsys, "train", bp, *options, "--epochs", 3, "--checkpoint", tmp_path / "whole")[0] == 0
    assert run(capsys, "train", bp, *options, "--epochs", 3, "--checkpoint", tmp_path / "again")[0] == 0
    # The warm-up of three epochs or more must be asked for in the shorter run too.
    assert run(capsys, "train", bp, *options, "--epochs", 1, "--warmup", 1, "--checkpoint", tmp_path / "part")[0] == 0
    code, lines, _ = run(
        capsys, "train", bp, *options, "--epochs", 3, "--resume", tmp_path / "part", "--checkpoint", tmp_path / "rest"
    )
    assert code == 0
    assert "epochs=2" in lines[-1]
    whole = (tmp_path / "whole").read_bytes()
    assert whole == (tmp_path / "again").read_bytes()
    # The length of the run is written into a checkpoint, so it is asked for alike: the same bytes.
    assert whole == (tmp_path / "rest").read_bytes()
    code, lines, err = run(capsys, "train", bp, *options, "--epochs", 3, "--resume", tmp_path / "whole")
    assert code == 0
    assert "nothing to train" in err
    assert "epochs=0" in lines[-1]


def test_a_folder_of_idx_files_gives_the_input_size(tmp_path: Path, capsys: Capture) -> None:
    rng = np.random.default_rng(0)
    for split, n in (("train", 40), ("t10k", 20)):
        (tmp_path / f"{split}-images-idx3-ubyte").write_bytes(
            idx.write_idx(rng.integers(0, 256, (n, 6, 5), dtype=np.uint8))
        )
        (tmp_path / f"{split}-labels-idx1-ubyte").write_bytes(idx.write_idx((np.arange(n) % 3).astype(np.uint8)))
    bp = tmp_path / "m.bp"
    bp.write_text("BluePrint m = seq(fc(3, true));")
    code, lines, _ = run(capsys, "train", bp, "--data", tmp_path, "--batch", 16, "--epochs", 1)
    assert code == 0
    assert lines[-1].startswith("top1=")
    (tmp_path / "t10k-labels-idx1-ubyte").write_bytes(b"\0\0\x08\x01\0\0\0\x14")
    code, lines, err = run(capsys, "train", bp, "--data", tmp_path, "--checkpoint", tmp_path / "c")
    assert (code, lines) == (1, [])
    assert "t10k-labels-idx1-ubyte: offset 8: expected 20 bytes of data (20), found 0: the file is truncated" in err
    assert not (tmp_path / "c").exists()


def test_bytes_are_normalised_on_the_device(bp: Path, tmp_path: Path, capsys: Capture) -> None:
    words = ("--data", "synthetic", "--epochs", 1, "--batch", 150, "-q")
    log, checkpoint = tmp_path / "log.jsonl", tmp_path / "c"
    assert run(capsys, "train", bp, *words, "--checkpoint", checkpoint, "--log", log)[0] == 0
    data = synthetic((28, 28, 1))
    saved = read(checkpoint)
    how = data.train.normalisation
    assert saved.about["config"]["normalise"] == to_json(how)
    # By hand, on the host: the same bytes.
    config = from_json(RunConfig, {k: v for k, v in saved.about["config"].items() if k != "normalise"})
    exe = trc_compile(
        *(bp,),
        **{n: getattr(config, n) for n in ("batch", "optimizer", "schedule", "loss", "epochs", "train_samples")},
        val_samples=500,
    )
    exe.run(data)
    assert all(np.array_equal(exe.tensors[name], array) for name, array in saved.arrays.items())
    exe.save_checkpoint(tmp_path / "host")
    assert run(capsys, "train", bp, *words, "--resume", tmp_path / "host")[0] == 0, "one from before goes on"


def test_bundles_from_before_and_of_other_data(bp: Path, tmp_path: Path, capsys: Capture) -> None:
    common = {"batch": 150, "epochs": 1, "train_samples": 2000, "val_samples": 500}
    rng = np.random.default_rng(0)
    for split, n in (("train", 2000), ("t10k", 500)):
        images = idx.write_idx(rng.integers(0, 200, (n, 28, 28), dtype=np.uint8))
        (tmp_path / f"{split}-images-idx3-ubyte").write_bytes(images)
        labels = idx.write_idx((np.arange(n) % 10).astype(np.uint8))
        (tmp_path / f"{split}-labels-idx1-ubyte").write_bytes(labels)
    trc_compile(bp, **common).save(tmp_path / "old")
    trc_compile(bp, normalise=FASHION, **common).save(tmp_path / "fashion")
    for bundle in ("old", "fashion"):
        for data in ("synthetic", tmp_path):
            for action in ("train", "eval"):
                code, lines, err = run(capsys, action, tmp_path / bundle, "--data", data, "-q")
                assert (code, err) == (0, "")
                assert lines[-1].startswith("top1=")
        assert run(capsys, "bench", tmp_path / bundle, "--steps", 2)[0] == 0
    assert run(capsys, "eval", tmp_path / "fashion", "--data", tmp_path, "--normalise", "fashion-mnist", "-q")[0] == 0
    code, lines, err = run(capsys, "eval", tmp_path / "fashion", "--data", tmp_path, "--normalise", "mnist")
    assert (code, lines) == (1, [])
    assert "the data's normalisation is mean 0.1307, std 0.3081, but this network was compiled for mean 0.286," in err


def test_data_of_other_channels_are_refused_as_data(tmp_path: Path, capsys: Capture) -> None:
    bp = tmp_path / "colour.bp"
    bp.write_text("input(28, 28, 3); BluePrint colour = seq(fc(10));")
    for split, n in (("train", 20), ("t10k", 10)):
        (tmp_path / f"{split}-images-idx3-ubyte").write_bytes(idx.write_idx(np.zeros((n, 28, 28), np.uint8)))
        (tmp_path / f"{split}-labels-idx1-ubyte").write_bytes(idx.write_idx(np.zeros(n, np.uint8)))
    bundle = tmp_path / "bundle"
    trc_compile(bp, batch=10, epochs=1, train_samples=20, val_samples=10, normalise=CIFAR).save(bundle)
    for action, model, options in (
        ("train", bp, ("--batch", 10)),
        ("train", bundle, ()),
        ("train", bundle, ("--normalise", "mnist")),
        ("eval", bundle, ()),
    ):
        code, _, err = run(capsys, action, model, "--data", tmp_path, *options)
        assert code == 1
        what = {"train": "training", "eval": "validation"}[action]
        assert f"{what} images are 28 x 28 x 1, the network was compiled for 28 x 28 x 3" in err


def test_bench(bp: Path, capsys: Capture) -> None:
    code, lines, _ = run(capsys, "bench", bp, "--batch", 20, "--steps", 3)
    assert code == 0
    assert re.fullmatch(r"step_ms_min=[\d.]+ step_ms_median=[\d.]+ samples_per_s=\d+", lines[-1])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["train", "none.bp"], "none.bp: no such file or folder"),
        (["train", "BP", "--data", "nowhere"], "--data nowhere: neither mnist, fashion-mnist, synthetic nor a folder"),
        (["train", "BP", "--optimizer", "adamm"], "did you mean 'adam'?"),
        (["train", "BP", "--schedule", "cosine:eta=1"], "unknown setting of cosine 'eta'"),
        (["train", "BP", "--lr", "0"], "base_lr must be > 0"),
        (["train", "BP", "--precision", "fp8"], "unknown precision 'fp8'; choose one of fp32"),
        (["train", "BP", "--target", "tpu"], "tpu"),
        (["train", "BP", "--label-smoothing", "1"], "label_smoothing must be in [0, 1)"),
        (["train", "BP", "--batch", "0"], "expected a whole number of at least 1, not '0'"),
        (["train", "BP", "--epochs", "x"], "expected a whole number"),
        (["train", "BP", "--epoch", "1"], "unrecognized arguments: --epoch"),
        (["train", "BP", "--frobnicate"], "unrecognized arguments: --frobnicate"),
        (["train", "BP", "--resume", "none"], "none: no such file"),
        (["train", "BP", "--checkpoint", "."], "is a folder"),
        (["train", "BP", "--log", "no/such/folder/x"], "no/such/folder/x: No such file"),
        (["train", "BP", "--input", "14,14,1", "--data", "FOLDER"], "training images are 6 x 5 x 1"),
        (["eval", "BP"], "holds no parameters: give --checkpoint FILE"),
        (["eval", "BP", "--checkpoint", "none"], "none: no such file"),
        (["eval", "BP", "--checkpoint", "BP"], "damaged, or not a safetensors file"),
        (["train", "."], "is not a bundle"),
        (["train", ".", "--lr", "1"], "is compiled already: --lr cannot change it"),
        (["train", "BAD"], "bad.bp:1:21: error"),
        ([], "the following arguments are required"),
    ],
)
def test_mistakes_are_one_message_and_code_1(
    words: list[str], message: str, bp: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.bp").write_text("BluePrint m = seq(  foo(1));")
    folder = tmp_path / "folder"
    folder.mkdir()
    for split in ("train", "t10k"):
        (folder / f"{split}-images-idx3-ubyte").write_bytes(idx.write_idx(np.zeros((4, 6, 5), np.uint8)))
        (folder / f"{split}-labels-idx1-ubyte").write_bytes(idx.write_idx(np.zeros(4, np.uint8)))
    before = sorted(p.name for p in tmp_path.iterdir())
    words = [{"BP": str(bp), "BAD": "bad.bp", "FOLDER": "folder"}.get(w, w) for w in words]
    if words and "--data" not in words:
        words += ["--data", "synthetic"]
    code, lines, err = run(capsys, *words)
    assert code == 1
    assert message in err
    assert "Traceback" not in err
    assert not any(line.startswith("top1") for line in lines)
    assert sorted(p.name for p in tmp_path.iterdir()) == before


def test_ctrl_c_is_a_message_and_code_130(bp: Path, tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "trc.tools.trc_run", "train", bp, "--data", "synthetic", "--epochs", "100000"]
    process = subprocess.Popen(
        [*command, "--checkpoint", tmp_path / "c"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
    )  # fmt: skip
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("epoch 2/"):
            break
    time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert err.splitlines()[-1] == "trc-run: interrupted"
    assert "Traceback" not in err
    # the checkpoint of the last whole epoch is there and good; no temporary file is left
    assert sorted(p.name for p in tmp_path.iterdir()) == ["c", bp.name]


# ---------------------------------------------------------------- bundles, with and without the compiler


def test_bundles_run_in_both_tools(bp: Path, tmp_path: Path, capsys: Capture) -> None:
    exe = trc_compile(bp, batch=100, epochs=1, train_samples=2000, val_samples=500)
    bundle = exe.save(tmp_path / "bundle")
    code, lines, err = run(capsys, "train", bundle, "--data", "synthetic", "--checkpoint", tmp_path / "c")
    assert (code, err) == (0, "")
    assert "epochs=1" in lines[-1]
    top1 = lines[-1].split()[0]

    def runtime(*words: object) -> tuple[int, list[str], str]:
        code = runtime_main.main([str(w) for w in words])
        captured = capsys.readouterr()
        return code, captured.out.splitlines(), captured.err

    code, lines, err = runtime(bundle, "eval", "--data", "synthetic", "--checkpoint", tmp_path / "c")
    assert (code, err) == (0, "")
    assert lines[-1].split()[0] == top1
    code, lines, err = runtime(bundle, "train", "--data", "synthetic", "--checkpoint", tmp_path / "d", "-q")
    assert code == 0
    assert (tmp_path / "c").read_bytes() == (tmp_path / "d").read_bytes()
    code, lines, _ = runtime(bundle, "info")
    assert code == 0
    assert lines[0].startswith("small: target cpu, planner packed")
    plan = bundle / "plan.json"
    plan.write_text(plan.read_text().replace("small", "Small", 1))
    code, lines, err = runtime(bundle, "info")
    assert (code, lines) == (1, [])
    assert "plan.json: damaged" in err


def test_the_table_in_the_plan_is_the_schedules(bp: Path) -> None:
    exe = trc_compile(bp, batch=100, epochs=3, train_samples=250, val_samples=100)
    config = exe.plan.config
    rates = rate_table(config.schedule, 3, 3)
    table = exe.tensors["lr_table"].reshape(-1)
    assert table.size == rates.size
    np.testing.assert_allclose(table, rates, rtol=1e-6)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--lr", "nan"), "base_lr must be > 0, not nan"),
        (("--batch", 10**10), "batch must be at most 2,147,483,647"),
        (("--normalise", "mnist"), "--normalise is for folders; synthetic data has its own"),
        (("--data-dir", "/nowhere"), "--data-dir is for mnist and fashion-mnist; --data synthetic looks into no other"),
    ],
)
def test_options_that_mean_nothing_are_refused(
    bp: Path, capsys: Capture, words: tuple[object, ...], message: str
) -> None:
    code, lines, err = run(capsys, "train", bp, "--data", "synthetic", "--epochs", 1, *words)
    assert (code, lines) == (1, [])
    assert message in err
    assert "Traceback" not in err


def test_a_fault_of_trc_is_one_line(bp: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("surprise")

    monkeypatch.setattr("trc.tools.trc_run.compile", broken)
    code, _, err = run(capsys, "train", bp, "--data", "synthetic", "--epochs", 1)
    assert code == 1
    assert err == "trc-run: error: trc failed inside: RuntimeError: surprise (-vv or --debug shows where)\n"


def test_a_log_whose_last_line_was_torn_is_continued(bp: Path, tmp_path: Path, capsys: Capture) -> None:
    options = ("--data", "synthetic", "--batch", 500, "--schedule", "constant", "--warmup", 1, "-q")
    checkpoint, log = tmp_path / "c", tmp_path / "log"
    assert run(capsys, "train", bp, *options, "--epochs", 1, "--checkpoint", checkpoint, "--log", log)[0] == 0
    log.write_bytes(log.read_bytes() + b'{"event": "epo')
    assert run(capsys, "train", bp, *options, "--epochs", 2, "--resume", checkpoint, "--log", log)[0] == 0
    events = [json.loads(line)["event"] for line in log.read_text().splitlines()]
    assert events == ["config", "epoch", "eval", "done", "config", "epoch", "eval", "done"]


@pytest.mark.parametrize("tool", ["trc.tools.trc_run", "trc.tools.trc_opt", "trc.tools.trc_compile"])
@pytest.mark.parametrize("redirection", [">&-", "2>&-", "| head -c 1 >/dev/null", ">/dev/full"])
def test_closed_and_full_outputs(bp: Path, tool: str, redirection: str) -> None:
    words = {
        "trc.tools.trc_run": f"train {bp} --data synthetic --epochs 1",
        "trc.tools.trc_opt": f"{bp}",
        "trc.tools.trc_compile": f"{bp} --emit graph",
    }[tool]
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", f"{sys.executable} -m {tool} {words} {redirection}"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode in (0, 1)
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr
    if redirection == ">/dev/full":
        assert done.returncode == 1
        assert "No space left on device" in done.stderr


def test_a_bundle_is_timed_without_the_compiler(bp: Path, tmp_path: Path, capsys: Capture) -> None:
    trc_compile(bp, batch=4).save(tmp_path / "b")
    assert runtime_main.main([str(tmp_path / "b"), "bench", "--steps", "2", "-q"]) == 0
    assert re.match(r"step_ms_min=.* samples_per_s=\d+$", capsys.readouterr().out)
