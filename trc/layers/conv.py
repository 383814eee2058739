"""Convolutions.

A convolution may write the sums of its result's channels for the batch norm behind it (`stats`), and take a deferred
input as it is, in forward (`norm`) and in the weight gradient (`wgrad_norm`). Each is a form of its own, chosen by
plan-select-kernels from the target's rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from trc.dialects.arch.base import bool_of, int_of
from trc.dialects.arch.conv import ConvOp
from trc.layers.descriptor import (
    BaseDescriptor,
    Builder,
    Deferred,
    Layer,
    Materialised,
    TensorDesc,
    Value,
    constant_shape,
    features,
    working,
)
from trc.layers.registry import register
from trc.layers.values import ACT, NO_ACT, RELU6
from trc_runtime.schema.dtypes import Precision
from trc_runtime.schema.kinds import KINDS, Access, Kind, Operand, reads, writes
from trc_runtime.schema.plan import Initial
from trc_runtime.schema.regions import Region

_WINDOW = (("stride", int), ("padding", int), ("groups", int))
_BIAS = Operand("bias", Access.READ, optional=True)
_NORM = ("scale", "shift")
_SUMS = ("sum", "sumsq")

CONV_FWD = KINDS.register(Kind("conv_fwd", (*reads("x", "weight"), _BIAS, *writes("y")), params=_WINDOW))
CONV_STATS_FWD = KINDS.register(
    Kind("conv_stats_fwd", (*reads("x", "weight"), _BIAS, *writes("y", *_SUMS)), params=_WINDOW)
)
CONV_NORM_FWD = KINDS.register(
    Kind("conv_norm_fwd", (*reads("x", "weight", *_NORM), _BIAS, *writes("y")), params=(*_WINDOW, *ACT))
)
"""The input is act(x * scale + shift), rounded to the storage type."""

CONV_NORM_STATS_FWD = KINDS.register(
    Kind("conv_norm_stats_fwd", (*reads("x", "weight", *_NORM), _BIAS, *writes("y", *_SUMS)), params=(*_WINDOW, *ACT))
)
CONV_BWD_DATA = KINDS.register(Kind("conv_bwd_data", (*reads("dy", "weight"), *writes("dx")), params=_WINDOW))
CONV_BWD_WEIGHT = KINDS.register(Kind("conv_bwd_weight", (*reads("dy", "x"), *writes("dweight")), params=_WINDOW))
CONV_NORM_BWD_WEIGHT = KINDS.register(
    Kind("conv_norm_bwd_weight", (*reads("dy", "x", *_NORM), *writes("dweight")), params=(*_WINDOW, *ACT))
)
CONV_BWD_BIAS = KINDS.register(Kind("conv_bwd_bias", (*reads("dy"), *writes("dbias"))))

_FORWARD = {
    (False, False): CONV_FWD,
    (False, True): CONV_STATS_FWD,
    (True, False): CONV_NORM_FWD,
    (True, True): CONV_NORM_STATS_FWD,
}
"""The forward kind by (norm, stats)."""

STATS, NORM, WGRAD_NORM = "stats", "norm", "wgrad_norm"

FUSED_CHANNELS = 8
"""What Hopper's fused engines want input and output channels to be a multiple of."""

FUSED_WINDOW = 32
"""Places of a window up to which there are engines with a prologue, in forward and in the weight gradient: found by
planning with frontend 1.18.0, cuDNN 9.19 and an H200's properties: 2 x 16 and 4 x 8 plan, 3 x 11 and 5 x 7 do not.
Kernels are square here, so up to 5 x 5."""


