from __future__ import annotations

import logging
import sys

import pytest

from tests.unit.runtime.train.fakes import CLASSES, SHAPE, FakeSession, linear_plan
from trc_runtime.data.idx import DataError
from trc_runtime.data.synthetic import synthetic
from trc_runtime.train.cli import guarded
from trc_runtime.train.console import ConsoleListener, setup_logging
from trc_runtime.train.runner import Runner

Capture = pytest.CaptureFixture[str]


def _run(console: ConsoleListener) -> None:
    plan = linear_plan()
    runner = Runner(plan, FakeSession(plan, poison=(0,)))
    result = runner.run(synthetic(SHAPE, CLASSES, train=36, val=20), listeners=[console])
    console.table(result)


def test_plain_lines_and_a_table_without_a_terminal(capsys: Capture) -> None:
    _run(ConsoleListener())
    out = capsys.readouterr().out
    lines = out.splitlines()
    assert lines[0].startswith("linear: synthetic, 36 + 20 samples, batch 8, fp32")
    assert lines[1].startswith("epoch 1/3 loss ")
    assert "skipped 1" in lines[1]
    assert "\x1b" not in out
    assert sum("train loss" in line for line in lines) == 1
    assert lines[-1].startswith("best: epoch ")


def test_quiet_says_nothing(capsys: Capture) -> None:
    _run(ConsoleListener(quiet=True))
    assert capsys.readouterr().out == ""


def test_a_bar_on_a_terminal_that_is_taken_away(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    console = ConsoleListener()
    _run(console)
    captured = capsys.readouterr()
    assert "epoch 3/3" in captured.err
    assert "epoch 1/3 loss" not in captured.out
    console.close()


def test_levels_of_logging(capsys: Capture) -> None:
    setup_logging(logging.WARNING)
    logging.getLogger("trc.data").info("hidden")
    logging.getLogger("trc.data").warning("shown")
    setup_logging(logging.INFO)
    logging.getLogger("trc.data").info("now shown")
    assert capsys.readouterr().err.splitlines() == ["WARNING: trc.data: shown", "INFO: trc.data: now shown"]


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (DataError("no data"), 1, "prog: error: no data\n"),
        (MemoryError(), 1, "prog: error: out of memory\n"),
        (MemoryError("needs 5 bytes"), 1, "prog: error: needs 5 bytes\n"),
        (KeyboardInterrupt(), 130, "prog: interrupted\n"),
        (FileNotFoundError(2, "No such file", "f"), 1, "prog: error: f: No such file\n"),
        (OSError(28, "No space left"), 1, "prog: error: No space left\n"),
    ],
)
def test_errors_become_messages(error: BaseException, code: int, message: str, capsys: Capture) -> None:
    def action() -> None:
        raise error

    assert guarded("prog", action) == code
    assert capsys.readouterr().err == message


def test_faults_of_ours_are_one_line_and_not_hidden(capsys: pytest.CaptureFixture[str]) -> None:
    def faulty() -> None:
        raise ZeroDivisionError("surprise")

    assert guarded("prog", faulty) == 1
    assert "prog: error: trc failed inside: ZeroDivisionError: surprise" in capsys.readouterr().err
    with pytest.raises(ZeroDivisionError):
        guarded("prog", faulty, debug=True)
