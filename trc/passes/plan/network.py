"""The network as the plan passes see it: its layers with their shapes, who reads whom, and who is trained."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue

from trc.diagnostics import CompileError, Diagnostic, diagnostic_at
from trc.dialects.arch import ModelOp, OutputOp
from trc.dialects.arch.base import LayerOp, ShapeProblem, is_static, shape_of
from trc.dialects.arch.base import Shape as ArchShape
from trc.layers.descriptor import Descriptor, Layer, Shape
from trc.layers.registry import WHOLE_INPUT, parts_of, require
from trc.passes.plan.common import required, specs_of
from trc_runtime.schema.dtypes import Precision

INPUT = -1
"""The source of what the network is fed with."""

CHANNEL_MULTIPLE = 4
"""What arch-align-amp-channels rounds the input's channels up to."""


@dataclass(frozen=True)
class Network:
    """Layers in order, each with its descriptor; merged layers are their parts here.

    `tops[l]` is the operation of the module that layer l comes from. `sources[l][i]` is the layer that makes input i
    of layer l, or INPUT; `roots` is the same with layers that only pass their input on looked through, and
    `readers[l]` are the (layer, input) pairs that read layer l's result, these looked through too. `direct` says that
    the first layer alone reads the network's input, so that it runs in the buckets of the two input buffers; otherwise
    the input is copied for all its readers. Of the input's channels `real_channels` are real (None: all).
    """

    name: str
    precision: Precision
    layers: tuple[Layer, ...]
    descriptors: tuple[Descriptor, ...]
    tops: tuple[LayerOp, ...]
    sources: tuple[tuple[int, ...], ...]
    roots: tuple[tuple[int, ...], ...]
    readers: tuple[tuple[tuple[int, int], ...], ...]
    direct: bool
    input: tuple[Shape, ...]
    real_channels: int | None


@dataclass(frozen=True)
class Image:
    """A variant's input."""

    name: str
    batch: int
    height: int
    width: int
    channels: int
    location: Operation | None = None


@dataclass(frozen=True)
class _Leaf:
    """A layer before its shapes are known."""

    top: LayerOp
    op: LayerOp
    name: str
    sources: tuple[int, ...]


def read_model(module: ModuleOp) -> ModelOp:
    """The module's network."""
    models = required(module, ModelOp, "arch.model", "trc-opt on a BluePrint")
    if len(models) > 1:
        raise CompileError.at(models[1], "the module has more than one arch.model")
    return models[0]


def layer_ops(model: ModelOp) -> list[LayerOp]:
    """The network's layers; CompileError where the arch passes have not run."""
    ops: list[LayerOp] = []
    for op in model.body.block.ops:
        if isinstance(op, OutputOp):
            continue
        if not isinstance(op, LayerOp):
            raise CompileError.at(op, f"{op.name} is still there: run arch-plan first")
        ops.append(op)
    if not ops:
        raise CompileError.at(model, "the network has no layers")
    return ops


def read_network(module: ModuleOp) -> Network:
    """Read and check the network; CompileError lists every layer that cannot be compiled."""
    specs = specs_of(module)
    images = [Image(s.name_, s.batch_, s.height_, s.width_, s.channels_, s) for s in specs]
    return network_of(read_model(module), images, specs[0].precision_)


def network_of(model: ModelOp, images: Sequence[Image], precision: Precision) -> Network:
    """A model with its inputs, one a variant."""
    ops = layer_ops(model)
    _check_normalised(model, ops)
    leaves = _leaves(model, ops)
    descriptors = require(leaf.op for leaf in leaves)
    if not descriptors[-1].is_loss or any(d.is_loss for d in descriptors[:-1]):
        raise CompileError.at(model, "the network must end in its only loss: run arch-normalize-softmax-ce first")
    sources = tuple(leaf.sources for leaf in leaves)
    roots = _roots(sources, descriptors)
    wanted, trained = _trained(descriptors, sources)
    depth = shape_of(model.body.block.args[0])[3]
    assert depth is not None
    real = _real_channels(images, depth, precision)
    shapes = _shapes(leaves, images, depth)
    forms = {top: top.forms_ for top in ops}
    layers = tuple(
        Layer(
            leaf.op,
            leaf.name,
            precision,
            tuple(shapes[s] for s in leaf.sources),
            shapes[n],
            trained[n],
            wanted[n],
            forms[leaf.top].get(leaf.name),
            real if roots[n] == (INPUT,) else None,
        )
        for n, leaf in enumerate(leaves)
    )
    problems = [
        diagnostic_at(leaf.top, text, layer.name)
        for leaf, layer, d in zip(leaves, layers, descriptors, strict=True)
        for text in d.problems(layer)
    ]
    problems += [
        diagnostic_at(
            leaf.top,
            f"it reads {real} real channels and {depth - real} of zeros: only a convolution over all channels may",
            layer.name,
        )
        for leaf, layer, d, inputs in zip(leaves, layers, descriptors, roots, strict=True)
        if real is not None and INPUT in inputs and not d.alias and not d.mixes_channels(layer)
    ]
    if problems:
        raise CompileError(problems)
    if not trained[-1]:
        raise CompileError.at(model, "the network has no parameters: there is nothing to train")
    at_input = [n for n, s in enumerate(sources) if INPUT in s]
    direct = (
        len(at_input) == 1
        and leaves[at_input[0]].op.first is not None
        and len(sources[at_input[0]]) == 1
        and not descriptors[at_input[0]].alias
    )
    return Network(
        model.sym_name.data,
        precision,
        layers,
        tuple(descriptors),
        tuple(leaf.top for leaf in leaves),
        sources,
        roots,
        _readers(roots, descriptors),
        direct,
        shapes[INPUT],
        real,
    )


