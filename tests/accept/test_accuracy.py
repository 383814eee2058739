"""Networks trained on real data, with the tools that users have. Minutes each; run by `make accept`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from trc.tools.trc_run import main

pytestmark = pytest.mark.accept
MODELS = Path(__file__).parents[2] / "examples" / "models"
QUARTER = Path(__file__).parents[2] / "bench" / "resnet18_quarter.bp"
LAST = re.compile(r"top1=([\d.]+) epochs=(\d+) seconds=([\d.]+)$")


def train(capsys: pytest.CaptureFixture[str], model: Path, checkpoint: Path, *options: str) -> tuple[float, float]:
    """Train; the top-1 accuracy in per cent and the seconds of the last line."""
    assert main(["train", str(model), "--checkpoint", str(checkpoint), "-q", *options]) == 0
    found = LAST.search(capsys.readouterr().out.strip())
    assert found is not None
    return float(found[1]), float(found[3])


def evaluate(capsys: pytest.CaptureFixture[str], model: Path, checkpoint: Path, data: str) -> float:
    """The accuracy that a checkpoint reads back to."""
    assert main(["eval", str(model), "--data", data, "--checkpoint", str(checkpoint), "-q"]) == 0
    found = re.search(r"top1=([\d.]+) .*samples=10000$", capsys.readouterr().out.strip())
    assert found is not None
    return float(found[1])


def test_mlp_on_mnist(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    top1, _ = train(capsys, MODELS / "mlp.bp", tmp_path / "c", "--data", "mnist", "--epochs", "5")
    assert top1 >= 98.3
    assert evaluate(capsys, MODELS / "mlp.bp", tmp_path / "c", "mnist") == top1


def test_lenet5_on_mnist(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    top1, _ = train(capsys, MODELS / "lenet5.bp", tmp_path / "c", "--data", "mnist", "--epochs", "5")
    assert top1 >= 99.0


def test_quarter_resnet18_on_fashion_mnist(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    top1, _ = train(capsys, QUARTER, tmp_path / "c", "--data", "fashion-mnist", "--epochs", "3")
    assert top1 >= 90.0
