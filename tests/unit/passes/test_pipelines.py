"""Named pipelines, phases, and the passes for a run's configuration."""

from __future__ import annotations

from dataclasses import replace

import pytest

from trc.diagnostics import CompileError
from trc.passes.pipelines import NAMED_PIPELINES, PHASES, build_pipeline, rate_table_length
from trc.passes.registry import PASSES, parse_pipeline, pipeline_text
from trc_runtime.schema.config import EMA, SGD, AdamW, Constant, CrossEntropy, RunConfig
from trc_runtime.schema.dtypes import Precision

CONFIG = RunConfig(
    optimizer=AdamW(weight_decay=1e-4),
    schedule=Constant(base_lr=1e-3),
    loss=CrossEntropy(0.1),
    input=(28, 28, 1),
    num_classes=10,
    batch=200,
    val_batch=100,
    epochs=5,
    train_samples=60000,
    val_samples=10000,
    train_resolution=((28, 28), (32, 32)),
    val_resolution=(36, 36),
    world_size=1,
    precision=Precision.FP32,
    seed=0,
)


def test_each_pass_completes_one_phase() -> None:
    assert [name for names in PHASES.values() for name in names] == list(PASSES)


def test_a_configuration_becomes_passes_with_its_options() -> None:
    passes = {p.name: p for p in build_pipeline(CONFIG, target="cuda")}
    assert list(passes) == [n for n in PASSES if n != "arch-align-amp-channels"]
    assert str(passes["plan-create-compile-specs"].spec()) == (
        "plan-create-compile-specs{val_batch=100 height=28 width=28 end_height=32 end_width=32 val_height=36 "
        "val_width=36 train_samples=60000 val_samples=10000}"
    )
    assert str(passes["plan-derive-all-shapes"].spec()) == "plan-derive-all-shapes{weight_decay=0.0001 rates=1500}"
    assert str(passes["plan-select-kernels"].spec()) == 'plan-select-kernels{target="cuda"}'


@pytest.mark.parametrize(
    "config",
    [
        CONFIG,
        replace(CONFIG, optimizer=SGD(0.9, True, 1e-5, True), precision=Precision.AMP_FP16),
        replace(CONFIG, epochs=None, world_size=4),
        replace(CONFIG, ema=EMA(0.9999)),
        replace(CONFIG, ema=EMA(1e-5, warmup=True)),
    ],
)
@pytest.mark.parametrize("planner", ["packed", "regions"])
@pytest.mark.parametrize("fuse", [True, False])
def test_the_passes_read_back_from_their_text(config: RunConfig, planner: str, fuse: bool) -> None:
    passes = build_pipeline(config, planner=planner, fuse=fuse)
    text = pipeline_text(passes)
    assert list(parse_pipeline(text)) == passes
    assert pipeline_text(parse_pipeline(text)) == text
    assert ("plan-pack-transients" in text) == (planner == "packed")
    assert ("arch-merge-triple" in text) == fuse
    assert ("arch-align-amp-channels" in text) == config.precision.is_amp


def test_a_moving_average_is_an_option_of_two_passes() -> None:
    passes = {p.name: str(p.spec()) for p in build_pipeline(replace(CONFIG, ema=EMA(0.99, warmup=True)))}
    assert passes["plan-derive-all-shapes"].endswith("rates=1500 ema_decay=0.99}")
    assert passes["graph-build-computation"].endswith("ema_decay=0.99 ema_warmup=true}")
    assert not any("ema" in str(p.spec()) for p in build_pipeline(CONFIG))


def test_the_rate_table_has_a_rate_a_step() -> None:
    assert rate_table_length(CONFIG) == 5 * 300
    assert rate_table_length(replace(CONFIG, train_samples=60001)) == 5 * 301
    assert rate_table_length(replace(CONFIG, world_size=3)) == 5 * 100
    assert rate_table_length(replace(CONFIG, epochs=None)) == 1
    assert rate_table_length(replace(CONFIG, train_samples=None)) == 1


def test_named_pipelines() -> None:
    steps = NAMED_PIPELINES["arch-plan"]({"amp": "true", "fuse": "false", "num-classes": "7"})
    assert steps[0] == ("arch-expand-tree", {"fuse": False})
    assert ("arch-normalize-softmax-ce", {"num-classes": 7, "label-smoothing": 0.0}) in steps
    assert [name for name, _ in NAMED_PIPELINES["plan"]({})] == [n for n in PASSES if not n.startswith("arch-")]


@pytest.mark.parametrize(
    ("pipeline", "options", "message"),
    [
        ("arch-plan", {"apm": "true"}, "arch-plan has no option 'apm'; it has amp"),
        ("arch-plan", {"amp": "yes"}, "option amp must be true or false, not 'yes'"),
        ("arch-plan", {"label-smoothing": "x"}, "option label-smoothing must be a number, not 'x'"),
        ("plan", {"batch": "1.5"}, "option batch must be a whole number, not '1.5'"),
    ],
)
def test_options_are_checked(pipeline: str, options: dict[str, str], message: str) -> None:
    with pytest.raises(CompileError) as caught:
        NAMED_PIPELINES[pipeline](options)
    assert message in str(caught.value)
