# pyright: basic
"""A training step on the CPU: trc's target cpu against PyTorch, as a ratio.

    python bench/cpu_step.py [--models mlp,resnet18] [--threads 2] [--steps 15]

float32, AdamW, label smoothing 0.1; the MLP is 784-1024-512-256-10 at batch 200, the ResNet-18 has a 3x3 stem, 10
classes, 32x32 images and batch 64 (PyTorch in its faster memory format). The two are interleaved in one run, with a
pause before each step; the figure is the ratio of the minima. Both do the same: forward, loss, backward,
update, loss read back.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise


def parse() -> argparse.Namespace:
    """The command line; threads must be set before NumPy loads its BLAS."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="mlp,resnet18")
    parser.add_argument("--threads", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--steps", type=int, default=15)
    args = parser.parse_args()
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = str(args.threads)
    return args


ARGS = parse()

import numpy as np  # noqa: E402
import torch  # noqa: E402
from results_file import save  # noqa: E402

import trc  # noqa: E402
from trc.models import mlp  # noqa: E402

PAUSE = 0.05
"""Seconds before each step: the idle threads of one contender's BLAS spin for a while and would slow the next."""


@dataclass(frozen=True)
class Model:
    """A network in both worlds, its batch and the ratio that it should stay below."""

    net: Callable[[], trc.BluePrint]
    torch_net: Callable[[], torch.nn.Module]
    batch: int
    limit: float


def resnet18() -> trc.BluePrint:
    """ResNet-18 with a 3x3 stem for small images."""
    stages: list[trc.Layer] = [trc.cbr(64, 3, 1, 1), trc.repeat(trc.block(64, trc.RESNET_3_3), 2)]
    for width in (128, 256, 512):
        stages += [trc.block(width, trc.RESNET_3_3_DS), trc.block(width, trc.RESNET_3_3)]
    return trc.BluePrint(trc.seq(*stages, trc.gap_fc(10)), name="resnet18", input=(32, 32, 3))


def torch_mlp() -> torch.nn.Module:
    """The MLP in PyTorch."""
    layers: list[torch.nn.Module] = [torch.nn.Flatten()]
    for a, b in pairwise((784, 1024, 512, 256, 10)):
        layers += [torch.nn.Linear(a, b), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers[:-1])


class Block(torch.nn.Module):
    """A basic block of ResNet."""

    def __init__(self, inside: int, out: int, stride: int) -> None:
        super().__init__()
        nn = torch.nn
        self.stem = nn.Sequential(
            *(nn.Conv2d(inside, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out), nn.ReLU(inplace=True)),
            *(nn.Conv2d(out, out, 3, 1, 1, bias=False), nn.BatchNorm2d(out)),
        )
        self.shortcut = nn.Sequential()
        if stride != 1 or inside != out:
            self.shortcut = nn.Sequential(nn.Conv2d(inside, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Stem and shortcut, added, rectified."""
        return torch.relu(self.stem(x) + self.shortcut(x))


def torch_resnet18() -> torch.nn.Module:
    """The ResNet-18 in PyTorch."""
    nn = torch.nn
    layers: list[torch.nn.Module] = [nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True)]
    inside = 64
    for out, stride in ((64, 1), (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), (512, 1)):
        layers.append(Block(inside, out, stride))
        inside = out
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))


MODELS = {
    "mlp": Model(mlp, torch_mlp, 200, 1.3),
    "resnet18": Model(resnet18, torch_resnet18, 64, 1.8),
}


def trc_step(model: Model, images: np.ndarray, labels: np.ndarray) -> Callable[[], float]:
    """A step of the compiled network."""
    exe = trc.compile(
        model.net(),
        num_classes=10,
        batch=model.batch,
        optimizer=trc.AdamW(weight_decay=1e-4),
        schedule=trc.Constant(base_lr=1e-3),
        loss=trc.CrossEntropy(label_smoothing=0.1),
    )
    return lambda: exe.step(images, labels).loss


def torch_step(model: Model, images: np.ndarray, labels: np.ndarray, fused: bool, last: bool) -> Callable[[], float]:
    """The same step in PyTorch, eager: fused or default optimizer, channels last or first."""
    torch.manual_seed(0)
    net = model.torch_net()
    x = torch.from_numpy(images).permute(0, 3, 1, 2).contiguous()
    if last:
        net = net.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
        x = x.to(memory_format=torch.channels_last)
    loss_of = torch.nn.CrossEntropyLoss(label_smoothing=0.1)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, weight_decay=1e-4, fused=fused)
    y = torch.from_numpy(labels).long()

    def step() -> float:
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(net(x), y)
        loss.backward()
        optimizer.step()
        return float(loss.item())

    return step


def measure(name: str) -> dict[str, object]:
    """Interleave the contenders of a model and print the ratio of the minima."""
    model = MODELS[name]
    rng = np.random.default_rng(0)
    shape = model.net().input
    images = rng.standard_normal((model.batch, *(shape or ())), dtype=np.float32)
    labels = rng.integers(0, 10, model.batch, dtype=np.int32)
    contenders = {"trc": trc_step(model, images, labels), "torch": torch_step(model, images, labels, False, False)}
    contenders["torch fused"] = torch_step(model, images, labels, True, False)
    if name != "mlp":
        contenders["torch fused, channels last"] = torch_step(model, images, labels, True, True)
    best = dict.fromkeys(contenders, float("inf"))
    for step in contenders.values():
        for _ in range(3 if name == "mlp" else 1):
            step()
    for _ in range(ARGS.steps):
        for contender, step in contenders.items():
            time.sleep(PAUSE)
            begin = time.perf_counter()
            step()
            best[contender] = min(best[contender], time.perf_counter() - begin)
    print(name)
    for contender, seconds in best.items():
        print(f"  {contender:<28} {1e3 * seconds:8.2f} ms")
    ratio = best["trc"] / min(seconds for contender, seconds in best.items() if contender != "trc")
    print(f"  trc / the fastest PyTorch: {ratio:.2f} (limit {model.limit})")
    return {"seconds": best, "ratio": ratio, "limit": model.limit}


def main() -> None:
    """Measure, print and save."""
    torch.set_num_threads(ARGS.threads)
    figures: dict[str, object] = {name: measure(name) for name in ARGS.models.split(",")}
    print(f"written to {save('cpu_step', {'threads': ARGS.threads, **figures})}")


if __name__ == "__main__":
    main()
