"""The words of the arch dialect: activations and shortcuts of merged layers, styles of blocks."""

from __future__ import annotations

from enum import auto

from xdsl.dialects.utils import EnumAttribute
from xdsl.ir import SpacedOpaqueSyntaxAttribute
from xdsl.irdl import irdl_attr_definition
from xdsl.utils.str_enum import StrEnum


class Act(StrEnum):
    """The activation inside a merged layer."""

    RELU = auto()
    RELU6 = auto()


class Shortcut(StrEnum):
    """What runs beside a block's stem: the input itself, a 1x1 convolution with batch norm, or no sum at all."""

    IDENTITY = auto()
    PROJECTION = auto()
    NONE = auto()


class Style(StrEnum):
    """The blocks that a BluePrint can name; `_DS` halves height and width."""

    RESNET_1_3_1 = "RESNET_1_3_1"
    RESNET_1_3_1_DS = "RESNET_1_3_1_DS"
    RESNET_3_3 = "RESNET_3_3"
    RESNET_3_3_DS = "RESNET_3_3_DS"
    MB_E1_K3 = "MB_E1_K3"
    MB_E1_K3_DS = "MB_E1_K3_DS"
    MB_E6_K3 = "MB_E6_K3"
    MB_E6_K3_DS = "MB_E6_K3_DS"

    @property
    def stride(self) -> int:
        """The stride of the block."""
        return 2 if self.value.endswith("_DS") else 1

    @property
    def is_bottleneck(self) -> bool:
        """Whether the block has a width of its own inside (ResNet's 1x1, 3x3, 1x1)."""
        return self in (Style.RESNET_1_3_1, Style.RESNET_1_3_1_DS)

    @property
    def is_basic(self) -> bool:
        """Whether the block is ResNet's 3x3, 3x3."""
        return self in (Style.RESNET_3_3, Style.RESNET_3_3_DS)

    @property
    def ratio(self) -> int | None:
        """How much an inverted residual block widens inside; None for the other blocks."""
        return {"MB_E1": 1, "MB_E6": 6}.get(self.value[:5])


@irdl_attr_definition
class ActAttr(EnumAttribute[Act], SpacedOpaqueSyntaxAttribute):
    """`#arch<act relu6>`, and `relu6` inside a layer."""

    name = "arch.act"


@irdl_attr_definition
class ShortcutAttr(EnumAttribute[Shortcut], SpacedOpaqueSyntaxAttribute):
    """`#arch<shortcut projection>`, and `projection` inside a layer."""

    name = "arch.shortcut"


@irdl_attr_definition
class StyleAttr(EnumAttribute[Style], SpacedOpaqueSyntaxAttribute):
    """`#arch<style RESNET_3_3>`, and `RESNET_3_3` inside a block."""

    name = "arch.style"
