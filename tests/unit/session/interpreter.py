"""PyTorch as an interpreter of the unfused ArchPlan: an independent reference for any network.

It walks the layers of `trc.lower(net, to="arch", fuse=False)`, so that it knows nothing of descriptors, deferred
values, graphs, plans or kernels. Values are NCHW inside.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from xdsl.ir import SSAValue

import trc
from trc.dialects.arch import LayerOp, ModelOp, OutputOp
from trc_runtime.rng import philox, stream_id, uniform_of

torch.backends.mkldnn.enabled = False  # dependencies.md section 4: heap corruption in float32
torch.set_num_threads(1)  # the tensors are tiny: a second thread only waits for the first

Values = dict[str, Any]

ACTIVATIONS: dict[str, Callable[[torch.Tensor, Values], torch.Tensor]] = {
    "relu": lambda x, p: torch.relu(x),
    "tanh": lambda x, p: torch.tanh(x),
    "silu": lambda x, p: F.silu(x),
    "relu6": lambda x, p: F.relu6(x),
    "leaky_relu": lambda x, p: F.leaky_relu(x, p["slope"]),
    "hardswish": lambda x, p: F.hardswish(x),
    "elu": lambda x, p: F.elu(x, p["alpha"]),
    "sigmoid": lambda x, p: torch.sigmoid(x),
}


def parameters_of(op: LayerOp) -> Values:
    """A layer's parameters as Python values."""
    found: Values = {}
    for field in op.FIELDS:
        attribute = op.properties.get(field.name)
        if attribute is not None:
            text = field.text(attribute)
            found[field.name] = {"true": True, "false": False, "": True}.get(text, text)
            if isinstance(found[field.name], str):
                found[field.name] = float(text) if any(ch in text for ch in ".en") else int(text)
    return found


@dataclass
class Noise:
    """Rounding as a random relative error of at most `epsilon`, forward and backward: what storing in half does."""

    epsilon: float
    generator: torch.Generator

    def perturb(self, x: torch.Tensor) -> torch.Tensor:
        """x (1 + epsilon u) with u uniform in [-1, 1]."""
        u = torch.rand(x.shape, generator=self.generator, dtype=x.dtype, device=x.device) * 2 - 1
        return x * (1 + self.epsilon * u)

    def through(self, x: torch.Tensor) -> torch.Tensor:
        """The stored value; its gradient is stored too."""
        y = self.perturb(x)
        if y.requires_grad:
            y.register_hook(self.perturb)
        return y


