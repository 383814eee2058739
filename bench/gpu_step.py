# pyright: basic, reportMissingImports=false, reportMissingModuleSource=false
"""A training step on the GPU: trc against PyTorch, interleaved in one run.

    python bench/gpu_step.py [--models mlp,resnet50] [--contenders trc,eager,compile,graph] [--seconds 60]

The recipe of shared/measurements.md: synthetic data that is on the GPU already, half precision with a loss scale
(PyTorch: autocast and GradScaler, channels_last, fused optimizer, cudnn.benchmark), cross entropy with label smoothing
0.1, SGD with Nesterov momentum (MLP: AdamW). Contenders:

- trc: `trc.compile(..., target="cuda", precision="amp-fp16")`, one graph launch a step;
- eager, compile: PyTorch without and with torch.compile;
- graph: PyTorch with torch.compile, the whole step captured in one CUDA graph (the default for the MLP only).

Each round runs a group of steps of every contender and waits for its end; the figure is the median group, by step.
Also recorded: host time of a step (the device idle before it), launches and waits that trc's driver counted, peak
memory, time from the beginning to the end of the first step, the clocks throughout, and all versions. A contender that
fails is recorded with its error, and the others go on.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import statistics
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from results_file import save

SMOOTHING = 0.1
DECAY = 1e-4
GROUP_SECONDS = 0.4
HOST_STEPS = 30
COUNTED_STEPS = 50


@dataclass(frozen=True)
class Model:
    """What is measured of a network."""

    batch: int
    shape: tuple[int, int, int]
    classes: int
    rate: float


MODELS = {
    "mlp": Model(200, (28, 28, 1), 10, 1e-3),
    "resnet18": Model(256, (224, 224, 3), 1000, 0.1),
    "resnet50": Model(256, (224, 224, 3), 1000, 0.1),
    "vgg16_bn": Model(256, (224, 224, 3), 1000, 0.01),
    "mobilenet_v2": Model(256, (224, 224, 3), 1000, 0.05),
}
DEVICE = "cuda"
CONTENDERS = ("trc", "eager", "compile", "graph")


@dataclass
class Contender:
    """Something that trains: `step` starts a step, `wait` returns when all steps have ended."""

    step: Callable[[], object]
    wait: Callable[[], object]
    loss: Callable[[], float]
    facts: dict[str, Any]
    counters: Callable[[], dict[str, int]] | None = None
    close: Callable[[], object] | None = None
    milliseconds: list[float] = field(default_factory=list)
    steps: int = 1


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(MODELS), help=f"of {', '.join(MODELS)}")
    parser.add_argument(
        "--contenders", help=f"of {', '.join(CONTENDERS)} (default: trc, eager, compile; graph for the mlp too)"
    )
    parser.add_argument("--rounds", type=int, default=9, help="groups of steps of each contender at most (default 9)")
    parser.add_argument("--seconds", type=float, default=20.0, help="measuring time a model at most (default 20)")
    parser.add_argument("--batch", type=int, help="instead of the models' own batch")
    parser.add_argument("--precision", default="amp-fp16", choices=("amp-fp16", "amp-bf16"))
    parser.add_argument("--autotune", metavar="FILE", help="trc measures cuDNN's engines and keeps the choices here")
    parser.add_argument("--output", type=Path, help="write the result here too")
    return parser.parse_args()


# ---------------------------------------------------------------- contenders


def trc_contender(name: str, model: Model, batch: int, args: argparse.Namespace) -> Contender:
    """The network compiled by trc, its input already on the device."""
    import trc
    from trc.models import ZOO

    optimizer: Any = trc.SGD(momentum=0.9, nesterov=True, weight_decay=DECAY)
    if name == "mlp":
        optimizer = trc.AdamW(weight_decay=DECAY)
    begin = time.perf_counter()
    exe = trc.compile(
        ZOO[name](),
        batch=batch,
        target="cuda",
        precision=args.precision,
        autotune=args.autotune,
        optimizer=optimizer,
        schedule=trc.Constant(base_lr=model.rate),
        loss=trc.CrossEntropy(label_smoothing=SMOOTHING),
    )
    compiled = time.perf_counter() - begin
    session: Any = exe.session
    rng = np.random.default_rng(0)
    for buffer in "ab":
        labels, images = session.staging(buffer.upper(), 0)
        images[...] = rng.standard_normal(images.shape, dtype=np.float32)
        labels[...] = rng.integers(0, model.classes, labels.shape)
        session.run(f"transfer_{buffer}", 0)
    session.run("train_a", 0)
    facts = {
        "seconds_to_compile": compiled,
        "seconds_to_first_step": time.perf_counter() - begin,
        "plan_mib": exe.plan.total / 2**20,
        "peak_mib": session.arena_bytes / 2**20,
        "session": asdict(session.report()),
    }
    turns = itertools.cycle(("train_a", "train_b"))
    last: list[Any] = [session.launch(next(turns), 0)]

    def step() -> None:
        last[0] = session.launch(next(turns), 0)

    def counters() -> dict[str, int]:
        c = session.counters
        return {"launches": c.launches, "allocations": c.allocations, "waits": c.waits_here()}

    return Contender(
        step=step,
        wait=lambda: last[0].wait(),
        loss=lambda: last[0].wait().loss,
        facts=facts,
        counters=counters,
        close=session.close,
    )


def torch_network(name: str, model: Model) -> Any:
    """The network in PyTorch, as torchvision has it."""
    import torch

    torch.manual_seed(0)
    if name == "mlp":
        layers: list[Any] = [torch.nn.Flatten()]
        for a, b in itertools.pairwise((784, 1024, 512, 256, model.classes)):
            layers += [torch.nn.Linear(a, b), torch.nn.ReLU()]
        return torch.nn.Sequential(*layers[:-1])
    import torchvision

    return getattr(torchvision.models, name)(num_classes=model.classes)


def torch_contender(name: str, model: Model, batch: int, precision: str, mode: str) -> Contender:
    """The network in PyTorch: eager, compile or graph."""
    import torch

    torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_tf32 = True
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    half = torch.float16 if precision == "amp-fp16" else torch.bfloat16
    begin = time.perf_counter()
    net = torch_network(name, model).to(DEVICE).train()
    generator = torch.Generator(DEVICE).manual_seed(0)
    h, w, c = model.shape
    images = torch.randn(batch, c, h, w, device=DEVICE, generator=generator)
    labels = torch.randint(0, model.classes, (batch,), device=DEVICE, generator=generator)
    if name != "mlp":
        net, images = net.to(memory_format=torch.channels_last), images.to(memory_format=torch.channels_last)
    whole = mode == "graph"
    if name == "mlp":
        optimizer = torch.optim.AdamW(net.parameters(), lr=model.rate, weight_decay=DECAY, fused=True, capturable=whole)
    else:
        optimizer = torch.optim.SGD(
            net.parameters(), lr=model.rate, momentum=0.9, nesterov=True, weight_decay=DECAY, fused=True
        )
    scaler = torch.amp.GradScaler(DEVICE, enabled=precision == "amp-fp16")
    loss_of = torch.nn.CrossEntropyLoss(label_smoothing=SMOOTHING)
    forward = torch.compile(net) if mode in ("compile", "graph") else net
    last: list[Any] = [None]

    def body() -> None:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(DEVICE, half, cache_enabled=not whole):
            loss = loss_of(forward(images), labels)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        last[0] = loss.detach()

    step: Callable[[], object] = body
    if whole:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(5):
                body()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        optimizer.zero_grad(set_to_none=True)
        with torch.cuda.graph(graph):
            body()
        step = graph.replay
    step()
    torch.cuda.synchronize()
    first = time.perf_counter() - begin
    for _ in range(3):  # cudnn.benchmark and torch.compile have chosen by now
        step()
    torch.cuda.synchronize()
    facts = {
        "seconds_to_first_step": first,
        "peak_mib": (torch.cuda.max_memory_allocated() - before) / 2**20,
    }
    return Contender(step, torch.cuda.synchronize, lambda: float(last[0]), facts)


def make(contender: str, name: str, model: Model, batch: int, args: argparse.Namespace) -> Contender:
    """A contender, after its first steps."""
    if contender == "trc":
        return trc_contender(name, model, batch, args)
    return torch_contender(name, model, batch, args.precision, contender)


# ---------------------------------------------------------------- measuring


def timed(contender: Contender, steps: int) -> float:
    """Seconds of a group of steps, its end included."""
    contender.wait()
    begin = time.perf_counter()
    for _ in range(steps):
        contender.step()
    contender.wait()
    return time.perf_counter() - begin


def host_microseconds(contender: Contender) -> float:
    """The median time that the host spends on starting a step when the device is idle."""
    found: list[float] = []
    for _ in range(HOST_STEPS):
        contender.wait()
        begin = time.perf_counter()
        contender.step()
        found.append(time.perf_counter() - begin)
    contender.wait()
    return 1e6 * statistics.median(found)


def counted(contender: Contender) -> dict[str, float]:
    """What the driver counted a step on this thread, the final wait left out."""
    if contender.counters is None:
        return {}
    contender.wait()
    before = contender.counters()
    for _ in range(COUNTED_STEPS):
        contender.step()
    after = contender.counters()
    contender.wait()
    return {f"{key}_per_step": (after[key] - before[key]) / COUNTED_STEPS for key in after}


def measure(contenders: dict[str, Contender], rounds: int, seconds: float) -> None:
    """Interleaved groups of steps until the time is used up."""
    for contender in contenders.values():
        timed(contender, 2)
        contender.steps = max(3, min(2000, round(GROUP_SECONDS / max(timed(contender, 3) / 3, 1e-6))))
    end = time.perf_counter() + seconds
    for n in range(rounds):
        for contender in contenders.values():
            contender.milliseconds.append(1e3 * timed(contender, contender.steps) / contender.steps)
        if n >= 2 and time.perf_counter() > end:
            break


def figures(contender: Contender, batch: int) -> dict[str, Any]:
    """What is recorded of a contender."""
    middle = statistics.median(contender.milliseconds)
    return {
        "ms_per_step": middle,
        "images_per_second": batch / middle * 1e3,
        "ms_of_groups": [round(m, 4) for m in contender.milliseconds],
        "steps_a_group": contender.steps,
        "host_us_per_step": host_microseconds(contender),
        "loss_at_end": contender.loss(),
        **counted(contender),
        **contender.facts,
    }


def run_model(name: str, wanted: list[str], args: argparse.Namespace) -> dict[str, Any]:
    """All contenders of a network."""
    model = MODELS[name]
    batch = args.batch or model.batch
    contenders: dict[str, Contender] = {}
    result: dict[str, Any] = {"batch": batch, "contenders": {}}
    for contender in wanted:
        try:
            contenders[contender] = make(contender, name, model, batch, args)
            print(f"  {contender}: first step after {contenders[contender].facts['seconds_to_first_step']:.1f} s")
        except Exception as err:
            traceback.print_exc()
            result["contenders"][contender] = {"error": f"{type(err).__name__}: {err}"}
    measure(contenders, args.rounds, args.seconds)
    for key, contender in contenders.items():
        result["contenders"][key] = found = figures(contender, batch)
        print(
            f"  {key:<8} {found['ms_per_step']:9.3f} ms  {found['images_per_second']:11,.0f} images/s  "
            f"host {found['host_us_per_step']:8.1f} us"
        )
    best = min(
        (f["ms_per_step"] for k, f in result["contenders"].items() if k != "trc" and "error" not in f), default=0
    )
    if best and "ms_per_step" in result["contenders"].get("trc", {}):
        result["speed_against_best_torch"] = best / result["contenders"]["trc"]["ms_per_step"]
        print(f"  trc is {result['speed_against_best_torch']:.2f} times as fast as the fastest of PyTorch")
    for contender in contenders.values():
        if contender.close is not None:
            contender.close()
    contenders.clear()
    return result


# ---------------------------------------------------------------- the machine


class Clocks:
    """Clocks, power and temperature of the GPU during the run, twice a second."""

    FIELDS = ("clocks.sm", "clocks.mem", "power.draw", "temperature.gpu", "clocks_event_reasons.active")

    def __init__(self) -> None:
        query = [f"--query-gpu={','.join(self.FIELDS)}", "--format=csv,noheader,nounits", "-lms", "500"]
        try:
            self._process = subprocess.Popen(["nvidia-smi", *query], stdout=subprocess.PIPE, text=True)
        except OSError:
            self._process = None

    def finish(self) -> dict[str, Any]:
        """Stop sampling; minimum, median and maximum of each."""
        if self._process is None:
            return {}
        self._process.terminate()
        rows = [line.split(", ") for line in (self._process.communicate()[0] or "").splitlines()]
        rows = [r for r in rows if len(r) == len(self.FIELDS)]
        found: dict[str, Any] = {"samples": len(rows)}
        for n, name in enumerate(self.FIELDS):
            try:
                values = [float(r[n]) for r in rows]
            except ValueError:
                found[name] = sorted({r[n] for r in rows})
                continue
            if values:
                found[name] = {"min": min(values), "median": statistics.median(values), "max": max(values)}
        return found


def library_versions() -> dict[str, Any]:
    """Versions that are not packages': what PyTorch was built with."""
    found: dict[str, Any] = {}
    if "torch" in sys.modules:
        import torch

        found |= {"torch.cuda": torch.version.cuda, "torch.cudnn": torch.backends.cudnn.version()}
    return found


