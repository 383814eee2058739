"""The choice of an engine, building the compiled one, and what blocks and threads must not change."""

import ctypes
import logging
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from trc_runtime.cpu.conv import build, depthwise, engine, gemm, native, team
from trc_runtime.cpu.kernels import conv as kernels
from trc_runtime.cpu.registry import lookup
from trc_runtime.schema import caches

from .conv_cases import Alone, params_of, run_alone, shapes_of
from .reference import random

CASE = (7, 13, 11, 35, 33, 3, 3, 2, 1, 1)
GROUPED = (5, 9, 8, 8, 12, 3, 3, 1, 1, 2)
DEPTHWISE = (5, 13, 11, 38, 38, 3, 3, 1, 1, 38)
needs_compiler = pytest.mark.skipif(not engine.native_available(), reason="no C compiler here")


def everything(case):
    """The outputs of all float32 kinds."""
    shapes, params = shapes_of(case), params_of(case)
    x, weight, dy = random(1, *(shapes[n] for n in ("x", "weight", "y")))
    scale, shift = random(2, (1, 1, 1, case[3]), (1, 1, 1, case[3]))
    f32, row = np.float32, (1, 1, 1, case[4])
    given = {"x": x, "weight": weight, "scale": scale, "shift": shift}
    outputs = {"y": (shapes["y"], f32), "sum": (row, f32), "sumsq": (row, f32)}
    found = run_alone("conv_norm_stats_fwd", given, outputs, act="relu", **params)
    found |= run_alone("conv_bwd_data", {"dy": dy, "weight": weight}, {"dx": (x.shape, f32)}, **params)
    given = {"dy": dy, "x": x, "scale": scale, "shift": shift}
    found |= run_alone("conv_norm_bwd_weight", given, {"dweight": (weight.shape, f32)}, act="relu", **params)
    return found


def assert_close(one, two, terms):
    for name in one:
        size = np.abs(one[name]).max()
        np.testing.assert_allclose(one[name], two[name], rtol=0, atol=terms * 2.0**-23 * size, err_msg=name)


@pytest.mark.parametrize("name", ["numpy", pytest.param("native", marks=needs_compiler)])
@pytest.mark.parametrize("case", [CASE, GROUPED, DEPTHWISE], ids=str)
def test_threads_change_no_byte(name, case, monkeypatch):
    with engine.using(name):
        found = []
        for threads in (1, 2, 3):
            monkeypatch.setattr(team, "thread_count", lambda threads=threads: threads)
            found.append(everything(case))
    for other in found[1:]:
        for key, array in found[0].items():
            assert array.tobytes() == other[key].tobytes(), key


@pytest.mark.parametrize("case", [CASE, GROUPED], ids=str)
def test_numpy_blocks(case, monkeypatch):
    """Blocks of rows of an image, of one image, of all images."""
    found = []
    with engine.using("numpy"):
        for size in (1, 40_000, 1 << 30):
            monkeypatch.setattr(gemm, "WINDOW_BYTES", size)
            found.append(everything(case))
    for other in found[1:]:
        assert_close(found[0], other, 500)


def test_depthwise_strips(monkeypatch):
    found = []
    with engine.using("numpy"):
        for size in (1, 4000, 1 << 20):
            monkeypatch.setattr(depthwise, "STRIP_BYTES", size)
            found.append(everything(DEPTHWISE))
    for other in found[1:]:
        assert_close(found[0], other, 500)


@needs_compiler
@pytest.mark.parametrize("case", [CASE, GROUPED, DEPTHWISE], ids=str)
def test_native_blocks(case, monkeypatch):
    found = []
    with engine.using("numpy"):
        found.append(everything(case))
    with engine.using("native"):
        for pixels, held in ((1, 1), (100, 40_000), (1 << 20, 1 << 25)):
            monkeypatch.setattr(native, "PIXELS", pixels)
            monkeypatch.setattr(native, "FRAME_BYTES", held)
            found.append(everything(case))
    for other in found[1:]:
        assert_close(found[0], other, 500)


