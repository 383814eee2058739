"""The cache of device code, the compiler's messages, and what its log says about kernels."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from trc_runtime.cuda import cubins
from trc_runtime.cuda.errors import CompileProblem
from trc_runtime.schema import caches

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


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.name == "trc.cache"]


@pytest.fixture
def silent() -> Iterator[None]:
    """No warning has been given yet."""
    caches.warn_once.cache_clear()
    yield
    caches.warn_once.cache_clear()


@pytest.mark.usefixtures("silent")
@pytest.mark.parametrize("where", ["file", "/proc/nope", "/dev/full", "/dev/null/x"])
def test_a_cache_that_cannot_be_used_is_spoken_of_once(
    where: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("a file where the folder should be")
    folder = tmp_path / where
    for _ in range(2):
        assert not cubins.compile_cubin(SOURCE, "sm_90", cache=folder).hit
    (text,) = warnings(caplog)
    assert text.startswith("compiled kernels are not kept and will be compiled again in the next process")
    assert f"{folder / 'cubin'} cannot be used (" in text
    assert text.endswith("set TRC_CACHE to a folder that can be written")


@pytest.mark.usefixtures("silent")
def test_without_a_home_folder(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    for name in ("TRC_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", home)
    assert cubins.cache_folder() is None
    for _ in range(2):
        assert not cubins.compile_cubin(SOURCE, "sm_90").hit
    (text,) = warnings(caplog)
    assert text.endswith("there is no home folder: set TRC_CACHE to a folder")


@pytest.mark.usefixtures("silent")
def test_what_is_no_entry(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A pipe in the place of an entry would be waited for, for ever."""
    cubins.compile_cubin(SOURCE, "sm_90", cache=tmp_path)
    (file,) = (tmp_path / "cubin").iterdir()
    file.unlink()
    os.mkfifo(file)
    assert not cubins.compile_cubin(SOURCE, "sm_90", cache=tmp_path).hit
    file.unlink()
    file.mkdir()
    assert not cubins.compile_cubin(SOURCE, "sm_90", cache=tmp_path).hit
    (text,) = warnings(caplog)
    assert f"{file.name} is not a file" in text


def test_entries_have_the_permissions_that_the_user_wants(tmp_path: Path) -> None:
    for mask, wanted in ((0o022, 0o644), (0o002, 0o664), (0o077, 0o600)):
        old = os.umask(mask)
        try:
            cubins.compile_cubin(SOURCE, "sm_90", cache=tmp_path / oct(mask))
        finally:
            os.umask(old)
        (file,) = (tmp_path / oct(mask) / "cubin").iterdir()
        assert file.stat().st_mode & 0o777 == wanted


def test_architectures() -> None:
    cubins.check_architecture("sm_90")
    for architecture in ("sm_50", "sm_75", "sm_101", "sm_99999"):
        with pytest.raises(CompileProblem, match=rf"no code for the architecture {architecture}: .* sm_80, .*sm_90"):
            cubins.check_architecture(architecture)


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
