# pyright: basic
"""The host's work for one batch of images: normalised on the host, and as bytes that the device normalises.

    python bench/fill_batch.py [--repeats 30]

Filling the staging memory of a session for target cuda (gather in shuffled order; on the host also normalise and, in
half precision, round into pinned memory), and the same on target cpu with the whole transfer, where the device's part
is the host's work too. Needs no GPU: pinned memory is ordinary here. The two ways are interleaved; the figures are
minima in milliseconds and their ratio.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
from results_file import save

import trc
from trc.session.compiling import lower_to_plan
from trc_runtime.cpu.session import CpuSession
from trc_runtime.cuda.host import StagedInput
from trc_runtime.data.dataset import IMAGENET, MNIST, Split
from trc_runtime.data.loader import Batch, Filler
from trc_runtime.schema.config import Normalise
from trc_runtime.schema.plan import Plan
from trc_runtime.schema.staging import staged_parts

BATCHES = (("mnist", (28, 28, 1), 200, MNIST, 20_000), ("imagenet", (224, 224, 3), 256, IMAGENET, 1024))
"""Name, image, batch, normalisation, and how many samples the batch is gathered from."""


def for_cuda(plan: Plan, filler: Filler, batch: Batch) -> Callable[[], None]:
    """What the host does for target cuda before a transfer."""
    label, images = staged_parts({t.name: t for t in plan.tensors}, "A").values()
    staged = StagedInput(label, images, np.zeros(label.slot, np.uint8), np.zeros(images.slot, np.uint8))

    def work() -> None:
        filler.fill(batch, *staged.arrays(0))
        staged.pack()

    return work


def for_cpu(plan: Plan, filler: Filler, batch: Batch) -> Callable[[], None]:
    """Staging and transfer on target cpu."""
    session = CpuSession(plan)
    session.initialise()

    def work() -> None:
        filler.fill(batch, *session.staging("A", 0))
        session.run("transfer_a", 0)

    return work


def minima(works: list[Callable[[], None]], repeats: int) -> list[float]:
    """The shortest time of each, in milliseconds."""
    best = [float("inf")] * len(works)
    for _ in range(repeats + 2):
        for n, work in enumerate(works):
            begin = time.perf_counter()
            work()
            best[n] = min(best[n], time.perf_counter() - begin)
    return [1e3 * seconds for seconds in best]


def main() -> None:
    """Measure all and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=30)
    repeats: int = parser.parse_args().repeats
    figures: dict[str, object] = {}
    for name, shape, size, how, samples in BATCHES:
        images = np.random.default_rng(0).integers(0, 256, (samples, *shape), dtype=np.uint8)
        split, batch = Split(images, np.zeros(samples, np.int32), how), Batch(0, 0, size)
        net = trc.BluePrint(trc.seq(trc.conv(8, 3, 2, 1), trc.relu(), trc.gap(), trc.fc(10)), name=name, input=shape)
        for precision in ("fp32", "amp-fp16"):
            for target, make in (("cuda", for_cuda), ("cpu", for_cpu)):

                def work(normalise: Normalise | None) -> Callable[[], None]:
                    plan = lower_to_plan(net, batch=size, precision=precision, target=target, normalise=normalise)  # noqa: B023
                    filler = Filler(split, normalise)  # noqa: B023
                    filler.shuffle(0, 0)
                    return make(plan, filler, batch)  # noqa: B023

                host, device = minima([work(None), work(how)], repeats * (10 if name == "mnist" else 1))
                ratio = host / device
                what = f"{name:9}{size:4} {precision:9}{target:5}"
                print(f"{what} host {host:8.3f} ms  bytes {device:8.3f} ms  {ratio:5.1f} x")
                row = {"host_ms": round(host, 4), "bytes_ms": round(device, 4), "ratio": round(ratio, 2)}
                figures[f"{name}-{size}-{precision}-{target}"] = row
    print(save("fill_batch", figures))


if __name__ == "__main__":
    main()
