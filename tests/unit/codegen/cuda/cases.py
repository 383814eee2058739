"""Cases of every kind that has kernels of its own: both layouts (padded or not), odd sizes, special values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod

import numpy as np

from tests.unit.codegen.cuda.arrays import Shape, channel, normal, rounded
from tests.unit.codegen.cuda.averages import averages
from tests.unit.codegen.cuda.differential import Case, ranges, tensors
from tests.unit.codegen.cuda.images import images
from tests.unit.codegen.cuda.norms import norms
from tests.unit.codegen.cuda.pixels import pixels
from tests.unit.codegen.cuda.products import products
from tests.unit.runtime.cpu.plans import HALVES, PlanBuilder
from trc_runtime.rng import stream_id
from trc_runtime.schema.regions import Region

R = Region
DTYPES = ("fp32", "fp16", "bf16")


def sequence() -> Iterator[np.random.Generator]:
    seed = 0
    while True:
        seed += 1
        yield np.random.default_rng(seed)


_RNG = sequence()


# ---------------------------------------------------------------- element by element

_FORWARD = {
    "relu": {},
    "relu6": {},
    "leaky_relu": {"slope": 0.1},
    "tanh": {},
    "sigmoid": {},
    "silu": {},
    "hardswish": {},
    "elu": {"alpha": 0.7},
}
_SAVES_INPUT = ("silu", "hardswish")
_SHAPES: tuple[Shape, ...] = ((3, 5, 5, 8), (2, 3, 1, 13), (70, 1, 1, 1024))


def elementwise() -> Iterator[Case]:
    for dtype in DTYPES:
        for act, params in _FORWARD.items():
            for shape in _SHAPES:
                if shape[0] > 3 and act != "relu":
                    continue
                rng = next(_RNG)
                x = normal(rng, shape, 4)
                x.reshape(-1)[:5] = (np.nan, np.inf, -np.inf, 0, -3)
                name = f"{act}-{'x'.join(map(str, shape))}"
                yield tensors(
                    f"{name}-fwd", f"{act}_fwd", {"x": x}, {"y": shape}, dtype, ulps=4, absolute=1e-7, **params
                )
                saved = "x" if act in _SAVES_INPUT else "y"
                grads = {"dy": normal(rng, shape), saved: normal(rng, shape, 3)}
                grads[saved].reshape(-1)[:4] = (0, 6, 3, -3)
                # silu's derivative has a zero, near which two float32 formulas differ
                slack = 1e-6 if act == "silu" else 1e-7
                yield tensors(
                    f"{name}-bwd", f"{act}_bwd", grads, {"dx": shape}, dtype, ulps=4, absolute=slack, **params
                )
        for shape in _SHAPES:
            rng = next(_RNG)
            yield tensors("add", "add_fwd", {"a": normal(rng, shape), "b": normal(rng, shape)}, {"y": shape}, dtype)
    x = normal(next(_RNG), (3, 5, 5, 8))
    yield tensors("relu-in-place", "relu_fwd", {"x": x}, {"y": x.shape}, "fp16", alias={"y": "x"})


# ---------------------------------------------------------------- copies


def copies() -> Iterator[Case]:
    for dtype in DTYPES:
        data = R.I_A_DATA
        for name, shape, regions in (
            ("plain", (3, 4, 4, 16), {}),
            ("padded", (3, 3, 3, 5), {}),
            ("input", (5, 7, 7, 1), {"x": data}),
            ("input-3", (5, 7, 7, 3), {"x": data}),
        ):
            x = rounded(normal(next(_RNG), shape), dtype)
            flat = (shape[0], 1, 1, prod(shape[1:]))
            yield tensors(f"flatten-{name}", "flatten_fwd", {"x": x}, {"y": flat}, dtype, regions=regions)
            yield tensors(f"unflatten-{name}", "flatten_bwd", {"dy": x.reshape(flat)}, {"dx": shape}, dtype)
        x = rounded(normal(next(_RNG), (3, 4, 4, 16)), dtype)
        yield tensors("flatten-in-place", "flatten_fwd", {"x": x}, {"y": (3, 1, 1, 256)}, dtype, alias={"y": "x"})
        x = rounded(normal(next(_RNG), (3, 3, 3, 5)), dtype)
        yield tensors("flatten-over-itself", "flatten_fwd", {"x": x}, {"y": (3, 1, 1, 45)}, dtype, alias={"y": "x"})
        x = rounded(normal(next(_RNG), (2, 6, 6, 3)), dtype)
        yield tensors("pad", "channel_padding_fwd", {"x": x}, {"y": (2, 6, 6, 8)}, dtype, regions={"x": data})
        yield tensors("pad-odd", "channel_padding_fwd", {"x": x}, {"y": (2, 6, 6, 11)}, dtype)
        dy = rounded(normal(next(_RNG), (2, 6, 6, 11)), dtype)
        yield tensors("unpad", "channel_padding_bwd", {"dy": dy}, {"dx": (2, 6, 6, 3)}, dtype)
    x = rounded(normal(next(_RNG), (2, 6, 6, 3)), "fp16")
    yield tensors("copy", "copy", {"x": x}, {"y": x.shape}, "fp16", regions={"x": R.I_A_DATA})


# ---------------------------------------------------------------- sums over rows


def bias_gradients() -> Iterator[Case]:
    for dtype in DTYPES:
        for shape in ((5, 1, 1, 10), (128, 1, 1, 256), (33, 9, 9, 13), (40, 16, 16, 24)):
            dy = normal(next(_RNG), shape)
            kind = "fc_bwd_bias" if shape[1] == 1 else "conv_bwd_bias"
            name = f"bias-{'x'.join(map(str, shape))}"
            slack = 1e-6 * np.sqrt(prod(shape[:3]))
            yield tensors(name, kind, {"dy": dy}, {"dbias": (1, 1, 1, shape[3])}, dtype, ulps=4, absolute=slack)


# ---------------------------------------------------------------- pools


def pools() -> Iterator[Case]:
    for dtype in DTYPES:
        for (n, h, w, c), (k, s, q) in (
            ((2, 9, 8, 16), (3, 2, 1)),
            ((3, 8, 8, 8), (2, 2, 0)),
            ((2, 7, 7, 13), (3, 1, 1)),
            ((1, 11, 10, 4), (5, 3, 2)),
        ):
            rng = next(_RNG)
            oh, ow = (h + 2 * q - k) // s + 1, (w + 2 * q - k) // s + 1
            big, small = (n, h, w, c), (n, oh, ow, c)
            size = f"{n}x{h}x{w}x{c}-{k}-{s}-{q}"
            x = np.round(normal(rng, big, 2))  # many ties
            x[0, 2, 3, 0], x[0, 4, 4, 1] = np.nan, -np.inf
            window = {"kernel": k, "stride": s, "padding": q}
            yield tensors(f"max-{size}", "max_pool_fwd", {"x": x}, {"y": small, "mask": small}, dtype, **window)
            yield tensors(f"max-only-{size}", "max_pool_fwd", {"x": x}, {"y": small}, dtype, **window)
            dy = normal(rng, small)
            mask = rng.integers(0, k * k, small).astype(np.int8)
            yield tensors(
                f"max-bwd-{size}", "max_pool_bwd", {"dy": dy, "mask": mask}, {"dx": big}, dtype, absolute=1e-6, **window
            )
            x = normal(rng, big)
            yield tensors(f"avg-{size}", "avg_pool_fwd", {"x": x}, {"y": small}, dtype, absolute=1e-6, **window)
            yield tensors(f"avg-bwd-{size}", "avg_pool_bwd", {"dy": dy}, {"dx": big}, dtype, absolute=1e-6, **window)
        for shape in ((3, 7, 7, 16), (2, 3, 5, 13), (2, 20, 20, 160)):
            rng = next(_RNG)
            small = (shape[0], 1, 1, shape[3])
            size = "x".join(map(str, shape))
            yield tensors(f"gap-{size}", "gap_fwd", {"x": normal(rng, shape)}, {"y": small}, dtype, absolute=1e-6)
            yield tensors(f"gap-bwd-{size}", "gap_bwd", {"dy": normal(rng, small)}, {"dx": shape}, dtype)


# ---------------------------------------------------------------- dropout


def dropouts() -> Iterator[Case]:
    stream = stream_id("dropout/layer1")
    scalars = {"seed": [0x12345678, 0x0ABCDEF1], "iteration": 7}
    for dtype in DTYPES:
        for shape in ((5, 1, 1, 64), (3, 4, 4, 8), (3, 2, 2, 13), (2, 1, 1, 1030)):
            x = normal(next(_RNG), shape)
            size = "x".join(map(str, shape))
            for p in (0.0, 0.3, 1.0):
                both = {"y": shape, "mask": shape}
                case = tensors(f"dropout-{size}-{p}", "dropout_fwd", {"x": x}, both, dtype, scalars, p=p, stream=stream)
                yield case
            yield tensors(
                f"dropout-only-{size}",
                "dropout_fwd",
                {"x": x},
                {"y": shape},
                dtype,
                scalars,
                alias={"y": "x"},
                p=0.5,
                stream=stream,
            )
            kept = {"dy": x, "mask": (x > 0).astype(np.int8)}
            yield tensors(f"dropout-bwd-{size}", "dropout_bwd", kept, {"dx": shape}, dtype, p=0.3)


# ---------------------------------------------------------------- loss


def losses() -> Iterator[Case]:
    one = (1, 1, 1, 1)
    results = dict.fromkeys(("loss", "top1", "top5"), one)
    for dtype in DTYPES:
        for samples, classes in ((7, 10), (3, 3), (5, 1000), (3, 1500), (300, 10), (1100, 10)):
            rng = next(_RNG)
            logits = np.round(normal(rng, (samples, 1, 1, classes), 3), 1)  # some ties
            label = rng.integers(0, classes, (samples, 1, 1, 1)).astype(np.int32)
            for smoothing in (0.0, 0.1):
                name = f"{samples}x{classes}-{smoothing}"
                inputs = {"logits": logits, "label": label}
                outputs = {"probs": logits.shape, **results}
                common = {"ulps": 16.0, "absolute": 1e-6, "label_smoothing": smoothing}
                yield tensors(f"loss-{name}", "softmax_ce_fwd", inputs, outputs, dtype, **common)
                predicted = {"predicted": (samples, 1, 1, 1), **results}
                yield tensors(f"infer-{name}", "softmax_ce_infer", inputs, predicted, dtype, **common)
                e = np.exp(logits - logits.max(-1, keepdims=True))
                back = {"probs": (e / e.sum(-1, keepdims=True)).astype(np.float32), "label": label}
                scale = {"scaling": 1024.0}
                yield tensors(
                    f"loss-bwd-{name}",
                    "softmax_ce_bwd",
                    back,
                    {"dlogits": logits.shape},
                    dtype,
                    scale,
                    ulps=8.0,
                    absolute=1e-5,
                    label_smoothing=smoothing,
                )
    broken = np.zeros((4, 1, 1, 10), np.float32)
    broken[0, 0, 0, 3], broken[1, 0, 0, 2], broken[2, 0, 0, 5] = np.nan, np.inf, -np.inf
    label = np.array([3, 2, 5, 1], np.int32).reshape(4, 1, 1, 1)
    for kind, first in (("softmax_ce_fwd", {"probs": broken.shape}), ("softmax_ce_infer", {"predicted": label.shape})):
        inputs = {"logits": broken, "label": label}
        yield tensors(f"broken-{kind}", kind, inputs, {**first, **results}, "fp32", label_smoothing=0.0)


# ---------------------------------------------------------------- ranges and scalars

_SIZES: tuple[Shape, ...] = ((16, 1, 1, 75), (3, 3, 3, 8), (1, 1, 1, 5))


def _regions(b: PlanBuilder, letter: str) -> list[str]:
    first = (R[f"{letter}_FC_WEIGHT"], R[f"{letter}_DEEP_CONV"], R[f"{letter}_DEEP_CONV"])
    return [b.tensor(f"{letter}{n}", r, s) for n, (r, s) in enumerate(zip(first, _SIZES, strict=True))]


def _update(kind: str, decay: str, scaling: float, has_nan: int, more: dict[str, float], **params: bool) -> Case:
    moments = {"sgd_update": "", "momentum_update": "M", "adam_update": "MV"}[kind]
    rng = next(_RNG)

    def build(b: PlanBuilder) -> Mapping[str, np.ndarray]:
        values: dict[str, np.ndarray] = {}
        for letter in ("G", "W", *moments):
            for name, shape in zip(_regions(b, letter), _SIZES, strict=True):
                values[name] = abs(normal(rng, shape)) if letter == "V" else normal(rng, shape)
                if letter == "G":
                    values[name] *= scaling
        scalars = {"lr": 0.1, "weight_decay": 0.01, "scaling": scaling, "has_nan": has_nan, **more}
        for name, value in scalars.items():
            b.scalar(name, value)
            values[name] = np.reshape(value, (1, 1, 1, 1))
        spans = {x.lower(): (R[f"{x}_FC_WEIGHT"], R[f"{x}_DEEP_CONV"]) for x in ("G", "W", *moments)}
        names = {n: n for n in scalars}
        b.node(kind, reads={"g": spans.pop("g")}, updates=spans, scalars=names, decay=decay, **params)
        return values

    label = f"{kind}-{decay}-{scaling}-{has_nan}" + "".join(f"-{k}" for k, v in params.items() if v)
    return ranges(label, build, ulps=8, absolute=1e-6)


def optimizers() -> Iterator[Case]:
    for decay in ("none", "l2", "decoupled"):
        for scaling, has_nan in ((1.0, 0), (8192.0, 0), (3.0, 0), (1.0, 1)):
            yield _update("sgd_update", decay, scaling, has_nan, {})
            for nesterov in (False, True):
                yield _update("momentum_update", decay, scaling, has_nan, {"beta1": 0.9}, nesterov=nesterov)
            adam = {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "bias_correction1": 3.0, "bias_correction2": 50.0}
            yield _update("adam_update", decay, scaling, has_nan, adam)


def range_kinds() -> Iterator[Case]:
    def check(bad: float | None) -> Case:
        def build(b: PlanBuilder) -> Mapping[str, np.ndarray]:
            values = {n: normal(next(_RNG), s) for n, s in zip(_regions(b, "G"), _SIZES, strict=True)}
            if bad is not None:
                values["G1"][-1, -1, -1, -1] = bad
            b.scalar("has_nan", 5)
            b.node("check_nan", reads={"range": (R.G_FC_WEIGHT, R.G_DEEP_CONV)}, writes={"has_nan": "has_nan"})
            return values

        return ranges(f"check-{bad}", build)

    for bad in (None, np.nan, np.inf, -np.inf, np.float32(3.4e38)):
        yield check(bad)

    def commit(flag: int) -> Case:
        def build(b: PlanBuilder) -> Mapping[str, np.ndarray]:
            values: dict[str, np.ndarray] = {"has_nan": np.reshape(flag, (1, 1, 1, 1))}
            for n, c in enumerate((5, 64, 100)):
                for side in ("PREV", "NEXT"):
                    for what in ("MEAN", "VAR"):
                        name = b.tensor(f"{side}{what}{n}", R[f"B_{side}_{what}"], (1, 1, 1, c))
                        values[name] = normal(next(_RNG), (1, 1, 1, c))
            b.scalar("has_nan", flag)
            sides = {s.lower(): (R[f"B_{s}_MEAN"], R[f"B_{s}_VAR"]) for s in ("PREV", "NEXT")}
            b.node(
                "commit_stats",
                reads={"next": sides["next"]},
                updates={"prev": sides["prev"]},
                scalars={"has_nan": "has_nan"},
            )
            return values

        return ranges(f"commit-{flag}", build)

    yield commit(0)
    yield commit(1)

    def cast(dtype: str, down: bool) -> Case:
        def build(b: PlanBuilder) -> Mapping[str, np.ndarray]:
            values: dict[str, np.ndarray] = {}
            wide, half = ("W_{}", "A_{}") if down else ("G_{}", "G_{}_FP16")
            for n, (place, shape) in enumerate(zip(("FC_WEIGHT", "DEEP_CONV", "DEEP_CONV"), _SIZES, strict=True)):
                for which, pattern in (("wide", wide), ("half", half)):
                    name = b.tensor(f"{which}{n}", R[pattern.format(place)], shape)
                    if (which == "wide") == down:
                        values[name] = normal(next(_RNG), shape, 100)
            regions = {
                w: (R[p.format("FC_WEIGHT")], R[p.format("DEEP_CONV")]) for w, p in (("wide", wide), ("half", half))
            }
            source, target = ("wide", "half") if down else ("half", "wide")
            b.node("cast_range", reads={"source": regions[source]}, writes={"target": regions[target]})
            return values

        return ranges(f"cast-{'down' if down else 'up'}", build, dtype)

    for dtype in HALVES:
        yield cast(dtype, True)
        yield cast(dtype, False)


def scalar_kinds() -> Iterator[Case]:
    def single(
        name: str,
        kind: str,
        reads: Mapping[str, float | int] | None = None,
        updates: Mapping[str, float | int] | None = None,
        writes: tuple[str, ...] = (),
        scalars: Mapping[str, float | int] | None = None,
        table: tuple[float, ...] = (),
    ) -> Case:
        def build(b: PlanBuilder) -> Mapping[str, np.ndarray]:
            values: dict[str, np.ndarray] = {}
            for group in (reads or {}, updates or {}, scalars or {}):
                for role, value in group.items():
                    b.scalar(role, value)
                    values[role] = np.reshape(value, (1, 1, 1, 1))
            for role in writes:
                b.scalar(role, 0.0)
            roles = dict.fromkeys(scalars or {})
            if table:
                b.tensor("lr_table", R.S_TABLE, (1, 1, 1, len(table)))
                values["lr_table"] = np.reshape(np.float32(table), (1, 1, 1, -1))
                roles["lr_table"] = None
            b.node(
                kind,
                reads={n: n for n in reads or {}},
                updates={n: n for n in updates or {}},
                writes={n: n for n in writes},
                scalars={n: n for n in roles},
            )
            return values

        return ranges(name, build, ulps=2)

    for at in (0, 2, 9):
        yield single(f"rate-{at}", "fetch_rate", writes=("lr",), scalars={"iteration": at}, table=(0.1, 0.2, 0.3))
    for flag in (0, 1):
        yield single(f"count-{flag}", "count_step", updates={"iteration": 4, "applied": 3}, scalars={"has_nan": flag})
        yield single(
            f"metrics-{flag}",
            "accumulate_metrics",
            reads={"loss": 2.3, "top1": 3.0, "top5": 7.0},
            updates={"accum_loss": 10.5, "accum_top1": 1.0, "accum_top5": 2.0},
            scalars={"batch_size": 13, "has_nan": flag},
        )
        for scale, count in ((8192.0, 5), (1.0, 1999), (2.0**24, 1999), (1.5, 0)):
            yield single(
                f"scale-{flag}-{scale}-{count}",
                "scale_update",
                updates={"scaling": scale, "growth_counter": count},
                scalars={"has_nan": flag},
            )
    for applied, beta1, beta2 in ((0, 0.9, 0.999), (1234, 0.95, 0.98), (10, 0.5, 0.9999)):
        yield single(
            f"correction-{applied}",
            "bias_correction",
            writes=("bias_correction1", "bias_correction2"),
            scalars={"beta1": beta1, "beta2": beta2, "applied": applied},
        )


# ---------------------------------------------------------------- depthwise convolutions


def depthwise() -> Iterator[Case]:
    for dtype in DTYPES:
        for (n, h, w, c), (k, s, q) in (
            ((2, 9, 11, 16), (3, 1, 1)),
            ((2, 8, 10, 24), (3, 2, 1)),
            ((1, 7, 9, 13), (5, 1, 2)),
            ((2, 10, 7, 8), (5, 2, 2)),
            ((1, 12, 12, 8), (7, 3, 3)),
        ):
            rng = next(_RNG)
            oh, ow = (h + 2 * q - k) // s + 1, (w + 2 * q - k) // s + 1
            big, small, window = (n, h, w, c), (n, oh, ow, c), (c, k, k, 1)
            size = f"{n}x{h}x{w}x{c}-{k}-{s}-{q}"
            common = {"stride": s, "padding": q, "groups": c}
            x, dy, weight = normal(rng, big), normal(rng, small), normal(rng, window, 0.3)
            slack = 1e-5
            forward = {"x": x, "weight": weight}
            yield tensors(
                f"depthwise-{size}", "conv_fwd", forward, {"y": small}, dtype, absolute=slack, ulps=4, **common
            )
            biased = {**forward, "bias": channel(rng, c)}
            yield tensors(
                f"depthwise-bias-{size}", "conv_fwd", biased, {"y": small}, dtype, absolute=slack, ulps=4, **common
            )
            back = {"dy": dy, "weight": weight}
            yield tensors(
                f"depthwise-data-{size}", "conv_bwd_data", back, {"dx": big}, dtype, absolute=slack, ulps=4, **common
            )
            regions = {"dweight": R.T_TEMP_FP32 if dtype == "fp32" else R.G_DEEP_CONV_FP16}
            yield tensors(
                f"depthwise-weight-{size}",
                "conv_bwd_weight",
                {"dy": dy, "x": x},
                {"dweight": window},
                dtype,
                regions=regions,
                absolute=slack * (n * oh * ow) ** 0.5,
                ulps=4,
                **common,
            )


def every() -> Iterator[Case]:
    for family in (
        *(elementwise, copies, bias_gradients, norms, pools, dropouts, losses, optimizers, range_kinds, scalar_kinds),
        *(averages, depthwise, images, pixels, products),
    ):
        yield from family()
