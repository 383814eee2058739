"""kernels.cu: the same bytes for the same plan, and code that fits the device."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from difflib import unified_diff
from pathlib import Path

import pytest

from tests.unit.codegen.cuda.averages import averages
from tests.unit.codegen.cuda.cases import every
from tests.unit.codegen.cuda.differential import Case
from tests.unit.codegen.cuda.pixels import pixels
from tests.unit.codegen.cuda.update_golden import MODELS, ROOT, golden_file, plan_of
from trc.codegen.cuda import emitter
from trc.codegen.cuda.bundle import generate
from trc.codegen.cuda.emitter import FAMILY_ORDER, KERNELS, emit, source_of
from trc.codegen.cuda.lowering import Instance
from trc_runtime.cuda.cubins import compile_cubin, usage

ZOO = ("mlp", "lenet5", "nin", "resnet18", "resnet50", "mobilenet_v2", "vgg16_bn")
MOST_REGISTERS = 128
"""So that at least 512 threads fit a multiprocessor."""


@pytest.mark.parametrize("model", MODELS)
def test_golden(model: str) -> None:
    text = generate(plan_of(model)).kernels
    known = golden_file(model).read_text(encoding="utf-8")
    changes = "".join(unified_diff(known.splitlines(True), text.splitlines(True), "golden", "emitted", n=1))
    assert not changes, f"run python -m tests.unit.codegen.cuda.update_golden if this is meant:\n{changes[:6000]}"


def test_same_bytes_in_another_process() -> None:
    code = (
        "from tests.unit.codegen.cuda.update_golden import plan_of\n"
        "from trc.codegen.cuda.bundle import generate\n"
        "import hashlib; print(hashlib.sha256(generate(plan_of('resnet18')).kernels.encode()).hexdigest())"
    )
    path = os.pathsep.join((str(ROOT), str(ROOT / "runtime")))
    made = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(made) == 1


def test_names_say_kind_and_constants_and_no_layer() -> None:
    plan = plan_of("resnet18")
    source = emit(plan)
    layers = {n.layer for n in plan.nodes if n.layer and n.layer != "softmax_ce"}  # which is a kind, too
    assert list(source.instances) == sorted(source.instances)
    for name, instance in source.instances.items():
        assert "__" in name, "a kernel's name differs from every function's"
        assert not any(layer in name for layer in layers)
        assert instance.source in source.text
    assert source.text.count('extern "C" __global__') == len(source.instances)


def test_only_needed_families() -> None:
    text = emit(plan_of("mlp")).text
    assert "dropout" not in text
    assert "depthwise" not in text


def test_every_family_is_listed() -> None:
    assert {p.stem for p in KERNELS.glob("*.cuh")} == {"common", *FAMILY_ORDER}


def test_different_kernels_of_one_name_are_refused() -> None:
    plan = plan_of("mlp")
    known = next(iter(emit(plan).instances.values()))
    other = Instance(known.name, known.family, known.parameters, "something_else()", known.threads)
    with pytest.raises(ValueError, match=known.name):
        emit(plan, [other])


def test_no_slow_headers() -> None:
    for file in KERNELS.glob("*.cuh"):
        included = [line for line in file.read_text().splitlines() if line.startswith("#include")]
        assert set(included) <= {"#include <cuda_bf16.h>", "#include <cuda_fp16.h>"}, file.name
        assert emitter.family_text(file.stem) == file.read_text(encoding="utf-8")


# ---------------------------------------------------------------- with NVRTC


def check_code(text: str, architecture: str, folder: Path, kernels: int) -> None:
    """Compile, and look at registers and spills."""
    pytest.importorskip("cuda.bindings.nvrtc")
    cubin = compile_cubin(text, architecture, cache=folder)
    found = usage(cubin.log)
    assert len(found) == kernels
    for name, used in found.items():
        assert (used.stack, used.spill_stores, used.spill_loads) == (0, 0, 0), name
        assert used.registers <= MOST_REGISTERS, (name, used.registers)


@pytest.mark.parametrize("model", MODELS)
def test_code_of_three_models(model: str, tmp_path: Path) -> None:
    code = generate(plan_of(model))
    check_code(code.kernels, "sm_90", tmp_path, len(code.program.instances))


@pytest.mark.parametrize("cases", [pixels, averages], ids=["images as bytes", "moving averages"])
def test_code_that_no_model_has_without_an_option(cases: Callable[[], Iterator[Case]], tmp_path: Path) -> None:
    instances = {i.name: i for case in cases() for i in (launch.instance for launch in case.lowered.launches)}
    check_code(source_of(dict(sorted(instances.items()))), "sm_90", tmp_path, len(instances))


@pytest.mark.accept
@pytest.mark.parametrize("architecture", ["sm_80", "sm_100"])
@pytest.mark.parametrize("model", MODELS)
def test_code_for_other_architectures(model: str, architecture: str, tmp_path: Path) -> None:
    code = generate(plan_of(model))
    check_code(code.kernels, architecture, tmp_path, len(code.program.instances))


@pytest.mark.accept
@pytest.mark.parametrize("precision", ["amp-fp16", "amp-bf16", "fp32"])
@pytest.mark.parametrize("model", ZOO)
def test_code_of_the_zoo(model: str, precision: str, tmp_path: Path) -> None:
    code = generate(plan_of(model, precision))
    check_code(code.kernels, "sm_90", tmp_path, len(code.program.instances))


@pytest.mark.accept
def test_code_of_every_case(tmp_path: Path) -> None:
    instances = {i.name: i for case in every() for i in (launch.instance for launch in case.lowered.launches)}
    text = source_of(dict(sorted(instances.items())))
    check_code(text, "sm_90", tmp_path, len(instances))
