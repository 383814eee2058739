# pyright: basic, reportMissingImports=false, reportMissingModuleSource=false
"""Loss curves on the GPU: whether trc lies within the spread of three PyTorch seeds.

    python bench/gpu_curves.py [--models resnet50,vgg16_bn,mobilenet_v2] [--steps 200] [--batch 256]

All runs see the same batches in the same order: `--batches` of them, made once, pictures of noise N(0, 1) over a
pattern that depends on the class, with 100 of the classes in use. SGD with Nesterov momentum 0.9, weight decay 1e-4 on
weights (not on biases and batch norm, as trc has it), label smoothing 0.1, a rate that rises for 20 steps and then
stays, dropout where the network has it. PyTorch: torchvision's network, autocast float16, GradScaler, channels_last,
cudnn.benchmark. The rates are low enough for seeds to matter more than rounding: at 0.05 a ResNet-50 is chaotic (two
PyTorch runs from the same weights differ as much as two seeds), at 0.01 runs from the same weights still differ by half
of what seeds differ by.

A seed gives the initial weights and dropout's masks. PyTorch's runs begin with the very weights and loss scale that trc
begins with, and their dropout takes trc's masks, so that two runs from one seed differ in arithmetic only. (With its
own loss scale PyTorch skips its first step or two and is behind from then on.)

The loss is the batch's mean with smoothing, in means of `--group` steps. For each group the band is [min, max] of
PyTorch's runs; the wide band adds their standard deviation (of the sample) on both sides. What is compared with the
bands is the mean of trc's runs, by default from the same seeds as PyTorch's: without an error it lies inside wherever
seeds matter more than rounding. Each of trc's runs is compared too; but one more draw from the same distribution lies
outside the range of three half the time, so that says less.

The two contenders of a network are processes of their own and run at the same time. The result is written after every
network. A network takes 2 to 4 minutes. `--target cpu --size 32 --batch 8 --steps 10 --group 5
--models resnet18` tries the script where there is no GPU, and leaves bench/results alone.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import statistics
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from children import Answer, Child, ChildError, serve
from results_file import save

RATES = {"resnet50": 0.003, "vgg16_bn": 0.002, "mobilenet_v2": 0.05}
RATE = 0.01
MOMENTUM, DECAY, SMOOTHING = 0.9, 1e-4, 0.1
WARMUP_STEPS = 20
CLASSES = 1000
USED_CLASSES = 100
PATTERN = 0.5
"""The size of the class's pattern beside noise of size 1."""


@dataclass(frozen=True)
class Task:
    """What every run of a network does."""

    name: str
    batch: int
    size: int
    steps: int
    batches: int
    rate: float
    precision: str
    target: str


# ---------------------------------------------------------------- the band


def means(losses: Sequence[float], group: int) -> list[float]:
    """Means of whole groups of losses."""
    return [statistics.fmean(losses[i : i + group]) for i in range(0, len(losses) - group + 1, group)]


def band(ours: Sequence[float], theirs: Sequence[Sequence[float]]) -> Answer:
    """Where a curve of means lies beside others: the band of each group, and whether it is inside."""
    groups: list[Answer] = []
    for x, them in zip(ours, zip(*theirs, strict=True), strict=True):
        low, high, deviation = min(them), max(them), statistics.stdev(them)
        groups.append(
            {
                "trc": x,
                "min": low,
                "max": high,
                "deviation": deviation,
                "within": low <= x <= high,
                "within_wide": low - deviation <= x <= high + deviation,
            }
        )
    inside = [sum(g[key] for g in groups) for key in ("within", "within_wide")]
    return {
        "groups": groups,
        "of": len(groups),
        "within": inside[0],
        "within_wide": inside[1],
        "all_within": inside[0] == len(groups),
        "all_within_wide": inside[1] == len(groups),
    }


# ---------------------------------------------------------------- data


