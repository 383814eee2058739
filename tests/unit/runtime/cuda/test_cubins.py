"""The cache of device code, the compiler's messages, and what its log says about kernels."""

from __future__ import annotations

from pathlib import Path

import pytest

from trc_runtime.cuda import cubins
from trc_runtime.cuda.errors import CompileProblem

pytest.importorskip("cuda.bindings.nvrtc")

SOURCE = """#include <cuda_fp16.h>
template <typename T> __device__ T twice(T x) { return x + x; }
extern "C" __global__ void __launch_bounds__(64)
double_it(float* x) { x[threadIdx.x] = twice(x[threadIdx.x]); }
"""


def test_cache(tmp_path: Path) -> None:
    first = cubins.compile_cubin(SOURCE, "sm_90", cache=tmp_path)
    second = cubins.compile_cubin(SOURCE, "sm_90", cache=tmp_path)
    assert (first.hit, second.hit) == (False, True)
    assert first.code == second.code
    assert second.seconds < first.seconds
    assert not cubins.compile_cubin(SOURCE, "sm_80", cache=tmp_path).hit
    assert not cubins.compile_cubin(SOURCE + "\n", "sm_90", cache=tmp_path).hit
    usage = cubins.usage(first.log)["double_it"]
    assert 0 < usage.registers <= 255
    assert (usage.spill_stores, usage.spill_loads) == (0, 0)


def test_a_damaged_entry_is_made_anew(tmp_path: Path) -> None:
    cubins.compile_cubin(SOURCE, "sm_90", cache=tmp_path)
    (file,) = (tmp_path / "cubin").iterdir()
    for damage in (b"", b"short", file.read_bytes()[:-1], b"\0" + file.read_bytes()[1:]):
        file.write_bytes(damage)
        assert not cubins.compile_cubin(SOURCE, "sm_90", cache=tmp_path).hit
        assert cubins.compile_cubin(SOURCE, "sm_90", cache=tmp_path).hit


def test_a_cache_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "cubin").write_text("a file where the folder should be")
    assert not cubins.compile_cubin(SOURCE, "sm_90", cache=tmp_path).hit


def test_keys() -> None:
    keys = {
        cubins.cubin_key(*k)
        for k in (("a", "sm_90", (), (13, 0)), ("b", "sm_90", (), (13, 0)), ("a", "sm_80", (), (13, 0)))
    }
    keys |= {cubins.cubin_key("a", "sm_90", ("-x",), (13, 0)), cubins.cubin_key("a", "sm_90", (), (13, 1))}
    assert len(keys) == 5


def test_folder(monkeypatch) -> None:
    monkeypatch.setenv("TRC_CACHE", "/x/y")
    assert cubins.cache_folder() == Path("/x/y")
    monkeypatch.delenv("TRC_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/z")
    assert cubins.cache_folder() == Path("/z/trc")


@pytest.mark.parametrize(
    ("broken", "line"),
    [
        (SOURCE.replace("twice(x[threadIdx.x])", "thrice(x[0])"), 4),
        (SOURCE.replace("return x + x", "return x.y"), 2),
    ],
)
def test_a_kernel_that_does_not_compile(tmp_path: Path, broken: str, line: int) -> None:
    with pytest.raises(CompileProblem) as caught:
        cubins.compile_cubin(broken, "sm_90", cache=tmp_path, users={"double_it": ["conv1", "conv2"]})
    text = str(caught.value)
    assert f"kernels.cu:{line}: " in text
    assert "kernel double_it (layer 'conv1', 'conv2') does not compile" in text
    assert not list(tmp_path.glob("cubin/*"))
