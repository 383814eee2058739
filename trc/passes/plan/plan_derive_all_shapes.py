"""Phase 1: the layout table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from xdsl.context import Context
from xdsl.dialects.builtin import LocationAttr, ModuleOp
from xdsl.passes import ModulePass

from trc.diagnostics import CompileError, Diagnostic, diagnostic_at
from trc.dialects.memplan import SpecOp, TensorOp
from trc.layers.descriptor import (
    Columns,
    Layer,
    TensorDesc,
    train_only,
)
from trc.passes.plan.baseline import baseline
from trc.passes.plan.common import absent, append, read_numbers, specs_of
from trc.passes.plan.gradients import Gradients
from trc.passes.plan.network import Network, read_network
from trc.passes.plan.settings import Number, OptimizerSettings, ema_from_options, optimizer_from_options
from trc.passes.plan.trace import touched_by
from trc_runtime.schema.config import Normalise
from trc_runtime.schema.graphs import Variant
from trc_runtime.schema.normalise import too_large_problem
from trc_runtime.schema.regions import AVERAGE_SUFFIX, AVERAGES, Region, dtype_of


@dataclass(frozen=True)
class PlanDeriveAllShapesPass(ModulePass):
    """Write every tensor with its region, element type and six shape columns.

    Each layer's descriptor is asked once; gradients and optimizer state follow from the parameters. `rates` is
    the length of the learning rate table. With `mean` and `std`, one number a channel, images come as unsigned bytes
    and are normalised on the device. With `ema_decay` above 0 parameters, running statistics and what is derived from
    them have a moving average. A parameter whose shape differs between variants is refused.
    """

    name = "plan-derive-all-shapes"

    optimizer: str = "adamw"
    momentum: Number = 0.0
    nesterov: bool = False
    beta1: Number = 0.9
    beta2: Number = 0.999
    eps: Number = 1e-8
    weight_decay: Number = 0.0
    decoupled: bool = False
    rates: int = 1
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    ema_decay: Number = 0.0

    def __post_init__(self) -> None:
        """Read numbers that arrived as words."""
        read_numbers(self, "momentum", "beta1", "beta2", "eps", "weight_decay", "ema_decay")

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Append the tensors to the module."""
        absent(op, TensorOp, self.name)
        settings = optimizer_from_options(
            self.optimizer,
            self.momentum,
            self.nesterov,
            self.beta1,
            self.beta2,
            self.eps,
            self.weight_decay,
            self.decoupled,
        )
        ema = ema_from_options(self.ema_decay)
        if self.rates < 1:
            raise CompileError(f"option rates must be at least 1, not {self.rates}")
        specs = specs_of(op)
        network = read_network(op)
        random = any(d.random for d in network.descriptors)
        precision = network.precision

        def make(desc: TensorDesc, name: str, layer: str | None, location: LocationAttr) -> TensorOp:
            dtype = dtype_of(desc.region, precision)
            return TensorOp(
                name, desc.region, dtype, desc.shapes, desc.initial, layer, channels=desc.channels, location=location
            )

        ops = [
            make(desc, desc.name, None, op.location)
            for desc in baseline(specs, network, settings, self.rates, random, self._normalise(specs[0]), ema)
        ]
        problems: list[Diagnostic] = []
        for layer, descs in layer_tensors(network, settings, ema is not None):
            for desc in descs:
                if desc.parameter and (text := _inconsistency(desc)):
                    problems.append(diagnostic_at(layer.op, text, layer.name))
                ops.append(make(desc, f"{layer.name}.{desc.name}", layer.name, layer.op.location))
        if problems:
            raise CompileError(problems)
        append(op, *ops)

    def _normalise(self, spec: SpecOp) -> Normalise | None:
        """What the options say; CompileError where they do not fit each other or the images."""
        if not self.mean and not self.std:
            return None
        if not self.mean or not self.std:
            given, missing = ("mean", "std") if self.mean else ("std", "mean")
            raise CompileError(f"option {given} needs the option {missing}: images are normalised with both")
        try:
            normalise = Normalise(self.mean, self.std)
        except ValueError as err:
            raise CompileError(str(err)) from None
        if len(normalise.mean) != spec.channels_:
            raise CompileError.at(
                spec, f"the images have {spec.channels_} channels, options mean and std {len(normalise.mean)}"
            )
        if problem := too_large_problem(normalise, spec.precision_):
            raise CompileError.at(spec, problem)
        return normalise


def layer_tensors(
    network: Network, settings: OptimizerSettings, averaged: bool = False
) -> Iterator[tuple[Layer, list[TensorDesc]]]:
    """The tensors of each layer, in the order in which they lie in their regions, with moving averages or without."""
    touched = touched_by(network)
    if not network.direct:
        # Several layers read the input: all read one copy of it, whichever buffer it came in.
        layer = network.layers[0]
        copied = TensorDesc("input", layer.feature_region, train_only(network.input), channels=network.real_channels)
        yield layer, [copied]
    for n, (layer, descriptor) in enumerate(zip(network.layers, network.descriptors, strict=True)):
        own: list[TensorDesc] = []
        for desc in descriptor.tensors(layer):
            if desc.on_demand and f"{layer.name}.{desc.name}" not in touched.names:
                continue
            made = [desc, *(_followers(desc, settings, network.precision.is_amp) if desc.parameter else ())]
            own += made
            if averaged:
                own += [_average(d) for d in made if d.region in AVERAGES]
        yield layer, own + _feature_gradients(layer, touched.gradients, n)


def _followers(desc: TensorDesc, settings: OptimizerSettings, amp: bool) -> Iterator[TensorDesc]:
    """Half copy, gradient and moments of a parameter; their regions are its own under another letter."""
    stem = desc.region.name.removeprefix("W_")
    trained = tuple(s if v.is_train else None for s, v in zip(desc.shapes, Variant, strict=True))

    def follow(suffix: str, region: str, shapes: Columns = trained) -> TensorDesc:
        return TensorDesc(f"{desc.name}.{suffix}", Region[region], shapes, channels=desc.channels)

    if desc.half and amp:
        yield follow("half", f"A_{stem}", desc.shapes)
    yield follow("grad", f"G_{stem}")
    if desc.half_gradient and amp:
        yield follow("grad_half", f"G_{stem}_FP16")
    for moment in settings.moments:
        yield follow(moment, f"{moment.upper()}_{stem}")


def _average(desc: TensorDesc) -> TensorDesc:
    """The counterpart in the moving average; it begins with the same values."""
    name, region = f"{desc.name}{AVERAGE_SUFFIX}", AVERAGES[desc.region]
    return replace(desc, name=name, region=region, parameter=False, half=False, half_gradient=False)


def _feature_gradients(layer: Layer, gradients: Gradients, n: int) -> list[TensorDesc]:
    region = Region.F_GRAD_SLOT_FP16 if layer.precision.is_amp else Region.F_GRAD_SLOT_FP32
    shapes = train_only(layer.output)
    prefix = len(layer.name) + 1
    return [TensorDesc(name[prefix:], region, shapes) for name in gradients.tensors[n]]


def _inconsistency(desc: TensorDesc) -> str | None:
    """Why a parameter's columns cannot be one tensor."""
    first = desc.shapes[0]
    for variant, shape in zip(Variant, desc.shapes, strict=True):
        if shape != first:
            return (
                f"its {desc.name} is {list(first or ())} in {Variant(0).symbol} but {list(shape or ())} in "
                f"{variant.symbol}: a parameter has one shape, so the resolutions must agree"
            )
    return None
