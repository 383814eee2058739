"""The moving average of whole networks: against PyTorch's AveragedModel, skipped steps, precisions, bundles."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
import torch
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

import trc
from trc.diagnostics import CompileError
from trc.models import lenet5
from trc.session.compiling import lower_to_plan
from trc_runtime.data.dataset import Dataset, Split
from trc_runtime.schema.check import check_plan
from trc_runtime.schema.plan import Plan
from trc_runtime.train.average import AverageError

torch.backends.mkldnn.enabled = False  # dependencies.md section 4: heap corruption in float32

BATCH, INPUT, CLASSES = 12, (6, 5, 3), 7
RATE, DECAY, STEPS = 0.05, 0.9, 25
OPTIMIZER = trc.SGD(momentum=0.9, weight_decay=1e-3)
NET = trc.BluePrint(
    trc.seq(
        *(trc.conv(6, 3, 1, 1, bias=False), trc.bn(), trc.relu()),
        *(trc.conv(4, 3, 2, 1, bias=True), trc.bn(momentum=0.3, eps=1e-3), trc.tanh_act()),
        *(trc.fc(9), trc.relu(), trc.fc(CLASSES)),
    ),
    name="net",
    input=INPUT,
)


class Reference(torch.nn.Module):
    """NET, fed with NHWC."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.conv1 = torch.nn.Conv2d(3, 6, 3, 1, 1, bias=False, dtype=dtype)
        self.bn1 = torch.nn.BatchNorm2d(6, dtype=dtype)
        self.conv2 = torch.nn.Conv2d(6, 4, 3, 2, 1, dtype=dtype)
        self.bn2 = torch.nn.BatchNorm2d(4, eps=1e-3, momentum=0.3, dtype=dtype)
        self.fc1 = torch.nn.Linear(3 * 3 * 4, 9, dtype=dtype)
        self.fc2 = torch.nn.Linear(9, CLASSES, dtype=dtype)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.bn1(self.conv1(x.permute(0, 3, 1, 2))))
        x = torch.tanh(self.bn2(self.conv2(x))).permute(0, 2, 3, 1)
        return self.fc2(torch.relu(self.fc1(x.flatten(1))))


