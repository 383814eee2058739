"""The zoo: well-known networks as BluePrints. Each has a twin in `examples/models/`."""

from __future__ import annotations

from collections.abc import Callable

from trc.blueprint import BluePrint
from trc.models.lenet import lenet5
from trc.models.mlp import mlp
from trc.models.mobilenet import mobilenet_v2
from trc.models.nin import nin
from trc.models.resnet import resnet18, resnet34, resnet50, resnet101, resnet152
from trc.models.vgg import vgg11_bn, vgg13_bn, vgg16_bn, vgg19_bn

ZOO: dict[str, Callable[[], BluePrint]] = {
    "mlp": mlp,
    "lenet5": lenet5,
    "nin": nin,
    "vgg11_bn": vgg11_bn,
    "vgg13_bn": vgg13_bn,
    "vgg16_bn": vgg16_bn,
    "vgg19_bn": vgg19_bn,
    "resnet18": resnet18,
    "resnet34": resnet34,
    "resnet50": resnet50,
    "resnet101": resnet101,
    "resnet152": resnet152,
    "mobilenet_v2": mobilenet_v2,
}
"""Every network of the zoo by name, with its usual input and number of classes."""

__all__ = [
    "ZOO",
    "lenet5",
    "mlp",
    "mobilenet_v2",
    "nin",
    "resnet18",
    "resnet34",
    "resnet50",
    "resnet101",
    "resnet152",
    "vgg11_bn",
    "vgg13_bn",
    "vgg16_bn",
    "vgg19_bn",
]
