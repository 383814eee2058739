"""A small network under compute-sanitizer: no access outside an allocation, no race in shared memory."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.gpu

TOOL = shutil.which("compute-sanitizer") or shutil.which("compute-sanitizer", path="/usr/local/cuda/bin")
ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.skipif(TOOL is None or "TRC_FAKE_GPU" in os.environ, reason="needs compute-sanitizer and a GPU")
@pytest.mark.parametrize("tool", ["memcheck", "racecheck"])
def test_sanitizer(tool: str) -> None:
    paths = os.pathsep.join([str(ROOT), str(ROOT / "runtime"), os.environ.get("PYTHONPATH", "")])
    watched = [str(TOOL), "--tool", tool, "--error-exitcode", "9", "--print-limit", "20"]
    done = subprocess.run(
        [*watched, sys.executable, "-m", "tests.gpu.one_step"],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True, timeout=400, check=False,
    )  # fmt: skip
    if "Device not supported" in done.stdout + done.stderr:
        pytest.skip("compute-sanitizer refuses this device")
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]
    assert "losses" in done.stdout
