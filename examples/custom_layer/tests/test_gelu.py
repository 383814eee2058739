"""GELU against the mathematics and against PyTorch: values, gradients, inference and a training run."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from trc_gelu import kernels
from trc_gelu.layer import gelu

import trc
from trc.dialects.parsing import parse_module
from trc.interchange.arch_yaml import from_yaml, to_yaml
from trc_runtime.cpu import half

BATCH, LABELS = 12, 5
NET = trc.BluePrint(trc.seq(trc.fc(32), gelu(), trc.fc(16), gelu(name="last"), trc.fc(LABELS)), "net", (3, 4, 2))


class Node:
    """What a kernel asks of its node."""

    def __init__(self, **arrays: NDArray[Any]) -> None:
        self.arrays = arrays

    def matrix(self, name: str) -> NDArray[Any]:
        array = self.arrays[name]
        return array.reshape(-1, 1) if array.ndim == 1 else array

    def scratch(self, shape: tuple[int, ...], dtype: Any = None) -> NDArray[Any]:
        return np.full(shape, 7, dtype)

    def problem(self, message: str) -> ValueError:
        return ValueError(message)


def test_values() -> None:
    x = np.concatenate([np.linspace(-40, 40, 30_001), np.linspace(-1, 1, 20_001), [0.0, -0.0, 1e-300, -1e-300, 1e30]])
    y = np.empty_like(x)
    kernels.gelu_fwd(Node(x=x, y=y))()  # pyright: ignore[reportArgumentType]
    wanted = np.array([v * 0.5 * math.erfc(-v / math.sqrt(2)) for v in x])
    np.testing.assert_allclose(y, wanted, rtol=4e-16, atol=1e-16)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_gradients(dtype: type[np.floating[Any]]) -> None:
    generator = np.random.default_rng(0)
    x, dy = (generator.standard_normal(20_000).astype(dtype) * s for s in (dtype(3), dtype(1)))
    leaf = torch.tensor(x, dtype=torch.float64, requires_grad=True)
    torch.nn.functional.gelu(leaf).backward(torch.tensor(dy, dtype=torch.float64))
    assert leaf.grad is not None
    wanted = leaf.grad.numpy()
    for node in (Node(dy=dy.copy(), x=x, dx=np.empty_like(x)), Node(dy=(same := dy.copy()), x=x, dx=same)):
        kernels.gelu_bwd(node)()  # pyright: ignore[reportArgumentType]
        bound = 4 * np.finfo(dtype).eps
        np.testing.assert_allclose(node.arrays["dx"], wanted, rtol=bound, atol=1e-15)


@pytest.mark.parametrize("storage", [np.dtype(np.float16), half.BF16])
def test_half_types_are_rounded_once(storage: np.dtype[Any]) -> None:
    generator = np.random.default_rng(2)
    x, dy = (half.narrowed(s * generator.standard_normal(9_000), storage) for s in (3, 1))
    y, dx = np.empty_like(x), np.empty_like(x)
    kernels.gelu_fwd(Node(x=x, y=y))()  # pyright: ignore[reportArgumentType]
    kernels.gelu_bwd(Node(dy=dy, x=x, dx=dx))()  # pyright: ignore[reportArgumentType]
    leaf = torch.tensor(half.widened(x), dtype=torch.float64, requires_grad=True)
    value = torch.nn.functional.gelu(leaf)
    value.backward(torch.tensor(half.widened(dy), dtype=torch.float64))
    assert leaf.grad is not None
    digits = 11 if storage == np.float16 else 8
    for found, wanted in ((y, value.detach().numpy()), (dx, leaf.grad.numpy())):
        # Half a unit in the last place, and float16's subnormal numbers.
        np.testing.assert_allclose(half.widened(found), wanted, rtol=1.001 * 2.0**-digits, atol=2.0**-25)


@pytest.mark.parametrize("storage", [np.dtype(np.float32), np.dtype(np.float16), half.BF16])
@pytest.mark.parametrize("columns", [5, 9_000])
def test_padding_between_rows_is_left_alone(columns: int, storage: np.dtype[Any]) -> None:
    generator = np.random.default_rng(4)
    wide = [half.narrowed(generator.standard_normal((70, columns + 3)), storage) for _ in range(4)]
    x, dy, y, dx = (w[:, :columns] for w in wide)
    padding = [w[:, columns:].copy() for w in wide]
    dense = {name: np.ascontiguousarray(a).reshape(-1) for name, a in (("x", x), ("dy", dy), ("y", y), ("dx", dx))}
    for node in (Node(x=x, dy=dy, y=y, dx=dx), Node(**dense)):
        kernels.gelu_fwd(node)()  # pyright: ignore[reportArgumentType]
        kernels.gelu_bwd(node)()  # pyright: ignore[reportArgumentType]
    np.testing.assert_array_equal(y.reshape(-1), dense["y"])
    np.testing.assert_array_equal(dx.reshape(-1), dense["dx"])
    for w, before in zip(wide, padding, strict=True):
        np.testing.assert_array_equal(w[:, columns:], before)


@pytest.mark.parametrize("precision", ["amp-fp16", "amp-bf16"])
def test_channels_that_fill_no_row(precision: str) -> None:
    """Five channels, in rows of eight where they are half types."""
    net = trc.BluePrint(trc.seq(trc.conv(5, 3, 1, 1), gelu(), trc.gap(), trc.fc(LABELS)), "net", (3, 4, 2))
    images, labels = data()
    found, wanted = (trc.compile(net, batch=BATCH, precision=p, seed=3, ema=trc.EMA(0.5)) for p in (precision, "fp32"))
    for exe in (found, wanted):
        exe.step(images.astype(np.float32), labels)
    for a, b in zip(*(exe.evaluate_both(images.astype(np.float32), labels) for exe in (found, wanted)), strict=True):
        assert a.loss == pytest.approx(b.loss, rel=2e-2)


def reference(exe: trc.Executable) -> torch.nn.Sequential:
    """The same network in PyTorch, with the same parameters, in float64. One column's order needs no care: HWC."""
    layers: list[torch.nn.Module] = [torch.nn.Flatten()]
    for n, (inputs, outputs) in enumerate(((24, 32), (32, 16), (16, LABELS)), 1):
        linear = torch.nn.Linear(inputs, outputs, dtype=torch.float64)
        with torch.no_grad():
            linear.weight.copy_(torch.tensor(exe.tensors[f"fc{n}.weight"]).reshape(outputs, inputs))
            linear.bias.copy_(torch.tensor(exe.tensors[f"fc{n}.bias"]).reshape(outputs))
        layers += [linear, torch.nn.GELU()]
    return torch.nn.Sequential(*layers[:-1])


