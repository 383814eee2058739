"""Convolutions and fully connected layers as cuDNN graphs: a description of each graph, and where its tensors lie.

A description is plain data (it is written into driver.py as it is), says everything that a plan depends on, and nothing
of the network: nodes of the same shape share one. A fully connected layer is a convolution of one pixel, since that is
what cuDNN plans without a device.

What the engines lack is made up for with kernels of our own, in the same node (shared/measurements.md; planned with
frontend 1.18.0, cuDNN 9.19 and no device):

- a half convolution takes no float32 bias: the bias is added in place afterwards, and to the sums where
  the convolution makes statistics;
- the activation of a fully connected layer, and its derivative in backward, are applied in place afterwards;
- a half weight gradient comes out in half. That of a fully connected layer is wanted in float32: it is
  written to the node's scratch memory and widened from there.

Depthwise convolutions and small products in half precision are none of cuDNN's business here: trc has its own kernels
for them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import TypedDict

from trc.codegen.cuda.lowering.dense import add_bias
from trc.codegen.cuda.lowering.elementwise import activate_in_place, mask_in_place
from trc.codegen.cuda.lowering.launch import I, Launch, S
from trc.codegen.cuda.lowering.matmul import act_of, is_small
from trc.codegen.cuda.lowering.norm import channel_sums
from trc.codegen.cuda.lowering.view import C_TYPES, Matrix, NodeView, ceil_div
from trc_runtime.schema.dtypes import DType, Precision

THREADS = 256
UNROLL = 4
"""Vectors a thread of the kernels here works on."""


class TensorDescription(TypedDict):
    """A tensor of a graph: sizes and strides (in elements) in the order N, C, H, W, and the type."""

    dim: list[int]
    stride: list[int]
    dtype: str


class Description(TypedDict):
    """A cuDNN graph.

    `op` is the kind of the node. `dtype` is the storage type of features and weights, `compute` is f32, or tf32 where
    float32 operands may be rounded to it. `padding`, `stride` and `groups` are the convolution's; `act` is the
    rectifier of the prologue act(x * scale + shift), none where there is no prologue.
    """

    op: str
    dtype: str
    compute: str
    tensors: dict[str, TensorDescription]
    padding: int
    stride: int
    groups: int
    act: str


@dataclass(frozen=True)
class CudnnNode:
    """A node that cuDNN computes: the graph, its tensors' places by role, and our kernels that follow it.

    A place is an offset in the arena, or lies in the node's scratch memory, of which `scratch` bytes are wanted beside
    the graph's own workspace.
    """

    description: Description
    bindings: Mapping[str, int | S]
    after: tuple[Launch, ...] = ()
    scratch: int = 0

    @property
    def key(self) -> str:
        """The name of the description."""
        return key_of(self.description)


def canonical(description: Description) -> str:
    """The description as JSON text; the same description gives the same text."""
    return json.dumps(description, sort_keys=True, separators=(",", ":"))


def key_of(description: Description) -> str:
    """A name made of what the graph does and a hash of how."""
    return f"{description['op']}_{hashlib.sha256(canonical(description).encode()).hexdigest()[:12]}"


def is_depthwise(view: NodeView) -> bool:
    """Whether the node belongs to a convolution with one input and one output channel a group."""
    groups = view.node.params.get("groups", 1)
    features = [view[role].channels for role in ("x", "y", "dx", "dy") if role in view]
    return groups != 1 and all(channels == groups for channels in features)


def owns(view: NodeView) -> bool:
    """Whether cuDNN computes this node."""
    if view.kind in _PRODUCTS:
        return not is_small(view)
    return view.kind in _KINDS and not is_depthwise(view)


def lower(view: NodeView) -> CudnnNode:
    """The graph of a node in a column, and what follows it.

    CompileError, which names layer and kind, for a node that cuDNN has no graph for.
    """
    make = _KINDS.get(view.kind)
    if make is None:
        raise view.problem("this is no convolution and no fully connected layer")
    return make(_Graph(view))


@dataclass
class _Graph:
    """A graph being described: what has been bound of the node so far."""

    view: NodeView
    tensors: dict[str, TensorDescription] = field(default_factory=dict[str, TensorDescription])
    bindings: dict[str, int | S] = field(default_factory=dict[str, "int | S"])

    @property
    def precision(self) -> Precision:
        return self.view.plan.config.precision

    def bind(self, role: str, dim: tuple[int, int, int, int], pitch: int) -> None:
        """Describe an operand as N, C, H, W, with `pitch` elements from pixel to pixel."""
        n, c, h, w = dim
        matrix = self.view[role]
        stride = [h * w * pitch, 1, w * pitch, pitch]
        self.tensors[role] = {"dim": [n, c, h, w], "stride": stride, "dtype": matrix.dtype.value}
        self.bindings[role] = matrix.offset

    def feature(self, role: str) -> None:
        """An operand [N, H, W, C], whose last dimension is padded in memory."""
        matrix = self.view[role]
        n, h, w, c = matrix.shape
        self.bind(role, (n, c, h, w), matrix.pitch)

    def row(self, role: str) -> None:
        """An operand of a fully connected layer: all that follows the samples is one vector."""
        matrix = self.view[role]
        pixels = prod(matrix.shape[1:-1])
        if pixels > 1 and not matrix.dense:
            raise self.view.problem(f"'{matrix.name}' has padded channels in {pixels} pixels: a flatten is missing")
        self.bind(role, (matrix.shape[0], pixels * matrix.channels, 1, 1), pixels * matrix.pitch)

    def filter(self, role: str) -> None:
        """Weights [K, R, S, C], without padding."""
        k, r, s, c = self.view[role].shape
        self.bind(role, (k, c, r, s), c)

    def vectors(self, *roles: str) -> None:
        """Operands with one value a channel."""
        for role in roles:
            channels = self.view[role].channels
            self.bind(role, (1, channels, 1, 1), channels)

    def done(self, *after: Launch, op: str | None = None) -> CudnnNode:
        """The node's graph, by default the one named as its kind, and our kernels that follow it."""
        params = self.view.node.params
        description: Description = {
            "op": op or self.view.kind,
            "dtype": self.precision.compute.value,
            "compute": "tf32" if self.precision is Precision.TF32 else "f32",
            "tensors": self.tensors,
            "padding": int(params.get("padding", 0)),
            "stride": int(params.get("stride", 1)),
            "groups": int(params.get("groups", 1)),
            "act": "none" if self.view.kind in _PRODUCTS else str(params.get("act", "none")),
        }
        return CudnnNode(description, self.bindings, after, self.view.scratch)


