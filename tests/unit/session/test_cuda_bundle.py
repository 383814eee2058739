"""Bundles for CUDA whose parts do not belong together, or make no sense: one message with the file and what to do."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import trc
import trc_runtime.__main__ as runtime_main
from tests.unit.runtime.cuda.fake import COMPILER, FakeDriver, compile_for_host, install
from trc.tools import trc_compile
from trc_runtime.cuda import _cudnn, cubins, dnn
from trc_runtime.cuda import session as session_module
from trc_runtime.cuda.bundle import bundle_parts
from trc_runtime.schema.bundle import MANIFEST, read_bundle, seal_of

pytestmark = pytest.mark.skipif(COMPILER is None, reason="needs g++")

Patch = pytest.MonkeyPatch
Capture = pytest.CaptureFixture[str]
Manifest = dict[str, Any]
Edit = Callable[[Path, Manifest], object]

PROPERTIES = Path(__file__).resolve().parents[3] / "examples" / "devices" / "h200.json"
ANEW = "was it made by another version of trc? compile the network again"
CUBIN, PLANS = "kernels.sm_90.cubin", "cudnn_plans.json"


def compile_to(folder: Path, act: str, *more: str) -> Path:
    bp = folder.with_suffix(".bp")
    size = 3 if act == "relu" else 1
    bp.write_text(f"input(6, 6, 2);\nBluePrint small = seq(conv(8, {size}, 1, {size // 2}), bn(), {act}(), fc(5));\n")
    assert trc_compile.main([str(bp), "--target", "cuda", "--batch", "4", "-o", str(folder), *more]) == 0
    return folder


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two bundles with device code, `one` and `two`, and `bare` without."""
    folder = tmp_path_factory.mktemp("bundles")
    with pytest.MonkeyPatch.context() as patch:
        fakes(patch)
        for name, act in (("one", "relu"), ("two", "silu")):
            compile_to(folder / name, act, "--device-properties", str(PROPERTIES))
        compile_to(folder / "bare", "relu")
    return folder


def fakes(monkeypatch: Patch) -> None:
    install(monkeypatch)
    monkeypatch.setattr(cubins, "compile_cubin", compile_for_host)
    monkeypatch.setattr(_cudnn, "Planner", lambda **_: None)
    monkeypatch.setattr(dnn, "versions", lambda: ("1.18.0", "9.19.0"))


@pytest.fixture
def asked(monkeypatch: Patch) -> list[str]:
    """What was compiled and planned."""
    fakes(monkeypatch)
    found: list[str] = []
    for module, name in ((session_module, "compile_cubin"), (dnn, "make_plan")):
        original = getattr(module, name)

        def call(*args: Any, original: Any = original, name: str = name, **options: Any) -> Any:
            found.append(name)
            return original(*args, **options)

        monkeypatch.setattr(module, name, call)
    return found


def edited(source: Path, target: Path, edit: Edit, *, sealed: bool = False) -> Path:
    """A copy, changed by `edit`, with checksums that fit what it holds; `sealed` makes the parts belong together."""
    shutil.copytree(source, target)
    manifest: Manifest = json.loads((target / MANIFEST).read_text())
    edit(target, manifest)
    files = manifest["files"]
    manifest["files"] = {n: hashlib.sha256((target / n).read_bytes()).hexdigest() for n in files}
    if sealed and "seal" in manifest:
        manifest["seal"] = seal_of(manifest["files"])
    (target / MANIFEST).write_text(json.dumps(manifest))
    return target


