# pyright: basic
"""How long it takes on the GPU until the first training step is done, cold and warm.

    python bench/gpu_start.py [--model resnet50] [--batch 256]

Each figure comes from a process of its own, and counts from the call to the end of the first step; the time to import
trc is given beside it. In this order:

- cold: `trc.compile` with an empty cache;
- warm: `trc.compile` again, with the cache that the first one filled;
- load: `trc.load` of a bundle that the second one saved, with caches;
- cross (with --device-properties): `trc.load` of a bundle compiled without the device, with an empty cache.
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


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="resnet50", help="a network of trc.models (default resnet50)")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--precision", default="amp-fp16")
    parser.add_argument("--device-properties", metavar="FILE", help="measure a bundle compiled without the device too")
    parser.add_argument("--output", type=Path, help="write the result here too")
    parser.add_argument("--child", choices=("compile", "load"), help=argparse.SUPPRESS)
    parser.add_argument("--bundle", help=argparse.SUPPRESS)
    return parser.parse_args()


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
    figures = {
        "seconds": (ready - imported) + (end - drawn),
        "seconds_to_import": imported - begin,
        "seconds_of_call": ready - imported,
        "seconds_of_first_step": end - drawn,
        "loss": loss,
    }
    if args.child == "compile" and args.bundle:
        exe.save(args.bundle)
    print(json.dumps(figures))


def run(args: argparse.Namespace, what: str, cache: str, bundle: str | None) -> dict[str, float]:
    """A measurement in a process of its own."""
    command = [sys.executable, __file__, "--child", what, "--model", args.model, "--batch", str(args.batch)]
    command += ["--precision", args.precision, *(["--bundle", bundle] if bundle else [])]
    env = os.environ | {"TRC_CACHE": cache}
    done = subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{what} failed with exit code {done.returncode}")
    return json.loads(done.stdout.splitlines()[-1])


def cross_compile(args: argparse.Namespace, cache: str, bundle: str) -> None:
    """A bundle for the device of the properties, as trc-compile makes it."""
    command = [sys.executable, "-m", "trc.tools.trc_compile", f"examples/models/{args.model}.bp", "-o", bundle]
    command += ["--target", "cuda", "--device-properties", args.device_properties, "--precision", args.precision]
    command += ["--batch", str(args.batch), "--optimizer", "sgd:momentum=0.9,nesterov=true", "--lr", "0.1"]
    env = os.environ | {"TRC_CACHE": cache, "CUDA_VISIBLE_DEVICES": ""}
    subprocess.run(command, env=env, check=True)


def main() -> None:
    """Measure, print and save."""
    args = parse()
    if args.child:
        child(args)
        return
    figures: dict[str, Any] = {"model": args.model, "batch": args.batch, "precision": args.precision, "limits": LIMITS}
    with tempfile.TemporaryDirectory() as folder:
        cache, bundle = f"{folder}/cache", f"{folder}/bundle"
        figures["cold"] = run(args, "compile", cache, None)
        figures["warm"] = run(args, "compile", cache, bundle)
        figures["load"] = run(args, "load", cache, bundle)
        if args.device_properties:
            cross_compile(args, f"{folder}/cache2", f"{folder}/cross")
            figures["cross"] = run(args, "load", f"{folder}/cache3", f"{folder}/cross")
    for name in ("cold", "warm", "load", "cross"):
        if name in figures:
            limit = f" (limit {LIMITS[name]:g})" if name in LIMITS else ""
            print(f"{name:<6} {figures[name]['seconds']:7.2f} s{limit}")
    path = save("gpu_start", figures)
    if args.output is not None:
        args.output.parent.mkdir(parents=True, exist_ok=True)
        args.output.write_bytes(path.read_bytes())
    print(f"written to {path}")


if __name__ == "__main__":
    main()
