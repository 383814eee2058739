"""Invariant 4 of the design: whole networks against PyTorch.

In float64 the loss and each gradient agree within 1e-8 (and 1e-12 of the whole net's gradient), parameters after 100
steps within 1e-6. In float32 the distance to that float64 result is at most 4 x PyTorch-float32's own plus 1e-6.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch

import trc
from tests.unit.session.reference import (
    ACTIVATIONS,
    Spec,
    build,
    copy_parameters,
    gradients,
    make_optimizer,
    pairs,
    torch_step,
)

BATCH, INPUT, CLASSES = 11, (3, 5, 2), 7
LAST: Spec = ("fc", CLASSES, True)
MLP: tuple[Spec, ...] = (("fc", 13, True), ("relu",), ("fc", 9, True), ("relu",), ("fc", CLASSES, True))
NETS: dict[str, tuple[Spec, ...]] = {
    **{name: (("fc", 13, True), (name,), ("fc", 8, True), (name,), ("fc", CLASSES, True)) for name in ACTIVATIONS},
    "no bias": (("fc", 13, False), ("relu",), ("fc", CLASSES, False)),
    "one layer": (("fc", CLASSES, True),),
    "bn": (("fc", 13, False), ("bn", 0.1, 1e-5), ("relu",), ("fc", 9, True), ("bn", 0.3, 1e-3), ("fc", CLASSES, True)),
    "bn after activation": (("fc", 13, True), ("tanh_act",), ("bn", 0.1, 1e-5), ("fc", CLASSES, True)),
    "dropout": (
        ("fc", 13, True),
        ("relu",),
        ("dropout", 0.4),
        ("fc", 9, True),
        ("dropout", 0.1),
        ("fc", CLASSES, True),
    ),
    "identity and flatten": (
        ("flatten",),
        ("identity",),
        ("fc", 13, True),
        ("identity",),
        ("relu",),
        ("fc", CLASSES, True),
    ),
    "activation first": (("silu",), ("fc", 13, True), ("sigmoid",), ("fc", CLASSES, True)),
    "activations in a row": (("fc", 13, True), ("elu",), ("hardswish",), ("leaky_relu",), ("fc", CLASSES, True)),
}


def data(seed: int, steps: int) -> list[tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(seed)
    return [
        (rng.standard_normal((BATCH, *INPUT)), rng.integers(0, CLASSES, BATCH, dtype=np.int32)) for _ in range(steps)
    ]


def compile_net(layers: Sequence[trc.Layer], precision: str, **options: object) -> trc.Executable:
    net = trc.BluePrint(trc.seq(*layers), name="net", input=INPUT)
    return trc.compile(net, batch=BATCH, precision=precision, **options)  # type: ignore[arg-type]


def distance(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.linalg.norm(a.ravel().astype(np.float64) - b.ravel()))


@pytest.mark.parametrize("net", NETS, ids=lambda n: n.replace(" ", "-"))
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_loss_and_gradients_in_float64(net: str, smoothing: float) -> None:
    size = int(np.prod(INPUT))
    layers, reference, named = build(NETS[net], size, torch.float64)
    exe = compile_net(layers, "fp64", loss=trc.CrossEntropy(label_smoothing=smoothing))
    copy_parameters(exe, named)
    for images, labels in data(len(net), 2):  # the second step sees other statistics, masks and parameters
        result = exe.step(images, labels)
        loss = torch_step(reference, images, labels, smoothing, torch.float64)
        assert abs(result.loss - loss) <= 1e-8 * abs(loss)
        wanted = gradients(named)
        whole = float(np.sqrt(sum(np.sum(g**2) for g in wanted.values())))
        assert wanted
        for name, gradient in wanted.items():
            bound = 1e-8 * float(np.linalg.norm(gradient)) + 1e-12 * whole
            assert distance(exe.tensors[name], gradient) <= bound, name
        for name, tensor in pairs(named).items():
            if "running" in name:
                np.testing.assert_allclose(exe.tensors[name].ravel(), tensor.numpy(), rtol=1e-10, err_msg=name)
        copy_parameters(exe, named)


@pytest.mark.parametrize("net", ["bn", "dropout", "silu", "identity and flatten"])
def test_inference_is_eval(net: str) -> None:
    size = int(np.prod(INPUT))
    layers, reference, named = build(NETS[net], size, torch.float64)
    exe = compile_net(layers, "fp64", val_batch=BATCH)
    for images, labels in data(3, 3):
        exe.step(images, labels)
    copy_parameters(exe, named)
    reference.eval()
    images, labels = data(4, 1)[0]
    logits = reference(torch.from_numpy(images)).detach()
    loss = torch.nn.functional.cross_entropy(logits, torch.from_numpy(labels).long())
    result = exe.evaluate(images, labels)
    assert result.loss == pytest.approx(loss.item(), rel=1e-9)
    assert result.top1 == pytest.approx((logits.argmax(1).numpy() == labels).mean())
    top5 = logits.topk(5, dim=1).indices.numpy()
    assert result.top5 == pytest.approx((top5 == labels[:, None]).any(1).mean())


@pytest.mark.parametrize("net", NETS, ids=lambda n: n.replace(" ", "-"))
def test_float32_is_as_near_to_float64_as_pytorch(net: str) -> None:
    size = int(np.prod(INPUT))
    layers, exact, exact_named = build(NETS[net], size, torch.float64)
    _, single, single_named = build(NETS[net], size, torch.float32)
    exe = compile_net(layers, "fp32")
    copy_parameters(exe, exact_named)
    copy_parameters(exe, single_named)
    images, labels = data(len(net) + 50, 1)[0]
    images = images.astype(np.float32)
    result = exe.step(images, labels)
    loss = torch_step(exact, images.astype(np.float64), labels, 0.0, torch.float64)
    single_loss = torch_step(single, images, labels, 0.0, torch.float32)
    assert abs(result.loss - loss) <= 4 * abs(single_loss - loss) + 1e-6
    theirs = gradients(single_named)
    for name, gradient in gradients(exact_named).items():
        ours = distance(exe.tensors[name], gradient)
        assert ours <= 4 * distance(theirs[name], gradient) + 1e-6, name


OPTIMIZERS = {
    "sgd": trc.SGD(),
    "sgd decay": trc.SGD(weight_decay=1e-2),
    "momentum": trc.SGD(momentum=0.9, weight_decay=1e-3),
    "nesterov": trc.SGD(momentum=0.9, nesterov=True, weight_decay=1e-3),
    "adam": trc.Adam(weight_decay=1e-2),
    "adamw": trc.AdamW(betas=(0.8, 0.99), weight_decay=1e-1),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("net", ["relu", "bn"])
def test_a_hundred_steps_in_float64(name: str, net: str) -> None:
    rate = 0.02 if name.startswith("adam") else 0.1
    layers, reference, named = build(NETS[net], int(np.prod(INPUT)), torch.float64)
    exe = compile_net(layers, "fp64", optimizer=OPTIMIZERS[name], schedule=trc.Constant(base_lr=rate))
    copy_parameters(exe, named)
    optimizer = make_optimizer(OPTIMIZERS[name], named, rate)
    batches = data(9, 7)
    for step in range(100):
        images, labels = batches[step % len(batches)]
        exe.step(images, labels)
        torch_step(reference, images, labels, 0.0, torch.float64)
        optimizer.step()
    for key, tensor in pairs(named).items():
        wanted = tensor.detach().numpy()
        assert distance(exe.tensors[key], wanted) <= 1e-6 * max(1.0, float(np.linalg.norm(wanted))), key


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_hundred_steps_in_float32(name: str) -> None:
    rate = 0.002 if name.startswith("adam") else 0.05
    size = int(np.prod(INPUT))
    layers, exact, exact_named = build(MLP, size, torch.float64)
    _, single, single_named = build(MLP, size, torch.float32)
    exe = compile_net(layers, "fp32", optimizer=OPTIMIZERS[name], schedule=trc.Constant(base_lr=rate))
    copy_parameters(exe, exact_named)
    copy_parameters(exe, single_named)
    runs = [
        (exact, make_optimizer(OPTIMIZERS[name], exact_named, rate), torch.float64),
        (single, make_optimizer(OPTIMIZERS[name], single_named, rate), torch.float32),
    ]
    batches = [(x.astype(np.float32), y) for x, y in data(10, 7)]
    for step in range(100):
        images, labels = batches[step % len(batches)]
        exe.step(images, labels)
        for net, optimizer, dtype in runs:
            torch_step(net, images, labels, 0.0, dtype)
            optimizer.step()
    theirs = pairs(single_named)
    for key, tensor in pairs(exact_named).items():
        wanted = tensor.detach().numpy()
        own = distance(theirs[key].detach().numpy(), wanted)
        assert distance(exe.tensors[key], wanted) <= 4 * own + 1e-6, key
