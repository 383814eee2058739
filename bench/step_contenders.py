# pyright: basic, reportMissingImports=false, reportMissingModuleSource=false
"""The contenders of gpu_step.py, each in a process of its own, and what such a process is asked.

load      import what the contender needs
prepare   make the network and run the first steps; answers with the facts of the start
time      run a group of steps; answers with its milliseconds a step
figures   host times, counters, loss
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib import import_module
from typing import Any

import numpy as np
from children import Answer, serve

SMOOTHING = 0.1
DECAY = 1e-4
COUNTED_STEPS = 50
DEVICE = "cuda"
CONTENDERS = ("trc", "eager", "compile", "graph")


@dataclass(frozen=True)
class Model:
    """What is measured of a network. The rates are low, so that numbers stay finite; they do not change the time."""

    batch: int
    shape: tuple[int, int, int]
    classes: int
    rate: float = 0.01


IMAGENET = ((224, 224, 3), 1000)
MODELS = {
    "mlp": Model(200, (28, 28, 1), 10, 1e-3),
    "resnet18": Model(256, *IMAGENET),
    "resnet50": Model(256, *IMAGENET),
    "vgg16_bn": Model(256, *IMAGENET),
    "mobilenet_v2": Model(256, *IMAGENET),
}


@dataclass(frozen=True)
class Setting:
    """What a contender is to run."""

    contender: str
    name: str
    model: Model
    batch: int
    precision: str
    autotune: str | None = None


@dataclass
class Contender:
    """Something that trains: `step` starts a step, `wait` returns when all steps have ended."""

    step: Callable[[], object]
    wait: Callable[[], object]
    loss: Callable[[], float]
    facts: dict[str, Any]
    session: Any = None


# ---------------------------------------------------------------- trc


def trc_contender(setting: Setting) -> Contender:
    """The network compiled by trc, its input already on the device."""
    import trc
    from trc.models import ZOO

    model = setting.model
    optimizer: Any = trc.SGD(momentum=0.9, nesterov=True, weight_decay=DECAY)
    if setting.name == "mlp":
        optimizer = trc.AdamW(weight_decay=DECAY)
    rng = np.random.default_rng(0)
    drawn = rng.standard_normal((2, setting.batch, *model.shape), dtype=np.float32)
    begin = time.perf_counter()
    exe = trc.compile(
        ZOO[setting.name](),
        batch=setting.batch,
        target="cuda",
        precision=setting.precision,
        autotune=setting.autotune,
        optimizer=optimizer,
        schedule=trc.Constant(base_lr=model.rate),
        loss=trc.CrossEntropy(label_smoothing=SMOOTHING),
    )
    compiled = time.perf_counter() - begin
    session: Any = exe.session
    first = 0.0
    for n, buffer in enumerate("ab"):
        labels, images = session.staging(buffer.upper(), 0)
        images[...] = drawn[n]
        labels[...] = rng.integers(0, model.classes, labels.shape)
        session.run(f"transfer_{buffer}", 0)
        session.run(f"train_{buffer}", 0)
        first = first or time.perf_counter() - begin
    facts = {
        "seconds_to_compile": compiled,
        "seconds_to_first_step": first,
        "plan_mib": exe.plan.total / 2**20,
        "peak_mib": session.arena_bytes / 2**20,
        "session": asdict(session.report()),
    }
    turns = itertools.cycle([session.prepare(step, 0).launch for step in ("train_a", "train_b")])
    last: list[Any] = [next(turns)(), next(turns)()]

    def step() -> None:
        last[0] = next(turns)()

    return Contender(step, lambda: last[0].wait(), lambda: last[0].wait().loss, facts, session)


def counted(contender: Contender) -> dict[str, float]:
    """What trc's driver counted a step on this thread, the final wait left out."""
    counters = contender.session.counters

    def now() -> dict[str, int]:
        return {
            "launches": counters.launches,
            "allocations": counters.allocations,
            "waits": counters.waits_here(),
        }

    contender.wait()
    before = now()
    for _ in range(COUNTED_STEPS):
        contender.step()
    after = now()
    contender.wait()
    return {f"{key}_per_step": (after[key] - before[key]) / COUNTED_STEPS for key in after}


def launch_parts(contender: Contender, steps: int) -> dict[str, float]:
    """Host time of a step in two parts: the driver's cuGraphLaunch, and everything else."""
    driver = contender.session._driver
    call = driver.graph_launch
    spent: list[float] = []

    def graph_launch(executable: Any, stream: Any) -> Any:
        begin = time.perf_counter()
        error = call(executable, stream)
        spent.append(time.perf_counter() - begin)
        return error

    driver.graph_launch = graph_launch
    try:
        whole = host_seconds(contender, steps)
    finally:
        driver.graph_launch = call
    launch, step = 1e6 * statistics.median(spent), 1e6 * statistics.median(whole)
    return {"launch_us": launch, "host_us_with_timer": step, "host_us_beside_launch": step - launch}


