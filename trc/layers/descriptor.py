"""What a layer tells the compiler: its tensors, and its nodes forward, backward and in inference.

A descriptor is the one room of a layer. Passes never ask which layer they hold; they ask its descriptor.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from trc.dialects.arch.base import LayerOp
from trc.layers.values import Deferred, Materialised, Value
from trc_runtime.schema.dtypes import Precision
from trc_runtime.schema.graphs import Variant
from trc_runtime.schema.kinds import Kind
from trc_runtime.schema.plan import Initial
from trc_runtime.schema.regions import Region

Shape = tuple[int, int, int, int]
"""A full shape: N, H, W, C."""

Columns = tuple[Shape | None, ...]
"""One shape a variant, in the variants' order; None where no graph of that variant touches the tensor."""

ZEROS = Initial("zeros")

TRAIN_COLUMNS = tuple(v.value for v in Variant if v.is_train)
INFER_COLUMNS = tuple(v.value for v in Variant if not v.is_train)
ALL_COLUMNS = tuple(v.value for v in Variant)


@dataclass(frozen=True)
class TensorDesc:
    """A tensor that a layer needs, by its name after the layer's (`weight`, `output.inf`).

    Of a `parameter` the compiler makes the gradient and the optimizer's moments too; of one with `half` also the
    working copy under mixed precision, and with `half_gradient` a half gradient that is cast to the other. What is
    `on_demand` exists only where a node touches it. `channels` is the number of real innermost channels where the
    shape has more.
    """

    name: str
    region: Region
    shapes: Columns
    initial: Initial = ZEROS
    parameter: bool = False
    half: bool = False
    half_gradient: bool = False
    on_demand: bool = False
    channels: int | None = None


@dataclass(frozen=True)
class Layer:
    """A layer as its descriptor sees it.

    `inputs` and `output` hold one shape a variant. `trained` says that a parameter lies in or above the layer, so
    that its output has a gradient; `wanted` says which inputs need one. `form` is what plan-select-kernels chose,
    None where it chose nothing. `real_channels` is the number of real channels of the first input where its shape
    has more (an image whose channels were rounded up).

    `op` carries the parameters. Of a merged layer's part it is an operation of its own, outside of the module, with
    the merged layer's location.
    """

    op: LayerOp
    name: str
    precision: Precision
    inputs: tuple[tuple[Shape, ...], ...]
    output: tuple[Shape, ...]
    trained: bool
    wanted: tuple[bool, ...]
    form: str | None = None
    real_channels: int | None = None

    @property
    def feature_region(self) -> Region:
        """Where activations live under this precision."""
        return Region.F_FEATURE_FP16 if self.precision.is_amp else Region.F_FEATURE_FP32


class Builder(Protocol):
    """What a descriptor emits its nodes with. Names of tensors are module-level symbols."""

    @property
    def layer(self) -> Layer:
        """The layer whose nodes are being built."""
        ...

    @property
    def inputs(self) -> Sequence[str]:
        """The layer's inputs in memory, in operand order. Looking at one that is deferred has it materialised."""
        ...

    def value(self, index: int) -> Value:
        """An input as its layer handed it on. Whoever takes a deferred one need not have it in memory."""
        ...

    def sole(self, index: int) -> bool:
        """Whether nobody else reads that input's value."""
        ...

    @property
    def statistics(self) -> tuple[str, str] | None:
        """Where to write the sums and sums of squares of the result's channels, if its only reader wants them."""
        ...

    @property
    def reader_masks(self) -> bool:
        """Whether the result's only reader applies the derivative of an activation to the gradient that it writes."""
        ...

    @property
    def result(self) -> Value:
        """Backward only: the layer's result as its readers see it, folded activations included."""
        ...

    def choose(self, candidates: Sequence[str], act: str = "none") -> frozenset[str]:
        """Which of the forms that fit here were chosen; `act` is the activation of a deferred input."""
        ...

    @property
    def output(self) -> str:
        """The tensor for the layer's result: `output` in training, `output.inf` in inference."""
        ...

    @property
    def output_grad(self) -> str:
        """Backward only: the gradient of the layer's result."""
        ...

    def input_grad(self, index: int) -> str | None:
        """Backward only: the tensor for the gradient of an input, None where nobody needs it."""
        ...

    def tensor(self, name: str) -> str:
        """The layer's own tensor of that name."""
        ...

    def emit(
        self,
        kind: Kind,
        *,
        reads: Sequence[str] = (),
        updates: Sequence[str] = (),
        writes: Sequence[str] = (),
        scalars: Sequence[str] = (),
        params: Mapping[str, bool | int | float | str] | None = None,
    ) -> None:
        """Append a node."""
        ...