def batches_of(task: Task) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The batches: images [n, h, w, c] in float32, labels [n]."""
    rng = np.random.default_rng(1)
    side = -(-task.size // 8)
    coarse = rng.standard_normal((USED_CLASSES, 8, 8, 3), dtype=np.float32)
    for _ in range(task.batches):
        labels = rng.integers(0, USED_CLASSES, task.batch).astype(np.int32)
        images = rng.standard_normal((task.batch, task.size, task.size, 3), dtype=np.float32)
        for image, label in zip(images, labels, strict=True):
            pattern = coarse[label].repeat(side, 0).repeat(side, 1)[: task.size, : task.size]
            image += PATTERN * pattern
        yield images, labels


# ---------------------------------------------------------------- trc


class Drawn(Mapping[str, np.ndarray]):
    """The tensors of a plan as a seed initialises them, drawn when they are asked for."""

    def __init__(self, plan: Any, seed: int) -> None:
        from trc_runtime.rng import Philox

        self._tensors = {t.name: t for t in plan.tensors if not t.region.transient}
        self._seed, self._generator = seed, Philox()

    def __getitem__(self, name: str) -> np.ndarray:
        from trc_runtime.cuda import host

        tensor = self._tensors[name]
        memory = host.first_values(tensor, self._seed, self._generator)
        if memory is None:
            memory = np.zeros(host.stored_bytes(tensor, host.first_shape(tensor)), np.uint8)
        return host.decode(tensor, memory)

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)


def dropouts(plan: Any) -> list[Any]:
    """The nodes of a plan that drop."""
    return [n for n in plan.nodes if n.kind == "dropout_fwd"]


class TrcSide:
    """trc's runs of a task."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._exe: Any = None
        self._seed: int | None = None

    def _compile(self, seed: int) -> Any:
        import trc
        from trc.models import ZOO

        if self._seed == seed:
            return self._exe
        if self._exe is not None and self._task.target == "cuda":
            self._exe.session.close()
        task = self._task
        self._exe, self._seed = None, seed
        self._exe = trc.compile(
            ZOO[task.name](),
            input=(task.size, task.size, 3),
            batch=task.batch,
            target=task.target,
            precision=task.precision,
            seed=seed,
            optimizer=trc.SGD(momentum=MOMENTUM, nesterov=True, weight_decay=DECAY),
            schedule=trc.Constant(base_lr=task.rate, warmup=WARMUP_STEPS / task.steps),
            loss=trc.CrossEntropy(label_smoothing=SMOOTHING),
            epochs=1,
            train_samples=task.steps * task.batch,
        )
        return self._exe

    def weights(self, seeds: list[int], first: int, folder: str) -> Answer:
        """Compile for the seed `first`, write the initial weights of seeds, and tell the rates."""
        from trc.interchange.torchvision import export_file

        begin = time.perf_counter()
        exe = self._compile(first)
        compiled = time.perf_counter()
        for seed in seeds:
            export_file(Drawn(exe.plan, seed), exe.module, f"{folder}/{seed}.safetensors", self._task.name)
        rates = exe.session.read("lr_table").reshape(-1)[: self._task.steps]
        scaling = float(exe.session.read("scaling").item()) if self._task.precision == "amp-fp16" else 1.0
        return {
            "rates": [float(r) for r in rates],
            "scaling": scaling,
            "dropouts": list(dict.fromkeys((n.params["stream"], n.params["p"]) for n in dropouts(exe.plan))),
            "seconds_to_compile": compiled - begin,
            "seconds_to_draw": time.perf_counter() - compiled,
        }

    def _steps(self, exe: Any) -> list[Callable[[], Any]]:
        """A step on each batch; its result has `loss` and `skipped`."""
        if self._task.target == "cpu":
            made = [(images, labels) for images, labels in batches_of(self._task)]
            return [lambda b=b: exe.step(*b) for b in made]
        from trc_runtime.cuda import host

        session = exe.session
        data, label = (next(t for t in exe.plan.tensors if t.name == f"{n}_a") for n in ("data", "label"))

        def step(images: np.ndarray, labels: np.ndarray) -> Any:
            session.write_bytes(data.offset, images)
            session.write_bytes(label.offset, labels)
            return session.launch("train_a", 0).wait()

        made = []
        for images, labels in batches_of(self._task):  # as the device stores them: converted once, not every step
            made.append((host.encode(data, images), host.encode(label, labels.reshape(host.first_shape(label)))))
        return [lambda b=b: step(*b) for b in made]

    def run(self, seed: int) -> Answer:
        """A training run: the loss of every step."""
        steps = self._steps(self._compile(seed))
        begin = time.perf_counter()
        found = [steps[n % len(steps)]() for n in range(self._task.steps)]
        return {
            "losses": [float(f.loss) for f in found],
            "skipped": sum(bool(f.skipped) for f in found),
            "seconds": time.perf_counter() - begin,
        }

    def serve(self) -> None:
        """Do what the parent asks."""
        serve({"weights": self.weights, "run": self.run})
        if self._exe is not None and self._task.target == "cuda":
            self._exe.session.close()


# ---------------------------------------------------------------- PyTorch


