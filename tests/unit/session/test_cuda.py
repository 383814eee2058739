"""`trc.compile(..., target="cuda")` from end to end, on the GPU that is made of host memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import trc
import trc_runtime.__main__ as runtime_main
from tests.unit.codegen.cuda.emulator import COMPILER
from tests.unit.runtime.cuda.fake import FakePlanned, compile_for_host, install
from trc.session import Executable
from trc.tools.trc_run import main
from trc_runtime.cuda import autotune, cubins, dnn
from trc_runtime.cuda.autotune import Engines, Machine, keys_of
from trc_runtime.cuda.session import CudaSession
from trc_runtime.data.dataset import Dataset
from trc_runtime.data.synthetic import synthetic
from trc_runtime.schema.bundle import read_bundle
from trc_runtime.train.metrics import TrainingResult

pytestmark = pytest.mark.skipif(COMPILER is None, reason="needs g++")

SMALL = """input(6, 6, 2);
BluePrint small = seq(
    conv(8, 3, 1, 1, bias=true), bn(), relu(), conv(8, 3, 2, 1), bn(), relu(), flatten(), dropout(0.1), fc(5)
);
"""


@pytest.fixture(autouse=True)
def fakes(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(planner: object, key: str, description: Any, saved: dnn.SavedPlans) -> FakePlanned:
        assert saved.data[key] == b"plan"
        return FakePlanned(key, description)

    install(monkeypatch)
    monkeypatch.setattr(cubins, "compile_cubin", compile_for_host)
    monkeypatch.setattr(dnn, "load_plan", load)
    monkeypatch.setattr(dnn, "versions", lambda: ("1.18.0", "9.19.0"))


@pytest.fixture
def bp(tmp_path: Path) -> Path:
    path = tmp_path / "small.bp"
    path.write_text(SMALL)
    return path


@pytest.fixture(scope="module")
def data() -> Dataset:
    return synthetic((6, 6, 2), 5, train=44, val=21)


def compiled(bp: Path, target: str, precision: str = "fp32") -> Executable:
    return trc.compile(
        bp,
        batch=8,
        target=target,
        precision=precision,
        optimizer=trc.SGD(momentum=0.9, nesterov=True),
        schedule=trc.Constant(base_lr=0.02),
        epochs=2,
        train_samples=44,
        val_samples=21,
        seed=7,
    )


def numbers(result: TrainingResult) -> list[float]:
    return [x for e in result.epochs for x in (e.train_loss, e.val.loss if e.val else 0.0)]


@pytest.mark.parametrize(("precision", "tolerance"), [("fp32", 1e-4), ("amp-fp16", 0.03)])
def test_a_run_gives_the_numbers_of_the_cpu(bp: Path, data: Dataset, precision: str, tolerance: float) -> None:
    exe = compiled(bp, "cuda", precision)
    assert exe.target == "cuda"
    session = exe.session
    assert isinstance(session, CudaSession)
    before = session.counters.launches
    result = exe.run(data)
    np.testing.assert_allclose(numbers(result), numbers(compiled(bp, "cpu", precision).run(data)), rtol=tolerance)
    # An epoch: 6 training and 3 validation steps, a transfer before each row of them, and three small ones.
    assert session.counters.launches - before <= 2 * (6 + 3 + 2 + 3)
    assert session.allocations_after_capture == 0
    session.close()


def test_a_saved_bundle_goes_on_where_it_was(bp: Path, tmp_path: Path, data: Dataset) -> None:
    exe = compiled(bp, "cuda", "amp-fp16")
    exe.run(data, 1)
    exe.save(tmp_path / "out")
    bundle = read_bundle(tmp_path / "out")
    assert (bundle.target, bundle.architecture) == ("cuda", "sm_90")
    assert {"kernels.cu", "driver.py", "nodemap.json", "kernels.sm_90.cubin", "cudnn_plans.json"} < set(bundle.files)
    loaded = trc.load(tmp_path / "out")
    np.testing.assert_array_equal(loaded.tensors["conv2.weight"], exe.tensors["conv2.weight"])
    assert numbers(loaded.run(data)) == numbers(exe.run(data))
    loaded.save(tmp_path / "again")
    assert {k: v for k, v in read_bundle(tmp_path / "again").files.items() if k != "state.safetensors"} == {
        k: v for k, v in bundle.files.items() if k != "state.safetensors"
    }


def test_the_tools_run_it(bp: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--target", "cuda", "--precision", "amp-fp16", "--batch", "100"]
    assert main(["train", str(bp), *words, "--data", "synthetic", "--epochs", "1", "-q"]) == 0
    assert capsys.readouterr().out.startswith("top1=")
    assert main(["bench", str(bp), *words, "--steps", "20"]) == 0
    assert "step_ms_median=" in capsys.readouterr().out
    compiled(bp, "cuda").save(tmp_path / "out")
    # A bundle knows its sample counts; synthetic data follows them.
    assert runtime_main.main([str(tmp_path / "out"), "train", "--data", "synthetic", "-q"]) == 0
    assert "epochs=2" in capsys.readouterr().out


def test_measured_engines_reach_the_session(bp: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: dict[str, str | None] = {}
    asked: list[str] = []

    def make(planner: object, key: str, description: Any, choice: str | None = None) -> FakePlanned:
        taken[key] = choice
        return FakePlanned(key, description)

    def measured(sources: Any, path: Path) -> Engines:
        assert path == tmp_path / "engines.json"
        asked.extend(keys_of(sources))
        return Engines(Machine("H200", "1", "9"), dict.fromkeys(asked, ("fast", 1.0, 2.0)))

    monkeypatch.setattr(dnn, "make_plan", make)
    monkeypatch.setattr(autotune, "tune", measured)
    trc.compile(bp, target="cuda", schedule=trc.Constant(base_lr=0.1), autotune=tmp_path / "engines.json")
    assert asked
    # inference also has a graph of its own: a convolution with its bias, which training leaves to the batch norm
    assert {key for key, choice in taken.items() if choice == "fast"} == set(asked)


def test_measuring_engines_needs_the_target(bp: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(trc.CompileError, match="goes with target='cuda'"):
        trc.compile(bp, autotune="engines.json")
    assert main(["bench", str(bp), "--autotune", "engines.json"]) == 1
    assert "goes with target='cuda'" in capsys.readouterr().err
