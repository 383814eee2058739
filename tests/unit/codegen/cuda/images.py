"""Cases of what reads half images, whose rows are padded to 4 elements, and writes features, padded to 8."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from tests.unit.codegen.cuda.arrays import Shape, channel, normal
from tests.unit.codegen.cuda.differential import Case, tensors
from trc_runtime.rng import stream_id
from trc_runtime.schema.regions import Region


def images() -> Iterator[Case]:
    """Every such kind, and some with gradients of images, which no network asks for."""
    for dtype in ("fp16", "bf16"):
        for c in (1, 3, 4, 7, 12):
            rng, shape, one = np.random.default_rng(c), (2, 6, 5, c), (1, 1, 1, c)
            x, other = normal(rng, shape), normal(rng, shape)
            scales = {"scale": channel(rng, c), "shift": channel(rng, c)}
            state = {
                "gamma": channel(rng, c, 0.3, 1),
                "beta": channel(rng, c),
                "prev_mean": channel(rng, c),
                "prev_var": abs(channel(rng, c)) + 0.5,
            }
            saved = {
                "gamma": state["gamma"],
                "saved_mean": channel(rng, c, 0.1),
                "saved_invstd": abs(channel(rng, c)) + 0.5,
            }
            stats = dict.fromkeys(("next_mean", "next_var", "saved_mean", "saved_invstd"), one)
            grads = {"dgamma": one, "dbeta": one}
            folded = {"scale": scales["scale"], "bias": scales["shift"]}
            forward, back = {"x": x, "weight": normal(rng, (c, 3, 3, 1), 0.3)}, {"dy": other, "x": x}
            pooled, window = (2, 3, 3, c), {"kernel": 3, "stride": 2, "padding": 1}
            dropout = {"p": 0.3, "stream": stream_id("dropout/layer1")}

            def case(
                kind: str, inputs: Mapping[str, np.ndarray], outputs: Mapping[str, Shape], label: str = "", **more: Any
            ) -> Case:
                of = more.pop("of", ("x",))
                more.setdefault("ulps", 6)
                more.setdefault("absolute", 1e-4)
                regions = dict.fromkeys(of, Region.I_A_DATA) | more.pop("regions", {})
                return tensors(f"image-{c}-{label}", kind, inputs, outputs, dtype, regions=regions, **more)  # noqa: B023

            y = {"y": shape}
            yield case("relu_fwd", {"x": x}, y)
            yield case("add_fwd", {"a": x, "b": other}, y, of=("a",))
            yield case("add_fwd", {"a": x, "b": other}, y, of=("a", "b"))
            yield case("bn_stats", {"x": x}, {"sum": one, "sumsq": one})
            yield case("bn_fwd", {"x": x, **state}, {**y, **stats}, eps=1e-5, momentum=0.1)
            yield case("materialise", {"x": x, **scales}, y, act="relu")
            yield case("affine_fwd", {"x": x, **folded}, y, act="relu", master=("scale", "bias"))
            for of in (("x",), ("shortcut",), ("x", "shortcut")):
                yield case("norm_add_act_fwd", {"x": x, **scales, "shortcut": other}, y, of=of, act="none")
            yield case("norm_bwd", {**back, **scales, **saved}, grads, act="relu")
            yield case("norm_bwd", {**back, **scales, **saved}, {**grads, "dx": shape}, "dx", act="relu")
            yield case("bn_bwd", {**back, **saved}, grads)
            yield case("max_pool_fwd", {"x": x}, {"y": pooled, "mask": pooled}, **window)
            yield case("max_pool_fwd", {"x": x}, {"y": pooled}, "only", **window)
            yield case("avg_pool_fwd", {"x": x}, {"y": pooled}, **window)
            yield case("gap_fwd", {"x": x}, {"y": (2, 1, 1, c)})
            dy, kept = normal(rng, pooled), rng.integers(0, 9, pooled).astype(np.int8)
            yield case("max_pool_bwd", {"dy": dy, "mask": kept}, {"dx": shape}, of=("dx",), **window)
            yield case("avg_pool_bwd", {"dy": dy}, {"dx": shape}, of=("dx",), **window)
            yield case("gap_bwd", {"dy": normal(rng, (2, 1, 1, c))}, {"dx": shape}, of=("dx",))
            scalars = {"seed": [1, 2], "iteration": 7}
            yield case("dropout_fwd", {"x": x}, {**y, "mask": shape}, scalars=scalars, **dropout)
            if c > 1:
                common = {"stride": 1, "padding": 1, "groups": c}
                yield case("conv_fwd", forward, y, **common)
                yield case("conv_fwd", {**forward, "bias": channel(rng, c)}, y, "bias", **common)
                data = {"dy": other, "weight": forward["weight"]}
                yield case("conv_bwd_data", data, {"dx": shape}, of=("dx",), **common)
                weight = {"dweight": (c, 3, 3, 1)}
                half = {"dweight": Region.G_DEEP_CONV_FP16}
                yield case("conv_bwd_weight", back, weight, regions=half, **common, absolute=1e-3)
