"""What can be missing or wrong on the CUDA target, through the tools: code 1, one message, no traceback."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

import trc_runtime.__main__ as runtime_main
from tests.unit.runtime.cuda.fake import COMPILER, FakeDriver, compile_for_host, install
from trc.codegen.cuda import bundle as cuda_bundle
from trc.diagnostics import CompileError
from trc.session import compile, cuda, load
from trc.tools import trc_compile, trc_run
from trc_runtime.cuda import _cuda, _cudnn, autotune, cubins, dnn
from trc_runtime.cuda import context as context_module
from trc_runtime.cuda import session as session_module
from trc_runtime.cuda.autotune import Engines, Machine, keys_of
from trc_runtime.cuda.bundle import Sources
from trc_runtime.cuda.errors import DnnError, MissingExtra
from trc_runtime.schema.config import Constant

pytestmark = pytest.mark.skipif(COMPILER is None, reason="needs g++")

PROPERTIES = Path(__file__).resolve().parents[3] / "examples" / "devices" / "h200.json"

NETWORK = """input(6, 6, 2);
BluePrint small = seq(conv(8, 3, 1, 1), bn(), relu(), flatten(), fc(5));
"""

Capture = pytest.CaptureFixture[str]
Patch = pytest.MonkeyPatch
Fails = Callable[[str], str]


@pytest.fixture
def bp(tmp_path: Path) -> Path:
    path = tmp_path / "small.bp"
    path.write_text(NETWORK)
    return path


@pytest.fixture
def compiled(bp: Path, tmp_path: Path, monkeypatch: Patch, capsys: Capture) -> Path:
    """A bundle with device code and cuDNN plans for sm_90; the fakes stay in their places."""
    install(monkeypatch)
    monkeypatch.setattr(cubins, "compile_cubin", compile_for_host)
    monkeypatch.setattr(_cudnn, "Planner", lambda **_: None)
    monkeypatch.setattr(dnn, "versions", lambda: ("1.18.0", "9.19.0"))
    words = [str(bp), "--target", "cuda", "--batch", "4", "-o", str(tmp_path / "out")]
    assert trc_compile.main([*words, "--device-properties", str(PROPERTIES)]) == 0
    assert capsys.readouterr().out.endswith("out: device code and cuDNN plans for sm_90\n")
    return tmp_path / "out"


def message(capsys: Capture, main: Callable[[list[str]], int], *words: object) -> str:
    """The one message that a tool ends with."""
    assert main([str(w) for w in words]) == 1
    out, err = capsys.readouterr()
    assert "top1" not in out
    assert "Traceback" not in err
    assert "failed inside" not in err
    assert err.count("error: ") == 1
    return err


def trained(capsys: Capture, model: Path) -> str:
    """Of `trc-run train`."""
    words = [] if model.is_dir() else ["--target", "cuda", "--batch", "4", "--precision", "amp-fp16"]
    return message(capsys, trc_run.main, "train", model, *words, "--data", "synthetic", "-q")


def in_all(capsys: Capture, bp: Path, bundle: Path) -> list[str]:
    """Of training a BluePrint and a bundle, and of the runtime alone."""
    alone = message(capsys, runtime_main.main, bundle, "train", "--data", "synthetic", "-q")
    return [trained(capsys, bp), trained(capsys, bundle), alone]


def crossed(capsys: Capture, bp: Path, properties: Path = PROPERTIES) -> str:
    """Of `trc-compile --device-properties`, which writes nothing then."""
    words = (bp, "--target", "cuda", "--batch", "4", "-o", bp.parent / "never", "--device-properties", properties)
    text = message(capsys, trc_compile.main, *words)
    assert not (bp.parent / "never").exists()
    return text


def without_driver(*_: object) -> None:
    raise RuntimeError("libcuda.so.1: cannot open shared object file")


def test_no_driver(bp: Path, compiled: Path, monkeypatch: Patch, capsys: Capture) -> None:
    monkeypatch.setattr(context_module, "Driver", _cuda.Driver)
    monkeypatch.setattr(_cuda, "_import", lambda _: SimpleNamespace(cuInit=without_driver))
    for text in (*in_all(capsys, bp, compiled), message(capsys, trc_run.main, "device", bp.parent / "gpu.json")):
        assert "no NVIDIA driver was found (libcuda.so.1: cannot open" in text
        assert "needs a machine with an NVIDIA GPU and its driver" in text
        assert len(text.splitlines()) == 1
    assert not (bp.parent / "gpu.json").exists()


def test_no_device(bp: Path, compiled: Path, monkeypatch: Patch, capsys: Capture) -> None:
    monkeypatch.setattr(FakeDriver, "devices", 0)
    for text in in_all(capsys, bp, compiled):
        assert text.endswith("there is no GPU 0: this process sees no GPU\n")
    monkeypatch.setattr(context_module, "Driver", _cuda.Driver)
    monkeypatch.setattr(_cuda, "_import", lambda _: SimpleNamespace(cuInit=lambda _: (_cuda.NO_DEVICE,)))
    for text in in_all(capsys, bp, compiled):
        assert text.endswith("sees no GPU (is one visible to this process? CUDA_VISIBLE_DEVICES)\n")


def test_an_old_driver(bp: Path, compiled: Path, monkeypatch: Patch, capsys: Capture) -> None:
    monkeypatch.setattr(FakeDriver, "driver_version", 12080)
    for text in in_all(capsys, bp, compiled):
        assert text.endswith("supports CUDA 12.8, trc needs 13.0 or newer: install a newer driver\n")


def test_another_architecture(compiled: Path, monkeypatch: Patch, capsys: Capture) -> None:
    monkeypatch.setattr(FakeDriver, "capability", (10, 0))
    wanted = "was compiled for sm_90, this GPU (NVIDIA Fake) is sm_100: compile it again for this GPU\n"
    assert trained(capsys, compiled).endswith(wanted)
    assert message(capsys, runtime_main.main, compiled, "bench").endswith(wanted)


def test_another_cudnn(compiled: Path, monkeypatch: Patch, capsys: Capture) -> None:
    monkeypatch.undo()  # the loading of plans is not faked here
    monkeypatch.setattr(context_module, "Driver", FakeDriver)
    monkeypatch.setattr(context_module.Context, "handle", lambda *_: None)
    monkeypatch.setattr(session_module, "Planner", lambda _: None)
    monkeypatch.setattr(dnn, "versions", lambda: ("1.18.0", "9.20.0"))
    wanted = "are of cuDNN 9.19.0, here is 9.20.0: compile the network again here, or install that version"
    assert wanted in trained(capsys, compiled)
    assert wanted in message(capsys, runtime_main.main, compiled, "bench")


def test_too_little_memory(bp: Path, compiled: Path, monkeypatch: Patch, capsys: Capture) -> None:
    monkeypatch.setattr(FakeDriver, "memory_limit", 20_000)
    for text in in_all(capsys, bp, compiled):
        needed, regions, advice = text.splitlines()
        assert "not enough GPU memory for the plan 'small': it needs " in needed
        assert "free are 19.5 KiB (20000 bytes) of 19.5 KiB" in needed
        assert regions.startswith("largest regions: ")
        assert len(regions.split(", ")) == 5
        assert advice == "a smaller batch or resolution needs less"


@pytest.mark.parametrize(
    ("module", "extra"), [("cuda.bindings", "cuda"), ("cudnn", "cudnn")], ids=["the driver's bindings", "cuDNN"]
)
def test_a_missing_extra_to_train(bp: Path, module: str, extra: str, monkeypatch: Patch, capsys: Capture) -> None:
    if extra == "cudnn":
        monkeypatch.setattr(context_module, "Driver", FakeDriver)
        monkeypatch.setattr(session_module, "compile_cubin", compile_for_host)
    monkeypatch.setitem(sys.modules, module, None)
    text = trained(capsys, bp)
    assert f"(extra '{extra}'): install it with  pip install 'trc[{extra}]'" in text


@pytest.mark.parametrize(("module", "extra"), [("cuda.bindings", "cuda"), ("cudnn", "cudnn")])
def test_a_missing_extra_to_compile(bp: Path, module: str, extra: str, monkeypatch: Patch, capsys: Capture) -> None:
    if extra == "cuda":
        monkeypatch.setattr(_cudnn, "Planner", lambda **_: None)
        monkeypatch.setattr(dnn, "make_plan", lambda *_: None)
        monkeypatch.setattr(dnn, "save_plans", lambda *_: b"")
    else:
        monkeypatch.setattr(cubins, "check_architecture", lambda _: None)
    monkeypatch.setitem(sys.modules, module, None)
    assert f"(extra '{extra}'): install it with  pip install 'trc[{extra}]'" in crossed(capsys, bp)


def test_without_convolutions_cudnn_is_not_needed(tmp_path: Path, monkeypatch: Patch, capsys: Capture) -> None:
    """Batch norm and pools are kernels of our own, in the bundle as on the device."""
    bp = tmp_path / "own.bp"
    bp.write_text("input(4, 4, 2);\nBluePrint own = seq(bn(), avgpool(2, 2), relu(), flatten());\n")
    monkeypatch.setattr(context_module, "Driver", FakeDriver)
    monkeypatch.setattr(session_module, "compile_cubin", compile_for_host)
    monkeypatch.setattr(cubins, "compile_cubin", compile_for_host)
    monkeypatch.setitem(sys.modules, "cudnn", None)
    words = (str(bp), "--target", "cuda", "--batch", "4", "-o", str(tmp_path / "out"))
    assert trc_compile.main([*words, "--device-properties", str(PROPERTIES)]) == 0
    assert capsys.readouterr().out.endswith("out: device code for sm_90\n")
    exe = load(tmp_path / "out")
    exe.save(tmp_path / "again")
    assert not (tmp_path / "again" / "cudnn_plans.json").exists()
    compile(bp, target="cuda", batch=4, schedule=Constant(base_lr=0.1)).save(tmp_path / "third")
    assert not (tmp_path / "third" / "cudnn_plans.json").exists()


def test_a_kernel_that_does_not_compile(bp: Path, tmp_path: Path, monkeypatch: Patch, capsys: Capture) -> None:
    try:
        _cuda.nvrtc_version()
        _cudnn.versions()
    except MissingExtra as err:
        pytest.skip(str(err))
    right = cuda_bundle.generate

    def wrong(plan: object) -> object:
        code = right(plan)  # type: ignore[arg-type]
        name = next(k for k, layers in code.program.layers().items() if layers == ["bn1"] and f"{k}(" in code.kernels)
        begin = code.kernels.index("{\n", code.kernels.index(f"{name}(")) + 2
        kernels = f"{code.kernels[:begin]}    no_such_thing();\n{code.kernels[begin:]}"
        return dataclasses.replace(code, kernels=kernels)

    monkeypatch.setenv("TRC_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(context_module, "Driver", FakeDriver)
    monkeypatch.setattr(cuda_bundle, "generate", wrong)
    for text in (crossed(capsys, bp), trained(capsys, bp)):
        assert "kernels.cu:" in text
        assert "(layer 'bn1') does not compile: identifier \"no_such_thing\" is undefined" in text
        assert text.splitlines()[-1].strip() == "no_such_thing();"


@pytest.mark.parametrize(
    ("content", "wanted"),
    [
        (None, "cannot read the device properties"),
        ("{", "cannot read the device properties"),
        ("{}", "on the machine with the GPU  trc-run device FILE  writes them"),
        ('{"deviceVer": 900}', "for the GPU of '{path}' (sm_90): these are no device properties of cuDNN's: "),
        ('{"deviceVer": 900}', "on the machine with the GPU  trc-run device FILE  writes them"),
        (
            '{"deviceVer": 500}',
            "for the GPU of '{path}' (sm_50): there is no code for the architecture sm_50: with NVRTC",
        ),
        ('{"deviceVer": 750}', "(sm_75): there is no code for the architecture sm_75"),
        ('{"deviceVer": 1010}', "(sm_101): there is no code for the architecture sm_101"),
        ('{"deviceVer": 99999999999999999999}', "trc supports sm_80, "),
        ('{"deviceVer": true}', "holds no device properties"),
    ],
)
def test_wrong_properties(bp: Path, tmp_path: Path, content: str | None, wanted: str, capsys: Capture) -> None:
    try:
        _cudnn.versions()
    except MissingExtra as err:
        pytest.skip(str(err))
    if content is not None:
        (tmp_path / "gpu.json").write_text(content)
    assert wanted.replace("{path}", str(tmp_path / "gpu.json")) in crossed(capsys, bp, tmp_path / "gpu.json")


def test_properties_are_written(compiled: Path, tmp_path: Path, monkeypatch: Patch, capsys: Capture) -> None:
    monkeypatch.setattr(_cudnn, "device_properties", lambda _: json.dumps({"deviceVer": 900}))
    assert trc_run.main(["device", str(tmp_path / "gpu.json")]) == 0
    assert capsys.readouterr().out == f"wrote {tmp_path / 'gpu.json'}: NVIDIA Fake\n"
    assert cuda.read_properties(tmp_path / "gpu.json")[1] == "sm_90"
    (tmp_path / "file").write_text("")
    text = message(capsys, trc_run.main, "device", tmp_path / "file" / "gpu.json")
    assert text.endswith(f"{tmp_path / 'file' / 'gpu.json'}: Not a directory\n")
    with pytest.raises(CompileError, match=r"gpu\.json: Not a directory"):
        cuda.write_properties(tmp_path / "file" / "gpu.json")
    monkeypatch.setattr(FakeDriver, "devices", 0)
    assert "no GPU 0" in message(capsys, trc_run.main, "device", tmp_path / "other.json")


def test_an_old_gpu(bp: Path, compiled: Path, monkeypatch: Patch, capsys: Capture) -> None:
    monkeypatch.setattr(FakeDriver, "capability", (7, 5))
    for text in in_all(capsys, bp, compiled):
        assert text.endswith("this GPU (NVIDIA Fake) is sm_75, target cuda needs sm_80 or newer\n")


def test_an_engine_that_cudnn_does_not_have(bp: Path, tmp_path: Path, monkeypatch: Patch, capsys: Capture) -> None:
    install(monkeypatch)
    make = dnn.make_plan

    def refuse(planner: object, key: str, description: dnn.Description, choice: str | None = None) -> object:
        if choice is not None:
            raise DnnError(f"cuDNN has no engine for {dnn.describe(description)}: no plan named {choice}")
        return make(planner, key, description)  # type: ignore[arg-type]

    def measured(sources: Sources, path: Path) -> Engines:
        return Engines(Machine("H200", "1", "9"), dict.fromkeys(keys_of(sources)[:1], ("eng999", 1.0, 2.0)))

    monkeypatch.setattr(dnn, "make_plan", refuse)
    monkeypatch.setattr(autotune, "tune", measured)
    words = ("--target", "cuda", "--batch", "4", "--autotune", tmp_path / "engines.json")
    text = message(capsys, trc_run.main, "bench", bp, *words)
    assert f"{tmp_path / 'engines.json'}: the entry '" in text
    assert "chooses the engine 'eng999', which cannot be used here: layer '" in text
    assert text.endswith("no plan named eng999; delete the entry, or the file, and what is missing is measured again\n")
