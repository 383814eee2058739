from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import trc
import trc_runtime.__main__ as runtime_main
from trc.codegen.cuda.bundle import generate
from trc.diagnostics import CompileError
from trc.models import ZOO
from trc.session import cuda
from trc.session.compiling import lower_to_plan
from trc.tools.trc_compile import main
from trc_runtime.cuda import _cuda, cubins, dnn
from trc_runtime.cuda.bundle import read_sources, source_texts
from trc_runtime.cuda.errors import DeviceError, MissingExtra
from trc_runtime.cuda.null import check_sources
from trc_runtime.schema.bundle import CUDNN_PLANS, DRIVER, KERNELS, MODEL, NODEMAP, PLAN, cubin_name, read_bundle

PROPERTIES = Path(__file__).resolve().parents[4] / "examples" / "devices" / "h200.json"

SMALL = """input(12, 12, 3);
BluePrint small = seq(
    conv(16, 3, 1, 1, bias=true), bn(), relu(), conv(16, 3, 1, 1, bias=true), bn(), relu(), maxpool(2, 2),
    dropout(0.1), flatten(), fc(10)
);
"""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRC_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def bp(tmp_path: Path) -> Path:
    path = tmp_path / "small.bp"
    path.write_text(SMALL)
    return path


def compiled(bp: Path, out: Path, *more: str) -> int:
    return main([str(bp), "--target", "cuda", "--batch", "8", "-o", str(out), *more])


@pytest.mark.parametrize("precision", ["amp-fp16", "fp32"])
@pytest.mark.parametrize("model", ["mlp", "lenet5", "nin", "resnet18", "vgg11_bn"])
def test_the_null_driver_accepts_every_model(model: str, precision: str) -> None:
    plan = lower_to_plan(ZOO[model](), target="cuda", precision=precision, batch=16, train_samples=100, val_samples=30)
    code = generate(plan)
    assert check_sources(read_sources(plan, code.kernels, code.driver)) == []


@pytest.mark.accept
@pytest.mark.parametrize("precision", ["amp-fp16", "amp-bf16", "tf32", "fp32"])
@pytest.mark.parametrize("model", ["resnet50", "vgg16_bn", "mobilenet_v2"])
def test_the_null_driver_accepts_large_models(model: str, precision: str) -> None:
    test_the_null_driver_accepts_every_model(model, precision)


@pytest.mark.parametrize("planner", ["packed", "regions"])
def test_every_optimizer_passes_the_null_driver(planner: str) -> None:
    for optimizer in (trc.SGD(), trc.SGD(momentum=0.9, nesterov=True, weight_decay=1e-4), trc.Adam(), trc.AdamW()):
        plan = lower_to_plan(
            ZOO["lenet5"](), target="cuda", precision="amp-fp16", batch=16, optimizer=optimizer, planner=planner
        )
        code = generate(plan)
        assert check_sources(read_sources(plan, code.kernels, code.driver)) == []


@pytest.mark.parametrize("planner", ["packed", "regions"])
@pytest.mark.parametrize("precision", ["amp-fp16", "fp32"])
@pytest.mark.parametrize("model", ["mlp", "lenet5", "resnet18"])
def test_the_null_driver_accepts_a_moving_average(model: str, precision: str, planner: str) -> None:
    plan = lower_to_plan(
        ZOO[model](), target="cuda", precision=precision, batch=16, train_samples=100, val_samples=30, planner=planner,
        ema=trc.EMA(0.99, warmup=planner == "packed"),
    )  # fmt: skip
    code = generate(plan)
    assert check_sources(read_sources(plan, code.kernels, code.driver)) == []


