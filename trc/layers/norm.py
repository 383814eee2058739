"""Batch normalisation.

Two forms. Materialised: one node normalises, one goes back. Deferred, the default behind a convolution whose result
nobody else reads: the channels' statistics become a scale and a shift, and readers apply them; backward recomputes
what it needs from the convolution's result, the activation's mask included.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from trc.dialects.arch.base import float_of
from trc.dialects.arch.norm import Bn1dOp, Bn2dOp
from trc.layers.descriptor import (
    TRAIN_COLUMNS,
    BaseDescriptor,
    Builder,
    Deferred,
    Layer,
    Materialised,
    TensorDesc,
    Value,
    channels,
    features,
    train_only,
)
from trc.layers.registry import register
from trc.layers.values import ACT, AFFINE_FWD, MATERIALISE
from trc_runtime.schema.graphs import Variant
from trc_runtime.schema.kinds import KINDS, Access, Kind, Operand, reads, writes
from trc_runtime.schema.plan import Initial
from trc_runtime.schema.regions import Region

BN_FWD = KINDS.register(
    Kind(
        "bn_fwd",
        (
            *reads("x", "gamma", "beta", "prev_mean", "prev_var"),
            *writes("y", "next_mean", "next_var", "saved_mean", "saved_invstd"),
        ),
        params=(("eps", float), ("momentum", float)),
    )
)
BN_BWD = KINDS.register(
    Kind(
        "bn_bwd",
        (
            *reads("dy", "x", "gamma", "saved_mean", "saved_invstd"),
            *writes("dgamma", "dbeta"),
            Operand("dx", Access.WRITE, optional=True),
        ),
    )
)
BN_FOLD = KINDS.register(
    Kind(
        "bn_fold",
        (*reads("gamma", "beta", "mean", "var"), *writes("eq_scale", "eq_bias")),
        params=(("eps", float),),
    )
)
BN_STATS = KINDS.register(Kind("bn_stats", (*reads("x"), *writes("sum", "sumsq"))))
"""The channels' sums and sums of squares, where the convolution has not written them."""

BN_FINALIZE = KINDS.register(
    Kind(
        "bn_finalize",
        (
            *reads("x", "sum", "sumsq", "gamma", "beta", "prev_mean", "prev_var"),
            Operand("offset", Access.READ, optional=True),
            *writes("scale", "shift", "next_mean", "next_var", "saved_mean", "saved_invstd"),
        ),
        params=(("eps", float), ("momentum", float)),
    )
)
"""Sums to scale = gamma * invstd and shift = beta - mean * scale, in the storage type of x; x gives the count only.
`offset` is what every row of x lacks: the running mean is that of x + offset."""

NORM_BWD = KINDS.register(
    Kind(
        "norm_bwd",
        (
            *reads("dy", "x", "scale", "shift", "gamma", "saved_mean", "saved_invstd"),
            *writes("dgamma", "dbeta"),
            Operand("dx", Access.WRITE, optional=True),
        ),
        params=ACT,
        may_alias=(("dx", "dy"), ("dx", "x")),
    )
)
"""Backward of act(batch norm): the mask follows from x * scale + shift in storage precision. The reductions are
complete before the first element of dx is written, and each element of dy and x is read before that of dx is."""

ONE = Initial("constant", value=1.0)


