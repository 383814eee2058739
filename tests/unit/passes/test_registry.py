"""The registry: every pass loads, is named as its file, and pipelines read back from their text."""

from __future__ import annotations

import pytest

from trc.diagnostics import CompileError
from trc.passes.pipelines import NAMED_PIPELINES, PHASES
from trc.passes.registry import PASSES, load_pass, option_texts, parse_pipeline, pipeline_text, summary


@pytest.mark.parametrize("name", PASSES)
def test_pass(name: str):
    cls = load_pass(name)
    assert cls.name == name
    assert cls.__module__.rsplit(".", 1)[1] == name.replace("-", "_")
    assert len(summary(name)) > 10
    assert summary(name).endswith(".")
    assert all(" " not in text for text in option_texts(name))


def test_phases_hold_every_pass_once():
    assert [name for phase in PHASES.values() for name in phase] == sorted(
        PASSES, key=[name for phase in PHASES.values() for name in phase].index
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "arch-expand-tree",
        "arch-expand-tree{fuse=true},arch-rename-bn",
        'plan-create-compile-specs{batch=7 precision="amp-fp16"}',
        "arch-plan",
        "arch-plan{amp=true fuse=true num-classes=100 label-smoothing=0.1}",
        "plan{batch=12 optimizer=adamw weight-decay=1e-4}",
        "arch-plan,plan",
        "plan{mean=0.485,0.456,0.406 std=0.229,0.224,0.225}",
        "plan{mean=0 std=1}",
        'plan-derive-all-shapes{mean=-0.5,1e-5,"0.25" std=3,1e-20,2e22}',
    ],
)
def test_text_reads_back(text: str):
    passes = parse_pipeline(text)
    assert parse_pipeline(pipeline_text(passes)) == passes
    assert parse_pipeline(f" builtin.module(\n {text}\n) ") == passes


def test_named_pipelines_are_expanded():
    assert len(parse_pipeline("arch-plan")) > 5
    assert all(p.name in PASSES for name in NAMED_PIPELINES for p in parse_pipeline(name))


def test_white_space_between_passes_and_options():
    passes = parse_pipeline(
        "arch-expand-tree{ fuse=true },\n  arch-normalize-softmax-ce{\n num-classes=3\n label-smoothing=0.5 }"
    )
    assert str(passes[0]) == "arch-expand-tree{fuse=true}"


def test_unknown_pass():
    with pytest.raises(CompileError, match="unknown pass: 'plann'; did you mean 'plan'"):
        parse_pipeline("plann")
    with pytest.raises(CompileError, match=r"unknown pass: 'xyz'$"):
        load_pass("xyz")
