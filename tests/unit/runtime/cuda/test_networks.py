"""Compiled networks on the fake GPU against the CPU target: training, evaluation, mixed precision, both buffers."""

from __future__ import annotations

import numpy as np
import pytest

import trc
from tests.unit.codegen.cuda.emulator import COMPILER
from tests.unit.runtime.cuda.fake import driver_of, fake_session, install
from trc.session.compiling import lower_to_plan
from trc_runtime.cpu.session import CpuSession
from trc_runtime.train.runner import Runner

pytestmark = pytest.mark.skipif(COMPILER is None, reason="needs g++")

MLP = trc.seq(trc.fc(16), trc.relu(), trc.dropout(0.3), trc.fc(5))
CONV = trc.seq(
    *(trc.conv(8, 3, 1, 1), trc.bn(), trc.relu(), trc.conv(16, 3, 2, 1), trc.bn(), trc.relu()),
    *(trc.conv(8, 3, 1, 1), trc.bn(), trc.relu(), trc.maxpool(2, 2), trc.gap(), trc.fc(5)),
)
NETS = {"mlp": (MLP, (4, 4, 1)), "conv": (CONV, (12, 12, 3))}


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize(("precision", "bound"), [("fp32", 1e-4), ("amp-fp16", 3e-2)])
def test_like_the_cpu(monkeypatch, name: str, precision: str, bound: float) -> None:
    install(monkeypatch)
    net, size = NETS[name]
    plan = lower_to_plan(
        trc.BluePrint(net), input=size, precision=precision, target="cuda", batch=6, val_batch=5, num_classes=5,
        train_samples=16, val_samples=10, epochs=2,
    )  # fmt: skip
    rng = np.random.default_rng(0)
    with fake_session(plan) as session:
        gpu, cpu = Runner(plan, session), Runner(plan, CpuSession(plan))
        for _ in range(3):
            images, labels = rng.standard_normal((6, *size)).astype(np.float32), rng.integers(0, 5, 6).astype(np.int32)
            got, want = gpu.step(images, labels), cpu.step(images, labels)
            assert got.loss == pytest.approx(want.loss, rel=bound)
            assert (got.skipped, want.skipped) == (False, False)
        for tensor in gpu.tensors:
            x, y = gpu.tensors[tensor].astype(np.float64), cpu.tensors[tensor].astype(np.float64)
            assert np.linalg.norm(x - y) <= bound * np.linalg.norm(y) + 1e-6, tensor
        images, labels = rng.standard_normal((10, *size)).astype(np.float32), rng.integers(0, 5, 10).astype(np.int32)
        assert gpu.evaluate(images, labels).loss == pytest.approx(cpu.evaluate(images, labels).loss, rel=bound)
        launches = driver_of(session).counters.launches
        gpu.session.run("train_a", 0)
        assert driver_of(session).counters.launches == launches + 1
        assert session.allocations_after_capture == 0
