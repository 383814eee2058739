"""How long compiling takes, imports aside: the MLP, MLPs of 10 to 1,000 layers, ResNet-50 and ResNet-152.

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
from trc.models import mlp, resnet50, resnet152
from trc.session import CompileOptions, lower, lower_to_plan

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


def resnets(repeat: int) -> dict[str, float]:
    """Seconds through the atlas: ResNet-50 with six and with one variant, ResNet-152 with six."""
    six: CompileOptions = {
        "batch": 256,
        "precision": "amp-fp16",
        "optimizer": trc.SGD(momentum=0.9, nesterov=True, weight_decay=1e-4),
        "epochs": 90,
        "train_samples": 1_281_167,
        "val_samples": 50_000,
        "train_resolution": (128, 224),
        "val_resolution": 256,
    }
    one: CompileOptions = {"batch": 256, "precision": "amp-fp16", "optimizer": six["optimizer"]}
    found = {
        "resnet50_six": best_of(repeat, partial(lower, resnet50(), **six)),
        "resnet50_one": best_of(repeat, partial(lower, resnet50(), **one)),
        "resnet152_six": best_of(repeat, partial(lower, resnet152(), **six)),
    }
    base = found["resnet50_six"]
    print(f"ResNet-50, six variants: {base:.2f} s (limit 1.0)")
    print(f"six variants / one: {base / found['resnet50_one']:.2f} (limit 2)")
    print(f"ResNet-152 / ResNet-50: {found['resnet152_six'] / base:.2f} (limit 3.5)")
    return found


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
    nets = resnets(min(repeat, 3))
    figures = {"mlp_seconds": seconds, "limit_seconds": 0.1, "seconds_by_layers": rows, **nets}
    print(f"written to {save('compile_time', figures)}")


if __name__ == "__main__":
    main()
