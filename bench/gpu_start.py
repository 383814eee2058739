# pyright: basic
"""How long it takes on the GPU until the first training step is done, cold and warm.

    python bench/gpu_start.py [--model resnet50] [--batch 256] [--only cold,load] [--cross-bundle DIR]

Each figure comes from a process of its own, and counts from the call to the end of the first step; the time to import
trc is given beside it. In this order:

- cold: `trc.compile` with an empty cache; it saves a bundle afterwards;
- warm: `trc.compile` again, with the cache that the first one filled;
- load: `trc.load` of that bundle, with caches;
- cross: `trc.load` of a bundle compiled without the device, with an empty cache, which must stay empty. The bundle is
  one that trc-compile made elsewhere (--cross-bundle), or is made here first in a process that sees no GPU
  (--device-properties).

What fails or takes longer than --timeout is noted and does not stop the others; the result is written after each.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from results_file import save

LIMITS = {"cold": 20.0, "load": 3.0}
PARTS = ("cold", "warm", "load", "cross")
ROOT = Path(__file__).resolve().parents[1]
PATHS = os.pathsep.join(filter(None, (str(ROOT), str(ROOT / "runtime"), os.environ.get("PYTHONPATH"))))
"""For the processes, so that trc need not be installed."""


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="resnet50", help="a network of trc.models (default resnet50)")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--precision", default="amp-fp16")
    parser.add_argument("--only", default=",".join(PARTS), metavar="PARTS", help="default: all, as far as given")
    cross = parser.add_mutually_exclusive_group()
    cross.add_argument("--device-properties", metavar="FILE", help="measure a bundle compiled without the device too")
    cross.add_argument("--cross-bundle", metavar="DIR", help="one that was compiled elsewhere")
    parser.add_argument("--timeout", type=float, default=90, metavar="S", help="of each process (default 90)")
    parser.add_argument("--output", type=Path, help="write the result here too")
    parser.add_argument("--child", choices=("compile", "load"), help=argparse.SUPPRESS)
    parser.add_argument("--bundle", help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.only = args.only.split(",")
    if unknown := set(args.only) - set(PARTS):
        parser.error(f"--only: unknown {', '.join(sorted(unknown))}; choose from {', '.join(PARTS)}")
    if {"warm", "load"} & set(args.only) and "cold" not in args.only:
        parser.error("--only: warm and load need what cold leaves behind")
    return args


def options(args: argparse.Namespace) -> dict[str, Any]:
    """How the network is compiled."""
    import trc

    return {
        "batch": args.batch,
        "precision": args.precision,
        "target": "cuda",
        "optimizer": trc.SGD(momentum=0.9, nesterov=True, weight_decay=1e-4),
        "schedule": trc.Constant(base_lr=0.1),
        "loss": trc.CrossEntropy(label_smoothing=0.1),
    }


def child(args: argparse.Namespace) -> None:
    """One measurement; prints it as JSON in the last line."""
    begin = time.perf_counter()
    import trc
    from trc.models import ZOO

    imported = time.perf_counter()
    exe = trc.load(args.bundle) if args.child == "load" else trc.compile(ZOO[args.model](), **options(args))
    ready = time.perf_counter()
    spec = exe.plan.variants[0]
    rng = np.random.default_rng(0)
    images = rng.standard_normal((spec.batch, spec.height, spec.width, spec.channels), dtype=np.float32)
    labels = rng.integers(0, exe.plan.config.num_classes, spec.batch, dtype=np.int32)
    drawn = time.perf_counter()
    loss = exe.step(images, labels).loss
    end = time.perf_counter()
    report: Any = exe.session.report()  # type: ignore[attr-defined]
    figures = {
        "seconds": (ready - imported) + (end - drawn),
        "seconds_to_import": imported - begin,
        "seconds_of_call": ready - imported,
        "seconds_of_first_step": end - drawn,
        "seconds_of_session": dict(report.seconds),
        "network": f"{exe.plan.name}, batch {spec.batch}",
        "device": report.device,
        "imported": sorted({"torch", "cuda.bindings.nvrtc"} & set(sys.modules)),
        "loss": loss,
    }
    if args.child == "compile" and args.bundle:
        exe.save(args.bundle)
    print(json.dumps(figures))


def run(args: argparse.Namespace, what: str, cache: str, bundle: str | None) -> dict[str, Any]:
    """A measurement in a process of its own; what went wrong as `error`."""
    command = [sys.executable, __file__, "--child", what, "--model", args.model, "--batch", str(args.batch)]
    command += ["--precision", args.precision, *(["--bundle", bundle] if bundle else [])]
    env = os.environ | {"TRC_CACHE": cache, "PYTHONPATH": PATHS}
    try:
        done = subprocess.run(
            command, env=env, stdout=subprocess.PIPE, text=True, check=False, timeout=args.timeout, cwd=ROOT
        )
    except subprocess.TimeoutExpired:
        return {"error": f"not done after {args.timeout:g} s"}
    if done.returncode:
        return {"error": f"exit code {done.returncode}"}
    figures = json.loads(done.stdout.splitlines()[-1])
    figures["files_in_cache"] = sum(p.is_file() for p in Path(cache).rglob("*"))
    return figures


def cross_compile(args: argparse.Namespace, cache: str, bundle: str) -> None:
    """A bundle for the device of the properties, as trc-compile makes it."""
    command = [sys.executable, "-m", "trc.tools.trc_compile", str(ROOT / "examples" / "models" / f"{args.model}.bp")]
    command += ["-o", bundle, "--target", "cuda", "--device-properties", os.path.abspath(args.device_properties)]
    command += ["--precision", args.precision, "--batch", str(args.batch)]
    command += ["--optimizer", "sgd:momentum=0.9,nesterov=true", "--weight-decay", "1e-4", "--lr", "0.1"]
    command += ["--label-smoothing", "0.1"]
    env = os.environ | {"TRC_CACHE": cache, "PYTHONPATH": PATHS, "CUDA_VISIBLE_DEVICES": ""}
    subprocess.run(command, env=env, check=True, timeout=args.timeout, cwd=ROOT)


def cross(args: argparse.Namespace, folder: str) -> dict[str, Any]:
    """The start from a bundle that was compiled without the device."""
    bundle = os.path.abspath(args.cross_bundle or f"{folder}/cross")
    begin = time.perf_counter()
    if args.device_properties:
        try:
            cross_compile(args, f"{folder}/cache2", bundle)
        except subprocess.SubprocessError as err:
            return {"error": f"trc-compile: {err}"}
    made = time.perf_counter() - begin
    figures = run(args, "load", f"{folder}/cache3", bundle)
    figures["bundle_bytes"] = sum(p.stat().st_size for p in Path(bundle).glob("*"))
    if args.device_properties:
        figures["seconds_to_cross_compile"] = made
    if figures.get("files_in_cache"):
        figures["error"] = "something was compiled on the device"
    return figures


def line(name: str, figures: dict[str, Any]) -> str:
    """A measurement for people."""
    if "error" in figures:
        return f"{name:<6} FAILED: {figures['error']}"
    limit = f" (limit {LIMITS[name]:g})" if name in LIMITS else ""
    parts = " ".join(f"{k} {v:.2f}" for k, v in figures["seconds_of_session"].items())
    call, step = figures["seconds_of_call"], figures["seconds_of_first_step"]
    return f"{name:<6} {figures['seconds']:7.2f} s{limit}: call {call:.2f} ({parts}), first step {step:.2f}"


def main() -> int:
    """Measure, print and save."""
    args = parse()
    if args.child:
        child(args)
        return 0
    figures: dict[str, Any] = {"model": args.model, "batch": args.batch, "precision": args.precision, "limits": LIMITS}
    with tempfile.TemporaryDirectory() as folder:
        cache, bundle = f"{folder}/cache", f"{folder}/bundle"
        measures = {
            "cold": lambda: run(args, "compile", cache, bundle),
            "warm": lambda: run(args, "compile", cache, None),
            "load": lambda: run(args, "load", cache, bundle),
        }
        if args.device_properties or args.cross_bundle:
            measures["cross"] = lambda: cross(args, folder)
        for name in (n for n in PARTS if n in args.only and n in measures):
            figures[name] = measures[name]()
            print(line(name, figures[name]), flush=True)
            path = save("gpu_start", figures)
            if args.output is not None:
                args.output.parent.mkdir(parents=True, exist_ok=True)
                args.output.write_bytes(path.read_bytes())
    return int(any("error" in figures.get(name, {}) for name in PARTS))


if __name__ == "__main__":
    sys.exit(main())