class BnDescriptor(BaseDescriptor):
    """Normalise by the batch's statistics; forward is pure: it reads PREV statistics and writes NEXT ones."""

    forms: tuple[str, ...] = ("materialised", "deferred")
    has_parameters = True

    def problems(self, layer: Layer) -> Iterable[str]:
        """A single value a channel has no variance."""
        short = [Variant(c).symbol for c in TRAIN_COLUMNS if prod(layer.inputs[0][c][:3]) < 2]
        if short:
            yield (
                f"batch norm needs at least two values a channel, and {', '.join(short)} would have one: choose "
                "another batch size, or a number of samples that leaves no last batch of one"
            )

    def tensors(self, layer: Layer) -> Iterable[TensorDesc]:
        """Gamma, beta, running statistics, the folded inference scale and bias, and what backward needs."""
        c = channels(layer.output)
        yield TensorDesc("weight", Region.W_BN_WEIGHT, c, ONE, parameter=True)
        yield TensorDesc("bias", Region.W_BN_BIAS, c, parameter=True)
        yield from features(layer)
        yield TensorDesc("running_mean", Region.B_PREV_MEAN, c)
        yield TensorDesc("running_var", Region.B_PREV_VAR, c, ONE)
        yield TensorDesc("next_mean", Region.B_NEXT_MEAN, train_only(c))
        yield TensorDesc("next_var", Region.B_NEXT_VAR, train_only(c), ONE)
        yield TensorDesc("eq_bias", Region.W_EQ_BIAS, c)
        yield TensorDesc("eq_scale", Region.W_EQ_SCALE, c, ONE)
        yield TensorDesc("saved_mean", Region.T_TEMP_FP32, train_only(c))
        yield TensorDesc("saved_invstd", Region.T_TEMP_FP32, train_only(c))
        applied = Region.T_TEMP_FP16 if layer.precision.is_amp else Region.T_TEMP_FP32
        for name, region in (("sum", Region.T_TEMP_FP32), ("sumsq", Region.T_TEMP_FP32)):
            yield TensorDesc(name, region, train_only(c), on_demand=True)
        for name in ("scale", "shift"):
            yield TensorDesc(name, applied, train_only(c), on_demand=True)

    def statistics(self, layer: Layer) -> tuple[str, str] | None:
        """The sums, unless the layer was told to keep its result in memory."""
        return None if layer.form == self.forms[0] else (f"{layer.name}.sum", f"{layer.name}.sumsq")

    def forward(self, b: Builder) -> Value:
        """Statistics and running averages; normalised too, unless that is deferred."""
        t = b.tensor
        x = b.value(0)
        if isinstance(x, Materialised) and x.convolved and b.sole(0) and b.choose(("deferred",)):
            if not x.summed:
                b.emit(BN_STATS, reads=[x.symbol], writes=[t("sum"), t("sumsq")])
            b.emit(
                BN_FINALIZE,
                reads=[
                    x.symbol,
                    *map(t, ("sum", "sumsq", "weight", "bias", "running_mean", "running_var")),
                    *([] if x.offset is None else [x.offset]),
                ],
                writes=[*map(t, ("scale", "shift", "next_mean", "next_var", "saved_mean", "saved_invstd"))],
                params={"eps": _param(b, "eps"), "momentum": _param(b, "momentum")},
            )
            name = b.layer.name
            return Deferred(name, MATERIALISE, (x.symbol, t("scale"), t("shift")), owner=name)
        b.emit(
            BN_FWD,
            reads=[*b.inputs, t("weight"), t("bias"), t("running_mean"), t("running_var")],
            writes=[b.output, t("next_mean"), t("next_var"), t("saved_mean"), t("saved_invstd")],
            params={"eps": _param(b, "eps"), "momentum": _param(b, "momentum")},
        )
        return Materialised(b.output)

    def backward(self, b: Builder) -> None:
        """One node: the three gradients share their reductions."""
        t = b.tensor
        dx = b.input_grad(0)
        saved = [*map(t, ("weight", "saved_mean", "saved_invstd"))]
        grads = [t("weight.grad"), t("bias.grad"), *([] if dx is None else [dx])]
        result = b.result
        if isinstance(result, Deferred):
            b.emit(NORM_BWD, reads=[b.output_grad, *result.reads, *saved], writes=grads, params={"act": result.act})
        else:
            b.emit(BN_BWD, reads=[b.output_grad, b.inputs[0], *saved], writes=grads)

    def inference(self, b: Builder) -> Value:
        """Y = x * eq_scale + eq_bias, left to the reader, so that an activation becomes part of it."""
        reads = (b.inputs[0], b.tensor("eq_scale"), b.tensor("eq_bias"))
        return Deferred(b.layer.name, AFFINE_FWD, reads, owner=b.layer.name)

    def fold(self, b: Builder) -> None:
        """Recompute the inference scale and bias from the committed statistics."""
        t = b.tensor
        b.emit(
            BN_FOLD,
            reads=[t("weight"), t("bias"), t("running_mean"), t("running_var")],
            writes=[t("eq_scale"), t("eq_bias")],
            params={"eps": _param(b, "eps")},
        )


def _param(b: Builder, name: str) -> float:
    return float_of(b.layer.op.properties[name])


register(Bn1dOp, BnDescriptor())
register(Bn2dOp, BnDescriptor())