def drop_as_trc_does(net: Any, seed: int, streams: Sequence[tuple[int, float]]) -> Callable[[int], None]:
    """Let a network's dropouts take trc's masks, of these streams in order; what is returned tells them the step."""
    import torch

    from trc_runtime.rng import Philox, Stream

    generator, now = Philox(), [0]

    class Masked(torch.nn.Module):
        def __init__(self, stream: int, p: float) -> None:
            super().__init__()
            self.stream, self.p = stream, p

        def forward(self, x: Any) -> Any:
            kept = np.empty((x.shape[0], x[0].numel()), np.int8)
            generator.at_least(Stream(seed, self.stream, now[0]), self.p, kept)
            return x * torch.from_numpy(kept).to(x.device).view_as(x) / (1 - self.p)

    places = [
        (parent, name)
        for parent in net.modules()
        for name, child in parent.named_children()
        if isinstance(child, torch.nn.Dropout)
    ]
    for (parent, name), (stream, p) in zip(places, streams, strict=True):
        assert getattr(parent, name).p == p, "the networks have the same dropouts"
        setattr(parent, name, Masked(stream, p))

    def tell(step: int) -> None:
        now[0] = step

    return tell


class TorchSide:
    """PyTorch's runs of a task."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._device = "cuda" if task.target == "cuda" else "cpu"
        self._batches: list[tuple[Any, Any]] = []

    def load(self) -> Answer:
        """Import PyTorch and bring the batches to the device."""
        import torch

        torch.backends.cudnn.benchmark = True
        if self._device == "cpu":
            torch.backends.mkldnn.enabled = False
        for images, labels in batches_of(self._task):
            x = torch.from_numpy(images).to(self._device).permute(0, 3, 1, 2)  # which is channels_last
            self._batches.append((x, torch.from_numpy(labels).long().to(self._device)))
        return {"torch": torch.__version__}

    def run(
        self, weights: str, seed: int, rates: list[float], scaling: float, dropouts: list[tuple[int, float]]
    ) -> Answer:
        """A training run from a file of weights: the loss of every step. The seed is that of dropout's masks."""
        import torch
        import torchvision
        from safetensors.torch import load_file

        task, device = self._task, self._device
        half = {"amp-fp16": torch.float16, "amp-bf16": torch.bfloat16}.get(task.precision)
        net = getattr(torchvision.models, task.name)(num_classes=CLASSES)
        net.load_state_dict(load_file(weights))
        net = net.to(device, memory_format=torch.channels_last).train()
        tell = drop_as_trc_does(net, seed, dropouts)
        groups = [
            {"params": [p for p in net.parameters() if p.dim() > 1], "weight_decay": DECAY},
            {"params": [p for p in net.parameters() if p.dim() <= 1], "weight_decay": 0.0},
        ]
        optimizer = torch.optim.SGD(groups, lr=rates[0], momentum=MOMENTUM, nesterov=True)
        scaler = torch.amp.GradScaler(device, init_scale=scaling, enabled=half is torch.float16)
        loss_of = torch.nn.CrossEntropyLoss(label_smoothing=SMOOTHING)
        losses: list[Any] = []
        begin = time.perf_counter()
        for n, rate in enumerate(rates):
            x, y = self._batches[n % len(self._batches)]
            tell(n)
            for group in optimizer.param_groups:
                group["lr"] = rate
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast(device, half or torch.bfloat16, enabled=half is not None):
                loss = loss_of(net(x), y)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            losses.append(loss.detach())
        found = torch.stack(losses).double().cpu().tolist()
        return {"losses": found, "scale_at_end": scaler.get_scale(), "seconds": time.perf_counter() - begin}

    def serve(self) -> None:
        """Do what the parent asks."""
        serve({"load": self.load, "run": self.run})


# ---------------------------------------------------------------- the parent


