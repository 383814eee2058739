"""How far rounding may move a training step: a yardstick that comes from the network and the batch themselves.

A deep network multiplies errors, and a ReLU that falls on the other side of its kink moves gradients by more than any
rounding; so no fixed tolerance holds. What does is to compute in float64 with every stored value a little wrong, as
often as it takes to see how far the step moves (invariant 4 of the design for what is nearer than float32).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from tests.unit.session.interpreter import Noise, Reference

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
"""Where PyTorch computes the yardstick: a deep network in float64 takes a CPU minutes."""

EPSILON = {"fp32": 2.0**-22, "tf32": 2.0**-10, "amp-fp16": 2.0**-11, "amp-bf16": 2.0**-8}
"""The largest relative error of a stored value: half a unit in the last place; a whole one for tf32, whose operands
Tensor Cores may cut off (PTX ISA: the lower 13 bits of a .tf32 operand are not read); four in float32, where sums in
another order count for more than storing, and kinks that are near enough to be passed should show."""

DRAWS = 8


def gap(a: np.ndarray, b: np.ndarray) -> float:
    """The norm of a difference, in float64."""
    return float(np.linalg.norm(a.astype(np.float64).ravel() - b.astype(np.float64).ravel()))


def noise_of(epsilon: float, seed: int) -> Noise:
    """Noise where PyTorch computes."""
    return Noise(epsilon, torch.Generator(DEVICE).manual_seed(seed))


@dataclass(frozen=True)
class Yardstick:
    """A step in float64 (loss, gradients by name, the norm of all) and how far one in the precision may be from it.

    Arrays lie as trc's. `loss_bound` and `bounds` are absolute, the latter by norm of each gradient.
    """

    loss: float
    gradients: Mapping[str, np.ndarray]
    whole: float
    loss_bound: float
    bounds: Mapping[str, float]

    def distances(self, tensors: Mapping[str, np.ndarray]) -> dict[str, float]:
        """Each gradient's distance, by its bound: 1 and less is near enough, infinity is not a number."""
        found = {n: gap(tensors[n], g) / self.bounds[n] for n, g in self.gradients.items()}
        return {n: d if np.isfinite(d) else float("inf") for n, d in found.items()}

    def distance(self, tensors: Mapping[str, np.ndarray]) -> float:
        """The distance of all gradients together, relative to their norm."""
        return float(np.sqrt(sum(gap(tensors[n], g) ** 2 for n, g in self.gradients.items()))) / self.whole


def yardstick(
    net: Any, precision: str, exe: Any, images: np.ndarray, labels: np.ndarray, *, seed: int = 0, draws: int = DRAWS,
    smoothing: float = 0.0, **options: Any,
) -> Yardstick:  # fmt: skip
    """Of the parameters that `exe.tensors` holds.

    Half storage may be as far off as 4 x the farthest of the draws, plus 1e-3 of the norm; float32 as 4 x the farthest
    of the draws and of PyTorch's float32, plus 1e-6.
    """
    epsilon = EPSILON[precision]

    def step(dtype: torch.dtype, noise: Noise | None) -> tuple[float, dict[str, np.ndarray]]:
        reference = Reference(net, dtype, seed=seed, noise=noise, device=DEVICE, **options)
        reference.load(exe)
        return reference.step(images.astype(str(dtype).rpartition(".")[2]), labels, smoothing), reference.gradients()

    loss, wanted = step(torch.float64, None)
    others = [step(torch.float64, noise_of(epsilon, n)) for n in range(draws)]
    if precision == "fp32":
        others.append(step(torch.float32, None))
    whole = float(np.sqrt(sum(np.sum(g**2) for g in wanted.values())))
    share, floor = (1e-6, 1e-6 * max(1.0, whole)) if precision == "fp32" else (1e-3, 1e-5 * whole)
    bounds: dict[str, float] = {}
    for name, gradient in wanted.items():
        spread = max(gap(found[name], gradient) for _, found in others)
        bounds[name] = 4 * spread + share * float(np.linalg.norm(gradient)) + floor
    loss_bound = 4 * max(abs(other - loss) for other, _ in others) + share * abs(loss)
    return Yardstick(loss, wanted, whole, loss_bound, bounds)


def inference_loss(
    net: Any, precision: str, exe: Any, images: np.ndarray, labels: np.ndarray, *, draws: int = DRAWS, **options: Any
) -> tuple[float, float]:
    """The loss of inference in float64 with what `exe.tensors` holds, and how far one in the precision may be off."""

    def loss(dtype: torch.dtype, noise: Noise | None) -> float:
        reference = Reference(net, dtype, noise=noise, device=DEVICE, **options)
        reference.load(exe)
        with torch.no_grad():
            logits = reference.forward(images.astype(str(dtype).rpartition(".")[2]), training=False)
            return reference.loss(logits, labels).item()

    exact, epsilon = loss(torch.float64, None), EPSILON[precision]
    others = [loss(torch.float64, noise_of(epsilon, n)) for n in range(draws)]
    others.append(loss(torch.float32, None))
    share = 1e-6 if precision == "fp32" else 1e-3
    return exact, 4 * max(abs(other - exact) for other in others) + share * abs(exact)


def applied_step(exe: Any, images: np.ndarray, labels: np.ndarray) -> tuple[Any, int]:
    """The first step that is not skipped, and how many were: each halves the loss scale and draws the same randomness.

    AssertionError if even a loss scale of 1 is too much.
    """
    for skipped in range(17):
        exe.tensors["iteration"] = np.zeros_like(exe.tensors["iteration"])
        result = exe.step(images, labels)
        if not result.skipped:
            return result, skipped
    raise AssertionError("every step was skipped")
