"""Bytes on target cuda, on the GPU that is made of host memory: the same bytes as when the host normalises."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import trc
from tests.unit.codegen.cuda.emulator import COMPILER
from tests.unit.runtime.cuda.fake import FakePlanned, compile_for_host, install
from tests.unit.session.test_normalise import BY_CHANNELS, OPTIONS, assert_equal_state, data_of, net
from trc.session import Executable
from trc_runtime.cuda import cubins, dnn
from trc_runtime.cuda.session import CudaSession
from trc_runtime.schema.normalise import normalised

pytestmark = pytest.mark.skipif(COMPILER is None, reason="needs g++")


@pytest.fixture(autouse=True)
def fakes(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)
    monkeypatch.setattr(cubins, "compile_cubin", compile_for_host)
    monkeypatch.setattr(dnn, "load_plan", lambda planner, key, description, saved: FakePlanned(key, description))
    monkeypatch.setattr(dnn, "versions", lambda: ("1.18.0", "9.19.0"))


def compiled(channels: int, precision: str, on_device: bool = True, **options: Any) -> Executable:
    how = BY_CHANNELS[channels] if on_device else None
    return trc.compile(net(channels), target="cuda", precision=precision, normalise=how, **(OPTIONS | options))


def session_of(exe: Executable) -> CudaSession:
    assert isinstance(exe.session, CudaSession)
    return exe.session


@pytest.mark.parametrize("precision", ["fp32", "amp-fp16", "amp-bf16"])
@pytest.mark.parametrize("channels", BY_CHANNELS)
def test_training_gives_the_same_bytes(channels: int, precision: str) -> None:
    host, device = (compiled(channels, precision, flag, val_resolution=(9, 5)) for flag in (False, True))
    data = data_of(BY_CHANNELS[channels], (9, 5))
    results = [exe.run(data) for exe in (host, device)]
    assert results[0].last == results[1].last
    assert_equal_state(host, device)
    assert session_of(device).allocations_after_capture == 0
    for exe in (host, device):
        session_of(exe).close()


@pytest.mark.parametrize("precision", ["fp32", "amp-fp16"])
def test_the_staging_is_the_pinned_memory(precision: str) -> None:
    session = session_of(compiled(3, precision))
    for buffer in "AB":
        for column, shape in ((0, (8, 6, 7, 3)), (1, (4, 6, 7, 3)), (5, (3, 6, 7, 3))):
            labels, images = session.staging(buffer, column)
            assert (images.dtype, images.shape) == (np.uint8, shape)
            assert (labels.dtype, labels.shape) == (np.int32, shape[:1])
            assert np.shares_memory(images, session._staged[buffer]._pinned)
            assert images.flags.c_contiguous
    _, images = session.staging("A", 0)
    images[...] = np.arange(images.size, dtype=np.uint8).reshape(images.shape)
    session.pack("A")  # nothing to do
    session.launch("transfer_a", 0).settle()
    session.launch("transfer_b", 0).settle()
    assert np.array_equal(session.read("bytes_a"), images)
    storage = {"fp32": np.float32, "amp-fp16": np.float16}[precision]
    wanted = normalised(images, BY_CHANNELS[3]).astype(storage).astype(np.float32)
    assert np.array_equal(session.read("data_a"), wanted)
    session.close()


def test_a_bundle_goes_on_where_it_was(tmp_path: Path) -> None:
    exe, data = compiled(3, "amp-fp16"), data_of(BY_CHANNELS[3])
    exe.run(data, 1)
    exe.save(tmp_path / "out")
    loaded = trc.load(tmp_path / "out")
    assert loaded.plan.config.normalise == BY_CHANNELS[3]
    assert loaded.run(data).last == exe.run(data).last
    for each in (exe, loaded):
        session_of(each).close()


def test_precision_fp64_stays_on_the_cpu() -> None:
    with pytest.raises(trc.CompileError, match="precision fp64 exists on the CPU only"):
        compiled(3, "fp64")
