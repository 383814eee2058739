"""The rules of the targets, and what a file of choices may say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from xdsl.dialects.builtin import ModuleOp

import trc.layers  # noqa: F401  (registers the descriptors)
from tests.unit.passes.plan.convnets import ConvNet
from tests.unit.passes.plan.nets import run
from trc.diagnostics import CompileError
from trc.dialects.arch import BottleneckOp, CbrOp, LayerOp, ModelOp, Relu6Op, ReluOp
from trc.dialects.verifier import problems

ALL = "stats+norm+wgrad_norm"


def forms(module: ModuleOp, target: str = "cuda", precision: str = "amp_fp16", choices: str = "") -> dict[str, str]:
    """The forms written for each leaf."""
    option = f' choices="{choices}"' if choices else ""
    run(module, f"plan-create-compile-specs{{precision={precision}}},plan-select-kernels{{target={target}{option}}}")
    assert problems(module) == []
    (model,) = [op for op in module.body.block.ops if isinstance(op, ModelOp)]
    return {leaf: f for op in model.body.block.ops if isinstance(op, LayerOp) for leaf, f in op.forms_.items()}


def chain(*widths: int, act: type[LayerOp] | None = ReluOp, channels: int = 8, **last: int) -> ModuleOp:
    """Convolution, norm, activation for each width."""
    net = ConvNet((8, 8, channels))
    value = net.input
    for n, width in enumerate(widths):
        value = net.conv_bn(value, width, **(last if n == len(widths) - 1 else {}))
        if act is not None:
            value = net.add(act, value)
    return net.done(value)


def test_the_cpu_has_every_form() -> None:
    for precision in ("fp32", "fp64", "amp_bf16"):
        found = forms(chain(8, 12, 5, act=Relu6Op, channels=3), "cpu", precision)
        assert found == {"conv1": "stats", "conv2": ALL, "conv3": ALL}
    assert forms(chain(8, 8, act=None), "cpu") == {"conv1": "stats", "conv2": ALL}
    assert forms(chain(8, 8, groups=8), "cpu")["conv2"] == ALL


def test_hopper_has_them_for_channels_in_eights() -> None:
    assert forms(chain(16, 24, act=ReluOp)) == {"conv1": "stats", "conv2": ALL}


def test_hopper_has_no_prologue_with_relu6() -> None:
    """Its engines plan one and forget the upper clip, seen on an H200."""
    assert forms(chain(16, 24, act=Relu6Op)) == {"conv1": "stats", "conv2": "stats"}


@pytest.mark.parametrize(
    ("module", "conv", "form"),
    [
        (chain(16, 24, channels=4), "conv1", "plain"),  # a stem of four channels
        (chain(16, 20), "conv2", "plain"),  # output channels
        (chain(12, 16), "conv2", "plain"),  # input channels
        (chain(16, 16, groups=2), "conv2", "plain"),
        (chain(16, 16, groups=16), "conv2", "plain"),  # depthwise
        (chain(16, 16, act=None), "conv2", "stats"),  # no prologue without a rectifier
    ],
)
def test_hopper_lacks_them(module: ModuleOp, conv: str, form: str) -> None:
    assert forms(module)[conv] == form


@pytest.mark.parametrize("precision", ["fp32", "tf32"])
def test_hopper_has_them_in_half_precision_only(precision: str) -> None:
    assert set(forms(chain(16, 16), precision=precision).values()) == {"plain"}


def test_hopper_has_a_forward_prologue_with_statistics_only() -> None:
    net = ConvNet()
    module = net.done(net.conv(net.conv_bn_relu(net.input, 8), 8))
    assert forms(module)["conv2"] == "wgrad_norm"


def test_forms_of_merged_layers_are_listed_by_leaf() -> None:
    net = ConvNet()
    value = net.merged(CbrOp, net.input, out_channels=8, kernel=3, padding=1)
    value = net.merged(BottleneckOp, value, mid_channels=8, out_channels=16, shortcut="projection")
    module = net.done(value)
    assert forms(module) == {
        "m1_0": "stats",
        "m2_0": ALL,
        "m2_2": ALL,
        "m2_5": ALL,
        "m2_8": ALL,
    }
    assert 'forms ["m2_0 = stats+norm+wgrad_norm", "m2_2 = ' in str(module)


def chosen(tmp_path: Path, module: ModuleOp, choices: dict[str, str], target: str = "cuda") -> dict[str, str]:
    path = tmp_path / "choices.json"
    path.write_text(json.dumps(choices))
    return forms(module, target, choices=str(path))


def test_choices_replace_the_default(tmp_path: Path) -> None:
    found = chosen(tmp_path, chain(8, 8, 8), {"conv1": "plain", "conv2": "wgrad_norm", "conv3": "norm+stats"})
    assert found == {"conv1": "plain", "conv2": "wgrad_norm", "conv3": "stats+norm"}


def test_a_norm_in_memory_leaves_nothing_to_fuse(tmp_path: Path) -> None:
    found = chosen(tmp_path, chain(8, 8), {"bn1": "materialised", "bn2": "deferred"})
    assert found == {"conv1": "plain", "bn1": "materialised", "conv2": "stats"}


@pytest.mark.parametrize(
    ("module", "choices", "message"),
    [
        (
            chain(16, 16),
            {"conv2": "norm"},
            "layer 'conv2': form 'norm' is not possible here on cuda; the most is stats",
        ),
        (
            chain(16, 16),
            {"conv1": "norm"},
            "layer 'conv1': form 'norm' is not possible here on cuda; the most is stats",
        ),
        (
            chain(16, 20),
            {"conv2": "stats"},
            "layer 'conv2': form 'stats' is not possible here on cuda; the most is plain",
        ),
        (chain(8), {"conv1": "stats+stats"}, "layer 'conv1': 'stats+stats' names a form twice"),
        (chain(8), {"conv1": "plain+stats"}, "layer 'conv1': 'plain+stats' names a form twice, or 'plain' beside"),
        (
            chain(8),
            {"conv1": "winograd"},
            "layer 'conv1': has no form 'winograd'; it has plain, stats, norm, wgrad_norm",
        ),
        (chain(8), {"conv7": "stats"}, "name a layer 'conv7' that the network does not have"),
    ],
)
def test_impossible_choices(tmp_path: Path, module: ModuleOp, choices: dict[str, str], message: str) -> None:
    with pytest.raises(CompileError) as caught:
        chosen(tmp_path, module, choices)
    assert message in str(caught.value)


def test_a_norm_that_nothing_can_defer(tmp_path: Path) -> None:
    from trc.dialects.arch import Bn2dOp, MaxPoolOp

    net = ConvNet()
    value = net.add(Bn2dOp, net.add(MaxPoolOp, net.conv(net.input, 8), kernel=2, stride=2))
    with pytest.raises(CompileError, match="layer 'bn1': form 'deferred' is not possible here on cuda"):
        chosen(tmp_path, net.done(value), {"bn1": "deferred"})


def test_choosing_again_starts_afresh(tmp_path: Path) -> None:
    module = chain(8, 8)
    chosen(tmp_path, module, {"conv1": "plain", "bn1": "materialised"})
    run(module, "plan-select-kernels")
    (model,) = [op for op in module.body.block.ops if isinstance(op, ModelOp)]
    found = {leaf: f for op in model.body.block.ops if isinstance(op, LayerOp) for leaf, f in op.forms_.items()}
    assert found == {"conv1": "stats", "conv2": ALL}
