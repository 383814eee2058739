"""Small normalised networks, built without the passes that make them, and the plan passes over them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, UnitAttr
from xdsl.ir import Block, Region, SSAValue

from trc.dialects.arch import (
    AddOp,
    Bn1dOp,
    DropoutOp,
    EluOp,
    FcOp,
    FlattenOp,
    HardswishOp,
    IdentityOp,
    LayerOp,
    LeakyReluOp,
    ModelOp,
    OutputOp,
    Relu6Op,
    ReluOp,
    SigmoidOp,
    SiluOp,
    SoftmaxCeOp,
    TanhOp,
)
from trc.dialects.arch.base import shape_of, tensor_of
from trc.passes.pipelines import plan
from trc.passes.registry import parse_pipeline

ACTIVATIONS = (ReluOp, TanhOp, SiluOp, Relu6Op, LeakyReluOp, HardswishOp, EluOp, SigmoidOp)


class Net:
    """Layers one after another; each call returns the value it makes."""

    def __init__(self, size: tuple[int, int, int] = (4, 4, 2)) -> None:
        self.block = Block(arg_types=[tensor_of((None, *size))])
        self.input: SSAValue = self.block.args[0]
        self._count: dict[str, int] = {}

    def add(self, kind: type[LayerOp], *inputs: SSAValue, layer: str | None = None, **options: Any) -> SSAValue:
        short = kind.name.removeprefix("arch.").removesuffix("1d").removesuffix("2d")
        self._count[short] = self._count.get(short, 0) + 1
        op = kind(*inputs, layer=layer or f"{short}{self._count[short]}", **options)
        result = op.results[0]
        result._type = tensor_of(op.infer_shape([shape_of(v) for v in inputs]))
        if not self.block.ops:
            op.properties["first"] = UnitAttr()
        self.block.add_op(op)
        return result

    def finish(self, value: SSAValue, classes: int, label_smoothing: float = 0.1, name: str = "net") -> ModuleOp:
        loss = self.add(SoftmaxCeOp, value, layer="softmax_ce", num_classes=classes, label_smoothing=label_smoothing)
        self.block.add_op(OutputOp(loss))
        return ModuleOp([ModelOp(name, Region(self.block))])


def mlp(*widths: int, size: tuple[int, int, int] = (28, 28, 1)) -> ModuleOp:
    """flatten, then fc and relu alternating; the last width is the number of classes."""
    net = Net(size)
    value = net.add(FlattenOp, net.input)
    for n, width in enumerate(widths):
        value = net.add(FcOp, value, out_features=width)
        if n < len(widths) - 1:
            value = net.add(ReluOp, value)
    return net.finish(value, widths[-1], name="mlp")


def article_mlp() -> ModuleOp:
    """The articles' 784-1024-512-256-10."""
    return mlp(1024, 512, 256, 10)


def run(module: ModuleOp, pipeline: str) -> ModuleOp:
    """Run passes given as text."""
    for step in parse_pipeline(pipeline):
        step.apply(Context(), module)
    return module


def planned(module: ModuleOp, options: Mapping[str, str] | None = None, **more: str | int) -> ModuleOp:
    """Run all plan passes; options with underscores."""
    given = {**(options or {}), **{k.replace("_", "-"): str(v) for k, v in more.items()}}
    plan(given)  # refuses unknown options
    return run(module, f"plan{{{' '.join(f'{k}={v}' for k, v in given.items())}}}")


class Drawn:
    """A drawn network, shown as its text."""

    def __init__(self, module: ModuleOp) -> None:
        self.module = module

    def __repr__(self) -> str:
        return f"\n{self.module}\n"


@st.composite
def networks(draw: st.DrawFn) -> Drawn:
    """Networks with branches, whatever the part-1 layers allow. All values are [N, 1, 1, C] after the first layer."""
    net = Net((2, 2, 3))
    flat = draw(st.booleans())
    value = net.add(FlattenOp, net.input) if flat else net.add(FcOp, net.input, out_features=8)
    for _ in range(draw(st.integers(0, 5))):
        value = _piece(draw, net, value, depth=0)
    return Drawn(net.finish(net.add(FcOp, value, out_features=5), 5))


def _piece(draw: st.DrawFn, net: Net, value: SSAValue, depth: int) -> SSAValue:
    choices = ["activation", "fc", "fc_no_bias", "bn", "dropout", "residual", "residual"]
    match draw(st.sampled_from(choices[: 5 if depth > 1 else None])):
        case "activation":
            return net.add(draw(st.sampled_from(ACTIVATIONS)), value)
        case "fc":
            return net.add(FcOp, value, out_features=draw(st.integers(1, 70)))
        case "fc_no_bias":
            return net.add(FcOp, value, out_features=draw(st.integers(1, 70)), bias=False)
        case "bn":
            return net.add(Bn1dOp, value)
        case "dropout":
            return net.add(DropoutOp, value, p=0.25)
        case _:
            width = shape_of(value)[3]
            stem = value
            for _ in range(draw(st.integers(1, 3))):
                stem = _piece(draw, net, stem, depth + 1)
            if shape_of(stem)[3] != width or draw(st.booleans()):
                shortcut = net.add(FcOp, value, out_features=shape_of(stem)[3])
            else:
                shortcut = net.add(IdentityOp, value)
            return net.add(AddOp, shortcut, stem)