def main() -> None:
    """Measure, print and save."""
    args = parse()
    names = args.models.split(",")
    for name in names:
        if name not in MODELS:
            raise SystemExit(f"unknown model '{name}'; choose of {', '.join(MODELS)}")
    plans: dict[str, list[str]] = {}
    for name in names:
        default = "trc,eager,compile,graph" if name == "mlp" else "trc,eager,compile"
        plans[name] = str(args.contenders or default).split(",")
        for contender in plans[name]:
            if contender not in CONTENDERS:
                raise SystemExit(f"unknown contender '{contender}'; choose of {', '.join(CONTENDERS)}")
    results: dict[str, Any] = {}
    clocks = Clocks()
    try:
        for name, wanted in plans.items():
            print(f"{name}, batch {args.batch or MODELS[name].batch}, {args.precision}", flush=True)
            results[name] = run_model(name, wanted, args)
            free_memory()
            save_all(args, results, {})  # what has been measured is kept if the time runs out
    finally:
        sampled = clocks.finish()
    save_all(args, results, sampled)
    failed = [f"{m}: {c}" for m, r in results.items() for c, f in r["contenders"].items() if "error" in f]
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


def free_memory() -> None:
    """Give PyTorch's memory back before the next model."""
    gc.collect()
    if "torch" in sys.modules:
        import torch

        torch.compiler.reset()
        gc.collect()
        torch.cuda.empty_cache()


def save_all(args: argparse.Namespace, results: dict[str, Any], clocks: dict[str, Any]) -> None:
    """Write the result so far."""
    figures = {"precision": args.precision, "models": results, "clocks": clocks, "libraries": library_versions()}
    path = save("gpu_step", figures)
    if args.output is not None:
        args.output.parent.mkdir(parents=True, exist_ok=True)
        args.output.write_bytes(path.read_bytes())
    print(f"written to {path}")


if __name__ == "__main__":
    main()
