"""Network in Network (Lin, Chen and Yan 2014) for CIFAR-10."""

from __future__ import annotations

from trc.blueprint import BluePrint, Layer, channel_padding, conv, dropout, gap, maxpool, relu, seq


def nin(num_classes: int = 10, input: tuple[int, int, int] = (32, 32, 3)) -> BluePrint:
    """Three stages of a spatial convolution and two 1 x 1 convolutions; the last one's mean over the map is the result.

    Args:
        num_classes: channels of the last convolution.
        input: height, width and channels of one image.
    """

    def stage() -> list[Layer]:
        return [
            *(conv(192, 5, 1, 2), relu(), conv(192, 1), relu(), conv(192, 1), relu()),
            *(maxpool(3, 2, 1), dropout(0.5)),
        ]

    last = [conv(192, 3, 1, 1), relu(), conv(192, 1), relu(), conv(num_classes, 1), gap()]
    return BluePrint(seq(channel_padding(), *stage(), *stage(), *last), "nin", input)