def numbers(text: str) -> list[int]:
    """`1,2,3`."""
    return [int(part) for part in text.split(",")]


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--models", default="resnet50,vgg16_bn,mobilenet_v2", help="of trc's ResNets, VGGs and MobileNetV2"
    )
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--group", type=int, default=20, help="steps whose losses are averaged (default 20)")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--size", type=int, default=224, help="side of the images (default 224)")
    parser.add_argument("--batches", type=int, default=8, help="different batches, taken in turn (default 8)")
    parser.add_argument("--rate", type=float, help=f"default {RATE:g}; {RATES}")
    parser.add_argument("--seeds", type=numbers, default=[1, 2, 3], help="of PyTorch's runs (default 1,2,3)")
    parser.add_argument("--trc-seeds", type=numbers, help="of trc's runs (default: PyTorch's)")
    parser.add_argument("--precision", default="amp-fp16", choices=("amp-fp16", "amp-bf16", "fp32"))
    parser.add_argument("--target", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--output", type=Path, help="write the result here too")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.trc_seeds = args.trc_seeds or args.seeds
    return args


def task_of(name: str, args: argparse.Namespace) -> Task:
    """What the runs of a network do."""
    rate = args.rate or RATES.get(name, RATE)
    precision = args.precision if args.target == "cuda" else "fp32"
    return Task(name, args.batch, args.size, args.steps, args.batches, rate, precision, args.target)


def child_of(side: str, name: str, args: argparse.Namespace) -> Child:
    """A process with the runs of trc or PyTorch."""
    command = [sys.executable, __file__, "--child", side, name, "--target", args.target, "--precision", args.precision]
    for option in ("steps", "batch", "size", "batches", "rate"):
        if (value := getattr(args, option)) is not None:
            command += [f"--{option}", str(value)]
    return Child(f"{name} {side}", command)


def run_model(name: str, args: argparse.Namespace) -> Answer:
    """All runs of a network. Where one side fails, the other's curves are kept, with the error beside them."""
    begin = time.perf_counter()
    result: Answer = {"rate": task_of(name, args).rate, "trc": {}, "torch": {}}
    children = {side: child_of(side, name, args) for side in ("torch", "trc")}
    ours, theirs = children["trc"], children["torch"]

    @contextlib.contextmanager
    def kept() -> Iterator[None]:
        try:
            yield
        except ChildError as err:
            result.setdefault("error", str(err))
            print(f"  {err}", flush=True)

    with tempfile.TemporaryDirectory() as folder, kept():
        try:
            theirs.send("load")
            start = ours.ask("weights", 400.0, seeds=args.seeds, first=args.trc_seeds[0], folder=folder)
            same = {key: start.pop(key) for key in ("rates", "scaling", "dropouts")}
            result["start"] = start | theirs.receive()
            for own, seed in itertools.zip_longest(args.trc_seeds, args.seeds):  # side by side
                if own is not None:
                    ours.send("run", seed=own)
                if seed is not None:
                    with kept():
                        answer = theirs.ask("run", weights=f"{folder}/{seed}.safetensors", seed=seed, **same)
                        result["torch"][str(seed)] = answer
                if own is not None:
                    with kept():
                        result["trc"][str(own)] = ours.receive()
        finally:
            for process in children.values():
                process.close()
    add_bands(result, args.group)
    result["seconds_in_all"] = time.perf_counter() - begin
    return result


def add_bands(result: Answer, group: int) -> None:
    """Means of all runs, and where trc's lie in the band of PyTorch's."""
    for run in (*result["trc"].values(), *result["torch"].values()):
        run["means"] = means(run["losses"], group)
        run["losses"] = [round(x, 5) for x in run["losses"]]
    if len(result["torch"]) < 2:
        return
    theirs = [run["means"] for run in result["torch"].values()]
    ours = {seed: run["means"] for seed, run in result["trc"].items()}
    if ours:
        ours = {"mean": [statistics.fmean(m) for m in zip(*ours.values(), strict=True)]} | ours
    result["bands"] = {name: band(curve, theirs) for name, curve in ours.items()}


def show(result: Answer) -> None:
    """Print the curves, with how they lie: inside, inside the wide band (~), outside (!)."""
    for name, found in result.get("bands", {}).items():
        what = "the mean of all runs" if name == "mean" else f"seed {name}"
        print(f"  trc, {what}: inside {found['within']} of {found['of']}, wide {found['within_wide']}")
        for n, g in enumerate(found["groups"], 1):
            mark = " " if g["within"] else "~" if g["within_wide"] else "!"
            print(f"    {n:3} {mark} trc {g['trc']:.4f}  PyTorch {g['min']:.4f} to {g['max']:.4f}")
    sys.stdout.flush()


def main() -> None:
    """Train, print and save."""
    args = parse()
    if args.child:
        side, name = args.child
        (TrcSide if side == "trc" else TorchSide)(task_of(name, args)).serve()
        return
    results: dict[str, Any] = {}
    for name in args.models.split(","):
        print(f"{name}, batch {args.batch}, {args.steps} steps", flush=True)
        try:
            results[name] = run_model(name, args)
            show(results[name])
        except Exception as err:  # the other networks are still worth their time
            traceback.print_exc()
            results[name] = {"error": f"{type(err).__name__}: {err}"}
        settings = {k: v for k, v in vars(args).items() if k not in ("output", "child")}
        path = save("gpu_curves", {"settings": settings, "models": results}, trial=args.target == "cpu")
        if args.output is not None:
            args.output.parent.mkdir(parents=True, exist_ok=True)
            args.output.write_bytes(path.read_bytes())
        print(f"written to {path}", flush=True)
    if failed := [name for name, r in results.items() if "error" in r]:
        raise SystemExit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