def data() -> tuple[NDArray[Any], NDArray[Any]]:
    generator = np.random.default_rng(1)
    return 2 * generator.standard_normal((BATCH, 3, 4, 2)), generator.integers(0, LABELS, BATCH).astype(np.int32)


@pytest.mark.parametrize(
    ("precision", "tolerance"), [("fp64", 1e-10), ("fp32", 2e-4), ("amp-fp16", 2e-2), ("amp-bf16", 8e-2)]
)
def test_training_is_pytorchs(precision: str, tolerance: float) -> None:
    rate = 0.05
    exe = trc.compile(
        NET, batch=BATCH, optimizer=trc.SGD(), schedule=trc.Constant(base_lr=rate), precision=precision, seed=3
    )
    net = reference(exe)
    optimizer = torch.optim.SGD(net.parameters(), rate)
    images, labels = data()
    x, t = torch.tensor(images), torch.tensor(labels, dtype=torch.int64)
    dtype = np.float64 if precision == "fp64" else np.float32
    for step in range(50):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(net(x), t)
        loss.backward()
        result = exe.step(images.astype(dtype), labels)
        assert result.loss == pytest.approx(loss.item(), rel=tolerance)
        if step == 0:
            for n, layer in enumerate((m for m in net if isinstance(m, torch.nn.Linear)), 1):
                assert layer.weight.grad is not None
                wanted = layer.weight.grad.numpy()
                found = exe.tensors[f"fc{n}.weight.grad"].reshape(wanted.shape)
                assert np.linalg.norm(found - wanted) <= tolerance * np.linalg.norm(wanted)
        optimizer.step()
    assert exe.step(images.astype(dtype), labels).loss < 0.9 * math.log(LABELS)
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(net(x), t).backward()
    optimizer.step()
    found = exe.evaluate(images.astype(dtype), labels)
    assert found.loss == pytest.approx(torch.nn.functional.cross_entropy(net(x), t).item(), rel=tolerance)


def test_every_text_reads_back() -> None:
    assert trc.parse_blueprint(str(NET)) == NET
    for to in ("import", "arch", "atlas"):
        text = str(trc.lower(NET, to=to))
        assert str(parse_module(text)) == text
    arch = trc.lower(NET, to="arch")
    assert [line.split(" layer ")[-1].split('"')[1] for line in str(arch).splitlines() if "arch.gelu" in line] == [
        "gelu1",
        "last",
    ]
    assert str(from_yaml(to_yaml(arch))) == str(arch)


def test_messages_point_at_the_user() -> None:
    here = trc.seq(trc.fc(4), gelu())
    source = here.children[1].source
    assert source is not None
    assert source.file == __file__
    with pytest.raises(ValueError, match=r"there is no layer called 'gelo'.*'gelu'"):
        trc.blueprint.layer_of("gelo")