class ConvDescriptor(BaseDescriptor):
    """A square convolution, grouped or depthwise, with or without a bias."""

    forms: tuple[str, ...] = ("plain", STATS, NORM, WGRAD_NORM)
    states_form = True
    has_parameters = True

    def mixes_channels(self, layer: Layer) -> bool:
        """Every output channel sees all input channels."""
        return groups_of(layer) == 1

    def default(self, candidates: Sequence[str]) -> frozenset[str]:
        """The plain convolution, which every target has."""
        return frozenset()

    def allowed(self, target: str, layer: Layer, candidates: Sequence[str], act: str) -> frozenset[str]:
        """The CPU has every form. Hopper's engines are float16 only and want plain groups and channels in eights.

        They have a prologue only with relu and small windows, and in forward only together with the statistics
        (shared/measurements.md: "sbr+fprop without stats has no engine at all"). With relu6 they plan, but forget the
        upper clip: seen on an H200 with cuDNN 9.19.
        """
        if target == "cpu":
            return frozenset(candidates)
        channels = layer.inputs[0][0][3], layer.output[0][3]
        fused = layer.precision is Precision.AMP_FP16  # cuDNN 9.19 plans none of them for bfloat16
        if not fused or groups_of(layer) != 1 or any(c % FUSED_CHANNELS for c in channels):
            return frozenset()
        found = frozenset(candidates)
        if act in (NO_ACT, RELU6) or int_of(layer.op.properties["kernel"]) ** 2 > FUSED_WINDOW:
            found -= {NORM, WGRAD_NORM}
        return found if STATS in found else found - {NORM}

    def tensors(self, layer: Layer) -> Iterable[TensorDesc]:
        """Weight [K, R, S, C / groups], bias [1, 1, 1, K] if any, and the results."""
        out, kernel, groups = layer.output[0][3], int_of(layer.op.properties["kernel"]), groups_of(layer)
        real = layer.inputs[0][0][3] if layer.real_channels is None else layer.real_channels
        shapes = tuple((out, kernel, kernel, shape[3] // groups) for shape in layer.inputs[0])
        yield TensorDesc(
            "weight",
            Region.W_DEEP_CONV if layer.op.first is None else Region.W_FIRST_CONV,
            shapes,
            Initial("kaiming_uniform", fan=kernel * kernel * real // groups),
            parameter=True,
            half=True,
            half_gradient=True,
            channels=layer.real_channels,
        )
        if has_bias(layer):
            yield TensorDesc("bias", Region.W_FC_BIAS, constant_shape((1, 1, 1, out)), parameter=True)
        yield from features(layer)

    def forward(self, b: Builder) -> Value:
        """One node; what it takes from and gives to its neighbours beside its result is the chosen form."""
        x, sums, forms = b.value(0), b.statistics, _forms(b)
        prologue = x.reads if isinstance(x, Deferred) and NORM in forms else None
        stats = sums if sums is not None and STATS in forms else ()
        params = _window(b.layer)
        if prologue is None:
            operands = [b.inputs[0], working(b)]
        else:
            raw, scale, shift = prologue
            operands = [raw, working(b), scale, shift]
            params["act"] = _act(x)
        b.emit(
            _FORWARD[prologue is not None, bool(stats)],
            reads=[*operands, *([] if _leaves_bias(b) else _bias(b))],
            writes=[b.output, *stats],
            params=params,
        )
        offset = b.tensor("bias") if _leaves_bias(b) else None
        return Materialised(b.output, convolved=True, summed=bool(stats), offset=offset)

    def inference(self, b: Builder) -> Value:
        """One node."""
        b.emit(CONV_FWD, reads=[b.inputs[0], working(b), *_bias(b)], writes=[b.output], params=_window(b.layer))
        return Materialised(b.output)

    def backward(self, b: Builder) -> None:
        """Weight, bias and data gradients as nodes of their own, so that they can overlap."""
        dy, x, params = b.output_grad, b.value(0), _window(b.layer)
        dweight = b.tensor("weight.grad_half" if b.layer.precision.is_amp else "weight.grad")
        if isinstance(x, Deferred) and WGRAD_NORM in _forms(b):
            b.emit(CONV_NORM_BWD_WEIGHT, reads=[dy, *x.reads], writes=[dweight], params={**params, "act": x.act})
        else:
            b.emit(CONV_BWD_WEIGHT, reads=[dy, b.inputs[0]], writes=[dweight], params=params)
        if has_bias(b.layer) and not _leaves_bias(b):
            b.emit(CONV_BWD_BIAS, reads=[dy], writes=[b.tensor("bias.grad")])
        if (dx := b.input_grad(0)) is not None:
            b.emit(CONV_BWD_DATA, reads=[dy, working(b)], writes=[dx], params=params)


def groups_of(layer: Layer) -> int:
    """The groups of a convolution; a depthwise one has as many as channels."""
    op = layer.op
    return layer.inputs[0][0][3] if op.properties.get("depthwise") is not None else int_of(op.properties["groups"])


def has_bias(layer: Layer) -> bool:
    """Whether a convolution has a bias (by default it has none)."""
    attribute = layer.op.properties.get("bias")
    return attribute is not None and bool_of(attribute)


def _forms(b: Builder) -> frozenset[str]:
    """The chosen ones of the forms that fit here."""
    x = b.value(0)
    norm = isinstance(x, Deferred) and x.is_norm
    candidates = [*([STATS] if b.statistics is not None else []), *([NORM, WGRAD_NORM] if norm else [])]
    return b.choose(candidates, _act(x))


def _act(value: Value) -> str:
    return value.act if isinstance(value, Deferred) else NO_ACT


def _bias(b: Builder) -> list[str]:
    return [b.tensor("bias")] if has_bias(b.layer) else []


def _leaves_bias(b: Builder) -> bool:
    """Whether the bias is left to a batch norm that reads the result alone.

    Batch norm takes a constant out of each channel again, so the bias shows in the running mean only, and its gradient
    is zero (as ZERO_GRAD leaves it). Adding it would be a pass over the whole result.
    """
    return has_bias(b.layer) and b.statistics is not None


def _window(layer: Layer) -> dict[str, bool | int | float | str]:
    op = layer.op.properties
    return {"stride": int_of(op["stride"]), "padding": int_of(op["padding"]), "groups": groups_of(layer)}


register(ConvOp, ConvDescriptor())
