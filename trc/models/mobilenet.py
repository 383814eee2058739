"""MobileNetV2 (Sandler et al. 2018)."""

from __future__ import annotations

from trc.blueprint import BluePrint, Layer, cbr, dropout, fc, gap, mbconv, relu6, repeat, seq

# Expansion, channels, blocks, stride of the first block: table 2 of the paper.
_STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))


def mobilenet_v2(num_classes: int = 1000, input: tuple[int, int, int] = (224, 224, 3)) -> BluePrint:
    """Seven stages of inverted residual blocks between a 3 x 3 and a 1 x 1 convolution, width 1.0.

    Args:
        num_classes: features of the last layer.
        input: height, width and channels of one image.
    """
    layers: list[Layer] = [cbr(32, 3, 2, 1, act=relu6)]
    for expand, width, depth, stride in _STAGES:
        layers.append(mbconv(expand, width, stride))
        if depth > 1:
            same = mbconv(expand, width, 1)
            layers.append(same if depth == 2 else repeat(same, depth - 1))
    layers += [cbr(1280, 1, act=relu6), gap(), dropout(0.2), fc(num_classes)]
    return BluePrint(seq(*layers), "mobilenet_v2", input)
