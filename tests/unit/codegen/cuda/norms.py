"""Cases of batch norm's kernels."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from math import prod

import numpy as np

from tests.unit.codegen.cuda.arrays import Shape, channel, normal, rounded
from tests.unit.codegen.cuda.differential import Case, tensors

_NORM_SHAPES: tuple[Shape, ...] = ((4, 6, 6, 16), (3, 5, 5, 13), (2, 40, 40, 24), (30, 1, 1, 144))
_ACTS = ("none", "relu", "relu6")


def norms() -> Iterator[Case]:
    seeds = count(1)
    for dtype in ("fp32", "fp16", "bf16"):
        for shape in _NORM_SHAPES:
            rng, c = np.random.default_rng(next(seeds)), shape[3]
            one = (1, 1, 1, c)
            size = "x".join(map(str, shape))
            x = normal(rng, shape, 1.5, 2.0)
            rows = prod(shape[:3])
            yield tensors(
                f"stats-{size}",
                "bn_stats",
                {"x": x},
                {"sum": one, "sumsq": one},
                dtype,
                ulps=4,
                absolute=1e-5 * rows**0.5,
            )
            state = {
                "gamma": channel(rng, c, 0.3, 1),
                "beta": channel(rng, c),
                "prev_mean": channel(rng, c),
                "prev_var": abs(channel(rng, c)) + 0.5,
            }
            stats = dict.fromkeys(("next_mean", "next_var", "saved_mean", "saved_invstd"), one)
            flat = rounded(x, dtype).reshape(-1, c).astype(np.float64)
            sums = {
                "sum": flat.sum(0).astype(np.float32).reshape(one),
                "sumsq": (flat**2).sum(0).astype(np.float32).reshape(one),
            }
            for name, more in (("finalize", {}), ("finalize-offset", {"offset": channel(rng, c)})):
                yield tensors(
                    f"{name}-{size}",
                    "bn_finalize",
                    {"x": x, **sums, **state, **more},
                    {"scale": one, "shift": one, **stats},
                    dtype,
                    ulps=4,
                    absolute=1e-6,
                    eps=1e-5,
                    momentum=0.1,
                )
            yield tensors(
                f"bn-{size}",
                "bn_fwd",
                {"x": x, **state},
                {"y": shape, **stats},
                dtype,
                ulps=6,
                absolute=3e-6,
                eps=1e-5,
                momentum=0.1,
            )
            scales = {"scale": channel(rng, c), "shift": channel(rng, c)}
            for act in _ACTS:
                yield tensors(
                    f"materialise-{size}-{act}", "materialise", {"x": x, **scales}, {"y": shape}, dtype, act=act
                )
                other = normal(rng, shape)
                yield tensors(
                    f"join-{size}-{act}",
                    "norm_add_act_fwd",
                    {"x": x, **scales, "shortcut": other},
                    {"y": shape},
                    dtype,
                    act=act,
                    absolute=1e-6,
                )
                second = {"shortcut_scale": channel(rng, c), "shortcut_shift": channel(rng, c)}
                yield tensors(
                    f"join-two-{size}-{act}",
                    "norm_add_act_fwd",
                    {"x": x, **scales, "shortcut": other, **second},
                    {"y": shape},
                    dtype,
                    act=act,
                    absolute=1e-6,
                )
                folded = {"scale": channel(rng, c), "bias": channel(rng, c)}
                masters = ("scale", "bias")
                yield tensors(
                    f"affine-{size}-{act}",
                    "affine_fwd",
                    {"x": x, **folded},
                    {"y": shape},
                    dtype,
                    master=masters,
                    act=act,
                )
                yield tensors(
                    f"affine-join-{size}-{act}",
                    "affine_add_act_fwd",
                    {"x": x, **folded, "shortcut": other},
                    {"y": shape},
                    dtype,
                    master=masters,
                    act=act,
                    absolute=1e-6,
                )
                mean, var = flat.mean(0), flat.var(0)
                saved = {
                    "gamma": state["gamma"],
                    "saved_mean": mean.astype(np.float32).reshape(one),
                    "saved_invstd": (1 / np.sqrt(var + 1e-5)).astype(np.float32).reshape(one),
                }
                grads = {"dgamma": one, "dbeta": one}
                for dx in ({}, {"dx": shape}):
                    yield tensors(
                        f"norm-bwd-{size}-{act}-{len(dx)}",
                        "norm_bwd",
                        {"dy": other, "x": x, **scales, **saved},
                        {**grads, **dx},
                        dtype,
                        act=act,
                        ulps=8,
                        absolute=2e-6 * rows**0.5,
                    )
            yield tensors(
                f"bn-bwd-{size}",
                "bn_bwd",
                {"dy": normal(rng, shape), "x": x, **saved},
                {**grads, "dx": shape},
                dtype,
                ulps=8,
                absolute=2e-6 * rows**0.5,
            )
            moments = {"mean": channel(rng, c), "var": abs(channel(rng, c)) + 0.1}
            folds = {"gamma": state["gamma"], "beta": state["beta"], **moments}
            outs = {"eq_scale": one, "eq_bias": one}
            yield tensors(
                f"fold-{size}",
                "bn_fold",
                folds,
                outs,
                dtype,
                master=(*folds, *outs),
                ulps=4,
                absolute=1e-6,
                eps=1e-5,
            )
    shape, c = (2, 40, 40, 24), 24
    rng = np.random.default_rng(next(seeds))
    x, other = normal(rng, shape), normal(rng, shape)
    scales = {"scale": channel(rng, c), "shift": channel(rng, c)}
    joined = {"x": x, **scales, "shortcut": other}
    yield tensors(
        "join-over-shortcut", "norm_add_act_fwd", joined, {"y": shape}, "fp16", alias={"y": "shortcut"}, act="relu"
    )
    saved = {
        "gamma": channel(rng, c),
        "saved_mean": channel(rng, c, 0.1),
        "saved_invstd": abs(channel(rng, c)) + 0.5,
    }
    grads = {"dgamma": (1, 1, 1, c), "dbeta": (1, 1, 1, c), "dx": shape}
    for over in ("dy", "x"):
        yield tensors(
            f"norm-bwd-over-{over}",
            "norm_bwd",
            {"dy": other, "x": x, **scales, **saved},
            grads,
            "fp16",
            alias={"dx": over},
            act="relu",
            ulps=8,
            absolute=1e-4,
        )
