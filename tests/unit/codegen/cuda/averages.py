"""Cases of the moving average: both roundings of alpha, ranges of several regions, sums of a pass."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod

import numpy as np

from tests.unit.codegen.cuda.arrays import Shape, normal
from tests.unit.codegen.cuda.differential import Case, ranges
from tests.unit.runtime.cpu.plans import PlanBuilder
from trc_runtime.schema.regions import Region

R = Region
_SHAPES: Mapping[str, Shape] = {
    "BN_BIAS": (1, 1, 1, 3),
    "BN_WEIGHT": (1, 1, 1, 64),
    "FC_WEIGHT": (37, 1, 1, 75),
    "DEEP_CONV": (16, 3, 3, 8),
}
_COUNTS = 1, 64, 65, 1024, 1025, 2048, 2049, 3 * 2048 - 64, 3 * 2048
"""Around the halves of a block's 2048 elements, and whole blocks."""
_RESULTS = ("loss", "top1", "top5")


def _average(
    alpha: float,
    applied: int,
    has_nan: int,
    warmup: bool,
    extreme: bool = False,
    shapes: Mapping[str, Shape] = _SHAPES,
) -> Case:
    rng = np.random.default_rng(applied)

    def build(b: PlanBuilder) -> Mapping[str, np.ndarray]:
        values: dict[str, np.ndarray] = {}
        for letter in "WE":
            for place, shape in shapes.items():
                name = b.tensor(f"{letter}.{place}", R[f"{letter}_{place}"], shape)
                values[name] = normal(rng, shape, 3)
                if extreme and letter == "W":
                    values[name].reshape(-1)[:3] = (np.nan, np.inf, 3e38)
        scalars = {"alpha": alpha, "applied": applied, "has_nan": has_nan}
        for name, value in scalars.items():
            b.scalar(name, value)
            values[name] = np.reshape(value, (1, 1, 1, 1))
        b.node(
            "ema_update",
            reads={"w": (R.W_BN_BIAS, R.W_DEEP_CONV)},
            updates={"e": (R.E_BN_BIAS, R.E_DEEP_CONV)},
            scalars={n: n for n in scalars},
            warmup=warmup,
        )
        return values

    # Two operations against three, each rounded: within an ulp of the larger of w - e and e.
    size = sum(map(prod, shapes.values()))
    label = f"ema-{size}-{alpha}-{applied}-{has_nan}" + "-warmup" * warmup + "-extreme" * extreme
    return ranges(label, build, ulps=2, absolute=1e-6)


def _accumulate(samples: int) -> Case:
    def build(b: PlanBuilder) -> Mapping[str, np.ndarray]:
        results = dict(zip(_RESULTS, (2.3, 3.0, 7.0), strict=True))
        sums = dict(zip((f"accum_{n}" for n in _RESULTS), (10.5, 1.0, 2.0), strict=True))
        values = {n: np.reshape(np.float32(v), (1, 1, 1, 1)) for n, v in (results | sums).items()}
        for name, value in (results | sums).items():
            b.scalar(name, value)
        b.tensor("label", R.T_TEMP_INT32, (samples, 1, 1, 1))
        values["label"] = np.zeros((samples, 1, 1, 1), np.int32)
        reads = {n: n for n in (*_RESULTS, "label")}
        b.node("accumulate_batch", reads=reads, updates={n: n for n in sums})
        return values

    return ranges(f"accumulate-{samples}", build, ulps=2)


def averages() -> Iterator[Case]:
    for applied in (1, 7, 100_000):
        for warmup in (False, True):
            yield _average(1e-3, applied, 0, warmup)
    yield _average(0.3, 3, 0, False, extreme=True)
    yield _average(0.5, 3, 1, False)
    yield _average(0.5, 3, 1, True)
    for count in _COUNTS:
        yield _average(0.25, 2, 0, False, shapes={"FC_BIAS": (1, 1, 1, count)})
    for samples in (1, 37, 1000):
        yield _accumulate(samples)
