from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest

import trc
from trc.codegen.cuda import driver
from trc.codegen.cuda.bundle import CudaCode, generate
from trc.codegen.cuda.program import lower_plan
from trc.diagnostics import CompileError
from trc.models import mlp
from trc.session.compiling import lower_to_plan
from trc_runtime.cuda.bundle import read_sources
from trc_runtime.cuda.calls import ClearCall, CopyCall, CudnnCall, Host, KernelCall
from trc_runtime.schema.plan import Plan

EMIT = """
import sys
from trc.codegen.cuda.bundle import generate
from trc.models import mlp
from trc.session.compiling import lower_to_plan
code = generate(lower_to_plan(mlp(), target="cuda", precision="amp-fp16", batch=24, train_samples=100, val_samples=30))
sys.stdout.write(code.kernels + code.driver + code.nodemap)
"""


def plan_of(precision: str = "amp-fp16", **options: Any) -> Plan:
    options = {"train_samples": 100, "val_samples": 30, **options}
    return lower_to_plan(mlp(), target="cuda", precision=precision, batch=24, **options)


@pytest.fixture(scope="module")
def plan() -> Plan:
    return plan_of()


@pytest.fixture(scope="module")
def code(plan: Plan) -> CudaCode:
    return generate(plan)


def executed(code: CudaCode) -> dict[str, Any]:
    space: dict[str, Any] = {"__name__": "driver"}
    exec(compile(code.driver, "driver.py", "exec"), space)
    return space


def test_the_driver_says_what_it_belongs_to(plan: Plan, code: CudaCode) -> None:
    space = executed(code)
    assert space["PLAN_SHA256"] == plan.sha256()
    assert space["KERNELS"] == tuple(code.program.instances)
    assert space["CUDNN"] == dict(code.program.descriptions)
    assert space["SCRATCH_BYTES"] == max(n.scratch for f in code.program.functions for n in f.nodes)
    names = [function.__name__ for function in space["CAPTURES"]]
    assert names == [f"{c.computation}_{c.bucket.name.lower()}_{number}" for number, c in enumerate(plan.captures)]


def test_each_function_makes_the_calls_of_its_bucket(plan: Plan, code: CudaCode) -> None:
    sources = read_sources(plan, code.kernels, code.driver)
    for capture, definition in zip(plan.captures, sources.definitions, strict=True):
        bucket = (capture.computation, capture.bucket)
        wanted = [i for i, n in enumerate(plan.nodes) if (n.computation, n.bucket) == bucket]
        assert list(definition.nodes) == wanted
        for index, made in definition.nodes.items():
            assert (made.kind, made.layer) == (plan.nodes[index].kind, plan.nodes[index].layer)


def calls_of(plan: Plan, code: CudaCode, kind: str, column: int = 0) -> list[Any]:
    sources = read_sources(plan, code.kernels, code.driver)
    for capture, definition in zip(plan.captures, sources.definitions, strict=True):
        if capture.column == column:
            for node in definition.nodes.values():
                if node.kind == kind:
                    return node.calls
    raise AssertionError(f"no node {kind} in column {column}")


def test_input_is_copied_as_it_is_stored_in_each_column(plan: Plan, code: CudaCode) -> None:
    places = {t.name: t.offset for t in plan.tensors}
    for column in (0, 1, 5):  # column 4 shares the captures of column 0
        n = plan.variants[column].batch
        label, data = calls_of(plan, code, "h2d_copy", column)
        assert isinstance(label, CopyCall)
        assert (label.src, label.nbytes, label.dst.offset) == (Host("A", "label"), 4 * n, places["label_a"])
        # One channel of half precision lies in four.
        assert (data.src, data.nbytes, data.dst.offset) == (Host("A", "data"), n * 784 * 4 * 2, places["data_a"])


def test_gradients_are_cleared_as_one_span(plan: Plan, code: CudaCode) -> None:
    (clear,) = calls_of(plan, code, "clear")
    assert isinstance(clear, ClearCall)
    spans = [s for s in plan.spans if s.name.startswith(("G_", "R_RESULT")) and s.name != "R_RESULT_ACCUMULATED"]
    assert clear.offset == min(s.offset for s in spans)
    assert clear.nbytes == sum(s.bytes for s in spans)


def test_calls_of_one_node_follow_each_other(plan: Plan, code: CudaCode) -> None:
    (product,) = calls_of(plan, code, "fc_fwd")
    assert isinstance(product, KernelCall)
    first, second = calls_of(plan, code, "check_nan")
    assert (first.name, second.name) == ("find_nan__f32", "any_flag__i32")
    single = plan_of("fp32")
    product, act = calls_of(single, generate(single), "fc_fwd")
    assert isinstance(product, CudnnCall)
    assert act.name == "relu_fwd__f32"


def test_a_person_can_read_it(code: CudaCode) -> None:
    lines = code.driver.splitlines()
    assert max(map(len, lines)) <= driver.WIDTH
    assert not [line for line in lines if line != line.rstrip()]
    above = {lines[n - 1].strip() for n, line in enumerate(lines) if line.strip().startswith("c.node(")}
    assert all(line.startswith("#") for line in above)
    shown = (
        "# relu2: x [24, 1, 1, 1024] f16, weight [512, 1, 1, 1024] f16, bias [512] f32 -> y [24, 1, 1, 512] f16; 1.1 MB"
    )
    assert shown in above


def test_names_cannot_break_out_of_their_quotes(plan: Plan) -> None:
    evil = 'x"\n\nraise SystemExit("""'
    nodes = tuple(replace(n, layer=evil if n.layer == "fc2" else n.layer) for n in plan.nodes)
    bad = replace(plan, name=evil, nodes=nodes)
    code = generate(bad)
    sources = read_sources(bad, code.kernels, code.driver)
    assert evil in {n.layer for d in sources.definitions for n in d.nodes.values()}


def test_the_same_plan_gives_the_same_bytes(code: CudaCode) -> None:
    texts: list[str] = []
    for seed in ("1", "2"):
        env = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run([sys.executable, "-c", EMIT], env=env, capture_output=True, text=True, check=True)
        texts.append(done.stdout)
    assert texts[0] == texts[1] == code.kernels + code.driver + code.nodemap


def test_what_cuda_cannot_do_names_kind_and_layer(plan: Plan) -> None:
    nodes = tuple(replace(n, kind="gelu_fwd") if n.layer in ("relu1", "relu2", "relu3") else n for n in plan.nodes)
    with pytest.raises(CompileError) as found:
        lower_plan(replace(plan, nodes=nodes))
    message = str(found.value)
    assert "layer 'relu1': kind gelu_fwd on target cuda: there is no kernel" in message
    assert len(found.value.problems) == 3  # one a layer, not one a column


def test_float64_stays_on_the_cpu() -> None:
    with pytest.raises(CompileError, match="fp64 exists on the CPU only"):
        generate(plan_of("fp64"))


def test_gradients_of_several_ranks_become_collectives() -> None:
    code = generate(plan_of("fp32", world_size=2, train_samples=None, val_samples=None))
    assert 'c.collective("mean", ' in code.driver


def test_an_unknown_option_is_no_surprise() -> None:
    with pytest.raises(CompileError, match="unknown target"):
        trc.lower(mlp(), target="gpu")
