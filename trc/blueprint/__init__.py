"""BluePrints: what a network is made of, without shapes, devices or numbers of samples."""

from __future__ import annotations

from trc.blueprint.factories import (
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
    layer_of,
    leaky_relu,
    maxpool,
    mbconv,
    relu,
    relu6,
    repeat,
    seq,
    sigmoid,
    silu,
    tanh_act,
)
from trc.blueprint.importer import import_blueprint, register
from trc.blueprint.layer import MAX_DEPTH, MAX_LAYERS, Layer
from trc.blueprint.network import BluePrint, as_blueprint, checked_input
from trc.blueprint.parameters import BlockStyle
from trc.blueprint.text import load_blueprint, parse_blueprint

RESNET_1_3_1 = BlockStyle.RESNET_1_3_1
RESNET_1_3_1_DS = BlockStyle.RESNET_1_3_1_DS
RESNET_3_3 = BlockStyle.RESNET_3_3
RESNET_3_3_DS = BlockStyle.RESNET_3_3_DS
MB_E1_K3 = BlockStyle.MB_E1_K3
MB_E1_K3_DS = BlockStyle.MB_E1_K3_DS
MB_E6_K3 = BlockStyle.MB_E6_K3
MB_E6_K3_DS = BlockStyle.MB_E6_K3_DS

__all__ = [
    "MAX_DEPTH",
    "MAX_LAYERS",
    "MB_E1_K3",
    "MB_E1_K3_DS",
    "MB_E6_K3",
    "MB_E6_K3_DS",
    "RESNET_1_3_1",
    "RESNET_1_3_1_DS",
    "RESNET_3_3",
    "RESNET_3_3_DS",
    "BlockStyle",
    "BluePrint",
    "Layer",
    "add2",
    "as_blueprint",
    "avgpool",
    "block",
    "bn",
    "cbr",
    "cbrp",
    "channel_padding",
    "checked_input",
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
    "import_blueprint",
    "input",
    "layer_of",
    "leaky_relu",
    "load_blueprint",
    "maxpool",
    "mbconv",
    "parse_blueprint",
    "register",
    "relu",
    "relu6",
    "repeat",
    "seq",
    "sigmoid",
    "silu",
    "tanh_act",
]
