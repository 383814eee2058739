"""`trc.compile(normalise=...)`: images travel as bytes, and nothing else changes, down to the last bit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import trc
import trc_runtime.__main__ as runtime_main
from trc.codegen.cuda.bundle import generate
from trc.session import Executable
from trc.session.compiling import lower_to_plan
from trc_runtime.cuda.bundle import read_sources
from trc_runtime.cuda.calls import Arena, CopyCall, Host
from trc_runtime.cuda.null import check_sources
from trc_runtime.data.dataset import CIFAR, IMAGENET, MNIST, Dataset, Split
from trc_runtime.data.idx import DataError
from trc_runtime.data.synthetic import synthetic
from trc_runtime.schema.check import check_plan
from trc_runtime.schema.config import Normalise
from trc_runtime.schema.dtypes import DType
from trc_runtime.schema.normalise import normalised
from trc_runtime.schema.plan import Plan, RangeRef
from trc_runtime.schema.regions import Region
from trc_runtime.schema.valid import plan_problems
from trc_runtime.train.checkpoint import CheckpointError

BY_CHANNELS = {1: MNIST, 3: CIFAR, 4: Normalise((0.1, 0.2, 0.3, 0.0), (0.5, 0.6, 0.7, 1.0))}
PRECISIONS = ("fp32", "fp64", "amp-fp16", "amp-bf16")


def net(channels: int, first: str = "conv") -> trc.BluePrint:
    """A first layer that reads the images in a bucket of their buffer, or two that read a copy of them."""
    conv = trc.conv(8, 3, 1, 1, bias=False)
    layers = (conv, trc.bn(), trc.relu()) if first == "conv" else (trc.add2(trc.conv(8, 1, 1, 0), conv), trc.relu())
    return trc.BluePrint(trc.seq(*layers, trc.gap(), trc.fc(5)), name="net", input=(6, 7, channels))


OPTIONS: Any = {
    "batch": 8,
    "val_batch": 6,
    "epochs": 2,
    "train_samples": 20,
    "val_samples": 9,
    "optimizer": trc.SGD(momentum=0.9),
    "schedule": trc.Constant(base_lr=0.05),
    "seed": 3,
}


def pixels(seed: int, *shape: int) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def both(channels: int, first: str = "conv", **options: Any) -> tuple[Executable, Executable]:
    """The same network, normalised on the host and on the device."""
    common, how = OPTIONS | options, BY_CHANNELS[channels]
    return trc.compile(net(channels, first), **common), trc.compile(net(channels, first), normalise=how, **common)


def assert_equal_state(host: Executable, device: Executable, buffers: bool = True) -> None:
    assert set(device.tensors) - set(host.tensors) == {"bytes_a", "bytes_b", "input_scale", "input_shift"}
    for name in host.tensors:
        if not buffers and name.startswith(("data_", "label_")):
            continue
        assert host.tensors[name].tobytes() == device.tensors[name].tobytes(), name


def data_of(how: Normalise, val: tuple[int, int] = (6, 7)) -> Dataset:
    channels = len(how.mean)
    train = synthetic((6, 7, channels), 5, train=20, val=1, normalisation=how).train
    labels = np.arange(9, dtype=np.int32) % 5
    return Dataset("pixels", 5, train, Split(pixels(1, 9, *val, channels), labels, how))


# ---------------------------------------------------------------- the same bytes


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("channels", BY_CHANNELS)
def test_training_gives_the_same_bytes(channels: int, precision: str) -> None:
    host, device = both(channels, precision=precision, val_resolution=(9, 5))
    data = data_of(BY_CHANNELS[channels], (9, 5))
    results = [exe.run(data) for exe in (host, device)]  # last batches of 4 and 3, another resolution in validation
    assert results[0].last is not None
    assert results[0].last == results[1].last
    assert [e.train_loss for e in results[0].epochs] == [e.train_loss for e in results[1].epochs]
    assert_equal_state(host, device)
    assert check_plan(device.plan) == []


@pytest.mark.parametrize("precision", ["fp32", "amp-fp16"])
def test_steps_and_evaluation_take_bytes(precision: str) -> None:
    host, device = both(3, "add", precision=precision)
    images, labels = pixels(0, 8, 6, 7, 3), np.arange(8) % 5
    floats = normalised(images, CIFAR)
    for _ in range(3):
        assert host.step(floats, labels) == device.step(images, labels)
    assert host.evaluate(floats[:6], labels[:6]) == device.evaluate(images[:6], labels[:6])
    assert_equal_state(host, device)


def test_a_network_without_it_has_the_plan_it_had() -> None:
    plain = lower_to_plan(net(3), **OPTIONS)
    text = plain.to_json()
    assert "normalise" not in text
    assert "BYTES" not in text
    assert '"values"' not in text
    with_it = lower_to_plan(net(3), normalise=CIFAR, **OPTIONS)
    assert Plan.from_json(with_it.to_json()) == with_it
    assert with_it.config == replace(plain.config, normalise=CIFAR)


@pytest.mark.parametrize("planner", ["packed", "regions"])
def test_published_regions_stay_where_they_are(planner: str) -> None:
    places = []
    for how in (None, CIFAR):
        plan = lower_to_plan(net(3), planner=planner, normalise=how, **OPTIONS)
        assert check_plan(plan) == []
        places.append({s.name: (s.offset, s.bytes) for s in plan.spans if s.name not in ("POOL", "S_TABLE")})
    plain, with_bytes = places
    added = {name: span for name, span in with_bytes.items() if name not in plain}
    assert {n: s for n, s in with_bytes.items() if n not in added and n != "T_WORKSPACE"} == {
        n: s for n, s in plain.items() if n != "T_WORKSPACE"
    }
    assert list(added) == ["I_A_BYTES", "I_B_BYTES"]
    assert all(size == 1024 for _, size in added.values()), "8 x 6 x 7 x 3 bytes and 16 make 1024"


def test_each_variant_has_its_own_shape() -> None:
    plan = lower_to_plan(net(3), precision="amp-fp16", normalise=CIFAR, val_resolution=(9, 5), **OPTIONS)
    tensors = {t.name: t for t in plan.tensors}
    assert tensors["bytes_b"].shapes == (
        *((8, 6, 7, 3), (4, 6, 7, 3), (8, 6, 7, 3), (4, 6, 7, 3)),
        *((6, 9, 5, 3), (3, 9, 5, 3)),
    )
    assert (tensors["data_b"].shapes[1], tensors["data_b"].channels) == ((4, 6, 7, 4), 3)


def test_the_memory_report_counts_the_bytes() -> None:
    host, device = both(3)
    before, after = (dict(exe.memory_report().categories)["input buffers"] for exe in (host, device))
    assert after - before == 2 * 1024


# ---------------------------------------------------------------- saved and loaded


def test_a_bundle_carries_it(tmp_path: Path) -> None:
    _, exe = both(3)
    data = data_of(CIFAR)
    exe.run(data, 1)
    exe.save(tmp_path / "out")
    loaded = trc.load(tmp_path / "out")
    assert loaded.plan.config.normalise == CIFAR
    assert np.array_equal(loaded.tensors["input_scale"], exe.tensors["input_scale"])
    assert loaded.run(data).last == exe.run(data).last
    assert str(loaded.module) == str(exe.module)


def test_a_checkpoint_goes_on_either_way(tmp_path: Path) -> None:
    host, device = both(3)
    data = data_of(CIFAR)
    host.run(data, 1)
    host.save_checkpoint(tmp_path / "half")
    device.load_checkpoint(tmp_path / "half")
    assert device.run(data).last == host.run(data).last
    assert_equal_state(host, device, buffers=False)  # an evaluation more moves the turns of the two input buffers
    device.save_checkpoint(tmp_path / "whole")
    host.load_checkpoint(tmp_path / "whole")
    assert host.epoch == 2
    other = trc.compile(net(3), normalise=IMAGENET, **OPTIONS)
    with pytest.raises(
        CheckpointError, match=r"normalise was Normalise\(mean=.*0\.4914.*, now Normalise\(mean=.*0\.485"
    ):
        other.load_checkpoint(tmp_path / "whole")


def test_the_runtime_alone_feeds_a_bundle_as_its_plan_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    host, device = both(1, val_resolution=(6, 7))
    for name, exe in (("host", host), ("device", device)):
        exe.save(tmp_path / name)
        for action in ("train", "eval"):
            assert runtime_main.main([str(tmp_path / name), action, "--data", "synthetic", "-q"]) == 0
        assert runtime_main.main([str(tmp_path / name), "bench", "--steps", "2", "-q"]) == 0
        assert capsys.readouterr().out.count("top1=") == 2
    assert runtime_main.main([str(tmp_path / "device"), "info"]) == 0
    assert "normalise=Normalise(mean=(0.1307,), std=(0.3081,))" in capsys.readouterr().out


# ---------------------------------------------------------------- mistakes


def test_images_of_the_wrong_type_are_refused() -> None:
    host, device = both(3)
    images, labels = pixels(0, 8, 6, 7, 3), np.arange(8) % 5
    with pytest.raises(
        DataError, match=r"unsigned bytes: compile with normalise=trc\.Normalise\(mean, std\), or normal"
    ):
        host.step(images, labels)
    for wrong in (np.float32, np.float64):
        with pytest.raises(DataError, match=rf"images are {wrong.__name__}, but this network takes unsigned bytes"):
            device.step(images.astype(wrong), labels)
    with pytest.raises(DataError, match="compile without normalise="):
        device.evaluate(images[:6].astype(np.float32), labels[:6])
    with pytest.raises(DataError, match="must be unsigned bytes or floating-point numbers, not int32"):
        device.step(images.astype(np.int32), labels)
    with pytest.raises(DataError, match="the images have 1 channels, the normalisation has 3"):
        device.step(images[..., :1], labels)


def test_data_with_another_normalisation_is_refused_before_the_first_step() -> None:
    _, device = both(3)
    data = data_of(IMAGENET)
    for work in (lambda: device.run(data), lambda: device.evaluate(data.val)):
        with pytest.raises(DataError, match=r"normalisation is mean \(0\.485, .* compiled for mean \(0\.4914, "):
            work()
    assert device.tensors["iteration"].item() == 0


def test_a_plan_whose_settings_and_tensors_disagree_is_refused() -> None:
    plan, plain = (lower_to_plan(net(3), normalise=how, **OPTIONS) for how in (CIFAR, None))
    assert not [*plan_problems(plan), *plan_problems(plain)]

    def configured(plan: Plan, how: Normalise | None) -> Plan:
        return replace(plan, config=replace(plan.config, normalise=how))

    tensors = tuple(replace(t, dtype=DType.I8) if t.name == "bytes_b" else t for t in plan.tensors)
    for damaged, message in (
        (configured(plan, None), "has 'bytes_a', but does not say how to normalise it"),
        (configured(plain, CIFAR), "normalises images (mean (0.4914, 0.4822, 0.4465), std (0.247, "),
        (configured(plan, MNIST), "'bytes_a' does not have bytes of 1 channels"),
        (replace(plan, tensors=tensors), "'bytes_b' does not have bytes of 3 channels"),
    ):
        assert any(problem.startswith(message) for problem in plan_problems(damaged)), message


# ---------------------------------------------------------------- the driver's calls


def test_the_null_driver_knows_what_is_staged() -> None:
    plan = lower_to_plan(net(3), target="cuda", normalise=CIFAR, **OPTIONS)
    code = generate(plan)
    sources = read_sources(plan, code.kernels, code.driver)
    assert check_sources(sources) == []
    copies = [
        call
        for definition in sources.definitions
        for node in definition.nodes.values()
        for call in node.calls
        if isinstance(call, CopyCall) and isinstance(call.src, Host)
    ]
    assert {(c.src.buffer, c.src.part) for c in copies if isinstance(c.src, Host)} == {
        (buffer, part) for buffer in "AB" for part in ("label", "bytes")
    }
    wrong = code.driver.replace('Host("A", "bytes")', 'Host("A", "data")')
    assert any("there is no staged input Host(buffer='A', part='data')" in p for p in null_problems(plan, code, wrong))
    tensors = {t.name: t for t in plan.tensors}
    stray = code.driver.replace(f"P({tensors['input_shift'].offset})", f"P({tensors['lr_table'].offset})")
    assert any("which is no operand of this node" in p for p in null_problems(plan, code, stray))
    assert isinstance(copies[0].dst, Arena)


def test_input_goes_to_input_regions_only() -> None:
    plan = lower_to_plan(net(3), target="cuda", normalise=CIFAR, **OPTIONS)
    wrong = RangeRef(Region.S_TABLE, Region.S_TABLE)
    nodes = [
        replace(n, operands=(replace(n.operands[0], ref=wrong),)) if n.kind == "h2d_copy" else n for n in plan.nodes
    ]
    with pytest.raises(
        trc.CompileError, match="h2d_copy on target cuda: copies input to 'lr_table', which lies in S_TABLE"
    ):
        generate(replace(plan, nodes=tuple(nodes)))


def null_problems(plan: Plan, code: Any, driver: str) -> list[str]:
    return check_sources(read_sources(plan, code.kernels, driver))


def test_it_is_one_kernel_a_transfer() -> None:
    plan = lower_to_plan(net(3), target="cuda", precision="amp-fp16", normalise=CIFAR, **OPTIONS)
    used = {i.name for i in generate(plan).program.instances.values() if i.family == "input"}
    assert used == {"normalise_input__f16_c3_p4"}
    for name in ("transfer_a", "transfer_b"):
        (step,) = (s for s in plan.steps if s.name == name)
        kinds = [plan.nodes[n].kind for n in step.nodes]
        assert kinds == ["h2d_copy", "h2d_copy", "normalise_input"]
        assert step.after == ((), (), (1,)), "labels and bytes need not wait for each other"
