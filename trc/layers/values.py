"""What a layer hands on: a tensor, or the recipe for one that need not be stored."""

from __future__ import annotations

from dataclasses import dataclass, replace

from trc_runtime.schema.kinds import KINDS, Access, Kind, Operand, reads, writes

ACT = (("act", str),)
"""The parameter of all kinds that apply an activation: `none`, `relu` or `relu6`."""

NO_ACT = "none"
RELU6 = "relu6"

MATERIALISE = KINDS.register(
    Kind("materialise", (*reads("x", "scale", "shift"), *writes("y")), params=ACT, may_alias=(("y", "x"),))
)
"""y = act(x * scale + shift), computed in the master type and rounded once."""

NORM_ADD_ACT_FWD = KINDS.register(
    Kind(
        "norm_add_act_fwd",
        (
            *reads("x", "scale", "shift", "shortcut"),
            Operand("shortcut_scale", Access.READ, optional=True),
            Operand("shortcut_shift", Access.READ, optional=True),
            *writes("y"),
        ),
        params=ACT,
        may_alias=(("y", "x"), ("y", "shortcut")),
    )
)
"""y = act(x * scale + shift + shortcut); the shortcut is normalised too where its scale and shift are given."""

AFFINE_FWD = KINDS.register(
    Kind("affine_fwd", (*reads("x", "scale", "bias"), *writes("y")), params=ACT, may_alias=(("y", "x"),))
)
"""Inference: y = act(x * scale + bias), with scale and bias in the master type."""

AFFINE_ADD_ACT_FWD = KINDS.register(
    Kind(
        "affine_add_act_fwd",
        (*reads("x", "scale", "bias", "shortcut"), *writes("y")),
        params=ACT,
        may_alias=(("y", "x"), ("y", "shortcut")),
    )
)
"""Inference: y = act(x * scale + bias + shortcut)."""


@dataclass(frozen=True)
class Materialised:
    """A value that lies in memory, in the tensor of that name.

    `convolved` marks the result of a convolution, which batch norm may leave as it is; `summed` says that the sums
    and sums of squares of its channels were written with it, into the tensors that its reader named. `offset` is the
    bias that the convolution has left to the batch norm that reads it. `act` is the activation that the value went
    through last if its only reader applies the derivative: the gradient that it writes is that of what went in.
    """

    symbol: str
    convolved: bool = False
    summed: bool = False
    offset: str | None = None
    act: str = NO_ACT


@dataclass(frozen=True)
class Deferred:
    """A value that is not in memory: what the node of `kind` would write, given `reads` and `act`.

    `layer` names the layer whose value it is, and so the tensor that holds it once a reader needs it in memory.
    `owner` is the layer whose backward takes the gradient of the value, activation included, and recomputes the mask;
    None for a value that is written once and never recomputed: a sum of branches, which passes its gradient on, or a
    product.
    """

    layer: str
    kind: Kind
    reads: tuple[str, ...]
    act: str = NO_ACT
    owner: str | None = None

    @property
    def is_norm(self) -> bool:
        """Whether a reader may apply it itself: x * scale + shift, then the activation."""
        return self.kind is MATERIALISE

    @property
    def open(self) -> bool:
        """Whether it has no activation yet."""
        return self.act == NO_ACT

    def fold(self, layer: str, act: str) -> Deferred:
        """The value with a layer's activation applied."""
        return replace(self, layer=layer, act=act)


Value = Materialised | Deferred
"""What a layer's forward returns."""