@needs_compiler
def test_nan_and_infinity_pass():
    """A NaN stays one through the prologue's relu, in both engines alike."""
    case = (2, 5, 5, 3, 4, 3, 3, 1, 1, 1)
    shapes = shapes_of(case)
    x, weight = random(1, shapes["x"], shapes["weight"])
    x[0, 0, 0, 0], x[1, 4, 4, 1], x[1, 4, 4, 2] = np.nan, np.inf, -np.inf
    ones = np.ones((1, 1, 1, 3), np.float32)
    given = {"x": x, "weight": weight, "scale": ones, "shift": 0 * ones}
    for act in ("none", "relu", "relu6"):
        found = []
        for name in ("numpy", "native"):
            with engine.using(name):
                outputs = {"y": (shapes["y"], np.float32)}
                found.append(run_alone("conv_norm_fwd", given, outputs, act=act, **params_of(case))["y"])
        assert np.isnan(found[0][0, :2, :2]).all()
        np.testing.assert_allclose(found[0], found[1], rtol=1e-5, atol=1e-5)


@needs_compiler
def test_what_the_compiled_engine_leaves_to_numpy():
    def reason(case, dtype):
        shapes = shapes_of(case)
        x, weight, y = (np.zeros(shapes[n], dtype) for n in ("x", "weight", "y"))
        node = Alone({"x": x, "weight": weight, "y": y}, params_of(case))
        g = kernels.geometry(node, x.shape, weight.shape, y.shape)
        return native.refusal(g, gemm.Input(x, kernels.forward(g)), weight)

    assert reason(CASE, np.float32) is None
    assert reason(CASE, np.float16) is None
    assert reason(GROUPED, np.float32) is None
    assert reason(CASE, np.float64) == "it computes in float32"
    assert reason(DEPTHWISE, np.float16) is None
    doubled = (2, 5, 4, 3, 6, 3, 3, 1, 1, 3)
    assert reason(doubled, np.float32) == "it gives a channel of a depthwise convolution one output"
    assert reason(GROUPED, np.float16) == "it takes groups in float32 storage only"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"stride": 0}, "stride 0, padding 1 and groups 1 make no convolution"),
        ({"groups": 2}, r"weights \(33, 3, 3, 35\) in 2 groups do not fit 35 input channels"),
        ({"padding": 3}, r"input \(7, 13, 11, 35\), weights \(33, 3, 3, 35\), stride 2, padding 3 do not give"),
    ],
)
def test_contradictions(change, message):
    shapes = shapes_of(CASE)
    arrays = {n: np.zeros(shapes[n], np.float32) for n in ("x", "weight", "y")}
    with pytest.raises(ValueError, match=f"^node conv of layer 'layer1': {message}"):
        lookup("conv_fwd")(Alone(arrays, params_of(CASE) | change))


def test_unknown_activation():
    shapes = shapes_of(CASE)
    arrays = {n: np.zeros(shapes[n], np.float32) for n in ("x", "weight", "y")}
    arrays |= {n: np.zeros((1, 1, 1, 35), np.float32) for n in ("scale", "shift")}
    with pytest.raises(ValueError, match="knows the activations none, relu, relu6, not 'tanh'"):
        lookup("conv_norm_fwd")(Alone(arrays, params_of(CASE) | {"act": "tanh"}))


# ---------------------------------------------------------------- the choice


@pytest.fixture
def fresh(monkeypatch):
    """No decision made, nothing built; as before afterwards."""
    caches = [build.library, build._failed_or_path]

    def forget():
        engine._chosen.clear()
        for function in caches:
            function.cache_clear()

    forget()
    monkeypatch.delenv(engine.VARIABLE, raising=False)
    yield monkeypatch
    monkeypatch.undo()
    forget()


def test_without_a_compiler(fresh, caplog):
    fresh.setenv("CC", "no-such-compiler")
    with caplog.at_level(logging.INFO, "trc.cpu"):
        for _ in range(2):
            assert engine.choice() == engine.Choice("numpy", "there is no C compiler 'no-such-compiler'")
    assert [r.getMessage() for r in caplog.records] == [
        "CPU convolutions: numpy (there is no C compiler 'no-such-compiler')"
    ]
    fresh.setenv(engine.VARIABLE, "native")
    with pytest.raises(
        ValueError, match="cannot be had: there is no C compiler 'no-such-compiler'; unset TRC_CPU_CONV"
    ):
        engine.choice()


