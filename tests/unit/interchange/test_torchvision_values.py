"""Whole networks: parameters that PyTorch made give the same loss in trc, and trained ones in PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch

import trc
from tests.unit.interchange.torchvision_nets import MobileNetV2, ResNet, Vgg
from trc.models import mobilenet_v2, resnet18, resnet50, vgg11_bn

CLASSES, BATCH = 5, 2

# VGG at 64 x 64 ends in a map of 2 x 2, so that the order of the first fully connected layer's columns matters.
NETWORKS: dict[str, tuple[trc.BluePrint, Callable[[], torch.nn.Module]]] = {
    "resnet18": (resnet18(CLASSES, (40, 40, 3)), lambda: ResNet((2, 2, 2, 2), 1, CLASSES)),
    "resnet50": (resnet50(CLASSES, (33, 33, 3)), lambda: ResNet((3, 4, 6, 3), 4, CLASSES)),
    "mobilenet_v2": (mobilenet_v2(CLASSES, (64, 64, 3)), lambda: MobileNetV2(CLASSES)),
    "vgg11_bn": (vgg11_bn(CLASSES, (64, 64, 3)), lambda: Vgg((1, 1, 2, 2, 2), 2, CLASSES)),
}


@pytest.fixture(autouse=True)
def _plain_convolutions() -> None:
    torch.backends.mkldnn.enabled = False  # dependencies.md section 4: heap corruption in float32


@pytest.mark.parametrize("name", NETWORKS)
def test_losses_agree_both_ways(name: str, tmp_path: Path) -> None:
    # float32, as published weights are; VGG's 28 million numbers would be slow in float64.
    precision, dtype = ("fp32", torch.float32) if name == "vgg11_bn" else ("fp64", torch.float64)
    tolerance = 1e-4 if dtype is torch.float32 else 1e-9
    blueprint, make = NETWORKS[name]
    torch.manual_seed(7)
    net = make().to(dtype)
    for module in net.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            for tensor in (module.weight.data, module.running_var):
                assert tensor is not None
                tensor.uniform_(0.5, 1.5)
            for tensor in (module.bias.data, module.running_mean):
                assert tensor is not None
                tensor.normal_(0, 0.2)
            module.num_batches_tracked = torch.tensor(41)
    generator = np.random.default_rng(3)
    height, width, channels = blueprint.input or (0, 0, 0)
    images = generator.standard_normal((BATCH, height, width, channels)).astype("f8" if precision == "fp64" else "f4")
    labels = generator.integers(0, CLASSES, BATCH).astype(np.int32)

    def loss() -> float:
        with torch.no_grad():
            logits = net.eval()(torch.from_numpy(images.transpose(0, 3, 1, 2).copy()))
        return float(torch.nn.functional.cross_entropy(logits, torch.from_numpy(labels).long()))

    exe = trc.compile(
        blueprint, batch=BATCH, optimizer=trc.SGD(), schedule=trc.Constant(base_lr=1e-3), precision=precision
    )
    safetensors.torch.save_file(net.state_dict(), tmp_path / "torch.safetensors")
    exe.import_torchvision(tmp_path / "torch.safetensors")
    assert exe.evaluate(images, labels).loss == pytest.approx(loss(), rel=tolerance)

    exe.step(images, labels)
    state = safetensors.torch.load_file(exe.export_torchvision(tmp_path / "trc.safetensors"))
    net.load_state_dict(state)
    assert exe.evaluate(images, labels).loss == pytest.approx(loss(), rel=tolerance)


def test_mixed_precision_exchanges_the_masters_of_the_real_channels(tmp_path: Path) -> None:
    exe = trc.compile(resnet18(CLASSES, (32, 32, 3)), batch=BATCH, precision="amp-fp16")
    state = safetensors.torch.load_file(exe.export_torchvision(tmp_path / "one.safetensors"))
    assert state["conv1.weight"].shape == (64, 3, 7, 7)
    assert state["conv1.weight"].dtype == torch.float32
    state["conv1.weight"] += 1
    safetensors.torch.save_file(state, tmp_path / "two.safetensors")
    exe.import_torchvision(tmp_path / "two.safetensors")
    wanted = state["conv1.weight"].numpy().transpose(0, 2, 3, 1)
    assert np.array_equal(exe.tensors["conv1.weight"], wanted)
    # The working copies follow.
    assert np.array_equal(exe.tensors["conv1.weight.half"].astype(np.float32), wanted.astype(np.float16))
