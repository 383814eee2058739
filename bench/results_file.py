"""Write a benchmark's result with what is needed to repeat it: date, machine, versions, command."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

RESULTS = Path(__file__).parent / "results"
TRIALS = Path(__file__).parent.parent / "build" / "trials"
"""Where trials of a script are written that give no figures to keep."""

PACKAGES = (
    "xdsl",
    "numpy",
    "torch",
    "torchvision",
    "triton",
    "cuda-bindings",
    "nvidia-cuda-nvrtc",
    "nvidia-cudnn-cu13",
    "nvidia-cudnn-frontend",
    "nvidia-cublas",
)
"""Packages whose versions are recorded where they are installed."""


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor()


def _gpu() -> str | None:
    """The first GPU and its driver, or None."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        lines = subprocess.run(query, capture_output=True, text=True, check=True).stdout.splitlines()
    except (OSError, subprocess.CalledProcessError):
        return None
    return lines[0] if lines else None


def save(name: str, figures: Mapping[str, object], trial: bool = False) -> Path:
    """Write `bench/results/<name>.json`, for a trial `build/trials/<name>.json`, and return its path."""
    packages = {p: _version(p) for p in PACKAGES}
    document = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": " ".join(["python", *sys.argv]),
        "machine": {"cpu": _processor(), "cores": os.cpu_count(), "gpu": _gpu(), "python": platform.python_version()},
        "versions": {p: v for p, v in packages.items() if v},
        "figures": figures,
    }
    path = (TRIALS if trial else RESULTS) / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    return path
