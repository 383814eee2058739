"""Cases of the products of fully connected layers."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import numpy as np

from tests.unit.codegen.cuda.arrays import normal, rounded
from tests.unit.codegen.cuda.differential import Case, tensors

_PRODUCTS = (
    # samples, inputs, outputs: whole pieces of 16 bytes, and rows of weights that are aligned to 8, 4 and 2 bytes only
    (37, 200, 40),
    (5, 24, 10),
    (20, 84, 10),
    (17, 42, 66),
    (9, 13, 7),
    (70, 16, 300),
)

_LARGE = ((200, 48, 1030), (200, 270, 520), (200, 24, 260), (96, 24, 2816), (1408, 24, 48))
_LARGE_GRADIENTS = ((40, 640, 520), (20, 784, 1032))
"""Enough rows and columns for the larger tiles."""


def products() -> Iterator[Case]:
    seeds = count(1)
    for dtype in ("fp16", "bf16"):
        for number, (rows, inputs, outputs) in enumerate(_PRODUCTS):
            rng = np.random.default_rng(next(seeds))
            name = f"{rows}x{inputs}x{outputs}"
            x = rounded(normal(rng, (rows, 1, 1, inputs)), dtype)
            dy = rounded(normal(rng, (rows, 1, 1, outputs)), dtype)
            weight = rounded(normal(rng, (outputs, 1, 1, inputs), inputs**-0.5), dtype)
            bias = normal(rng, (1, 1, 1, outputs))
            act = ("relu", "none", "relu6")[number % 3]
            # both sides round sums in float32 once, in another order: a sum near a boundary goes either way
            slack = 2e-6 * inputs**0.5
            y, dx = {"y": dy.shape}, {"dx": x.shape}
            forward = {"x": x, "weight": weight}
            yield tensors(f"fc-{name}", "fc_fwd", forward, y, dtype, ulps=1, absolute=slack, act="none")
            forward = {"x": x, "weight": weight, "bias": bias}
            yield tensors(f"fc-{name}-{act}", "fc_fwd", forward, y, dtype, ulps=1, absolute=slack, act=act)
            back = {"dy": dy, "weight": weight}
            slack = 2e-6 * outputs**0.5
            yield tensors(f"fc-data-{name}", "fc_bwd_data", back, dx, dtype, ulps=1, absolute=slack, act="none")
            result = np.clip(x * 4, 0, 6)
            back = {"dy": dy, "weight": weight, "x": result}
            act = ("relu", "relu6")[number % 2]
            yield tensors(f"fc-data-{name}-{act}", "fc_bwd_data", back, dx, dtype, ulps=1, absolute=slack, act=act)
            slack = 4e-6 * rows**0.5
            yield tensors(
                f"fc-weight-{name}", "fc_bwd_weight", {"dy": dy, "x": x}, {"dweight": weight.shape}, dtype, ulps=4,
                absolute=slack,
            )  # fmt: skip
        # a map of several pixels
        rng = np.random.default_rng(next(seeds))
        x, weight = normal(rng, (6, 3, 3, 8)), normal(rng, (12, 1, 1, 72), 0.1)
        y = {"y": (6, 1, 1, 12)}
        yield tensors("fc-map", "fc_fwd", {"x": x, "weight": weight}, y, dtype, absolute=2e-5, act="none")
        for rows, inputs, outputs in _LARGE:
            rng = np.random.default_rng(next(seeds))
            x, y = normal(rng, (rows, 1, 1, inputs)), {"y": (rows, 1, 1, outputs)}
            weight = normal(rng, (outputs, 1, 1, inputs), inputs**-0.5)
            name = f"fc-{rows}x{inputs}x{outputs}"
            yield tensors(name, "fc_fwd", {"x": x, "weight": weight}, y, dtype, ulps=1, absolute=2e-5, act="relu")
        for rows, inputs, outputs in _LARGE_GRADIENTS:
            rng = np.random.default_rng(next(seeds))
            factors = {"dy": normal(rng, (rows, 1, 1, outputs)), "x": normal(rng, (rows, 1, 1, inputs))}
            result = {"dweight": (outputs, 1, 1, inputs)}
            name = f"fc-weight-{rows}x{inputs}x{outputs}"
            yield tensors(name, "fc_bwd_weight", factors, result, dtype, ulps=4, absolute=3e-5)