def _check_normalised(model: ModelOp, ops: Sequence[LayerOp]) -> None:
    problems: list[Diagnostic] = []
    for op in ops:
        if op.layer is None:
            problems.append(diagnostic_at(op, f"{op.name} has no name: run arch-plan first"))
        elif not is_static(shape_of(op.result)):
            problems.append(diagnostic_at(op, "its shape is unknown: run arch-deduce-shapes first"))
        elif op.result.first_use is None:
            problems.append(diagnostic_at(op, "its result is never used: remove the layer"))
    if not problems and not is_static(shape_of(model.body.block.args[0])):
        problems.append(diagnostic_at(model, "the input's shape is unknown: write input(height, width, channels)"))
    if problems:
        raise CompileError(problems)


def _leaves(model: ModelOp, ops: Sequence[LayerOp]) -> list[_Leaf]:
    """The layers with merged ones replaced by their parts."""
    index: dict[SSAValue, int] = {model.body.block.args[0]: INPUT}
    leaves: list[_Leaf] = []
    for op in ops:
        inputs = [index[v] for v in op.operands]
        base = len(leaves)
        for part in parts_of(op):
            # A part's inputs are other parts, or, from WHOLE_INPUT downwards, the operands of the whole.
            sources = tuple(base + i if i >= 0 else inputs[WHOLE_INPUT - i] for i in part.inputs)
            leaves.append(_Leaf(op, part.op, part.name, sources))
        index[op.result] = len(leaves) - 1
    output: Operation | None = model.body.block.last_op
    if not isinstance(output, OutputOp) or index.get(output.operands[0]) != len(leaves) - 1:
        raise CompileError.at(model, "the network's result must be that of its last layer")
    return leaves


def _real_channels(images: Sequence[Image], depth: int, precision: Precision) -> int | None:
    """How many of the input's channels are real, None for all; the others exist under mixed precision only."""
    for image in images:
        if image.channels != depth and (
            not precision.is_amp or -(-image.channels // CHANNEL_MULTIPLE) * CHANNEL_MULTIPLE != depth
        ):
            text = f"@{image.name} has {image.channels} channels, the network's input {depth}"
            raise CompileError(text) if image.location is None else CompileError.at(image.location, text)
    return None if images[0].channels == depth else images[0].channels


def _readers(
    roots: tuple[tuple[int, ...], ...], descriptors: Sequence[Descriptor]
) -> tuple[tuple[tuple[int, int], ...], ...]:
    readers: list[list[tuple[int, int]]] = [[] for _ in roots]
    for n, inputs in enumerate(roots):
        if not descriptors[n].alias:  # its readers count as readers of what it passes on
            for i, root in enumerate(inputs):
                if root != INPUT:
                    readers[root].append((n, i))
    return tuple(map(tuple, readers))


def _roots(sources: tuple[tuple[int, ...], ...], descriptors: Sequence[Descriptor]) -> tuple[tuple[int, ...], ...]:
    behind: list[int] = []
    roots: list[tuple[int, ...]] = []
    for n, (inputs, descriptor) in enumerate(zip(sources, descriptors, strict=True)):
        found = tuple(s if s == INPUT else behind[s] for s in inputs)
        roots.append(found)
        behind.append(found[0] if descriptor.alias else n)
    return tuple(roots)


def _trained(
    descriptors: Sequence[Descriptor], sources: tuple[tuple[int, ...], ...]
) -> tuple[list[tuple[bool, ...]], list[bool]]:
    """Which inputs need a gradient (a parameter lies above them), and which layers have one below or in them."""
    trained: list[bool] = []
    wanted: list[tuple[bool, ...]] = []
    for descriptor, inputs in zip(descriptors, sources, strict=True):
        wanted.append(tuple(s != INPUT and trained[s] for s in inputs))
        trained.append(descriptor.has_parameters or any(wanted[-1]))
    return wanted, trained


def _shapes(leaves: Sequence[_Leaf], images: Sequence[Image], depth: int) -> dict[int, tuple[Shape, ...]]:
    """One shape an image for the network's input and for each layer's result."""
    by_size: dict[tuple[int, int], dict[int, tuple[int, int, int]]] = {}
    for image in images:
        size = image.height, image.width
        if size not in by_size:
            by_size[size] = _infer((*size, depth), leaves, image.name)
    columns = [(image.batch, by_size[image.height, image.width]) for image in images]
    return {n: tuple((batch, *shapes[n]) for batch, shapes in columns) for n in (INPUT, *range(len(leaves)))}


def _infer(size: tuple[int, int, int], leaves: Sequence[_Leaf], variant: str) -> dict[int, tuple[int, int, int]]:
    """The shapes at a resolution, without the batch."""
    found: dict[int, ArchShape] = {INPUT: (None, *size)}
    for n, leaf in enumerate(leaves):
        try:
            found[n] = leaf.op.infer_shape([found[s] for s in leaf.sources])
        except ShapeProblem as err:
            where = f"at {size[0]}x{size[1]} (@{variant})"
            raise CompileError.at(leaf.top, f"{where}: {err}", leaf.name) from None
    return {n: _without_batch(shape) for n, shape in found.items()}


def _without_batch(shape: ArchShape) -> tuple[int, int, int]:
    _, h, w, c = shape
    if h is None or w is None or c is None:
        raise ValueError(f"the shape {shape} is not static")
    return h, w, c
