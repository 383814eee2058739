"""Defaults, and messages that name what is missing."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import trc
from trc.diagnostics import CompileError
from trc.session.options import CompileOptions, make_config, resolve_input
from trc_runtime.schema.bundle import MODEL, PLAN, write_bundle

NET = trc.BluePrint(trc.seq(trc.fc(4), trc.relu(), trc.fc(3)), name="net", input=(2, 3, 1))
BARE = trc.BluePrint(trc.seq(trc.fc(3)), name="bare")


def test_only_the_blueprint_is_obligatory() -> None:
    config = make_config(NET, {}, 3)
    assert config.input == (2, 3, 1)
    assert config.train_samples is None
    assert config.val_batch == config.batch
    assert config.train_resolution == ((2, 3), (2, 3))


def test_resolutions() -> None:
    both = make_config(NET, {"train_resolution": ((2, 3), (4, 6)), "val_resolution": 8}, 3)
    assert both.train_resolution == ((2, 3), (4, 6))
    assert both.val_resolution == (8, 8)
    assert make_config(NET, {"train_resolution": (4, 6)}, 3).train_resolution == ((4, 6), (4, 6))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch": 0}, "batch must be a whole number of at least 1, not 0"),
        ({"batch": True}, "batch must be a whole number"),
        ({"epochs": -1}, "epochs must be"),
        ({"precision": "fp8"}, "unknown precision 'fp8'; choose one of"),
        ({"optimizer": "adam"}, "optimizer must be one of trc.SGD"),
        ({"schedule": 0.1}, "schedule must be one of trc.Constant"),
        ({"loss": "ce"}, "loss must be trc.CrossEntropy"),
        ({"ema": 0.999}, r"ema must be trc\.EMA\(\.\.\.\) or None, not 0\.999"),
        ({"seed": -1}, "seed must be a whole number"),
        ({"val_resolution": "big"}, "val_resolution must be a side in pixels"),
        (
            {"schedule": trc.CosineAnnealing()},
            "CosineAnnealing needs to know .*: pass epochs and train_samples",
        ),
        ({"schedule": trc.CosineAnnealing(), "epochs": 3}, "pass train_samples, or use"),
        ({"schedule": trc.StepDecay()}, "StepDecay needs to know .*: pass epochs and train_samples"),
        ({"schedule": trc.Constant(warmup=1)}, "Constant with a warm-up needs to know"),
        ({"batch": 10**30}, "batch must be at most 2,147,483,647"),
        ({"batch": 8.0}, "batch must be a whole number"),
        ({"batch": np.array([8, 8])}, "batch must be a whole number"),
        ({"num_classes": 1}, "num_classes is 1, and softmax cross entropy chooses between at least 2 classes"),
        ({"fuse": "no"}, "fuse must be True or False, not 'no'"),
        ({"choices": 5}, "choices must be the path of a file, not 5"),
        ({"epochs": 10, "train_samples": 10**9, "batch": 8}, "are 1,250,000,000 steps, each with its rate"),
        ({"input": 5}, r"input must be \(height, width, channels\), not 5"),
        ({"input": {1, 2, 3}}, r"input must be \(height, width, channels\)"),
        ({"input": (100_000, 1, 1)}, "input: height must be from 1 to 65536, not 100000"),
        ({"train_resolution": (8, 8, 8)}, "train_resolution must be a side in pixels"),
        ({"train_resolution": True}, "train_resolution must be a whole number"),
        ({"normalise": (0.5, 0.5)}, r"normalise must be trc\.Normalise\(mean, std\), not \(0\.5, 0\.5\)"),
        (
            {"normalise": trc.Normalise((0.5,) * 3, (0.5,) * 3)},
            "the network's input has 1 channel, normalise has 3: .* takes one number a channel",
        ),
        (
            {"normalise": trc.Normalise((0.5,), (5e-6,)), "precision": "amp-fp16"},
            "makes pixels of up to 100000, beyond 65504, the largest number of amp-fp16: take a larger std, or",
        ),
        ({"batchsize": 3}, "has no option 'batchsize'; did you mean 'batch'"),
    ],
)
def test_messages(options: CompileOptions, message: str) -> None:
    with pytest.raises(CompileError, match=message):
        make_config(NET, options, options.get("num_classes") or 3)


def test_numbers_and_arrays_of_numpy() -> None:
    whole: Any = np.int64
    options: Any = {
        "input": np.array([2, 3, 1]),
        "batch": whole(4),
        "epochs": whole(2),
        "train_samples": np.uint8(9),
        "seed": whole(3),
        "train_resolution": np.array([[2, 3], [4, 6]]),
    }
    config = make_config(NET, options, whole(3))
    plain = make_config(
        NET,
        {"input": (2, 3, 1), "batch": 4, "epochs": 2, "train_samples": 9, "seed": 3,
         "train_resolution": ((2, 3), (4, 6))},
        3,
    )  # fmt: skip
    assert config == plain
    assert {type(v) for v in (config.batch, config.epochs, config.seed, config.num_classes, *config.input)} == {int}


def test_a_network_with_one_output_is_refused_in_plain_words() -> None:
    with pytest.raises(CompileError, match=r"the network's result has 1 channel, .* end in fc\(2\) or more"):
        trc.lower(trc.fc(1), input=(2, 2, 1), to="arch")


def test_a_layer_that_is_no_network() -> None:
    with pytest.raises(CompileError, match="needs at least one layer after input"):
        trc.compile(trc.input(2, 2, 1))


def test_too_little_memory_and_names_with_one_checksum_are_mistakes_of_the_input() -> None:
    with pytest.raises(CompileError, match="not enough memory for the plan"):
        trc.compile(NET, batch=2**31 - 1)
    # Two names whose random streams have the same CRC-32.
    twins = trc.seq(trc.fc(4, name="l29685295"), trc.fc(3, name="l32060020"))
    with pytest.raises(CompileError, match=r"'init/l29685295\.weight' and 'init/l32060020\.weight' have the same"):
        trc.compile(twins, input=(2, 2, 1), batch=2)


def test_a_bundle_without_ir_or_with_an_impossible_plan(tmp_path: Path) -> None:
    exe = trc.compile(NET, batch=2)
    write_bundle(tmp_path / "b", {PLAN: exe.plan.to_json().encode()}, "cpu")
    with pytest.raises(CompileError, match=r"b: the bundle lacks model\.mlir"):
        trc.load(tmp_path / "b")
    huge = replace(exe.plan, total=1 << 60)
    write_bundle(tmp_path / "b", {PLAN: huge.to_json().encode(), MODEL: b""}, "cpu")
    with pytest.raises(CompileError, match="b: not enough memory"):
        trc.load(tmp_path / "b")
    kinds = tuple(replace(n, kind="nothing") for n in exe.plan.nodes)
    write_bundle(tmp_path / "b", {PLAN: replace(exe.plan, nodes=kinds).to_json().encode(), MODEL: b""}, "cpu")
    with pytest.raises(CompileError, match="b: the CPU target has no kernel for nothing"):
        trc.load(tmp_path / "b")


def test_an_unknown_input_is_named() -> None:
    with pytest.raises(CompileError, match=r"the input size of 'bare' is unknown: write input\(height"):
        resolve_input(BARE, None)
    assert resolve_input(BARE, (1, 2, 3)) == (1, 2, 3)


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_several_ranks_are_refused_before_any_code(target: str) -> None:
    with pytest.raises(CompileError, match=r"^error: world_size=2: several ranks .* compile for world_size=1\."):
        trc.compile(NET, target=target, world_size=2)
    assert "mean_allreduce" in str(trc.lower(NET, target=target, world_size=2))
