"""VGG with batch normalisation (Simonyan and Zisserman 2015).

The convolutions have a bias, as the published networks do, though a batch norm that follows takes it out again.
"""

from __future__ import annotations

from trc.blueprint import BluePrint, Layer, bn, conv, dropout, fc, flatten, maxpool, relu, repeat, seq

_WIDTHS = (64, 128, 256, 512, 512)


def _vgg(depths: tuple[int, ...], num_classes: int, input: tuple[int, int, int], name: str) -> BluePrint:
    layers: list[Layer] = []
    for width, depth in zip(_WIDTHS, depths, strict=True):
        triple = (conv(width, 3, 1, 1, bias=True), bn(), relu())
        layers += [*triple] if depth == 1 else [repeat(seq(*triple), depth)]
        layers.append(maxpool(2, 2))
    layers.append(flatten())
    for _ in range(2):
        layers += [fc(4096), relu(), dropout(0.5)]
    return BluePrint(seq(*layers, fc(num_classes)), name, input)


def vgg11_bn(num_classes: int = 1000, input: tuple[int, int, int] = (224, 224, 3)) -> BluePrint:
    """Configuration A: 8 convolutions. `input` is height, width and channels of one image."""
    return _vgg((1, 1, 2, 2, 2), num_classes, input, "vgg11_bn")


def vgg13_bn(num_classes: int = 1000, input: tuple[int, int, int] = (224, 224, 3)) -> BluePrint:
    """Configuration B: 10 convolutions. `input` is height, width and channels of one image."""
    return _vgg((2, 2, 2, 2, 2), num_classes, input, "vgg13_bn")


def vgg16_bn(num_classes: int = 1000, input: tuple[int, int, int] = (224, 224, 3)) -> BluePrint:
    """Configuration D: 13 convolutions. `input` is height, width and channels of one image."""
    return _vgg((2, 2, 3, 3, 3), num_classes, input, "vgg16_bn")


def vgg19_bn(num_classes: int = 1000, input: tuple[int, int, int] = (224, 224, 3)) -> BluePrint:
    """Configuration E: 16 convolutions. `input` is height, width and channels of one image."""
    return _vgg((2, 2, 4, 4, 4), num_classes, input, "vgg19_bn")
