"""trc: a compiler for training neural networks.

A BluePrint becomes IR, a memory plan and graphs, and runs a whole training step from one plan:

    import trc

    net = trc.BluePrint(trc.seq(trc.fc(128), trc.relu(), trc.fc(10)), name="net", input=(28, 28, 1))
    exe = trc.compile(net, batch=64, schedule=trc.Constant(base_lr=1e-3))
    print(exe.step(images, labels).loss)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trc.blueprint import (
        MB_E1_K3,
        MB_E1_K3_DS,
        MB_E6_K3,
        MB_E6_K3_DS,
        RESNET_1_3_1,
        RESNET_1_3_1_DS,
        RESNET_3_3,
        RESNET_3_3_DS,
        BluePrint,
        Layer,
        add2,
        avgpool,
        block,
        bn,
        cbr,
        cbrp,
        channel_padding,
        conv,
        conv_bn_relu,
        conv_dw,
        dropout,
        elu,
        fc,
        flatten,
        gap,
        gap_fc,
        group_conv,
        hardswish,
        identity,
        input,
        leaky_relu,
        load_blueprint,
        maxpool,
        mbconv,
        parse_blueprint,
        relu,
        relu6,
        repeat,
        seq,
        sigmoid,
        silu,
        tanh_act,
    )
    from trc.diagnostics import CompileError
    from trc.session import Executable, compile, load, lower
    from trc_runtime.schema.config import (
        EMA,
        SGD,
        WSD,
        Adam,
        AdamW,
        Constant,
        CosineAnnealing,
        CosineWarmRestarts,
        CrossEntropy,
        Exponential,
        MultiStep,
        Normalise,
        Polynomial,
        StepDecay,
    )

__all__ = [
    "EMA",
    "MB_E1_K3",
    "MB_E1_K3_DS",
    "MB_E6_K3",
    "MB_E6_K3_DS",
    "RESNET_1_3_1",
    "RESNET_1_3_1_DS",
    "RESNET_3_3",
    "RESNET_3_3_DS",
    "SGD",
    "WSD",
    "Adam",
    "AdamW",
    "BluePrint",
    "CompileError",
    "Constant",
    "CosineAnnealing",
    "CosineWarmRestarts",
    "CrossEntropy",
    "Executable",
    "Exponential",
    "Layer",
    "MultiStep",
    "Normalise",
    "Polynomial",
    "StepDecay",
    "add2",
    "avgpool",
    "block",
    "bn",
    "cbr",
    "cbrp",
    "channel_padding",
    "compile",
    "conv",
    "conv_bn_relu",
    "conv_dw",
    "dropout",
    "elu",
    "fc",
    "flatten",
    "gap",
    "gap_fc",
    "group_conv",
    "hardswish",
    "identity",
    "input",
    "leaky_relu",
    "load",
    "load_blueprint",
    "lower",
    "maxpool",
    "mbconv",
    "parse_blueprint",
    "relu",
    "relu6",
    "repeat",
    "seq",
    "sigmoid",
    "silu",
    "tanh_act",
]

_HOMES = {
    "trc.diagnostics": ("CompileError",),
    "trc.session": ("Executable", "compile", "load", "lower"),
    "trc_runtime.schema.config": (
        *("SGD", "WSD", "Adam", "AdamW", "Constant", "CosineAnnealing", "CosineWarmRestarts", "CrossEntropy"),
        *("EMA", "Exponential", "MultiStep", "Normalise", "Polynomial", "StepDecay"),
    ),
}
"""Where names live that are not in trc.blueprint. A module is imported when one of its names is first used: tools start
fast, and loading a bundle imports no compiler."""


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'trc' has no attribute '{name}'")
    home = next((home for home, names in _HOMES.items() if name in names), "trc.blueprint")
    found = globals()[name] = getattr(import_module(home), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
