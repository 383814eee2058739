"""Networks as torchvision writes them, in PyTorch, with its names: what exported parameters are loaded into."""

from __future__ import annotations

import torch
from torch import nn


class Residual(nn.Module):
    """BasicBlock (expansion 1) and Bottleneck (expansion 4) of torchvision.models.resnet."""

    def __init__(self, inputs: int, width: int, stride: int, expansion: int) -> None:
        super().__init__()
        outputs = width * expansion
        sizes = [(inputs, width, 3, stride), (width, width, 3, 1)]
        if expansion == 4:
            sizes = [(inputs, width, 1, 1), (width, width, 3, stride), (width, outputs, 1, 1)]
        for n, (c, k, size, s) in enumerate(sizes, 1):
            self.add_module(f"conv{n}", nn.Conv2d(c, k, size, s, size // 2, bias=False))
            self.add_module(f"bn{n}", nn.BatchNorm2d(k))
        self.count = len(sizes)
        self.downsample: nn.Module | None = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x
        for n in range(1, self.count + 1):
            y = getattr(self, f"bn{n}")(getattr(self, f"conv{n}")(y))
            y = torch.relu(y) if n < self.count else y
        return torch.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet(nn.Module):
    def __init__(self, depths: tuple[int, ...], expansion: int, classes: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64)
        channels = 64
        for stage, depth in enumerate(depths, 1):
            width, blocks = 32 << stage, list[nn.Module]()
            for block in range(depth):
                blocks.append(Residual(channels, width, 2 if stage > 1 and block == 0 else 1, expansion))
                channels = width * expansion
            self.add_module(f"layer{stage}", nn.Sequential(*blocks))
        self.fc = nn.Linear(channels, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = nn.functional.max_pool2d(torch.relu(self.bn1(self.conv1(x))), 3, 2, 1)
        for stage in range(1, 5):
            x = getattr(self, f"layer{stage}")(x)
        return self.fc(x.mean((2, 3)))


class Vgg(nn.Module):
    def __init__(self, depths: tuple[int, ...], side: int, classes: int) -> None:
        super().__init__()
        layers, channels = list[nn.Module](), 3
        for width, depth in zip((64, 128, 256, 512, 512), depths, strict=True):
            for _ in range(depth):
                layers += [nn.Conv2d(channels, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU()]
                channels = width
            layers.append(nn.MaxPool2d(2))
        self.features = nn.Sequential(*layers)
        hidden = [nn.Linear(512 * side * side, 4096), nn.ReLU(), nn.Dropout(), nn.Linear(4096, 4096), nn.ReLU()]
        self.classifier = nn.Sequential(*hidden, nn.Dropout(), nn.Linear(4096, classes))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.classifier(self.features(x).flatten(1))


def conv_bn_relu6(inputs: int, outputs: int, kernel: int = 1, stride: int = 1, groups: int = 1) -> nn.Sequential:
    conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outputs), nn.ReLU6())


class Inverted(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int, ratio: int) -> None:
        super().__init__()
        wide = inputs * ratio
        layers: list[nn.Module] = [conv_bn_relu6(inputs, wide)] if ratio != 1 else []
        layers += [conv_bn_relu6(wide, wide, 3, stride, wide), nn.Conv2d(wide, outputs, 1, bias=False)]
        self.conv = nn.Sequential(*layers, nn.BatchNorm2d(outputs))
        self.same = stride == 1 and inputs == outputs

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.conv(x) if self.same else self.conv(x)


# Expansion, channels, blocks, stride.
ROWS = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))


class MobileNetV2(nn.Module):
    def __init__(self, classes: int) -> None:
        super().__init__()
        layers, channels = list[nn.Module]([conv_bn_relu6(3, 32, 3, 2)]), 32
        rows = (
            (1, 16, 1, 1),
            (6, 24, 2, 2),
            (6, 32, 3, 2),
            (6, 64, 4, 2),
            (6, 96, 3, 1),
            (6, 160, 3, 2),
            (6, 320, 1, 1),
        )
        for ratio, outputs, depth, stride in rows:
            for block in range(depth):
                layers.append(Inverted(channels, outputs, stride if block == 0 else 1, ratio))
                channels = outputs
        self.features = nn.Sequential(*layers, conv_bn_relu6(channels, 1280))
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(1280, classes))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.classifier(self.features(x).mean((2, 3)))