# ---------------------------------------------------------------- kernels that follow


def _widen(view: NodeView, source: S, dtype: DType, target: Matrix) -> Launch:
    """Half numbers from the scratch memory to a float32 tensor."""
    t, vector = C_TYPES[dtype], 8
    call = f"cast<{t}, float, {vector}, {UNROLL}>(x, y, n)"
    arguments = [(f"const {t}* x", source), ("float* y", target.p), ("i64 n", I(target.elements))]
    blocks = ceil_div(target.elements, vector * THREADS * UNROLL)
    return view.launch(f"widen__{dtype.value}", "copies", call, [*arguments], (blocks, 1, 1), THREADS)


# ---------------------------------------------------------------- kinds


def _with_bias(g: _Graph) -> CudnnNode:
    """The bias in the graph's epilogue where an engine takes it, else in place afterwards."""
    view = g.view
    if "bias" not in view:
        return g.done()
    if not g.precision.is_amp:
        g.vectors("bias")
        return g.done()
    return g.done(add_bias(view, view["y"], view["bias"]))


def _with_statistics(g: _Graph) -> CudnnNode:
    """A convolution and the sums of its output, bias included, by our own kernels.

    cuDNN's sums come out in another order from run to run (seen on an H200 with cuDNN 9.19: `genstats` differs in the
    last bits of a sum), so they are not used. Without a prologue there is a graph without them; with one there is
    not, and they go to scratch memory.
    """
    view, op = g.view, "conv_fwd"
    if "scale" in view:
        op = view.kind
        for role in ("sum", "sumsq"):
            g.vectors(role)
            g.bindings[role] = view.temporary(view[role].channels * DType.F32.itemsize)
    bias = [add_bias(view, view["y"], view["bias"])] if "bias" in view else []
    return g.done(*bias, *channel_sums(view, view["y"]), op=op)


def _conv_fwd(g: _Graph) -> CudnnNode:
    g.feature("x")
    g.filter("weight")
    if "scale" in g.view:
        g.vectors("scale", "shift")
    g.feature("y")
    return _with_statistics(g) if "sum" in g.view else _with_bias(g)


def _conv_bwd_data(g: _Graph) -> CudnnNode:
    g.feature("dy")
    g.filter("weight")
    g.feature("dx")
    return g.done()


def _conv_bwd_weight(g: _Graph) -> CudnnNode:
    g.feature("dy")
    g.feature("x")
    if "scale" in g.view:
        g.vectors("scale", "shift")
    g.filter("dweight")
    return g.done()


def _fc_fwd(g: _Graph) -> CudnnNode:
    g.row("x")
    g.filter("weight")
    g.row("y")
    view, act = g.view, act_of(g.view)
    if "bias" in view and g.precision.is_amp:
        return g.done(add_bias(view, view["y"], view["bias"], act))
    if "bias" in view:
        g.vectors("bias")
    return g.done(*activate_in_place(view, view["y"], act))


def _fc_bwd_data(g: _Graph) -> CudnnNode:
    g.row("dy")
    g.filter("weight")
    g.row("dx")
    view = g.view
    return g.done(*(mask_in_place(view, view["dx"], view["x"], act_of(view)) if "x" in view else ()))


def _fc_bwd_weight(g: _Graph) -> CudnnNode:
    g.row("dy")
    g.row("x")
    g.filter("dweight")
    target, half = g.view["dweight"], g.precision.compute
    if not half.is_half or target.dtype.is_half:
        return g.done()
    place = g.view.temporary(target.elements * half.itemsize)
    g.tensors["dweight"]["dtype"] = half.value
    g.bindings["dweight"] = place
    return g.done(_widen(g.view, place, half, target))


_KINDS: dict[str, Callable[[_Graph], CudnnNode]] = {
    "conv_fwd": _conv_fwd,
    "conv_stats_fwd": _conv_fwd,
    "conv_norm_fwd": _conv_fwd,
    "conv_norm_stats_fwd": _conv_fwd,
    "conv_bwd_data": _conv_bwd_data,
    "conv_bwd_weight": _conv_bwd_weight,
    "conv_norm_bwd_weight": _conv_bwd_weight,
    "fc_fwd": _fc_fwd,
    "fc_bwd_data": _fc_bwd_data,
    "fc_bwd_weight": _fc_bwd_weight,
}

_PRODUCTS = frozenset(kind for kind in _KINDS if kind.startswith("fc_"))

KINDS = frozenset(_KINDS)
"""The kinds that cuDNN computes, depthwise convolutions and small products aside."""
