"""Batch normalisation over features."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from trc.dialects.arch.base import float_of
from trc.dialects.arch.norm import Bn1dOp
from trc.layers.descriptor import (
    TRAIN_COLUMNS,
    BaseDescriptor,
    Builder,
    Layer,
    Materialised,
    TensorDesc,
    Value,
    channels,
    features,
    train_only,
)
from trc.layers.registry import register
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
AFFINE_FWD = KINDS.register(Kind("affine_fwd", (*reads("x", "scale", "bias"), *writes("y")), may_alias=(("y", "x"),)))

ONE = Initial("constant", value=1.0)


class BnDescriptor(BaseDescriptor):
    """Normalise by the batch's statistics; forward is pure: it reads PREV statistics and writes NEXT ones."""

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

    def forward(self, b: Builder) -> Value:
        """One node: statistics, normalisation, running averages."""
        t = b.tensor
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
        b.emit(
            BN_BWD,
            reads=[b.output_grad, b.inputs[0], t("weight"), t("saved_mean"), t("saved_invstd")],
            writes=[t("weight.grad"), t("bias.grad"), *([] if dx is None else [dx])],
        )

    def inference(self, b: Builder) -> Value:
        """Y = x * eq_scale + eq_bias."""
        b.emit(AFFINE_FWD, reads=[*b.inputs, b.tensor("eq_scale"), b.tensor("eq_bias")], writes=[b.output])
        return Materialised(b.output)

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
