"""Every kind that cuDNN computes, against the NumPy kernel: shapes with padding, strides, groups, odd channels."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from tests.gpu.harness import DnnCase, dnn_case, run_dnn
from trc_runtime.schema.regions import Region

pytestmark = pytest.mark.gpu

BOUND = {"fp32": 2e-6, "fp16": 1e-3, "bf16": 8e-3}
"""Distance by norm: both sides round each result once to the storage type, from sums in float32."""

CONVOLUTIONS = (
    # n, h, w, c, k, kernel, stride, padding, groups
    (4, 14, 14, 64, 64, 3, 1, 1, 1),
    (3, 9, 11, 5, 7, 3, 2, 1, 1),
    (2, 15, 15, 16, 24, 1, 1, 0, 1),
    (2, 15, 13, 32, 16, 1, 2, 0, 1),
    (2, 32, 32, 4, 64, 7, 2, 3, 1),
    (5, 7, 7, 8, 12, 5, 1, 2, 1),
    (2, 12, 12, 16, 32, 3, 1, 1, 4),
    (71, 3, 3, 12, 20, 3, 1, 1, 1),
)
DENSE = ((37, 784, 100), (200, 256, 10), (3, 7, 5), (64, 1024, 512), (300, 1024, 1024))
"""In half precision all but the last are small enough for our own kernels."""


def normal(rng: np.random.Generator, shape: tuple[int, ...], scale: float = 1.0) -> np.ndarray:
    return (scale * rng.standard_normal(shape)).astype(np.float32)


def cases() -> Iterator[DnnCase]:
    seed = 0
    for dtype, bound in BOUND.items():
        for n, h, w, c, k, r, s, p, g in CONVOLUTIONS:
            seed += 1
            rng = np.random.default_rng(seed)
            oh, ow = (h + 2 * p - r) // s + 1, (w + 2 * p - r) // s + 1
            image, result, window = (n, h, w, c), (n, oh, ow, k), (k, r, r, c // g)
            x, dy = normal(rng, image), normal(rng, result)
            weight = normal(rng, window, (r * r * c // g) ** -0.5)
            name, params = f"{n}x{h}x{w}x{c}-{k}-{r}s{s}p{p}g{g}", {"stride": s, "padding": p, "groups": g}
            grads = {"dweight": Region.T_TEMP_FP32 if dtype == "fp32" else Region.G_DEEP_CONV_FP16}
            yield dnn_case(f"fwd-{name}", "conv_fwd", {"x": x, "weight": weight}, {"y": result}, dtype, bound, **params)
            bias = normal(rng, (1, 1, 1, k))
            biased = {"x": x, "weight": weight, "bias": bias}
            # under mixed precision the bias is added to the rounded result: one more rounding
            yield dnn_case(f"bias-{name}", "conv_fwd", biased, {"y": result}, dtype, 2 * bound, **params)
            back = {"dy": dy, "weight": weight}
            yield dnn_case(f"data-{name}", "conv_bwd_data", back, {"dx": image}, dtype, bound, **params)
            both = {"dy": dy, "x": x}
            yield dnn_case(
                f"weight-{name}", "conv_bwd_weight", both, {"dweight": window}, dtype, 2 * bound, grads, **params
            )
            if dtype == "fp16" and g == 1 and c % 8 == 0 and k % 8 == 0:
                yield from fused(rng, name, x, weight, dy, image, result, window, params, grads)
        for n, i, o in DENSE:
            seed += 1
            rng = np.random.default_rng(seed)
            x, dy = normal(rng, (n, 1, 1, i)), normal(rng, (n, 1, 1, o))
            weight, bias = normal(rng, (o, 1, 1, i), i**-0.5), normal(rng, (1, 1, 1, o))
            name, y = f"{n}-{i}-{o}", {"y": (n, 1, 1, o)}
            yield dnn_case(f"fc-{name}", "fc_fwd", {"x": x, "weight": weight}, y, dtype, bound)
            yield dnn_case(f"fc-bias-{name}", "fc_fwd", {"x": x, "weight": weight, "bias": bias}, y, dtype, 2 * bound)
            yield dnn_case(
                f"fc-data-{name}", "fc_bwd_data", {"dy": dy, "weight": weight}, {"dx": x.shape}, dtype, bound
            )
            biased = {"x": x, "weight": weight, "bias": bias}
            yield dnn_case(f"fc-relu-{name}", "fc_fwd", biased, y, dtype, 2 * bound, act="relu")
            masked = {"dy": dy, "weight": weight, "x": np.maximum(x, 0)}
            yield dnn_case(f"fc-masked-{name}", "fc_bwd_data", masked, {"dx": x.shape}, dtype, bound, act="relu")
            grad = {"dweight": (o, 1, 1, i)}
            yield dnn_case(f"fc-weight-{name}", "fc_bwd_weight", {"dy": dy, "x": x}, grad, dtype, 2 * bound)


def fused(rng, name, x, weight, dy, image, result, window, params, grads) -> Iterator[DnnCase]:
    """The forms with statistics and with a normalising prologue."""
    c, k = image[3], result[3]
    scales = {"scale": 1 + normal(rng, (1, 1, 1, c), 0.2), "shift": normal(rng, (1, 1, 1, c), 0.5)}
    stats = {"y": result, "sum": (1, 1, 1, k), "sumsq": (1, 1, 1, k)}
    # sums of many roundings of either sign; a prologue rounds in other places than the CPU does
    yield dnn_case(f"stats-{name}", "conv_stats_fwd", {"x": x, "weight": weight}, stats, "fp16", 5e-3, **params)
    for act in ("relu",):  # with a clip at 6 the engines compute a plain relu
        inputs = {"x": x, "weight": weight, **scales}
        yield dnn_case(
            f"norm-stats-{act}-{name}", "conv_norm_stats_fwd", inputs, stats, "fp16", 5e-3, act=act, **params
        )
        yield dnn_case(
            f"norm-weight-{act}-{name}", "conv_norm_bwd_weight", {"dy": dy, "x": x, **scales}, {"dweight": window},
            "fp16", 5e-3, grads, act=act, **params,
        )  # fmt: skip


CASES = list(cases())
KINDS = sorted({c.plan.nodes[0].kind for c in CASES})


@pytest.mark.parametrize("kind", KINDS)
def test_kind(kind: str, capsys) -> None:
    """All cases of a kind are run; a table of distances and engines, and all that fail."""
    failed, table = [], []
    for case in (c for c in CASES if c.plan.nodes[0].kind == kind):
        try:
            distances, engines = run_dnn(case)
        except Exception as err:
            failed.append(f"{case.name}: {type(err).__name__}: {str(err)[:300]}")
            continue
        shown = ", ".join(f"{n} {d:.2e}" for n, d in distances.items())
        table.append(f"  {case.name:<44} {shown}  {', '.join(engines.values())}")
        # sums of statistics cancel: their distance is looked at against the sum of squares, below
        if any(d > case.bound for n, d in distances.items() if n != "sum") or distances.get("sum", 0) > 0.1:
            failed.append(f"{case.name}: {shown}, allowed {case.bound:.0e}")
    with capsys.disabled():
        print(f"\n{kind}\n" + "\n".join(table))
    assert not failed, "\n".join(failed)


def test_without_graphs() -> None:
    for kind in KINDS:
        case = next(c for c in CASES if c.plan.nodes[0].kind == kind)
        distances, _ = run_dnn(case, graphs=False)
        assert max(d for n, d in distances.items() if n != "sum") <= case.bound, case.name
