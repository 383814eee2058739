"""Every call of the driver's facade against a libcuda that says yes to everything: are the arguments taken?"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from trc_runtime.cuda import _cuda
from trc_runtime.cuda.errors import DeviceError

pytest.importorskip("cuda.bindings.driver")
COMPILER = shutil.which("gcc")

STUB = r"""
#include <stdint.h>
#include <string.h>
static int yes(void) { return 0; }
static int version(int* v) { *v = 13000; return 0; }
static int attribute(int* v, int a, int d) { *v = a == 75 ? 9 : a == 76 ? 0 : a == 16 ? 132 : 232448; return 0; }
static int device_name(char* n, int size, int d) { strcpy(n, "Stub"); return 0; }
static int memory(size_t* f, size_t* t) { *f = 1ull << 34; *t = 1ull << 35; return 0; }
static int no(void) { return 700; }
static int text(int e, const char** s) { *s = "CUDA_ERROR_ILLEGAL_ADDRESS"; return 0; }
int cuGetProcAddress_v2(const char* s, void** p, int v, uint64_t f, int* status) {
    *p = (void*)yes;
    if (!strcmp(s, "cuDriverGetVersion")) *p = version;
    if (!strcmp(s, "cuDeviceGetAttribute")) *p = attribute;
    if (!strcmp(s, "cuDeviceGetName")) *p = device_name;
    if (!strcmp(s, "cuMemGetInfo")) *p = memory;
    if (!strcmp(s, "cuGetErrorName") || !strcmp(s, "cuGetErrorString")) *p = text;
    if (!strcmp(s, "cuStreamSynchronize")) *p = no;
    if (status) *status = 0;
    return 0;
}
int cuGetProcAddress(const char* s, void** p, int v, uint64_t f) { return cuGetProcAddress_v2(s, p, v, f, 0); }
"""

CALLS = r"""
import struct
from trc_runtime.cuda._cuda import Driver
from trc_runtime.cuda.errors import DriverCallError
from trc_runtime.cuda.link import Packed
d = Driver()
assert d.version() == 13000
dev = d.device(0)
assert (d.device_name(dev), d.compute_capability(dev), d.multiprocessors(dev)) == ("Stub", (9, 0), 132)
assert d.shared_memory_limit(dev) == 232448 and d.memory() == (1 << 34, 1 << 35)
d.device_count()
c = d.retain_context(dev)
d.make_current(c)
with d.current(c):
    d.device_count()
s, e, timed = d.stream(), d.event(), d.event(True)
assert d.address_of(s) == 0
d.allocate(1 << 20), d.allocate_pinned(100)
d.to_device(1 << 40, 1 << 41, 5), d.to_host(1 << 40, 1 << 41, 5)
d.zero(1 << 45, 1 << 35, s), d.fill(1 << 45, 255, 10, s), d.copy(1 << 40, 1 << 41, 3, s)
d.record(e, s), d.wait_event(e), d.passed(e), d.milliseconds(e, timed), d.let_wait(s, e)
m = d.load_module(b"\x7fELFabc")
f = d.function(m, "k")
d.allow_shared(f, 100000)
p = Packed(struct.pack("<Qi4xf4x", 1, 2, 3.0), 3)
d.launch(f, (1, 2, 3), (32, 1, 1), 0, s, p.address)
g, child = d.graph(), d.graph()
a = d.add_kernel(g, [], f, (1, 2, 3), (4, 1, 1), 0, p.address)
b = d.add_kernel(g, [a], f, (1, 2, 3), (4, 1, 1), 0, p.address)
n = d.add_child(g, [a, b], child)
for way in ("device", "to_device", "to_host"):
    d.add_copy(g, [n], c, 1 << 40, 1 << 41, 1 << 34, way)
d.add_zero(g, [n], c, 1 << 40, 1 << 34), d.add_zero(g, [n], c, (1 << 40) + 1, 3)
x = d.instantiate(g)
d.upload(x, s), d.launch_graph(x, s)
d.begin_capture(s), d.end_capture(s)
assert d.node_count(g) == 0
d.write_dot(g, "/dev/null")
d.destroy_exec(x), d.destroy_graph(g), d.destroy_event(e), d.destroy_stream(s), d.unload_module(m)
d.free(1 << 40), d.free_pinned(1 << 41), d.release_context(dev)
try:
    d.synchronize(s)
except DriverCallError as err:
    assert err.code == 700 and "cuStreamSynchronize failed: CUDA_ERROR_ILLEGAL_ADDRESS" in str(err), err
else:
    raise AssertionError("an error code was lost")
assert (d.counters.launches, d.counters.allocations, d.counters.waits_here()) == (2, 2, 4)
print("all calls")
"""


@pytest.mark.skipif(COMPILER is None, reason="needs gcc")
def test_every_call(tmp_path: Path) -> None:
    (tmp_path / "stub.c").write_text(STUB)
    library = tmp_path / "libcuda.so.1"
    subprocess.run([str(COMPILER), "-shared", "-fPIC", "-w", "-o", library, tmp_path / "stub.c"], check=True)
    paths = f"{Path(_cuda.__file__).parents[2]}"
    done = subprocess.run(
        [sys.executable, "-c", CALLS],
        env={"LD_LIBRARY_PATH": str(tmp_path), "PYTHONPATH": paths, "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.strip() == "all calls", done.stderr


def test_no_driver() -> None:
    if Path("/dev/nvidiactl").exists():
        pytest.skip("there is a GPU here")
    with pytest.raises(DeviceError, match="no NVIDIA driver was found"):
        _cuda.Driver()


def test_missing_extra(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    with pytest.raises(_cuda.MissingExtra, match=r"extra 'cuda'.*pip install 'trc\[cuda\]'"):
        _cuda.Driver()
    monkeypatch.setitem(sys.modules, "cudnn", None)
    from trc_runtime.cuda._cudnn import versions

    with pytest.raises(_cuda.MissingExtra, match=r"extra 'cudnn'"):
        versions()


def test_only_the_facades_import_the_untyped_packages() -> None:
    root = Path(_cuda.__file__).parents[1]
    pattern = re.compile(r"^\s*(?:import|from)\s+(cuda|cudnn)\b", re.MULTILINE)
    found = {p.relative_to(root).as_posix() for p in root.rglob("*.py") if pattern.search(p.read_text())}
    assert found == {"cuda/_cuda.py", "cuda/_cudnn.py"}


def test_the_frontend_comes_without_torch(tmp_path: Path) -> None:
    """PyTorch takes seconds to import, and cuDNN's frontend wants it for nothing that trc uses."""
    pytest.importorskip("cudnn")
    (tmp_path / "torch.py").write_text("print('torch was imported')\n")
    paths = f"{tmp_path}:{Path(_cuda.__file__).parents[2]}"
    script = (
        "from trc_runtime.cuda._cudnn import versions; print(versions()[0]); import torch, sys; print(sys.meta_path)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], env={"PYTHONPATH": paths}, capture_output=True, text=True, check=True
    )
    version, torch, finders = done.stdout.splitlines()
    assert version[0].isdigit()
    assert torch == "torch was imported"
    assert "_NoTorch" not in finders