def test_asked_for(fresh):
    fresh.setenv(engine.VARIABLE, "numpy")
    assert engine.choice() == engine.Choice("numpy", "as asked for")
    fresh.setenv(engine.VARIABLE, "cuda")
    with pytest.raises(ValueError, match="TRC_CPU_CONV is one of auto, native, numpy, not 'cuda'"):
        engine.choice()


def test_a_compiler_that_fails(fresh, tmp_path):
    script = tmp_path / "cc"
    script.write_text("#!/bin/sh\n[ \"$1\" = --version ] && echo 1.0 && exit 0\necho 'no such option' >&2\nexit 1\n")
    script.chmod(0o755)
    fresh.setenv("CC", str(script))
    fresh.setenv("TRC_CACHE_DIR", str(tmp_path / "cache"))
    assert engine.choice().engine == "numpy"
    assert "no such option" in engine.choice().reason
    assert not list((tmp_path / "cache").iterdir()), "nothing half built stays"


@needs_compiler
def test_built_once(fresh, tmp_path):
    fresh.setenv("TRC_CACHE_DIR", str(tmp_path / "a" / "b"))
    assert engine.choice().engine == "native"
    (built,) = (tmp_path / "a" / "b").iterdir()
    assert engine.choice().reason == f"compiled as {built}"
    stamp = built.stat().st_mtime_ns
    build.library.cache_clear()
    build._failed_or_path.cache_clear()
    assert isinstance(build.library(), ctypes.CDLL)
    assert [p.stat().st_mtime_ns for p in built.parent.iterdir()] == [stamp]


@needs_compiler
def test_where_nothing_can_be_written(fresh, tmp_path, caplog):
    caches.warn_once.cache_clear()
    (tmp_path / "file").write_text("")
    fresh.setenv("TRC_CACHE_DIR", str(tmp_path / "file" / "cache"))
    assert engine.choice().engine == "native"
    assert str(build._own_directory()) in engine.choice().reason
    build.library.cache_clear()
    build._failed_or_path.cache_clear()
    assert isinstance(build.library(), ctypes.CDLL)
    (text,) = [r.getMessage() for r in caplog.records if r.name == "trc.cache"]
    assert f"{tmp_path / 'file' / 'cache'} cannot be used (Not a directory): set TRC_CACHE_DIR" in text


@needs_compiler
def test_without_a_home_folder(fresh, tmp_path, caplog):
    """A user of a bare number, as in containers: no folder "~" is made in the current one."""

    def home():
        raise RuntimeError("Could not determine home directory.")

    caches.warn_once.cache_clear()
    for name in ("TRC_CACHE_DIR", "XDG_CACHE_HOME"):
        fresh.delenv(name, raising=False)
    fresh.setattr(Path, "home", home)
    fresh.chdir(tmp_path)
    assert engine.choice().engine == "native"
    assert str(build._own_directory()) in engine.choice().reason
    (text,) = [r.getMessage() for r in caplog.records if r.name == "trc.cache"]
    assert text.endswith("there is no home folder: set TRC_CACHE_DIR to a folder")
    assert not list(tmp_path.iterdir())


@needs_compiler
def test_warnings_of_the_compiler():
    """The source is clean under -Wall -Wextra, for plain x86 or whatever the target's least is, too."""
    source = Path(build.__file__).with_name("native.c")
    for flags in (["-march=native"], []):
        command = [*build.compiler(), "-Wall", "-Wextra", "-Werror", "-O1", *flags, "-fsyntax-only", str(source)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


@needs_compiler
@pytest.mark.parametrize("flag", ["-mno-avx512f", "-mno-avx"])
def test_narrower_vectors(flag, tmp_path):
    """The tiles of other machines give the same results."""
    if not os.uname().machine.startswith("x86"):
        pytest.skip("flags of x86")
    code = f"""
import sys
sys.path[:0] = {sys.path!r}
from trc_runtime.cpu.conv import build, engine
build.FLAGS = (*build.FLAGS, {flag!r})
from tests.unit.runtime.cpu.test_conv_engine import *
for case in (CASE, GROUPED, DEPTHWISE):
    with engine.using("numpy"):
        want = everything(case)
    with engine.using("native"):
        assert_close(want, everything(case), 500)
print(native.wide())
"""
    environment = {**os.environ, "TRC_CACHE_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == (16 if flag == "-mno-avx512f" else 8)
