"""Loss curves of 200 steps against PyTorch, from the same parameters and batches."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

import trc
from trc.session.compiling import compile as compile_network

pytestmark = pytest.mark.gpu
torch = pytest.importorskip("torch")

STEPS, BATCH, CLASSES, SIZE, RATE, GROUP = 200, 64, 10, (8, 8, 1), 0.05, 20


def data() -> tuple[np.ndarray, np.ndarray]:
    """Classes that can be told apart, with noise."""
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((CLASSES, *SIZE))
    labels = rng.integers(0, CLASSES, (STEPS, BATCH))
    return (0.7 * centres[labels] + rng.standard_normal((STEPS, BATCH, *SIZE))).astype(np.float32), labels


def torch_losses(exe: trc.Executable, images: np.ndarray, labels: np.ndarray, device: str) -> list[float]:
    """The same network in PyTorch in float32, begun where trc begins."""
    layers: list[torch.nn.Module] = [torch.nn.Flatten()]
    widths = (64, 96, 48, CLASSES)
    for i, (a, b) in enumerate(pairwise(widths), 1):
        layer = torch.nn.Linear(a, b)
        with torch.no_grad():
            layer.weight.copy_(torch.from_numpy(exe.tensors[f"fc{i}.weight"]).reshape(b, a))
            layer.bias.copy_(torch.from_numpy(exe.tensors[f"fc{i}.bias"]).reshape(b))
        layers += [layer, torch.nn.ReLU()] if b != CLASSES else [layer]
    net = torch.nn.Sequential(*layers).to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=RATE, momentum=0.9)
    losses = []
    for x, y in zip(images, labels, strict=True):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(net(torch.from_numpy(x).to(device)), torch.from_numpy(y).to(device))
        loss.backward()
        optimizer.step()
        losses.append(float(loss.item()))
    return losses


BOUND = {"fp32": 0.02, "tf32": 0.03, "amp-fp16": 0.05, "amp-bf16": 0.1}
"""How far means of 20 steps may lie apart, relative to the first loss."""


@pytest.mark.parametrize("precision", BOUND)
def test_loss_curve(precision: str, capsys) -> None:
    torch.backends.cuda.matmul.allow_tf32 = False
    images, labels = data()
    exe = compile_network(
        trc.BluePrint(trc.seq(trc.fc(96), trc.relu(), trc.fc(48), trc.relu(), trc.fc(CLASSES))),
        input=SIZE, batch=BATCH, target="cuda", precision=precision, schedule=trc.Constant(base_lr=RATE),
        optimizer=trc.SGD(momentum=0.9, weight_decay=0.0), loss=trc.CrossEntropy(label_smoothing=0.0), epochs=1,
        train_samples=STEPS * BATCH,
    )  # fmt: skip
    want = np.array(torch_losses(exe, images, labels, "cuda" if torch.cuda.is_available() else "cpu"))
    got = np.array([exe.step(x, y).loss for x, y in zip(images, labels.astype(np.int32), strict=True)])
    means = np.abs(got.reshape(-1, GROUP).mean(1) - want.reshape(-1, GROUP).mean(1)) / want[0]
    with capsys.disabled():
        print(f"\n{precision}: loss {want[0]:.4f} to {want[-GROUP:].mean():.4f}, ours {got[-GROUP:].mean():.4f}, "
              f"means apart by at most {means.max():.2e} of the first")  # fmt: skip
    assert want[-GROUP:].mean() < 0.5 * want[0], "the task is learnt"
    assert means.max() <= BOUND[precision]
