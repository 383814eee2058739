"""The kinds: names, operands in order, scalars and parameters, as the kernels expect them."""

from __future__ import annotations

import pytest

import trc.layers  # noqa: F401  (registers the kinds)
from trc_runtime.schema.kinds import KINDS, Access

ADAM = "lr beta1 beta2 eps weight_decay bias_correction1 bias_correction2 scaling has_nan"
BN = "y next_mean next_var saved_mean saved_invstd"
AFFINE = "gamma beta prev_mean prev_var"
FINAL = "scale shift next_mean next_var saved_mean saved_invstd"
WINDOW = "stride padding groups"
POOL = "kernel stride padding"
SMOOTHING = "label_smoothing"

# name: reads | updates | writes | scalars | params; `?` marks what may be left out
TABLE = {
    "h2d_copy": "| | range | | buffer",
    "normalise_input": "x | | y | scale shift |",
    "copy": "x | | y | |",
    "flatten_fwd": "x | | y | |",
    "flatten_bwd": "dy | | dx | |",
    "fc_fwd": "x weight bias? | | y | | act",
    "fc_bwd_data": "dy weight x? | | dx | | act",
    "fc_bwd_weight": "dy x | | dweight | |",
    "fc_bwd_bias": "dy | | dbias | |",
    **{f"{name}_fwd": "x | | y | |" for name in ("relu", "tanh", "silu", "relu6", "hardswish", "sigmoid")},
    "leaky_relu_fwd": "x | | y | | slope",
    "elu_fwd": "x | | y | | alpha",
    **{f"{name}_bwd": "dy y | | dx | |" for name in ("relu", "tanh", "relu6", "sigmoid")},
    "leaky_relu_bwd": "dy y | | dx | | slope",
    "elu_bwd": "dy y | | dx | | alpha",
    "silu_bwd": "dy x | | dx | |",
    "hardswish_bwd": "dy x | | dx | |",
    "dropout_fwd": "x | | y mask? | seed iteration | p stream",
    "dropout_bwd": "dy mask | | dx | | p",
    "bn_fwd": f"x gamma beta prev_mean prev_var | | {BN} | | eps momentum",
    "bn_bwd": "dy x gamma saved_mean saved_invstd | | dgamma dbeta dx? | |",
    "bn_fold": "gamma beta mean var | | eq_scale eq_bias | | eps",
    "affine_fwd": "x scale bias | | y | | act",
    "affine_add_act_fwd": "x scale bias shortcut | | y | | act",
    "materialise": "x scale shift | | y | | act",
    "norm_add_act_fwd": "x scale shift shortcut shortcut_scale? shortcut_shift? | | y | | act",
    "bn_stats": "x | | sum sumsq | |",
    "bn_finalize": f"x sum sumsq {AFFINE} offset? | | {FINAL} | | eps momentum",
    "norm_bwd": "dy x scale shift gamma saved_mean saved_invstd | | dgamma dbeta dx? | | act",
    "conv_fwd": f"x weight bias? | | y | | {WINDOW}",
    "conv_stats_fwd": f"x weight bias? | | y sum sumsq | | {WINDOW}",
    "conv_norm_fwd": f"x weight scale shift bias? | | y | | {WINDOW} act",
    "conv_norm_stats_fwd": f"x weight scale shift bias? | | y sum sumsq | | {WINDOW} act",
    "conv_bwd_data": f"dy weight | | dx | | {WINDOW}",
    "conv_bwd_weight": f"dy x | | dweight | | {WINDOW}",
    "conv_norm_bwd_weight": f"dy x scale shift | | dweight | | {WINDOW} act",
    "conv_bwd_bias": "dy | | dbias | |",
    "max_pool_fwd": f"x | | y mask? | | {POOL}",
    "max_pool_bwd": f"dy mask | | dx | | {POOL}",
    "avg_pool_fwd": f"x | | y | | {POOL}",
    "avg_pool_bwd": f"dy | | dx | | {POOL}",
    "gap_fwd": "x | | y | |",
    "gap_bwd": "dy | | dx | |",
    "channel_padding_fwd": "x | | y | |",
    "channel_padding_bwd": "dy | | dx | |",
    "add_fwd": "a b | | y | |",
    "softmax_ce_fwd": f"logits label | | probs loss top1 top5 | | {SMOOTHING}",
    "softmax_ce_bwd": f"probs label | | dlogits | scaling | {SMOOTHING}",
    "softmax_ce_infer": f"logits label | | predicted loss top1 top5 | | {SMOOTHING}",
    "clear": "| | range | |",
    "check_nan": "range | | has_nan | |",
    "mean_allreduce": "| range | | |",
    "commit_stats": "next | prev | | has_nan |",
    "fetch_rate": "| | lr | lr_table iteration |",
    "count_step": "| iteration applied | | has_nan |",
    "bias_correction": "| | bias_correction1 bias_correction2 | beta1 beta2 applied |",
    "sgd_update": "g | w | | lr weight_decay scaling has_nan | decay",
    "momentum_update": "g | w m | | lr beta1 weight_decay scaling has_nan | nesterov decay",
    "adam_update": f"g | w m v | | {ADAM} | decay",
    "ema_update": "w | e | | alpha applied has_nan | warmup",
    "accumulate_batch": "loss top1 top5 label | accum_loss accum_top1 accum_top5 | | |",
    "accumulate_metrics": "loss top1 top5 | accum_loss accum_top1 accum_top5 | | batch_size has_nan |",
    "cast_range": "source | | target | |",
    "scale_update": "| scaling growth_counter | | has_nan |",
}


@pytest.mark.parametrize("name", TABLE)
def test_record(name: str) -> None:
    kind = KINDS.get(name)
    assert kind is not None
    groups = [[f"{o.name}{'?' * o.optional}" for o in kind.group(access)] for access in Access]
    assert [*groups, list(kind.scalars), [p for p, _ in kind.params]] == [
        part.split() for part in TABLE[name].split("|")
    ]


def test_nothing_else_is_registered() -> None:
    assert set(KINDS.names()) == set(TABLE)


def test_aliases_name_operands() -> None:
    for kind in KINDS:
        written = {o.name for o in kind.operands if o.access.writes}
        read = {o.name for o in kind.operands if o.access.reads}
        for out, source in kind.may_alias:
            assert out in written
            assert source in read
