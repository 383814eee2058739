"""A bundle compiled where there is no GPU trains on one, and compiles and plans nothing there.

On any machine, without a GPU (the bundle has 1.5 MB):

    python -m tests.gpu.test_cross make build/cross

On the GPU, with that folder carried there (without the variable the bundle is made there, in a process that sees no
GPU):

    TRC_CROSS_BUNDLE=build/cross python -m pytest tests/gpu/test_cross.py -s

Each training runs in a process of its own, with an empty TRC_CACHE: `alone` is trc_runtime without trc and xdsl, `load`
is `trc.load`; in both NVRTC and cuDNN's planning are counted and refused. `native` compiles and plans the same plan on
the device, which also shows that the counters count.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

FAKE = bool(os.environ.get("TRC_FAKE_GPU"))
ROOT = Path(__file__).resolve().parents[2]
STEPS, LAST = 12, 3
FORBIDDEN = ("NVRTC compilations", "cubin requests", "cuDNN planning runs", "cuDNN plan requests")
SMALL = """input(8, 8, 3);
BluePrint small = seq(conv(8, 3, 1, 1), bn(), relu(), conv(16, 3, 2, 1), bn(), relu(), gap(), fc(5));
"""


# ---------------------------------------------------------------- in a process of its own


def fakes() -> None:
    """The GPU made of host memory, for `make` and for training."""
    from tests.unit.runtime.cuda.fake import install
    from trc_runtime.cuda import _cudnn, cubins, dnn, session

    install(pytest.MonkeyPatch())
    cubins.compile_cubin = session.compile_cubin
    _cudnn.Planner = lambda **_: None  # type: ignore[assignment,misc]
    dnn.versions = lambda: ("1.18.0", "9.19.0")


class Without:
    """Makes trc and xdsl as if they were not installed."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name.partition(".")[0] in ("trc", "xdsl"):
            raise ModuleNotFoundError("not here", name=name)


def watch(refuse: bool) -> dict[str, int]:
    """Count what a bundle with compiled parts must not need, and refuse it."""
    from trc_runtime.cuda import _cuda, _cudnn, dnn, session

    counts = dict.fromkeys(FORBIDDEN, 0)

    def replace(label: str, owner: Any, name: str) -> None:
        original: Callable[..., Any] = getattr(owner, name)

        def call(*args: Any, **options: Any) -> Any:
            counts[label] += 1
            if refuse:
                raise AssertionError(f"forbidden here: {label} ({name})")
            return original(*args, **options)

        setattr(owner, name, call)

    replace(FORBIDDEN[0], _cuda, "nvrtc_compile")
    replace(FORBIDDEN[1], session, "compile_cubin")
    if not FAKE:
        replace(FORBIDDEN[2], _cudnn.Planner, "_candidates")
    replace(FORBIDDEN[3], dnn, "make_plan")
    return counts


def open_runner(how: str, folder: str) -> Any:
    """What trains the bundle."""
    from trc_runtime.__main__ import open_bundle
    from trc_runtime.cuda.session import CudaSession
    from trc_runtime.schema.bundle import DRIVER, KERNELS, read_bundle
    from trc_runtime.train.runner import Runner

    if how == "load":
        import trc

        return trc.load(folder)
    bundle = read_bundle(folder)
    if how == "alone":
        return open_bundle(bundle)
    return Runner(bundle.plan, CudaSession(bundle.plan, bundle.text(KERNELS), bundle.text(DRIVER)))


