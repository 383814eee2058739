# pyright: basic
"""A training step of the MLP on the CPU: trc's NumPy target against PyTorch, as a ratio.

    python bench/cpu_step.py [--threads 2] [--steps 15]

784-1024-512-256-10, batch 200, float32, AdamW, label smoothing 0.1. The two are interleaved in one run, with a
pause before each step; the figure is the ratio of the minima. Both do the same: forward, loss, backward,
update, loss read back.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from itertools import pairwise


def parse() -> argparse.Namespace:
    """The command line; threads must be set before NumPy loads its BLAS."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
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

BATCH = 200

PAUSE = 0.05
"""Seconds before each step: the idle threads of one contender's BLAS spin for a while and would slow the next."""


def trc_step(images: np.ndarray, labels: np.ndarray) -> Callable[[], float]:
    """A step of the compiled MLP."""
    exe = trc.compile(
        mlp(),
        num_classes=10,
        batch=BATCH,
        optimizer=trc.AdamW(weight_decay=1e-4),
        schedule=trc.Constant(base_lr=1e-3),
        loss=trc.CrossEntropy(label_smoothing=0.1),
    )
    return lambda: exe.step(images, labels).loss


def torch_step(images: np.ndarray, labels: np.ndarray, fused: bool) -> Callable[[], float]:
    """The same step in PyTorch, eager, with the fused or the default optimizer."""
    torch.manual_seed(0)
    sizes = (784, 1024, 512, 256, 10)
    layers: list[torch.nn.Module] = [torch.nn.Flatten()]
    for a, b in pairwise(sizes):
        layers += [torch.nn.Linear(a, b), torch.nn.ReLU()]
    net = torch.nn.Sequential(*layers[:-1])
    loss_of = torch.nn.CrossEntropyLoss(label_smoothing=0.1)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, weight_decay=1e-4, fused=fused)
    x, y = torch.from_numpy(images), torch.from_numpy(labels).long()

    def step() -> float:
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(net(x), y)
        loss.backward()
        optimizer.step()
        return float(loss.item())

    return step


def main() -> None:
    """Measure, print and save."""
    torch.set_num_threads(ARGS.threads)
    rng = np.random.default_rng(0)
    images = rng.standard_normal((BATCH, 28, 28, 1), dtype=np.float32)
    labels = rng.integers(0, 10, BATCH, dtype=np.int32)
    contenders = {
        "trc": trc_step(images, labels),
        "torch": torch_step(images, labels, fused=False),
        "torch fused": torch_step(images, labels, fused=True),
    }
    best = dict.fromkeys(contenders, float("inf"))
    for _ in range(3):
        for step in contenders.values():
            step()
    for _ in range(ARGS.steps):
        for name, step in contenders.items():
            time.sleep(PAUSE)
            begin = time.perf_counter()
            step()
            best[name] = min(best[name], time.perf_counter() - begin)
    for name, seconds in best.items():
        print(f"{name:<12} {1e3 * seconds:7.2f} ms")
    torch_best = min(best["torch"], best["torch fused"])
    ratio = best["trc"] / torch_best
    print(f"trc / PyTorch (its faster optimizer): {ratio:.2f} (limit 1.3)")
    figures = {"threads": ARGS.threads, "seconds": best, "ratio": ratio, "limit": 1.3}
    print(f"written to {save('cpu_step', figures)}")


if __name__ == "__main__":
    main()
