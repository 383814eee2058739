"""Every layer, and joins, as the readers of the input: half images have rows of another length than features."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import trc
from tests.unit.codegen.cuda.emulator import COMPILER
from tests.unit.codegen.cuda.whole import emulator_of, lower_steps, run_plan
from trc.codegen.cuda.program import lower_plan
from trc.layers import registry
from trc.layers.registry import known_ops
from trc.session.compiling import lower, lower_to_plan
from trc_runtime.schema.plan import Plan

Make = Callable[[int], trc.Layer]

FIRST: dict[str, Make] = {
    "conv": lambda c: trc.conv(8, 3, 1, 1, bias=True),
    "group_conv": lambda c: trc.group_conv(2 * c, c, 3, 1, 1),
    "conv_dw": lambda c: trc.conv_dw(3, 1, 1),
    "conv_dw_bias": lambda c: trc.conv_dw(5, 2, 2, bias=True),
    "bn": lambda c: trc.bn(),
    "bn_relu": lambda c: trc.seq(trc.bn(), trc.relu()),
    "bn_silu": lambda c: trc.seq(trc.bn(), trc.silu()),
    "relu": lambda c: trc.relu(),
    "relu6": lambda c: trc.relu6(),
    "leaky_relu": lambda c: trc.leaky_relu(),
    "tanh": lambda c: trc.tanh_act(),
    "sigmoid": lambda c: trc.sigmoid(),
    "silu": lambda c: trc.silu(),
    "hardswish": lambda c: trc.hardswish(),
    "elu": lambda c: trc.elu(),
    "maxpool": lambda c: trc.maxpool(2, 2),
    "avgpool": lambda c: trc.avgpool(3, 1, 1),
    "gap": lambda c: trc.gap(),
    "dropout": lambda c: trc.dropout(0.3),
    "dropout_maxpool": lambda c: trc.seq(trc.dropout(0.1), trc.maxpool(3, 2, 1)),
    "channel_padding": lambda c: trc.channel_padding(),
    "flatten": lambda c: trc.flatten(),
    "fc": lambda c: trc.fc(7),
    "identity_avgpool": lambda c: trc.add2(trc.identity(), trc.avgpool(3, 1, 1)),
    "identity_bn": lambda c: trc.seq(trc.add2(trc.identity(), trc.bn()), trc.relu()),
    "identity_dropout": lambda c: trc.add2(trc.identity(), trc.dropout(0.3)),
    "bn_bn": lambda c: trc.seq(trc.add2(trc.bn(), trc.bn()), trc.relu6()),
    "conv_bn": lambda c: trc.add2(trc.conv(c, 3, 1, 1), trc.bn()),
    "conv_conv_dw": lambda c: trc.add2(trc.conv(c, 3, 1, 1), trc.conv_dw(3, 1, 1)),
    "maxpool_conv": lambda c: trc.add2(trc.maxpool(3, 1, 1), trc.conv(c, 3, 1, 1)),
    "maxpool_avgpool": lambda c: trc.add2(trc.maxpool(3, 1, 1), trc.avgpool(3, 1, 1)),
}

TAIL = {"gap", "flatten", "fc"}
"""Those behind which there is no map."""

CHANNELS = (1, 3, 4, 7, 12)


def net(name: str, c: int) -> trc.BluePrint:
    rest = [trc.fc(3)] if name in TAIL else [trc.flatten(), trc.fc(3)]
    return trc.BluePrint(trc.seq(FIRST[name](c), *rest), name="net", input=(6, 5, c))


def plans(precision: str, c: int) -> dict[str, Plan]:
    options = {"target": "cuda", "precision": precision, "batch": 3, "val_batch": 2}
    return {name: lower_to_plan(net(name, c), **options) for name in FIRST}  # type: ignore[arg-type]


@pytest.mark.parametrize("precision", ["amp-fp16", "amp-bf16", "fp32"])
def test_there_is_code_for_all(precision: str) -> None:
    for c in CHANNELS:
        for plan in plans(precision, c).values():
            assert lower_plan(plan).functions


@pytest.mark.accept
@pytest.mark.skipif(COMPILER is None, reason="needs g++")
@pytest.mark.parametrize("c", CHANNELS)
@pytest.mark.parametrize("precision", ["amp-fp16", "amp-bf16", "fp32"])
def test_a_step_and_an_evaluation(precision: str, c: int) -> None:
    compare(plans(precision, c))


@pytest.mark.skipif(COMPILER is None, reason="needs g++")
@pytest.mark.parametrize("c", [3, 12])
def test_a_step_and_an_evaluation_in_float16(c: int) -> None:
    compare(plans("amp-fp16", c))


def compare(found: dict[str, Plan]) -> None:
    lowered = {name: lower_steps(plan) for name, plan in found.items()}
    emulator = emulator_of(*lowered.values())
    for name, plan in found.items():
        try:
            assert run_plan(plan, lowered[name], emulator) > 10
        except AssertionError as err:
            raise AssertionError(f"{name}: {err}") from None


def test_every_layer_is_among_them() -> None:
    nets = [net(name, 3) for name in FIRST]
    ops = {op.name for to in ("import", "arch") for made in nets for op in lower(made, to=to).walk()}
    merged = {op for op in known_ops() if op not in registry._DESCRIPTORS}
    # softmax_ce is the loss, bn1d the batch norm of a vector.
    assert {op for op in known_ops() if op.startswith("arch.")} - ops - merged <= {"arch.bn1d", "arch.softmax_ce"}
