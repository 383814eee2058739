"""trc-compile: where it writes, and what it says about mistakes."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from trc.tools.trc_compile import main

BP = "input(2, 2, 1);\nBluePrint net = seq(fc(4), relu(), fc(3));\n"

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def bp(tmp_path: Path) -> Path:
    path = tmp_path / "net.bp"
    path.write_text(BP)
    return path


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--input", "100000x1x1"), "input: height must be from 1 to 65536, not 100000"),
        (("--batch", "9" * 30), "batch must be at most 2,147,483,647"),
        (("--lr", "nan"), "base_lr must be > 0, not nan"),
        (("--schedule", "step"), "StepDecay needs to know how long the training is"),
        (("--optimizer", "adam:betas=x"), "adam: betas=x: expected a number"),
        (("--num-classes", "1"), "num_classes is 1, and softmax cross entropy chooses between at least 2 classes"),
    ],
)
def test_mistakes_are_one_line(bp: Path, capsys: Capture, words: tuple[str, ...], message: str) -> None:
    assert main([str(bp), "--emit", "memory", *words]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
    assert "failed inside" not in err


def test_an_output_that_is_a_folder(bp: Path, tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "out").mkdir()
    assert main([str(bp), "--emit", "arch", "-o", str(tmp_path / "out")]) == 1
    assert f"cannot write {tmp_path / 'out'}: is a folder" in capsys.readouterr().err
    assert list((tmp_path / "out").iterdir()) == []


def test_an_empty_folder_name_is_the_present_folder(bp: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert main([str(bp), "--dump-phases-to", ""]) == 0
    assert len(list((tmp_path / "here").iterdir())) == 8


def test_a_pipe_is_no_file_to_be_replaced(bp: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    got: list[str] = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_text()), daemon=True)
    reader.start()
    assert main([str(bp), "--emit", "arch", "-o", str(pipe)]) == 0
    reader.join(10)
    assert got[0].startswith("arch.model @net")
    assert stat.S_ISFIFO(pipe.stat().st_mode)
