"""How long compiling takes, imports aside: the MLP with six variants, and networks of 10 to 1,000 layers.

    python bench/compile_time.py [--repeat 5]

Prints milliseconds from the BluePrint to the plan (minimum of the repeats) and the time a layer.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Callable
from functools import partial

from results_file import save

import trc
from trc.models import mlp
from trc.session import CompileOptions, lower_to_plan

OPTIONS: CompileOptions = {
    "num_classes": 10,
    "batch": 200,
    "optimizer": trc.AdamW(weight_decay=1e-4),
    "schedule": trc.CosineAnnealing(base_lr=1e-3, warmup=1),
    "loss": trc.CrossEntropy(label_smoothing=0.1),
    "epochs": 5,
    "train_samples": 60_000 - 100,  # so that the last batch has a shape of its own
    "val_samples": 10_000 - 100,
}


def deep_mlp(layers: int) -> trc.BluePrint:
    """An MLP of `layers` layers, fully connected ones and activations in turn."""
    body: list[trc.Layer] = []
    for _ in range(layers // 2):
        body += [trc.fc(16), trc.relu()]
    return trc.BluePrint(trc.seq(*body, trc.fc(10)), name="deep", input=(28, 28, 1))


def best_of(repeat: int, work: Callable[[], object]) -> float:
    """The shortest of `repeat` runs, in seconds."""
    best = float("inf")
    for _ in range(repeat):
        gc.collect()
        begin = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - begin)
    return best


def main() -> None:
    """Measure, print and save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=5)
    repeat: int = parser.parse_args().repeat
    model = mlp()
    lower_to_plan(model, **OPTIONS)  # first-use imports
    seconds = best_of(repeat, partial(lower_to_plan, model, **OPTIONS))
    print(f"MLP, six variants: {1e3 * seconds:.1f} ms (limit 100)")
    rows: dict[str, float] = {}
    for layers in (10, 100, 300, 1000):
        deep = deep_mlp(layers)
        took = best_of(min(repeat, 2), partial(lower_to_plan, deep, **OPTIONS))
        rows[str(layers)] = took
        print(f"{layers:>5} layers: {1e3 * took:8.1f} ms, {1e6 * took / layers:7.1f} us a layer")
    figures = {"mlp_seconds": seconds, "limit_seconds": 0.1, "seconds_by_layers": rows}
    print(f"written to {save('compile_time', figures)}")


if __name__ == "__main__":
    main()