def batch(plan: Any) -> tuple[np.ndarray, np.ndarray]:
    """Images that show their class: one batch, to be learnt by heart."""
    spec, rng = plan.variants[0], np.random.default_rng(0)
    labels = rng.integers(0, min(10, plan.config.num_classes), spec.batch).astype(np.int32)
    side = max(spec.height // 8, 1), max(spec.width // 8, 1)
    coarse = rng.standard_normal((10, -(-spec.height // side[0]), -(-spec.width // side[1]), spec.channels), np.float32)
    shown = coarse.repeat(side[0], 1).repeat(side[1], 2)[:, : spec.height, : spec.width]
    noise = rng.standard_normal((spec.batch, spec.height, spec.width, spec.channels), np.float32)
    return shown[labels] + 0.5 * noise, labels


def mapped() -> list[str]:
    """Libraries of CUDA's that this process has loaded."""
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        return []
    names = {Path(line.split()[-1]).name for line in lines}
    return sorted(n for n in names if n.startswith(("libnvrtc", "libcudnn", "libcublas")))


def child(how: str, folder: str, result: str) -> None:
    """Train and write down what happened."""
    begin = time.perf_counter()
    if how == "alone":
        sys.meta_path.insert(0, Without())  # type: ignore[arg-type]
    if FAKE:
        fakes()
    counts = watch(how != "native")
    runner = open_runner(how, folder)
    images, labels = batch(runner.plan)
    losses = [runner.step(images, labels).loss]
    ready = time.perf_counter() - begin
    losses += [runner.step(images, labels).loss for _ in range(STEPS - 1)]
    digest = hashlib.sha256()
    for tensor in runner.plan.tensors:
        if not tensor.region.transient:
            digest.update(runner.session.read(tensor.name).tobytes())
    report = runner.session.report()
    facts = {
        "losses": losses,
        "state": digest.hexdigest(),
        "engines": dict(report.engines),
        "graphs": len(report.engines),
        "device": report.device,
        "counts": counts,
        "modules": sorted({"trc", "xdsl", "torch", "cuda.bindings.nvrtc"} & set(sys.modules)),
        "libraries": mapped(),
        "seconds_to_first_step": ready,
        "seconds_of_session": dict(report.seconds),
    }
    Path(result).write_text(json.dumps(facts))


def make(folder: str, *words: str) -> int:
    """The bundle, as trc-compile makes it without a GPU."""
    if FAKE:
        fakes()
    from trc.tools.trc_compile import main

    model = ROOT / "examples" / "models" / "resnet18.bp"
    if FAKE:
        model = Path(folder).with_suffix(".bp")
        model.write_text(SMALL)
        words = ("--batch", "8", "--lr", "0.02", *words)
    properties = ROOT / "examples" / "devices" / "h200.json"
    common = ("--target", "cuda", "--device-properties", str(properties), "--precision", "amp-fp16", "-o", folder)
    return main([str(model), *common, *words])


# ---------------------------------------------------------------- tests


def python(words: Sequence[object], **env: str) -> None:
    """Run this file in a new process."""
    paths = f"{ROOT}:{ROOT / 'runtime'}:{os.environ.get('PYTHONPATH', '')}"
    done = subprocess.run(
        [sys.executable, "-m", "tests.gpu.test_cross", *map(str, words)],
        env=os.environ | {"PYTHONPATH": paths} | env,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if given := os.environ.get("TRC_CROSS_BUNDLE"):
        return Path(given).resolve()
    folder = tmp_path_factory.mktemp("cross")
    python(["make", folder / "bundle"], CUDA_VISIBLE_DEVICES="", TRC_CACHE=str(folder / "cache"))
    return folder / "bundle"


@pytest.fixture(scope="module")
def trained(bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """The facts of each way to train the bundle."""
    found: dict[str, dict[str, Any]] = {}
    for how in ("alone", "load", "native"):
        folder = tmp_path_factory.mktemp(how)
        python([how, bundle, folder / "facts.json"], TRC_CACHE=str(folder / "cache"))
        found[how] = json.loads((folder / "facts.json").read_text())
        found[how]["cached"] = sorted(p.name for p in folder.glob("cache/**/*") if p.is_file())
    return found


def said(how: str, facts: dict[str, Any]) -> str:
    """One paragraph about a training."""
    counts = ", ".join(f"{n} {what}" for what, n in facts["counts"].items())
    parts = " ".join(f"{k} {v:.2f}" for k, v in facts["seconds_of_session"].items())
    return (
        f"{how} on {facts['device']}: {counts}; {len(facts['cached'])} files cached\n"
        f"  modules {facts['modules']}, libraries {facts['libraries']}\n"
        f"  first step done after {facts['seconds_to_first_step']:.2f} s ({parts})\n"
        f"  losses {' '.join(f'{x:.4f}' for x in facts['losses'])}"
    )


@pytest.mark.gpu
def test_what_is_used(trained: dict[str, dict[str, Any]], capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        print("", *(said(how, facts) for how, facts in trained.items()), sep="\n")
    for how in ("alone", "load"):
        assert trained[how]["counts"] == dict.fromkeys(FORBIDDEN, 0)
        assert trained[how]["cached"] == []
        assert "cuda.bindings.nvrtc" not in trained[how]["modules"]
        assert "torch" not in trained[how]["modules"]
    assert not {"trc", "xdsl"} & set(trained["alone"]["modules"])
    native = trained["native"]["counts"]
    assert native["cubin requests"] == 1
    assert native["cuDNN plan requests"] == trained["native"]["graphs"] > 0
    if not FAKE:
        assert native["NVRTC compilations"] == 1
        assert native["cuDNN planning runs"] >= trained["native"]["graphs"]


@pytest.mark.gpu
@pytest.mark.parametrize("how", ["alone", "load", "native"])
def test_it_learns(trained: dict[str, dict[str, Any]], how: str) -> None:
    losses = trained[how]["losses"]
    assert np.isfinite(losses).all()
    assert np.mean(losses[-LAST:]) < 0.5 * losses[0], losses


@pytest.mark.gpu
def test_the_numbers_are_those_of_a_native_compilation(
    trained: dict[str, dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    alone, load, native = (trained[how] for how in ("alone", "load", "native"))
    assert alone["losses"] == load["losses"]
    assert alone["state"] == load["state"]
    others = {key: (name, native["engines"][key]) for key, name in alone["engines"].items()}
    others = {key: names for key, names in others.items() if names[0] != names[1]}
    with capsys.disabled():
        print(f"\n{len(others)} of {alone['graphs']} cuDNN engines differ from a native compilation's {others or ''}")
    if not others:
        assert alone["losses"] == native["losses"]
        assert alone["state"] == native["state"]
    else:  # other sums of the same terms; the steps after the first amplify it
        assert alone["losses"][0] == pytest.approx(native["losses"][0], rel=5e-3)


if __name__ == "__main__":
    if sys.argv[1] == "make":
        sys.exit(make(*sys.argv[2:]))
    child(*sys.argv[1:])
