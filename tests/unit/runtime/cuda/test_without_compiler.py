"""A bundle for target cuda where only `trc_runtime` is installed: neither trc nor xdsl, on the GPU of host memory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.runtime.cuda.fake import COMPILER

pytestmark = pytest.mark.skipif(COMPILER is None, reason="needs g++")

ROOT = Path(__file__).resolve().parents[4]

NETWORK = """input(6, 6, 2);
BluePrint small = seq(conv(8, 3, 1, 1), bn(), relu(), conv(8, 3, 2, 1), bn(), relu(), flatten(), dropout(0.1), fc(5));
"""

FAKES = """
import sys, pytest
from tests.unit.runtime.cuda.fake import install
install(pytest.MonkeyPatch())
from trc_runtime.cuda import _cudnn, cubins, dnn, session
dnn.versions = lambda: ("1.18.0", "9.19.0")
"""

MAKE = """
cubins.compile_cubin = session.compile_cubin
_cudnn.Planner = lambda **_: None
from trc.tools.trc_compile import main
sys.exit(main(sys.argv[1:]))
"""

REFUSE = """
def refuse(*_, **__):
    raise AssertionError("a bundle with compiled parts compiles and plans nothing")
session.compile_cubin = dnn.make_plan = refuse
"""

ALONE = """
import sys
class Without:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("trc", "xdsl", "lark", "yaml"):
            raise ModuleNotFoundError("not installed here", name=name)
sys.meta_path.insert(0, Without())
"""

RUN = """
from trc_runtime.__main__ import main
code = main(sys.argv[1:])
assert not {"trc", "xdsl", "cuda.bindings.nvrtc"} & set(sys.modules)
sys.exit(code)
"""

TRC_RUN = """
from trc.tools.trc_run import main
sys.exit(main(sys.argv[1:]))
"""

TRC_LOAD = """
import trc
from trc_runtime.data.synthetic import synthetic
exe = trc.load(sys.argv[1])
exe.run(synthetic((6, 6, 2), 5, train=44, val=21), checkpoint_to=sys.argv[2])
"""


def python(script: str, *words: object) -> str:
    """Run a script; what it prints."""
    done = subprocess.run(
        [sys.executable, "-c", script, *map(str, words)],
        env=os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT / 'runtime'}", "CUDA_VISIBLE_DEVICES": ""},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As trc-compile makes it with device properties."""
    folder = tmp_path_factory.mktemp("cross")
    (folder / "small.bp").write_text(NETWORK)
    words = "--target cuda --precision amp-fp16 --batch 8 --epochs 2 --train-samples 44 --val-samples 21"
    properties = ROOT / "examples" / "devices" / "h200.json"
    out = python(
        FAKES + MAKE, folder / "small.bp", *words.split(), "--device-properties", properties, "-o", folder / "out"
    )
    assert out == f"wrote {folder / 'out'}: device code and cuDNN plans for sm_90\n"
    return folder / "out"


def test_the_runtime_alone_the_tools_and_the_library_train_the_same(bundle: Path, tmp_path: Path) -> None:
    words = ("--data", "synthetic", "-q", "--checkpoint")
    alone = python(ALONE + FAKES + REFUSE + RUN, bundle, "train", *words, tmp_path / "alone")
    assert alone.startswith("top1=")
    tool = python(FAKES + REFUSE + TRC_RUN, "train", bundle, *words, tmp_path / "tool")
    assert tool.split()[:2] == alone.split()[:2]
    python(FAKES + REFUSE + TRC_LOAD, bundle, tmp_path / "library")
    assert (tmp_path / "alone").read_bytes() == (tmp_path / "tool").read_bytes()
    assert (tmp_path / "alone").read_bytes() == (tmp_path / "library").read_bytes()
    for action in ("bench --steps 10", "info", f"eval --data synthetic --checkpoint {tmp_path / 'tool'}"):
        assert python(ALONE + FAKES + REFUSE + RUN, bundle, *action.split())
