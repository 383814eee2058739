"""The factories that make layers, as Python functions.

All numbers are checked when a layer is made: a wrong one raises ValueError or TypeError whose text names the factory
and the argument. Every layer takes `name=`; on a leaf it replaces the automatic name, on a container it is put in front
of the names inside. Feature maps are (batch, height, width, channels). A window has
`(i + 2p - k) // s + 1` places.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from trc.blueprint.layer import Layer
from trc.blueprint.parameters import ArgumentProblem
from trc.blueprint.signatures import make

Act = str | Layer | Callable[..., Layer]
"""relu or relu6: the factory itself, or its name."""


def layer_of(kind: str, *positional: Any, name: str | None = None, **keywords: Any) -> Layer:
    """The layer that the factory called `kind` makes; also for kinds added with `register`.

    Raises:
        ValueError, TypeError: an argument cannot be used; the text names factory and argument.
    """
    try:
        return make(kind, positional, keywords, name)
    except ArgumentProblem as problem:
        raise problem.error(problem.message) from None


def conv(out_ch: int, k: int, s: int = 1, p: int = 0, bias: bool = False, *, name: str | None = None) -> Layer:
    """A k x k convolution to `out_ch` channels with stride `s` and padding `p`."""
    return layer_of("conv", out_ch, k, s, p, bias, name=name)


def conv_dw(k: int, s: int = 1, p: int = 0, bias: bool = False, *, name: str | None = None) -> Layer:
    """A depthwise k x k convolution: each channel is convolved on its own."""
    return layer_of("conv_dw", k, s, p, bias, name=name)


def group_conv(
    out_ch: int, groups: int, k: int, s: int = 1, p: int = 0, bias: bool = False, *, name: str | None = None
) -> Layer:
    """A k x k convolution in `groups` independent groups of channels; `out_ch` is a multiple of it."""
    return layer_of("group_conv", out_ch, groups, k, s, p, bias, name=name)


def bn(momentum: float = 0.1, eps: float = 1e-5, *, name: str | None = None) -> Layer:
    """Batch normalisation; `momentum` is the weight of the new batch in the running statistics."""
    return layer_of("bn", momentum, eps, name=name)


def relu(*, name: str | None = None) -> Layer:
    """max(x, 0)."""
    return layer_of("relu", name=name)


def tanh_act(*, name: str | None = None) -> Layer:
    """The hyperbolic tangent."""
    return layer_of("tanh_act", name=name)


def silu(*, name: str | None = None) -> Layer:
    """The value times its sigmoid: x * sigmoid(x)."""
    return layer_of("silu", name=name)


def relu6(*, name: str | None = None) -> Layer:
    """min(max(x, 0), 6)."""
    return layer_of("relu6", name=name)


def leaky_relu(slope: float = 0.01, *, name: str | None = None) -> Layer:
    """The value where positive, `slope` times it elsewhere."""
    return layer_of("leaky_relu", slope, name=name)


def hardswish(*, name: str | None = None) -> Layer:
    """The value times a piecewise linear sigmoid: x * relu6(x + 3) / 6."""
    return layer_of("hardswish", name=name)


def elu(alpha: float = 1.0, *, name: str | None = None) -> Layer:
    """The value where positive, `alpha` * (exp(x) - 1) elsewhere."""
    return layer_of("elu", alpha, name=name)


def sigmoid(*, name: str | None = None) -> Layer:
    """1 / (1 + exp(-x))."""
    return layer_of("sigmoid", name=name)


def dropout(p: float, *, name: str | None = None) -> Layer:
    """Zeroes each value with probability `p` while training, and divides the others by 1 - p."""
    return layer_of("dropout", p, name=name)


def flatten(start_dim: int = 1, *, name: str | None = None) -> Layer:
    """Height, width and channels as one row of features, in that order. `start_dim` is always 1."""
    return layer_of("flatten", start_dim, name=name)


def channel_padding(*, name: str | None = None) -> Layer:
    """Adds channels of zeros up to a multiple of 8."""
    return layer_of("channel_padding", name=name)


def maxpool(k: int, s: int, p: int = 0, *, name: str | None = None) -> Layer:
    """The maximum of each k x k window."""
    return layer_of("maxpool", k, s, p, name=name)


def avgpool(k: int, s: int, p: int = 0, *, name: str | None = None) -> Layer:
    """The mean of each k x k window over the cells that are not padding."""
    return layer_of("avgpool", k, s, p, name=name)


def gap(*, name: str | None = None) -> Layer:
    """The mean of each channel over height and width."""
    return layer_of("gap", name=name)


def fc(out_features: int, bias: bool = True, *, name: str | None = None) -> Layer:
    """A fully connected layer over all of height, width and channels."""
    return layer_of("fc", out_features, bias, name=name)


def identity(*, name: str | None = None) -> Layer:
    """Nothing; for the empty shortcut of an `add2`."""
    return layer_of("identity", name=name)


def seq(*layers: Layer | Sequence[Layer], name: str | None = None) -> Layer:
    """Layers one after the other, given one by one or as one list."""
    return layer_of("seq", *layers, name=name)


def add2(shortcut: Layer, stem: Layer, *, name: str | None = None) -> Layer:
    """The sum of two branches of the same input, element by element."""
    return layer_of("add2", shortcut, stem, name=name)


def repeat(body: Layer, times: int, *, name: str | None = None) -> Layer:
    """`body` in sequence `times` times, each with weights of its own."""
    return layer_of("repeat", body, times, name=name)


def cbr(
    out_ch: int,
    k: int,
    s: int = 1,
    p: int = 0,
    momentum: float = 0.1,
    eps: float = 1e-5,
    act: Act = "relu",
    *,
    name: str | None = None,
) -> Layer:
    """Convolution, batch normalisation, and relu or relu6."""
    return layer_of("cbr", out_ch, k, s, p, momentum, eps, act, name=name)


def conv_bn_relu(
    out_ch: int,
    k: int,
    s: int = 1,
    p: int = 0,
    momentum: float = 0.1,
    eps: float = 1e-5,
    act: Act = "relu",
    *,
    name: str | None = None,
) -> Layer:
    """Another name of `cbr`."""
    return layer_of("conv_bn_relu", out_ch, k, s, p, momentum, eps, act, name=name)


def cbrp(
    out_ch: int,
    ck: int,
    cs: int,
    cp: int,
    pk: int,
    ps: int,
    pp: int,
    momentum: float = 0.1,
    eps: float = 1e-5,
    act: Act = "relu",
    *,
    name: str | None = None,
) -> Layer:
    """`cbr` with window `ck`, stride `cs`, padding `cp`, then a max pool with `pk`, `ps`, `pp`."""
    return layer_of("cbrp", out_ch, ck, cs, cp, pk, ps, pp, momentum, eps, act, name=name)


def gap_fc(out_features: int, bias: bool = True, *, name: str | None = None) -> Layer:
    """Global average pool and a fully connected layer."""
    return layer_of("gap_fc", out_features, bias, name=name)


def block(*args: int | str, name: str | None = None, **keywords: int | str) -> Layer:
    """A preset residual block.

    `block(mid, out, style)` for the RESNET_1_3_1 styles, `block(out, style)` for the others.
    """
    return layer_of("block", *args, name=name, **keywords)


def mbconv(expand: int, out: int, stride: int, *, name: str | None = None) -> Layer:
    """The inverted residual block of MobileNetV2: `expand` 1 or 6, `stride` 1 or 2. Another spelling of `block`."""
    return layer_of("mbconv", expand, out, stride, name=name)


def input(h: int, w: int, c: int) -> Layer:  # shadows the builtin inside this module only
    """The size of one input image; stands first in the outermost `seq`."""
    return layer_of("input", h, w, c)
