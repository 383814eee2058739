"""LeNet-5 in the variant whose channel counts are multiples of 8 (LeCun et al. 1998 have 6, 16 and 84)."""

from __future__ import annotations

from trc.blueprint import BluePrint, Layer, avgpool, bn, channel_padding, conv, fc, relu, seq


def lenet5(num_classes: int = 10, input: tuple[int, int, int] = (28, 28, 1), *, batch_norm: bool = False) -> BluePrint:
    """Two 5 x 5 convolutions, each with an average pool, and three fully connected layers.

    Args:
        num_classes: features of the last layer.
        input: height, width and channels of one image.
        batch_norm: whether a batch norm follows each convolution and hidden layer.
    """

    def hidden(layer: Layer) -> list[Layer]:
        return [layer, bn(), relu()] if batch_norm else [layer, relu()]

    return BluePrint(
        seq(
            channel_padding(),
            *hidden(conv(8, 5, 1, 2)),
            avgpool(2, 2),
            *hidden(conv(16, 5)),
            avgpool(2, 2),
            *hidden(fc(120)),
            *hidden(fc(88)),
            fc(num_classes),
        ),
        "lenet5",
        input,
    )
