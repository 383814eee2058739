"""The multi-layer perceptron of the MNIST example."""

from __future__ import annotations

from trc.blueprint import BluePrint, fc, relu, seq


def mlp(num_classes: int = 10, input: tuple[int, int, int] = (28, 28, 1)) -> BluePrint:
    """Three hidden layers of 1024, 512 and 256 features with relu between them.

    Args:
        num_classes: features of the last layer.
        input: height, width and channels of one image.
    """
    hidden = [layer for width in (1024, 512, 256) for layer in (fc(width), relu())]
    return BluePrint(seq(*hidden, fc(num_classes)), "mlp", input)
