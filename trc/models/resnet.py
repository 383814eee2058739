"""Residual networks, version 1.5: the stride of a bottleneck sits on its 3 x 3 convolution (He et al. 2016)."""

from __future__ import annotations

from trc.blueprint import (
    RESNET_1_3_1,
    RESNET_1_3_1_DS,
    RESNET_3_3,
    RESNET_3_3_DS,
    BluePrint,
    Layer,
    block,
    cbr,
    gap_fc,
    maxpool,
    repeat,
    seq,
)

_WIDTHS = (64, 128, 256, 512)


def _resnet(
    depths: tuple[int, int, int, int], bottleneck: bool, num_classes: int, input: tuple[int, int, int], name: str
) -> BluePrint:
    layers: list[Layer] = [cbr(64, 7, 2, 3), maxpool(3, 2, 1)]
    for stage, (width, depth) in enumerate(zip(_WIDTHS, depths, strict=True)):
        if bottleneck:
            same = block(width, 4 * width, RESNET_1_3_1)
            first = block(width, 4 * width, RESNET_1_3_1_DS)
        else:
            same, first = block(width, RESNET_3_3), block(width, RESNET_3_3_DS)
        if stage == 0:
            # The pool has halved the map already; the block projects only where the channels differ.
            layers.append(repeat(same, depth))
        else:
            layers += [first, same if depth == 2 else repeat(same, depth - 1)]
    return BluePrint(seq(*layers, gap_fc(num_classes)), name, input)


def resnet18(num_classes: int = 1000, input: tuple[int, int, int] = (224, 224, 3)) -> BluePrint:
    """18 layers of basic blocks. `input` is height, width and channels of one image."""
    return _resnet((2, 2, 2, 2), False, num_classes, input, "resnet18")


def resnet34(num_classes: int = 1000, input: tuple[int, int, int] = (224, 224, 3)) -> BluePrint:
    """34 layers of basic blocks. `input` is height, width and channels of one image."""
    return _resnet((3, 4, 6, 3), False, num_classes, input, "resnet34")


def resnet50(num_classes: int = 1000, input: tuple[int, int, int] = (224, 224, 3)) -> BluePrint:
    """50 layers of bottleneck blocks. `input` is height, width and channels of one image."""
    return _resnet((3, 4, 6, 3), True, num_classes, input, "resnet50")


def resnet101(num_classes: int = 1000, input: tuple[int, int, int] = (224, 224, 3)) -> BluePrint:
    """101 layers of bottleneck blocks. `input` is height, width and channels of one image."""
    return _resnet((3, 4, 23, 3), True, num_classes, input, "resnet101")


def resnet152(num_classes: int = 1000, input: tuple[int, int, int] = (224, 224, 3)) -> BluePrint:
    """152 layers of bottleneck blocks. `input` is height, width and channels of one image."""
    return _resnet((3, 8, 36, 3), True, num_classes, input, "resnet152")