class Descriptor(Protocol):
    """The protocol of a descriptor; `BaseDescriptor` gives the defaults."""

    forms: tuple[str, ...]
    """The kernel forms that `plan-select-kernels` may choose from; the first is the plain one, which excludes others.
    """
    states_form: bool
    """Whether the chosen form is written for each such layer, and not only where it is not the default."""
    random: bool
    """Whether the nodes read the scalar `seed`."""
    alias: bool
    """Whether forward returns its only input, so that no node runs and no tensor exists."""
    passes_gradient: bool
    """Whether the gradient of each input is that of the output, so that backward emits nothing."""
    has_parameters: bool
    """Whether the layer holds something to train."""
    is_loss: bool
    """Whether the layer ends the network and its backward begins the gradients."""

    def problems(self, layer: Layer) -> Iterable[str]:
        """Why the layer cannot be compiled, as sentences."""
        ...

    def mixes_channels(self, layer: Layer) -> bool:
        """Whether input channels of zeros change nothing but the weight, so that an image may be given some."""
        ...

    def default(self, candidates: Sequence[str]) -> frozenset[str]:
        """The forms taken where nothing was chosen."""
        ...

    def allowed(self, target: str, layer: Layer, candidates: Sequence[str], act: str) -> frozenset[str]:
        """Which of the forms that fit the target has kernels for; `act` is the activation of a deferred input."""
        ...

    def statistics(self, layer: Layer) -> tuple[str, str] | None:
        """The layer's tensors for sums and sums of squares of its input's channels, if it can use them."""
        ...

    def masks(self, layer: Layer) -> bool:
        """Whether backward applies the derivative of its input's activation (`Materialised.act`)."""
        ...

    def tensors(self, layer: Layer) -> Iterable[TensorDesc]:
        """The layer's tensors, in the order in which they lie in their regions."""
        ...

    def forward(self, b: Builder) -> Value:
        """Emit the training forward nodes and return the result."""
        ...

    def backward(self, b: Builder) -> None:
        """Emit the nodes that write the parameters' and the wanted inputs' gradients."""
        ...

    def inference(self, b: Builder) -> Value:
        """Emit the inference nodes and return the result."""
        ...

    def fold(self, b: Builder) -> None:
        """Emit the nodes that derive inference parameters from trained ones (bucket UPDATE_BN_INF_PARAMS)."""
        ...


class BaseDescriptor:
    """Defaults for a layer of one materialised form, without parameters or randomness."""

    forms: tuple[str, ...] = ("materialised",)
    states_form: bool = False
    random: bool = False
    alias: bool = False
    passes_gradient: bool = False
    has_parameters: bool = False
    is_loss: bool = False

    def problems(self, layer: Layer) -> Iterable[str]:
        """Nothing to object to."""
        return ()

    def mixes_channels(self, layer: Layer) -> bool:
        """No."""
        return False

    def default(self, candidates: Sequence[str]) -> frozenset[str]:
        """All that fit."""
        return frozenset(candidates)

    def allowed(self, target: str, layer: Layer, candidates: Sequence[str], act: str) -> frozenset[str]:
        """All that fit."""
        return frozenset(candidates)

    def statistics(self, layer: Layer) -> tuple[str, str] | None:
        """None are used."""
        return None

    def masks(self, layer: Layer) -> bool:
        """No."""
        return False

    def tensors(self, layer: Layer) -> Iterable[TensorDesc]:
        """The result in training and in inference."""
        return features(layer)

    def fold(self, b: Builder) -> None:
        """Nothing to derive."""


def train_only(shapes: Sequence[Shape]) -> Columns:
    """The training columns of a tensor that inference does not touch."""
    return (*shapes[: len(TRAIN_COLUMNS)], *(None,) * len(INFER_COLUMNS))


def infer_only(shapes: Sequence[Shape]) -> Columns:
    """The inference columns of a tensor that training does not touch."""
    return (*(None,) * len(TRAIN_COLUMNS), *shapes[len(TRAIN_COLUMNS) :])


def constant_shape(shape: Shape, columns: Sequence[int] = ALL_COLUMNS) -> Columns:
    """The same shape in the given columns."""
    return tuple(shape if c in columns else None for c in ALL_COLUMNS)


def channels(shapes: Sequence[Shape]) -> tuple[Shape, ...]:
    """One number a channel of tensors of these shapes."""
    return tuple((1, 1, 1, s[3]) for s in shapes)


def features(layer: Layer) -> list[TensorDesc]:
    """The tensors for a layer's result: in training, recomputed for backward, in inference. Only used ones exist."""
    region, train = layer.feature_region, train_only(layer.output)
    return [
        TensorDesc("output", region, train, on_demand=True),
        TensorDesc("output.bwd", region, train, on_demand=True),
        TensorDesc("output.inf", region, infer_only(layer.output), on_demand=True),
    ]


def working(b: Builder, parameter: str = "weight") -> str:
    """A parameter as kernels read it: under mixed precision the half copy of the master."""
    return b.tensor(f"{parameter}.half" if b.layer.precision.is_amp else parameter)


__all__ = [
    "ALL_COLUMNS",
    "INFER_COLUMNS",
    "TRAIN_COLUMNS",
    "ZEROS",
    "BaseDescriptor",
    "Builder",
    "Columns",
    "Deferred",
    "Descriptor",
    "Layer",
    "Materialised",
    "Shape",
    "TensorDesc",
    "Value",
    "channels",
    "constant_shape",
    "features",
    "infer_only",
    "train_only",
    "working",
]
