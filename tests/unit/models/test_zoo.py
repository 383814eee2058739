from __future__ import annotations

from pathlib import Path

import pytest

import trc.blueprint as bp
from trc.models import ZOO, lenet5, mlp, nin, resnet50

EXAMPLES = Path(__file__).parents[3] / "examples" / "models"


@pytest.mark.parametrize("name", ZOO)
def test_function_and_file_say_the_same(name: str) -> None:
    net = ZOO[name]()
    assert net.name == name
    assert bp.load_blueprint(EXAMPLES / f"{name}.bp") == net
    assert bp.parse_blueprint(str(net)) == net
    bp.import_blueprint(net).verify()


def test_every_file_has_a_function() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.bp")} == set(ZOO)


def test_the_mlp_is_the_articles() -> None:
    text = "BluePrint mlp = seq(fc(1024, true), relu(), fc(512, true), relu(), fc(256, true), relu(), fc(10, true));"
    assert mlp().root == bp.parse_blueprint(text).root
    assert mlp().input == (28, 28, 1)


def weighted(layer: bp.Layer) -> int:
    """Layers with weights, counted as the names of the networks do: projections are left out."""
    inside = sum(weighted(child) for child in layer.children)
    match layer.kind:
        case "conv" | "conv_dw" | "fc" | "cbr" | "gap_fc":
            return 1
        case "block":
            style = str(layer.args[-1])
            return 2 if "3_3" in style and "1_3" not in style else 3
        case "repeat":
            return inside * int(layer.args[0] or 0)
        case _:
            return inside


@pytest.mark.parametrize(
    ("name", "count"),
    [
        *[(f"vgg{n}_bn", n) for n in (11, 13, 16, 19)],
        *[(f"resnet{n}", n) for n in (18, 34, 50, 101, 152)],
        *[("lenet5", 5), ("nin", 9), ("mlp", 4), ("mobilenet_v2", 54)],
    ],
)
def test_depths_are_those_of_the_names(name: str, count: int) -> None:
    assert weighted(ZOO[name]().root) == count


def test_arguments() -> None:
    assert mlp(7, (32, 32, 3)).root.children[-1] == bp.fc(7)
    assert mlp(7, (32, 32, 3)).input == (32, 32, 3)
    assert resnet50(10).root.children[-1] == bp.gap_fc(10)
    assert nin(100).root.children[-2] == bp.conv(100, 1)
    kinds = [layer.kind for layer in lenet5(batch_norm=True).root.children]
    assert kinds.count("bn") == 4
    assert kinds[1:4] == ["conv", "bn", "relu"]
