"""Networks trained on real data on the GPU with trc-run: accuracy beside the CPU's, time, and the same bytes twice.

    python bench/gpu_accuracy.py [--data-root DIR] [--runs mlp,lenet5,resnet18_quarter]

The recipes are those of `make run` and tests/accept: MLP and LeNet-5 on MNIST for 5 epochs, a ResNet-18 of quarter
width on Fashion-MNIST for 3, with trc-run's defaults (batch 200, AdamW, cosine rate, label smoothing 0.1). The MLP is
trained twice with the same seed: both checkpoints must have the same bytes.

Data sets are looked for where trc-run looks: `--data-root` first (the four files, plain or .gz, in DIR/mnist and
DIR/fashion-mnist), then $TRC_DATA, ~/.cache/trc and ./data. Each run is a process of its own; one that fails is
recorded with its error, and the others go on. The result is written after each. With the defaults it takes about 2
minutes. `--target cpu --precision fp32 --epochs 1` tries the script where there is no GPU.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
from results_file import save

ROOT = Path(__file__).resolve().parents[1]
SAMPLES = 10_000
"""Validation images of either data set."""


@dataclass(frozen=True)
class Recipe:
    """A training run; `cpu_top1` is what the CPU target reaches, in per cent, `at_least` what must be reached."""

    model: Path
    data: str
    epochs: int
    cpu_top1: float
    at_least: float
    twice: bool = False


RECIPES = {
    "mlp": Recipe(ROOT / "examples/models/mlp.bp", "mnist", 5, 98.52, 98.3, twice=True),
    "lenet5": Recipe(ROOT / "examples/models/lenet5.bp", "mnist", 5, 99.3, 99.0),
    "resnet18_quarter": Recipe(ROOT / "bench/resnet18_quarter.bp", "fashion-mnist", 3, 92.46, 90.0),
}


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", default=",".join(RECIPES), help=f"of {', '.join(RECIPES)}")
    parser.add_argument("--data-root", type=Path, metavar="DIR", help="where to look first for the data sets")
    parser.add_argument("--target", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--precision", default="amp-fp16")
    parser.add_argument("--epochs", type=int, help="instead of the recipes' own")
    parser.add_argument("--timeout", type=float, default=240.0, help="seconds for a run at most (default 240)")
    parser.add_argument("--output", type=Path, help="write the result here too")
    return parser.parse_args()


def command_of(recipe: Recipe, args: argparse.Namespace, checkpoint: Path, log: Path) -> list[str]:
    """The command of a run."""
    command = [sys.executable, "-m", "trc.tools.trc_run", "train", str(recipe.model), "--data", recipe.data, "-q"]
    command += ["--target", args.target, "--precision", args.precision, "--epochs", str(args.epochs or recipe.epochs)]
    command += ["--checkpoint", str(checkpoint), "--log", str(log)]
    if args.data_root is not None:
        command += ["--data-dir", str(args.data_root.resolve())]
    return command


def outcome(log: Path) -> dict[str, Any]:
    """What a run's log says: accuracy of every epoch and of the last one in per cent, seconds, skipped steps."""
    events: list[dict[str, Any]] = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    evaluations = [e for e in events if e["event"] == "eval"]
    done = next(e for e in events if e["event"] == "done")
    return {
        "top1": 100 * evaluations[-1]["top1"],
        "top1_of_epochs": [100 * e["top1"] for e in evaluations],
        "loss": evaluations[-1]["loss"],
        "seconds_of_training": done["seconds"],
        "skipped": done["skipped"],
    }