def test_a_bundle_holds_the_sources(bp: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert compiled(bp, tmp_path / "out", "--precision", "amp-fp16") == 0
    bundle = read_bundle(tmp_path / "out")
    assert (bundle.target, bundle.architecture) == ("cuda", None)
    assert set(bundle.files) == {PLAN, MODEL, KERNELS, DRIVER, NODEMAP}
    assert check_sources(read_sources(bundle.plan, *source_texts(bundle))) == []
    again = tmp_path / "again"
    assert compiled(bp, again, "--precision", "amp-fp16") == 0
    assert read_bundle(again).files == bundle.files
    capsys.readouterr()
    assert runtime_main.main([str(again), "info"]) == 0
    assert capsys.readouterr().out.startswith("small: target cuda, ")


def test_the_node_map_leads_from_kernels_to_layers(bp: Path, tmp_path: Path) -> None:
    assert compiled(bp, tmp_path / "out", "--precision", "amp-fp16") == 0
    nodemap = json.loads((tmp_path / "out" / NODEMAP).read_text())
    assert "conv2" in nodemap["kernels"]["store_moments__f32"]
    assert all(nodemap["cudnn"].values())
    names = {name for c in nodemap["captures"] for n in c["nodes"] for name in n["calls"]}
    assert names - {"copy", "clear"} == {*nodemap["kernels"], *nodemap["cudnn"]}


def test_a_bundle_for_a_known_device_is_compiled_and_planned(bp: Path, tmp_path: Path) -> None:
    try:
        _cuda.nvrtc_version()
        cubins.include_folders()
        dnn.versions()
    except MissingExtra as err:
        pytest.skip(str(err))
    options = ("--precision", "amp-fp16", "--device-properties", str(PROPERTIES))
    assert compiled(bp, tmp_path / "out", *options) == 0
    bundle = read_bundle(tmp_path / "out")
    assert bundle.architecture == "sm_90"
    sources = read_sources(bundle.plan, *source_texts(bundle))
    code = (bundle.path / cubin_name("sm_90")).read_bytes()
    assert code.startswith(b"\x7fELF")
    assert all(name.encode() in code for name in sources.kernel_names)
    plans = dnn.read_plans((bundle.path / CUDNN_PLANS).read_bytes())
    assert plans.architecture == "sm_90"
    assert set(plans.data) == set(sources.cudnn)
    assert check_sources(sources, plans.workspaces) == []


def messages(capsys: pytest.CaptureFixture[str]) -> str:
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Traceback" not in captured.err
    return captured.err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "cannot read the device properties"),
        ("{", "cannot read the device properties"),
        ("[]", "holds no device properties"),
        ('{"deviceVer": "900"}', "holds no device properties"),
    ],
)
def test_bad_device_properties_are_a_message(
    text: str | None, message: str, bp: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "properties.json"
    if text is not None:
        path.write_text(text)
    assert compiled(bp, tmp_path / "out", "--device-properties", str(path)) == 1
    assert message in messages(capsys)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--device-properties", "x", "-o", "y"), "--device-properties goes with --target cuda and a bundle"),
        (("--device-properties", "x", "--target", "cuda", "--emit", "driver"), "goes with --target cuda and a bundle"),
        (("--emit", "kernels"), "--emit kernels goes with --target cuda"),
    ],
)
def test_options_that_do_not_go_together(
    words: tuple[str, ...], message: str, bp: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(bp), *words]) == 1
    assert message in messages(capsys)


def test_missing_extras_are_named(bp: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from trc_runtime.cuda import _cudnn

    def refuse(*_: Any, **__: Any) -> None:
        raise MissingExtra("cudnn", "nvidia-cudnn-frontend", "No module named 'cudnn'")

    monkeypatch.setattr(_cudnn, "Planner", refuse)
    plan = lower_to_plan(bp, target="cuda", batch=8)
    with pytest.raises(CompileError, match=r"extra 'cudnn'.*pip install 'trc\[cudnn\]'"):
        cuda.build(plan, PROPERTIES)


def test_without_a_gpu_there_is_one_message(bp: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from trc_runtime.cuda import session

    def refuse(*_: Any, **__: Any) -> None:
        raise DeviceError("no NVIDIA driver was found: target cuda needs a machine with an NVIDIA GPU and its driver")

    monkeypatch.setattr(session, "Context", refuse)
    with pytest.raises(CompileError, match="no NVIDIA driver was found"):
        trc.compile(bp, target="cuda", batch=8, schedule=trc.Constant(base_lr=0.1))
    assert compiled(bp, tmp_path / "out") == 0
    with pytest.raises(CompileError, match="no NVIDIA driver was found"):
        trc.load(tmp_path / "out")


def test_the_runtime_alone_says_it_too(
    bp: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from trc_runtime.cuda import session

    def refuse(*_: Any, **__: Any) -> None:
        raise DeviceError("the bundle was compiled for sm_90, this GPU (T4) is sm_75: compile it again for this GPU")

    monkeypatch.setattr(session, "Context", refuse)
    assert compiled(bp, tmp_path / "out") == 0
    capsys.readouterr()
    assert runtime_main.main([str(tmp_path / "out"), "train", "--data", "synthetic"]) == 1
    assert messages(capsys).startswith("trc_runtime: error: the bundle was compiled for sm_90")