# ---------------------------------------------------------------- PyTorch


def torch_network(name: str, classes: int) -> Any:
    """The network in PyTorch, as torchvision has it."""
    import torch

    torch.manual_seed(0)
    if name == "mlp":
        layers: list[Any] = [torch.nn.Flatten()]
        for a, b in itertools.pairwise((784, 1024, 512, 256, classes)):
            layers += [torch.nn.Linear(a, b), torch.nn.ReLU()]
        return torch.nn.Sequential(*layers[:-1])
    import torchvision

    return getattr(torchvision.models, name)(num_classes=classes)


def torch_contender(setting: Setting) -> Contender:
    """The network in PyTorch: eager, compile or graph."""
    import torch

    name, model, mode = setting.name, setting.model, setting.contender
    torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_tf32 = True
    half = torch.float16 if setting.precision == "amp-fp16" else torch.bfloat16
    begin = time.perf_counter()
    net = torch_network(name, model.classes).to(DEVICE).train()
    generator = torch.Generator(DEVICE).manual_seed(0)
    h, w, c = model.shape
    images = torch.randn(setting.batch, c, h, w, device=DEVICE, generator=generator)
    labels = torch.randint(0, model.classes, (setting.batch,), device=DEVICE, generator=generator)
    if name != "mlp":
        net, images = net.to(memory_format=torch.channels_last), images.to(memory_format=torch.channels_last)
    whole = mode == "graph"
    if name == "mlp":
        optimizer = torch.optim.AdamW(net.parameters(), lr=model.rate, weight_decay=DECAY, fused=True, capturable=whole)
    else:
        optimizer = torch.optim.SGD(
            net.parameters(), lr=model.rate, momentum=0.9, nesterov=True, weight_decay=DECAY, fused=True
        )
    scaler = torch.amp.GradScaler(DEVICE, enabled=setting.precision == "amp-fp16")
    loss_of = torch.nn.CrossEntropyLoss(label_smoothing=SMOOTHING)
    forward = net if mode == "eager" else torch.compile(net)
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
        "peak_mib": torch.cuda.max_memory_allocated() / 2**20,
        "libraries": {"torch.cuda": torch.version.cuda, "torch.cudnn": torch.backends.cudnn.version()},
    }
    return Contender(step, torch.cuda.synchronize, lambda: float(last[0]), facts)


# ---------------------------------------------------------------- measuring, in the child


def timed(contender: Contender, steps: int) -> float:
    """Seconds of a group of steps, its end included. A few steps before it wake the device up."""
    for _ in range(max(1, steps // 20)):
        contender.step()
    contender.wait()
    begin = time.perf_counter()
    for _ in range(steps):
        contender.step()
    contender.wait()
    return time.perf_counter() - begin


def host_seconds(contender: Contender, steps: int) -> list[float]:
    """Times that the host spends on starting a step when the device is idle."""
    found: list[float] = []
    for _ in range(steps):
        contender.wait()
        begin = time.perf_counter()
        contender.step()
        found.append(time.perf_counter() - begin)
    contender.wait()
    return found


def figures(contender: Contender, host_steps: int) -> Answer:
    """What is recorded of a contender besides its time."""
    found: Answer = {"host_us_per_step": 1e6 * statistics.median(host_seconds(contender, host_steps))}
    if contender.session is not None:
        found |= launch_parts(contender, host_steps) | counted(contender)
    return found | {"loss_at_end": contender.loss()}


def child(setting: Setting, make: Callable[[Setting], Contender] | None = None) -> None:
    """Be the contender of a setting; `make` makes another one, for tests."""
    made: list[Contender] = []

    def load() -> Answer:
        begin = time.perf_counter()
        if make is None:
            for package in ("trc.models",) if setting.contender == "trc" else ("torch", "torchvision"):
                import_module(package)
        return {"seconds_to_import": time.perf_counter() - begin}

    def prepare() -> Answer:
        chosen = make or (trc_contender if setting.contender == "trc" else torch_contender)
        made.append(chosen(setting))
        return made[0].facts

    serve(
        {
            "load": load,
            "prepare": prepare,
            "time": lambda steps: {"ms": 1e3 * timed(made[0], steps) / steps},
            "figures": lambda host_steps: figures(made[0], host_steps),
        }
    )
    if made and made[0].session is not None:
        made[0].session.close()