def run(recipe: Recipe, args: argparse.Namespace, checkpoint: Path) -> dict[str, Any]:
    """Train once. RuntimeError with the end of what trc-run said where it fails."""
    log = checkpoint.with_suffix(".jsonl")
    command = command_of(recipe, args, checkpoint, log)
    begin = time.perf_counter()
    try:
        done = subprocess.run(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=args.timeout
        )
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"not done within {args.timeout:g} s") from None
    seconds = time.perf_counter() - begin
    if done.returncode:
        raise RuntimeError(f"exit code {done.returncode}: {done.stdout[-2000:].strip()}")
    return {"command": " ".join(["trc-run", *command[3:]]), "seconds": seconds, **outcome(log)}


def tensors_of(path: Path) -> dict[str, Any]:
    """The arrays of a safetensors file."""
    opener: Any = safetensors.safe_open  # pyright: ignore[reportUnknownMemberType]
    with opener(path, framework="numpy") as file:
        return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it is no mapping


def differences(first: Path, second: Path) -> dict[str, float]:
    """The tensors whose bytes differ between two checkpoints, with the largest difference of their values."""
    a, b = (tensors_of(p) for p in (first, second))
    if a.keys() != b.keys():
        return dict.fromkeys(sorted(a.keys() ^ b.keys()), float("inf"))
    return {
        name: float(np.abs(a[name].astype(np.float64) - b[name].astype(np.float64)).max(initial=0.0))
        for name in a
        if a[name].tobytes() != b[name].tobytes()
    }


def judged(recipe: Recipe, found: Mapping[str, Any], full: bool) -> dict[str, Any]:
    """A run's accuracy beside the CPU's; `full` where it had all its epochs."""
    share = found["top1"] / 100
    error = 100 * float(np.sqrt(share * (1 - share) / SAMPLES))
    beside = {"cpu_top1": recipe.cpu_top1, "above_cpu": found["top1"] - recipe.cpu_top1, "standard_error": error}
    return {**found, **beside, "at_least": recipe.at_least, "good": found["top1"] >= recipe.at_least if full else None}


def train(name: str, args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """A recipe's runs."""
    recipe = RECIPES[name]
    first, second = (folder / f"{name}{n}.safetensors" for n in (1, 2))
    result = judged(recipe, run(recipe, args, first), args.epochs in (None, recipe.epochs))
    if recipe.twice:
        again = run(recipe, args, second)
        differing = differences(first, second)
        same = first.read_bytes() == second.read_bytes()
        result |= {"again": again, "same_bytes": same, "differing": differing}
    return result


def show(name: str, found: Mapping[str, Any]) -> None:
    """Print a recipe's line."""
    if "error" in found:
        print(f"{name:<17} failed: {found['error']}", flush=True)
        return
    line = f"{name:<17} top-1 {found['top1']:.2f} % (CPU {found['cpu_top1']:g}, standard error "
    line += f"{found['standard_error']:.2f}) in {found['seconds_of_training']:.1f} s, {found['seconds']:.1f} with start"
    if "same_bytes" in found:
        line += ", two runs end in the same bytes" if found["same_bytes"] else ", TWO RUNS END IN DIFFERENT BYTES"
    print(line, flush=True)


def main() -> None:
    """Train, print and save."""
    args = parse()
    names: list[str] = args.runs.split(",")
    for name in names:
        if name not in RECIPES:
            raise SystemExit(f"unknown run '{name}'; choose of {', '.join(RECIPES)}")
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            try:
                results[name] = train(name, args, Path(folder))
            except Exception as err:  # the other runs are still worth their time
                results[name] = {"error": f"{type(err).__name__}: {err}"}
            show(name, results[name])
            figures = {"target": args.target, "precision": args.precision, "runs": results}
            path = save("gpu_accuracy", figures, trial=args.target == "cpu")
            if args.output is not None:
                args.output.parent.mkdir(parents=True, exist_ok=True)
                args.output.write_bytes(path.read_bytes())
            print(f"written to {path}", flush=True)
    bad = [n for n, r in results.items() if "error" in r or r["good"] is False or r.get("same_bytes") is False]
    if bad:
        raise SystemExit(f"not good: {', '.join(bad)}")


if __name__ == "__main__":
    main()