def refused(capsys: Capture, bundle: Path) -> str:
    """The one message of the runtime; the library says the same."""
    capsys.readouterr()
    others = len(FakeDriver.sessions)
    assert runtime_main.main([str(bundle), "bench", "--steps", "2", "-q"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert "Traceback" not in err
    assert "failed inside" not in err
    assert err.count("error: ") == 1
    text = err.removeprefix("trc_runtime: error: ").rstrip("\n")
    with pytest.raises(trc.CompileError) as caught:
        trc.load(bundle)
    assert str(caught.value).removeprefix("error: ") == text
    assert not any(any(d.live.values()) for d in FakeDriver.sessions[others:]), "nothing is left on the device"
    return text


def take(name: str) -> Edit:
    return lambda folder, manifest: ((folder / name).unlink(), manifest["files"].pop(name))


def of_another(name: str) -> Edit:
    return lambda folder, _: shutil.copy(folder.parent / "two" / name, folder / name)


def replaced(name: str, old: str, new: str) -> Edit:
    def edit(folder: Path, _: Manifest) -> None:
        text = (folder / name).read_text()
        assert old in text
        (folder / name).write_text(text.replace(old, new, 1))

    return edit


def holds(name: str, body: bytes | str) -> Edit:
    return lambda folder, _: (folder / name).write_bytes(body if isinstance(body, bytes) else body.encode())


def without_a_plan(folder: Path, _: Manifest) -> None:
    document = json.loads((folder / PLANS).read_text())
    document["plans"].popitem()
    (folder / PLANS).write_text(json.dumps(document))


def copied(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made / "two", tmp_path / "two")
    return made / "one"


TOGETHER = f"kernels.cu, driver.py, {PLANS}, {CUBIN} do not belong together"

PARTS: dict[str, tuple[Edit, str]] = {
    "no architecture": (lambda _, m: m.pop("architecture"), f"lists {PLANS}, {CUBIN} and no architecture"),
    "another architecture": (lambda _, m: m.update(architecture="sm_80"), "code for sm_80, but no kernels.sm_80.cubin"),
    "no cubin": (take(CUBIN), f"code for sm_90, but no {CUBIN}"),
    "no plans": (take(PLANS), f"kernels.cu, driver.py, {CUBIN} do not belong together"),
    "a plan less": (without_a_plan, TOGETHER),
    "no seal": (lambda _, m: m.pop("seal"), TOGETHER),
    "kernels.cu of another": (of_another("kernels.cu"), TOGETHER),
    "driver.py of another": (of_another("driver.py"), TOGETHER),
    "cubin of another": (of_another(CUBIN), TOGETHER),
    "plans of another": (of_another(PLANS), TOGETHER),
    "plan.json of another": (of_another("plan.json"), "driver.py was made for another plan"),
}


@pytest.mark.parametrize("case", PARTS)
def test_parts_that_do_not_belong_together(
    case: str, made: Path, tmp_path: Path, asked: list[str], capsys: Capture
) -> None:
    """A bundle with device code compiles and plans nothing, also where a part of it is not to be had."""
    edit, wanted = PARTS[case]
    bundle = edited(copied(made, tmp_path), tmp_path / "b", edit)
    text = refused(capsys, bundle)
    assert text.startswith(str(bundle))
    assert wanted in text
    assert text.endswith(ANEW)
    assert asked == []


def test_whole_bundles(made: Path, tmp_path: Path, asked: list[str]) -> None:
    assert runtime_main.main([str(made / "one"), "bench", "--steps", "2", "-q"]) == 0
    assert asked == []
    assert runtime_main.main([str(made / "bare"), "bench", "--steps", "2", "-q"]) == 0
    assert set(asked) == {"compile_cubin", "make_plan"}, "without any device code it is made where it is loaded"
    assert bundle_parts(read_bundle(made / "bare")).cubin is None
    trc.load(made / "bare").save(tmp_path / "saved")
    asked.clear()
    trc.load(tmp_path / "saved")
    assert asked == []


SEALED: dict[str, tuple[Edit, str]] = {
    "a plan less": (without_a_plan, f"{PLANS} has no plan for the graph "),
    "plans of another": (of_another(PLANS), f"{PLANS} has no plan for the graph "),
    "cubin of another": (of_another(CUBIN), "driver.py launches the kernel "),
    "unknown call": (replaced("driver.py", "c.node(0, ", "c.nodes(0, "), "has no attribute 'nodes'"),
    "an argument more": (replaced("driver.py", "c.kernel(", "c.kernel(1, "), "TypeError: "),
    "an unknown node": (replaced("driver.py", "c.node(0, ", "c.node(1000, "), "node 1000 (h2d_copy)"),
    "a negative node": (replaced("driver.py", "c.node(0, ", "c.node(-1, "), "node -1 with 0 bytes"),
    "a node that is none": (replaced("driver.py", "c.node(0, ", "c.node([], "), "node [] with 0 bytes"),
    "another node": (replaced("driver.py", "c.node(0, ", "c.node(3, "), "node 3 (h2d_copy)"),
    "a block of nothing": (replaced("driver.py", "(256, 1, 1)", "(0, 1, 1)"), "not what such a call takes"),
    "a block of text": (replaced("driver.py", "(256, 1, 1)", "('x', 1, 1)"), "not what such a call takes"),
    "a pointer far away": (replaced("driver.py", "P(", "P(10**15 + "), "lies outside the arena"),
    "a pointer to text": (replaced("driver.py", "P(", "P('x' or "), "not what such a call takes"),
    "a long copy": (
        replaced("driver.py", "c.copy(", "c.copy(nbytes=10**12, dst=Arena(0), src=Arena(0)) or ("),
        "outside",
    ),
    "no descriptions": (replaced("driver.py", "CUDNN = {", "CUDNN = {}\nX = {"), "describes no cuDNN graph"),
    "a description of nothing": (replaced("driver.py", '"tensors": {', '"tensors": 3, "x": {'), "not the description"),
    "descriptions of nothing": (replaced("driver.py", "CUDNN = {", "CUDNN = 3\nX = {"), "CUDNN must be a dictionary"),
    "a binding less": (replaced("driver.py", '{"', '{"nope'), "driver.py"),
    "captures of nothing": (replaced("driver.py", "CAPTURES = [", "CAPTURES = 3\nX = ["), "CAPTURES must list"),
    "captures that are none": (replaced("driver.py", "CAPTURES = [", "CAPTURES = list(range(99))\nX = ["), "CAPTURES"),
    "an exit": (replaced("driver.py", "CAPTURES = [", "raise SystemExit(0)\nCAPTURES = ["), "SystemExit"),
    "an exit inside": (replaced("driver.py", "c.node(0, ", "raise SystemExit(0)\n    c.node(0, "), "SystemExit"),
    "no syntax": (holds("driver.py", "def ("), "driver.py cannot be executed: SyntaxError"),
    "nothing": (holds("driver.py", ""), "driver.py was made for another plan"),
    "a zero byte": (holds("driver.py", "x = 1\0"), "driver.py cannot be executed"),
    "no text": (holds("driver.py", b"\xff\xfe\0"), "driver.py is not text in UTF-8"),
    "kernels that are no text": (holds("kernels.cu", b"\xff\xfe\0"), "kernels.cu is not text in UTF-8"),
    "no driver": (take("driver.py"), "was compiled for target cuda, but has no driver.py"),
    "no kernels": (take("kernels.cu"), "was compiled for target cuda, but has no kernels.cu"),
    "plans cut off": (lambda f, _: (f / PLANS).write_text((f / PLANS).read_text()[:300]), f"{PLANS} is damaged"),
    "plans that are a list": (holds(PLANS, "[]"), f"{PLANS} is damaged"),
    "an infinite workspace": (replaced(PLANS, '"workspace": 512', '"workspace": Infinity'), "a workspace of inf bytes"),
    "a negative workspace": (replaced(PLANS, '"workspace": 512', '"workspace": -1'), "a workspace of -1 bytes"),
    "plans of a later version": (replaced(PLANS, '"version": 1', '"version": 9'), f"{PLANS} has version 9"),
    "plans that are no text": (holds(PLANS, b"\xff\xfe\0"), f"{PLANS} is damaged"),
    "plans for another GPU": (replaced(PLANS, "sm_90", "sm_80"), f"{PLANS}: the saved cuDNN plans are for sm_80"),
}


@pytest.mark.parametrize("case", SEALED)
def test_contents_that_make_no_sense(case: str, made: Path, tmp_path: Path, asked: list[str], capsys: Capture) -> None:
    edit, wanted = SEALED[case]
    bundle = edited(copied(made, tmp_path), tmp_path / "b", edit, sealed=True)
    text = refused(capsys, bundle)
    assert wanted in text
    assert str(bundle) in text
    assert "compile the network again" in text
    assert asked == []


def test_a_bundle_of_another_target(made: Path, tmp_path: Path, asked: list[str]) -> None:
    bundle = edited(made / "one", tmp_path / "b", lambda f, m: (take("driver.py")(f, m), m.update(target="cpu")))
    with pytest.raises(ValueError, match=r"was compiled for target cpu and has no driver\.py: compile it for cuda"):
        bundle_parts(read_bundle(bundle))