class Reference:
    """A network in PyTorch with the parameters of a compiled one.

    `tensors` holds parameters (leaves that require gradients) and running statistics by trc's names. `device` is
    where PyTorch computes.
    """

    def __init__(
        self, net: trc.BluePrint, dtype: torch.dtype, seed: int = 0, noise: Noise | None = None, device: str = "cpu",
        **options: Any,
    ) -> None:  # fmt: skip
        self.noise, self.device = noise, device
        module = trc.lower(net, to="arch", fuse=False, **options)
        (self.model,) = [op for op in module.ops if isinstance(op, ModelOp)]
        self.dtype, self.seed, self.iteration = dtype, seed, 0
        self.tensors: dict[str, torch.Tensor] = {}

    def load(self, exe: trc.Executable) -> None:
        """Take the parameters and running statistics of a compiled network."""
        for name in exe.tensors:
            part = name.rpartition(".")[2]
            if part in ("weight", "bias", "running_mean", "running_var"):
                value = torch.from_numpy(exe.tensors[name]).to(self.device, self.dtype)
                if part in ("weight", "bias"):
                    value.requires_grad_(True)
                self.tensors[name] = value

    def forward(self, images: np.ndarray, training: bool = True) -> torch.Tensor:
        """Logits [N, classes] of NHWC images."""
        x = self.stored(torch.from_numpy(images).to(self.device, self.dtype).permute(0, 3, 1, 2))
        values: dict[SSAValue, torch.Tensor] = {self.model.body.block.args[0]: x}
        for op in self.model.body.block.ops:
            if isinstance(op, OutputOp):
                break
            assert isinstance(op, LayerOp)
            kind = op.name.removeprefix("arch.")
            if kind == "softmax_ce":
                return values[op.operands[0]].flatten(1)
            values[op.result] = self.stored(self.layer(kind, op, [values[v] for v in op.operands], training))
        raise AssertionError("no loss")

    def step(self, images: np.ndarray, labels: np.ndarray, smoothing: float = 0.0) -> float:
        """Forward, loss and backward; gradients are left in `tensors`."""
        for tensor in self.tensors.values():
            tensor.grad = None
        loss = self.loss(self.forward(images), labels, smoothing)
        loss.backward()
        self.iteration += 1
        return float(loss.item())

    def loss(self, logits: torch.Tensor, labels: np.ndarray, smoothing: float = 0.0) -> torch.Tensor:
        """Cross entropy, the mean of the batch."""
        return F.cross_entropy(logits, torch.from_numpy(labels).to(self.device).long(), label_smoothing=smoothing)

    def gradients(self) -> dict[str, np.ndarray]:
        """Gradients by trc's names, zeros where nothing reached a parameter."""
        return {
            f"{name}.grad": (torch.zeros_like(t) if t.grad is None else t.grad).detach().cpu().numpy()
            for name, t in self.tensors.items()
            if t.requires_grad
        }

    def layer(self, kind: str, op: LayerOp, inputs: list[torch.Tensor], training: bool) -> torch.Tensor:
        """One layer."""
        p, name, x = parameters_of(op), op.layer_name, inputs[0]
        if kind in ACTIVATIONS:
            return ACTIVATIONS[kind](x, p)
        if kind in ("bn1d", "bn2d"):
            return self.norm(name, x, p, training)
        if kind == "conv":
            weight = self.stored(self.tensors[f"{name}.weight"]).permute(0, 3, 1, 2)
            bias = self.tensors[f"{name}.bias"].flatten() if p["bias"] else None
            return F.conv2d(x, weight, bias, p["stride"], p["padding"], 1, p["groups"])
        if kind == "fc":
            flat = x.permute(0, 2, 3, 1).flatten(1)
            weight = self.stored(self.tensors[f"{name}.weight"]).flatten(1)
            bias = self.tensors[f"{name}.bias"].flatten() if p["bias"] else None
            return F.linear(flat, weight, bias)[:, :, None, None]
        if kind == "dropout":
            return self.dropout(name, x, p["p"]) if training else x
        simple: Mapping[str, Callable[[], torch.Tensor]] = {
            "add": lambda: x + inputs[1],
            "identity": lambda: x,
            "flatten": lambda: x.permute(0, 2, 3, 1).flatten(1)[:, :, None, None],
            "gap": lambda: x.mean((2, 3), keepdim=True),
            "max_pool": lambda: F.max_pool2d(x, p["kernel"], p["stride"], p["padding"]),
            "avg_pool": lambda: F.avg_pool2d(x, p["kernel"], p["stride"], p["padding"], count_include_pad=False),
            "channel_padding": lambda: F.pad(x, (0, 0, 0, 0, 0, -x.shape[1] % 8)),
        }
        return simple[kind]()

    def norm(self, name: str, x: torch.Tensor, p: Values, training: bool) -> torch.Tensor:
        """Batch norm; running statistics are updated in training."""
        weight, bias = (self.tensors[f"{name}.{part}"].flatten() for part in ("weight", "bias"))
        mean, var = (self.tensors[f"{name}.{part}"].flatten() for part in ("running_mean", "running_var"))
        if self.noise is not None and training:
            return self.noisy_norm(x, weight, bias, p["eps"])
        # PyTorch 2.13's backward on the CPU is wrong for an image of one column with a gradient in another layout than
        # the input (strides 6, 2, 1, 1 and 6, 1, 3, 1): contiguous tensors on both sides keep away from it.
        y = F.batch_norm(x.contiguous(), mean, var, weight, bias, training, p["momentum"], p["eps"])
        if y.requires_grad:
            y.register_hook(lambda gradient: gradient.contiguous())
        return y

    def stored(self, x: torch.Tensor) -> torch.Tensor:
        """A value on its way through memory, and its gradient on the way back."""
        return x if self.noise is None else self.noise.through(x)

    def noisy_norm(self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
        """Batch norm as scale and shift that are stored themselves."""
        mean = x.mean((0, 2, 3))
        scale = weight / torch.sqrt(x.var((0, 2, 3), correction=0) + eps)
        shift = bias - mean * scale
        return x * self.stored(scale).reshape(1, -1, 1, 1) + self.stored(shift).reshape(1, -1, 1, 1)

    def dropout(self, name: str, x: torch.Tensor, p: float) -> torch.Tensor:
        """Dropout with trc's masks: counter (stream, iteration, sample, element / 4), elements in HWC order."""
        n, c, h, w = x.shape
        keep = kept(self.seed, stream_id(f"dropout/{name}"), self.iteration, n, h * w * c) >= p
        mask = torch.from_numpy(keep.reshape(n, h, w, c)).to(self.device).permute(0, 3, 1, 2).to(x.dtype)
        return x * mask / (1 - p)


@cache
def kept(seed: int, stream: int, iteration: int, rows: int, elements: int) -> np.ndarray:
    """Uniform numbers [rows, elements]: counter (stream, iteration, row, element / 4)."""
    found = np.empty((rows, elements))
    for row in range(rows):
        for e in range(elements):
            found[row, e] = uniform_of(philox(seed, (stream, iteration, row, e // 4))[e % 4])
    return found