def named(module: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Parameters and running statistics by trc's names."""
    for name, tensor in module.state_dict().items():
        if not name.endswith(("num_batches_tracked", "n_averaged")):
            yield name.removeprefix("module."), tensor


def as_torch(array: np.ndarray, like: torch.Tensor) -> torch.Tensor:
    """In PyTorch's layout: convolutions KCRS."""
    value = torch.from_numpy(array)
    return (value.permute(0, 3, 1, 2) if like.dim() == 4 else value.reshape(like.shape)).to(like.dtype)


def started(exe: trc.Executable, dtype: torch.dtype) -> tuple[Reference, AveragedModel, torch.optim.Optimizer]:
    """PyTorch's network where trc's starts, with an average that starts there too."""
    net = Reference(dtype)
    with torch.no_grad():
        for name, tensor in named(net):
            tensor.copy_(as_torch(exe.tensors[name], tensor))
    averaged = AveragedModel(net, multi_avg_fn=get_ema_multi_avg_fn(DECAY), use_buffers=True)
    averaged.n_averaged += 1  # type: ignore[operator]  # else the first update would copy
    decayed = [m.weight for m in net.modules() if isinstance(m, torch.nn.Linear | torch.nn.Conv2d)]
    rest = [p for p in net.parameters() if not any(p is d for d in decayed)]
    groups = [{"params": decayed, "weight_decay": OPTIMIZER.weight_decay}, {"params": rest}]
    return net, averaged, torch.optim.SGD(groups, lr=RATE, momentum=OPTIMIZER.momentum)


def torch_step(
    net: Reference, averaged: AveragedModel, optimizer: torch.optim.Optimizer, x: np.ndarray, y: np.ndarray
) -> None:
    optimizer.zero_grad()
    dtype = net.fc1.weight.dtype
    torch.nn.functional.cross_entropy(net(torch.from_numpy(x).to(dtype)), torch.from_numpy(y).long()).backward()
    optimizer.step()
    averaged.update_parameters(net)


def batches(seed: int, count: int) -> list[tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(seed)
    return [
        (rng.standard_normal((BATCH, *INPUT)).astype(np.float32), rng.integers(0, CLASSES, BATCH, dtype=np.int32))
        for _ in range(count)
    ]


def compiled(precision: str, **options: Any) -> trc.Executable:
    given = {"ema": trc.EMA(DECAY), "optimizer": OPTIMIZER, "schedule": trc.Constant(base_lr=RATE), **options}
    exe = trc.compile(NET, batch=BATCH, precision=precision, **given)  # type: ignore[arg-type]
    # Its gradient is zero in front of batch norm, so it stays where it starts: not at zero.
    exe.tensors["conv2.bias"] = np.float32([[[[0.5, -0.25, 1.5, 2.0]]]])
    return exe


def norm(x: Any) -> float:
    return float(np.linalg.norm(np.asarray(x, np.float64).ravel()))


# ---------------------------------------------------------------- numbers


def test_float64_against_pytorch() -> None:
    """Averages within 1e-9, and the inference with them is PyTorch's with the averaged network in eval()."""
    exe = compiled("fp64")
    net, averaged, optimizer = started(exe, torch.float64)
    for x, y in batches(1, STEPS):
        exe.step(x, y)
        torch_step(net, averaged, optimizer, x, y)
    checked = set()
    for name, wanted in named(averaged):
        got = as_torch(exe.tensors[f"{name}.ema"], wanted)
        assert norm(got - wanted) <= 1e-9 * norm(wanted), name
        moved = norm(got - as_torch(exe.tensors[name], wanted)) > 1e-4 * norm(wanted)
        assert moved or name == "conv2.bias", f"{name} is its own average"
        checked.add(name)
    assert {"conv1.weight", "conv2.bias", "bn1.weight", "bn2.running_var", "bn1.running_mean", "fc2.bias"} <= checked
    x, y = batches(2, 1)[0]
    for ema, module in ((True, averaged), (False, net)):
        module.eval()
        with torch.no_grad():
            logits = module(torch.from_numpy(x).double())
        loss = torch.nn.functional.cross_entropy(logits, torch.from_numpy(y).long())
        result = exe.evaluate(x, y, ema=ema)
        assert result.loss == pytest.approx(loss.item(), rel=1e-9)
        assert result.top1 == pytest.approx((logits.argmax(1).numpy() == y).mean())


def test_float32_is_as_near_to_float64_as_pytorch() -> None:
    exe = compiled("fp32")
    runs = [started(exe, dtype) for dtype in (torch.float64, torch.float32)]
    for x, y in batches(3, STEPS):
        exe.step(x, y)
        for run in runs:
            torch_step(*run, x, y)
    theirs = dict(named(runs[1][1]))
    for name, wanted in named(runs[0][1]):
        ours = norm(as_torch(exe.tensors[f"{name}.ema"], wanted) - wanted)
        assert ours <= 4 * norm(theirs[name] - wanted) + 1e-6, name


def test_the_warm_up_against_an_explicit_loop() -> None:
    exe = compiled("fp64", ema=trc.EMA(0.7, warmup=True))
    names = ("conv1.weight", "bn2.weight", "bn2.running_mean", "fc1.bias")
    wanted = {n: exe.tensors[n] for n in names}
    decays = []
    for t, (x, y) in enumerate(batches(4, STEPS), start=1):
        exe.step(x, y)
        decays.append(min(0.7, (1 + t) / (10 + t)))
        wanted = {n: decays[-1] * e + (1 - decays[-1]) * exe.tensors[n] for n, e in wanted.items()}
    assert decays[0] == 2 / 11
    assert decays[-1] == 0.7
    for name in names:
        np.testing.assert_allclose(exe.tensors[f"{name}.ema"], wanted[name], rtol=1e-12, atol=1e-14, err_msg=name)


@pytest.mark.parametrize("precision", ["fp32", "fp64", "amp-fp16", "amp-bf16"])
def test_it_begins_with_the_bytes_of_the_weights(precision: str) -> None:
    exe = compiled(precision, seed=5)
    plain = compiled(precision, seed=5, ema=None)
    for name, _ in named(Reference(torch.float64)):
        assert exe.tensors[name].tobytes() == plain.tensors[name].tobytes(), name
        assert exe.tensors[f"{name}.ema"].tobytes() == exe.tensors[name].tobytes(), name


@pytest.mark.parametrize("precision", ["fp32", "amp-fp16"])
def test_the_weights_do_not_depend_on_it(precision: str) -> None:
    """Averaging changes no bit of the training."""
    one, two = compiled(precision), compiled(precision, ema=None)
    for x, y in batches(5, 4):
        assert one.step(x, y) == two.step(x, y)
    for name, _ in named(Reference(torch.float64)):
        assert one.tensors[name].tobytes() == two.tensors[name].tobytes(), name


@pytest.mark.parametrize("warmup", [False, True])
@pytest.mark.parametrize("precision", ["fp32", "amp-fp16", "amp-bf16"])
def test_a_skipped_step_leaves_it_alone(precision: str, warmup: bool) -> None:
    exe = compiled(precision, ema=trc.EMA(DECAY, warmup))
    first, bad, second = batches(6, 3)
    exe.step(*first)
    names = [n for n in exe.tensors if n.endswith(".ema")]
    before = {n: exe.tensors[n] for n in names}
    labels, images = exe.session.staging("A", 0)
    images[...], labels[:] = bad
    images[1, 2, 3, 1] = np.inf
    exe.session.run("transfer_a", 0)
    exe.session.run("train_a", 0)
    assert exe.tensors["has_nan"].item() == 1
    for name in names:
        assert exe.tensors[name].tobytes() == before[name].tobytes(), name
    assert not exe.step(*second).skipped
    decay = min(DECAY, 3 / 12) if warmup else DECAY  # the second one that was applied
    for name in ("conv2.weight", "bn1.running_var"):
        wanted = decay * before[f"{name}.ema"].astype(np.float64) + (1 - decay) * exe.tensors[name]
        np.testing.assert_allclose(exe.tensors[f"{name}.ema"], wanted, rtol=1e-5, atol=1e-7, err_msg=name)


# ---------------------------------------------------------------- networks


def zoo() -> dict[str, trc.BluePrint]:
    def of(*layers: trc.Layer, size: tuple[int, int, int] = (8, 8, 3)) -> trc.BluePrint:
        return trc.BluePrint(trc.seq(*layers), name="small", input=size)

    return {
        "mlp": of(trc.fc(9, bias=False), trc.bn(), trc.silu(), trc.dropout(0.2), trc.fc(4)),
        "residual": of(trc.conv(8, 3, 1, 1), trc.bn(), trc.relu(), trc.block(8, trc.RESNET_3_3),
                       trc.block(8, 12, trc.RESNET_1_3_1_DS), trc.gap_fc(4)),
        "mobile": of(trc.cbr(8, 3, 2, 1, act=trc.relu6), trc.block(8, trc.MB_E6_K3), trc.gap(), trc.fc(4)),
        "image twice": of(trc.add2(trc.seq(trc.bn(), trc.conv(6, 3, 1, 1, bias=True)), trc.conv(6, 1)),
                          trc.maxpool(2, 2), trc.flatten(), trc.fc(4)),
    }  # fmt: skip


@pytest.mark.parametrize("planner", ["packed", "regions"])
@pytest.mark.parametrize("precision", ["fp32", "amp-fp16"])
@pytest.mark.parametrize("net", ["mlp", "residual", "mobile", "image twice"])
def test_evaluating_it_is_evaluating_a_network_with_its_weights(
    net: str, precision: str, planner: str, tmp_path: Path
) -> None:
    """To the bit, in one pass with the weights or alone, the ragged last batch included."""
    options: Any = {"batch": 6, "val_batch": 5, "val_samples": 13, "precision": precision, "planner": planner}
    exe = trc.compile(zoo()[net], ema=trc.EMA(0.5), **options)
    assert check_plan(exe.plan) == []
    rng = np.random.default_rng(1)

    def samples(n: int) -> tuple[np.ndarray, np.ndarray]:
        return rng.standard_normal((n, 8, 8, 3), dtype=np.float32), rng.integers(0, 4, n)

    for _ in range(3):
        exe.step(*samples(6))
    images, labels = samples(13)
    weights, average = exe.evaluate_both(images, labels)
    assert weights == exe.evaluate(images, labels)
    assert average == exe.evaluate(images, labels, ema=True)
    assert average.loss != weights.loss
    assert average.samples == 13
    exe.save_parameters(tmp_path / "average.safetensors", ema=True)
    plain = trc.compile(zoo()[net], **options)
    plain.load_parameters(tmp_path / "average.safetensors")
    assert plain.evaluate(images, labels) == average


@pytest.mark.parametrize("precision", ["fp32", "amp-fp16"])
def test_pixels_that_the_device_normalises(precision: str) -> None:
    """The average of a network that takes bytes, on the same data, is that of one that takes numbers."""
    normalise = trc.Normalise((0.5, 0.4, 0.3), (0.2, 0.25, 0.3))
    pixels = np.random.default_rng(7).integers(0, 256, (BATCH, *INPUT), dtype=np.uint8)
    labels = batches(7, 1)[0][1]
    numbers = (pixels / np.float32(255) - np.float32(normalise.mean)) / np.float32(normalise.std)
    one, two = compiled(precision, normalise=normalise), compiled(precision)
    assert check_plan(one.plan) == []
    for _ in range(3):
        one.step(pixels, labels)
        two.step(numbers.astype(np.float32), labels)
    got, want = one.evaluate_both(pixels, labels), two.evaluate_both(numbers.astype(np.float32), labels)
    assert got[1].loss != got[0].loss
    for a, b in zip(got, want, strict=True):
        assert a.loss == pytest.approx(b.loss, rel=1e-4 if precision == "fp32" else 2e-2)


def plan_of(**options: Any) -> Plan:
    return lower_to_plan(NET, batch=4, **options)


@pytest.mark.parametrize("precision", ["fp32", "amp-fp16"])
def test_a_plan_without_one_does_not_speak_of_it(precision: str) -> None:
    without = plan_of(precision=precision)
    text = without.to_json()
    assert "ema" not in text.lower()
    assert Plan.from_json(text) == without
    assert without.config.ema is None
    averaged = plan_of(precision=precision, ema=trc.EMA(0.9))
    assert Plan.from_json(averaged.to_json()) == averaged
    kept = [t.name for t in averaged.tensors if "ema" not in t.name]
    assert kept == [t.name for t in without.tensors], "nothing is renamed or moved to another place in the order"
    own = [n.kind for n in averaged.nodes if n.bucket.name.startswith(("EMA", "INF_EMA", "CAST_EMA"))]
    folds = sum(n.kind == "bn_fold" for n in without.nodes)
    assert len(averaged.nodes) == len(without.nodes) + len(own) + folds


# ---------------------------------------------------------------- runs, files


def small_data() -> Dataset:
    rng = np.random.default_rng(8)

    def split(n: int) -> Split:
        return Split(rng.standard_normal((n, *INPUT)).astype(np.float32), rng.integers(0, CLASSES, n).astype(np.int32))

    return Dataset("noise", CLASSES, split(40), split(17))


@pytest.mark.parametrize("precision", ["fp32", "amp-fp16"])
def test_a_resumed_run_gives_the_same_bytes(precision: str, tmp_path: Path) -> None:
    data = small_data()
    options: Any = {"train_samples": 40, "val_samples": 17, "epochs": 3, "ema": trc.EMA(0.95, warmup=True)}
    whole = compiled(precision, **options)
    result = whole.run(data)
    part = compiled(precision, **options)
    part.run(data, 1, checkpoint_to=tmp_path / "c")
    rest = compiled(precision, **options)
    rest.load_checkpoint(tmp_path / "c")
    again = rest.run(data)
    assert rest.checkpoint_bytes() == whole.checkpoint_bytes()
    assert [(e.val, e.ema) for e in again.epochs] == [(e.val, e.ema) for e in result.epochs[1:]]
    assert whole.evaluate(data.val, ema=True) == result.last_ema


def test_a_bundle_carries_it(tmp_path: Path) -> None:
    exe = compiled("fp32")
    data = small_data()
    x, y = data.val.images, data.val.labels
    for batch in batches(9, 3):
        exe.step(*batch)
    exe.save(tmp_path / "b")
    again = trc.load(tmp_path / "b")
    assert again.plan.config.ema == trc.EMA(DECAY)
    assert again.evaluate_both(x, y) == exe.evaluate_both(x, y)
    assert "graph.bucket EMA_UPDATE" in again.ir


def test_it_is_exported_for_pytorch(tmp_path: Path) -> None:
    exe = trc.compile(lenet5(), batch=4, ema=trc.EMA(0.5))
    rng = np.random.default_rng(2)
    exe.step(rng.standard_normal((4, 28, 28, 1), dtype=np.float32), rng.integers(0, 10, 4))
    exe.export_torchvision(tmp_path / "average", ema=True)
    exe.export_torchvision(tmp_path / "weights")
    average, weights = (safetensors.numpy.load_file(tmp_path / n) for n in ("average", "weights"))
    assert average.keys() == weights.keys()
    wanted = exe.tensors["conv1.weight.ema"].transpose(0, 3, 1, 2)
    np.testing.assert_array_equal(average["conv1.weight"], wanted)
    assert not np.array_equal(weights["conv1.weight"], wanted)
    exe.import_torchvision(tmp_path / "weights")
    np.testing.assert_array_equal(exe.tensors["conv1.weight.ema"], exe.tensors["conv1.weight"], "it begins anew")
    plain = trc.compile(lenet5(), batch=4)
    with pytest.raises(AverageError, match=r"compile it with ema=trc\.EMA"):
        plain.export_torchvision(tmp_path / "nothing", ema=True)


@pytest.mark.parametrize(
    ("ema", "message"),
    [
        (0.999, r"ema must be trc\.EMA\(\.\.\.\) or None, not 0\.999"),
        (trc.EMA, r"ema must be trc\.EMA\(\.\.\.\) or None, not <class"),
        (True, r"ema must be trc\.EMA\(\.\.\.\) or None, not True"),
    ],
)
def test_what_is_no_average_is_named(ema: Any, message: str) -> None:
    with pytest.raises(CompileError, match=message):
        trc.lower(NET, ema=ema)
