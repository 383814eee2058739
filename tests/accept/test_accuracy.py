"""Networks trained on real data, with the tools that users have. Minutes each; run by `make accept`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from trc.tools.trc_run import main

pytestmark = pytest.mark.accept
MODELS = Path(__file__).parents[2] / "examples" / "models"
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


QUARTER = """// ResNet-18 of quarter width for 28x28 images.
input(28, 28, 1);
BluePrint resnet18_quarter = seq(
    cbr(16, 3, 1, 1),
    repeat(block(16, RESNET_3_3), 2),
    block(32, RESNET_3_3_DS), block(32, RESNET_3_3),
    block(64, RESNET_3_3_DS), block(64, RESNET_3_3),
    block(128, RESNET_3_3_DS), block(128, RESNET_3_3),
    gap_fc(10, true)
);
"""


def test_quarter_resnet18_on_fashion_mnist(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    model = tmp_path / "resnet18_quarter.bp"
    model.write_text(QUARTER)
    top1, _ = train(capsys, model, tmp_path / "c", "--data", "fashion-mnist", "--epochs", "3")
    assert top1 >= 90.0
