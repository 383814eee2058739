"""The same network in PyTorch: an independent reference for whole training steps.

Images are NHWC in both, so flattening agrees without a transpose.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch

import trc
from trc_runtime.rng import philox, stream_id, uniform_of

torch.backends.mkldnn.enabled = False  # dependencies.md section 4: heap corruption in float32

ACTIVATIONS: dict[str, Callable[[], torch.nn.Module]] = {
    "relu": torch.nn.ReLU,
    "tanh_act": torch.nn.Tanh,
    "silu": torch.nn.SiLU,
    "relu6": torch.nn.ReLU6,
    "leaky_relu": torch.nn.LeakyReLU,
    "hardswish": torch.nn.Hardswish,
    "elu": torch.nn.ELU,
    "sigmoid": torch.nn.Sigmoid,
}


class GivenDropout(torch.nn.Module):
    """Dropout with trc's masks, drawn word by word: (stream, iteration, sample, element / 4), word element % 4."""

    def __init__(self, name: str, p: float, seed: int) -> None:
        super().__init__()
        self.stream, self.p, self.seed, self.iteration = stream_id(f"dropout/{name}"), p, seed, 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.training:
            return x
        rows, elements = x.shape[0], x[0].numel()
        keep = np.empty((rows, elements))
        for row in range(rows):
            for e in range(elements):
                word = philox(self.seed, (self.stream, self.iteration, row, e // 4))[e % 4]
                keep[row, e] = uniform_of(word) >= self.p
        self.iteration += 1
        return x * torch.from_numpy(keep).to(x.dtype).reshape(x.shape) / (1 - self.p)


Spec = tuple[str, *tuple[object, ...]]


def build(
    specs: Sequence[Spec], inputs: int, dtype: torch.dtype, seed: int = 0
) -> tuple[list[trc.Layer], torch.nn.Sequential, dict[str, torch.nn.Module]]:
    """Layers for trc, the PyTorch network, and its modules by trc's names.

    Specs: ("fc", out, bias), ("bn", momentum, eps), ("dropout", p), ("identity",), ("flatten",), or an activation.
    """
    layers: list[trc.Layer] = []
    modules: list[torch.nn.Module] = [torch.nn.Flatten()]
    named: dict[str, torch.nn.Module] = {}
    counts: dict[str, int] = {}
    width = inputs
    for kind, *args in specs:
        counts[kind] = counts.get(kind, 0) + 1
        name = f"{kind}{counts[kind]}"
        module: torch.nn.Module
        if kind == "fc":
            out, bias = int(args[0]), bool(args[1])  # type: ignore[call-overload]
            layers.append(trc.fc(out, bias))
            module = torch.nn.Linear(width, out, bias=bias, dtype=dtype)
            width = out
        elif kind == "bn":
            momentum, eps = float(args[0]), float(args[1])  # type: ignore[arg-type]
            layers.append(trc.bn(momentum=momentum, eps=eps))
            module = torch.nn.BatchNorm1d(width, momentum=momentum, eps=eps, dtype=dtype)
        elif kind == "dropout":
            layers.append(trc.dropout(args[0]))
            module = GivenDropout(name, float(args[0]), seed)  # type: ignore[arg-type]
        elif kind in ("identity", "flatten"):
            layers.append(getattr(trc, kind)())
            module = torch.nn.Identity()
        else:
            layers.append(getattr(trc, kind)())
            module = ACTIVATIONS[kind]()
        modules.append(module)
        named[name] = module
    return layers, torch.nn.Sequential(*modules), named


PARTS = {"weight": "weight", "bias": "bias", "running_mean": "running_mean", "running_var": "running_var"}


def pairs(named: dict[str, torch.nn.Module]) -> dict[str, torch.Tensor]:
    """trc's tensor names and PyTorch's parameters and running statistics."""
    found: dict[str, torch.Tensor] = {}
    for name, module in named.items():
        for part in PARTS:
            tensor = getattr(module, part, None)
            if isinstance(tensor, torch.Tensor):
                found[f"{name}.{part}"] = tensor
    return found


def copy_parameters(exe: trc.Executable, named: dict[str, torch.nn.Module]) -> None:
    """Start the PyTorch network where trc starts."""
    with torch.no_grad():
        for name, tensor in pairs(named).items():
            tensor.copy_(torch.from_numpy(exe.tensors[name]).reshape(tensor.shape))


def make_optimizer(optimizer: object, named: dict[str, torch.nn.Module], rate: float) -> torch.optim.Optimizer:
    """The PyTorch optimizer with trc's groups: weights of fully connected layers decay, nothing else does."""
    decayed = [m.weight for m in named.values() if isinstance(m, torch.nn.Linear)]
    plain = [m.bias for m in named.values() if isinstance(m, torch.nn.Linear) and m.bias is not None]
    plain += [p for m in named.values() if isinstance(m, torch.nn.BatchNorm1d) for p in m.parameters()]
    decay = optimizer.weight_decay  # type: ignore[attr-defined]
    groups = [{"params": decayed, "weight_decay": decay}]
    if plain:
        groups.append({"params": plain, "weight_decay": 0.0})
    if isinstance(optimizer, trc.SGD):
        return torch.optim.SGD(groups, lr=rate, momentum=optimizer.momentum, nesterov=optimizer.nesterov)
    assert isinstance(optimizer, trc.Adam | trc.AdamW)
    kind = torch.optim.AdamW if isinstance(optimizer, trc.AdamW) else torch.optim.Adam
    return kind(groups, lr=rate, betas=optimizer.betas, eps=optimizer.eps)


def torch_step(
    net: torch.nn.Sequential, images: np.ndarray, labels: np.ndarray, smoothing: float, dtype: torch.dtype
) -> float:
    """Forward, loss, backward; the gradients are left in the parameters."""
    net.zero_grad(set_to_none=True)
    logits = net(torch.from_numpy(images).to(dtype))
    loss = torch.nn.functional.cross_entropy(logits, torch.from_numpy(labels).long(), label_smoothing=smoothing)
    loss.backward()
    return float(loss.item())


def gradients(named: dict[str, torch.nn.Module]) -> dict[str, np.ndarray]:
    """trc's gradient names and PyTorch's gradients."""
    return {
        f"{name}.grad": tensor.grad.numpy().copy() for name, tensor in pairs(named).items() if tensor.grad is not None
    }
