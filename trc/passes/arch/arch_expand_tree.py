"""Step 1: from a tree of structure to a plain list of layers, each with a unique name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from xdsl.context import Context
from xdsl.dialects.builtin import ArrayAttr, ModuleOp
from xdsl.ir import Attribute, Block, Operation, SSAValue
from xdsl.passes import ModulePass

from trc.diagnostics import CompileError, Diagnostic, Location, diagnostic_at
from trc.dialects.arch import (
    UNKNOWN,
    Add2Op,
    AddOp,
    BasicBlockOp,
    BlockOp,
    BottleneckOp,
    CbrpOp,
    ContainerOp,
    GapFcOp,
    IdentityOp,
    InvertedResidualOp,
    LayerOp,
    MergedOp,
    ModelOp,
    NormOp,
    OutputOp,
    RepeatOp,
    SeqOp,
    Shape,
    ShapeProblem,
    Shortcut,
    SoftmaxCeOp,
    YieldOp,
    int_of,
    shape_of,
    tensor_of,
)
from trc.dialects.arch.base import Number
from trc.dialects.attributes import string
from trc.passes.arch.recipes import spell_out
from trc.passes.arch.rewriting import models

MAX_LAYERS = 100_000
"""More layers than any network has: a larger number of repetitions is a slip of the finger."""

LOSS_NAME = "softmax_ce"


@dataclass(frozen=True)
class ArchExpandTreePass(ModulePass):
    """Replace sequences, repetitions, sums and blocks by plain layers, and give every layer a unique name.

    With `fuse` blocks and conv-bn-relu macros stay whole (and know the names of their layers); without it they are
    spelled out. Conv-bn-relu-pool and gap-fc macros are always spelled out: later steps may merge them again.
    """

    name = "arch-expand-tree"

    fuse: bool = False

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Expand every model of the module."""
        for model in models(op):
            Expansion(model, self.fuse).run()


@dataclass(frozen=True)
class Scope:
    """Where a layer stands: the prefix of numbered names, that of given names, and the unnamed repetition around."""

    numbered: str = ""
    given: str = ""
    unnamed_repeat: bool = False

    def inside(self, op: ContainerOp | MergedOp, turn: int | None = None) -> Scope:
        """The scope inside a container: its name is a prefix; a turn of a repetition tells given names apart."""
        if op.layer is None:
            return Scope(self.numbered, self.given, self.unnamed_repeat or turn is not None)
        prefix = op.layer.data + "."
        return Scope(
            self.numbered + prefix,
            self.given + prefix + (f"{turn}." if turn is not None else ""),
            self.unnamed_repeat,
        )


@dataclass
class Expansion:
    """The expansion of one model."""

    model: ModelOp
    fuse: bool
    counters: dict[str, int] = field(default_factory=dict[str, int])
    owners: dict[str, Operation] = field(default_factory=dict[str, Operation])
    problems: list[Diagnostic] = field(default_factory=list[Diagnostic])
    shapes: dict[SSAValue, Shape] = field(default_factory=dict[SSAValue, Shape])
    shape_problem: Diagnostic | None = None
    claimed: set[str] = field(default_factory=set[str])
    count: int = 0
    turns: int = 0

    def run(self) -> None:
        """Build the new body beside the old one and put it in its place."""
        old = self.model.body.block
        end = old.last_op
        if not isinstance(end, OutputOp):
            raise CompileError.at(self.model, f"model @{self.model.sym_name.data} does not end in arch.output")
        self.block = Block(arg_types=[arg.type for arg in old.args])
        try:
            # Only blocks need to know channels here, so without them shapes are not followed.
            self.follow = any(isinstance(op, BlockOp) for op in self.model.walk())
            for arg, new in zip(old.args, self.block.args, strict=True):
                new.name_hint = arg.name_hint
                if self.follow:
                    self.shapes[new] = shape_of(new)
            result = self.body(old, dict(zip(old.args, self.block.args, strict=True)), Scope())
        except RecursionError:
            raise CompileError.at(self.model, "the structure is nested too deeply") from None
        if self.problems:
            raise CompileError(self.problems)
        last = OutputOp.create(operands=[result])
        last.location = end.location
        self.block.add_op(last)
        region = self.model.body
        region.detach_block(old)
        region.add_block(self.block)

    def body(self, block: Block, values: dict[SSAValue, SSAValue], scope: Scope) -> SSAValue:
        """Expand the operations of a block; `values` says what stands for its arguments. Returns its result."""
        for op in block.ops:
            if isinstance(op, YieldOp | OutputOp):
                return values[op.value]
            inputs = tuple(values[operand] for operand in op.operands)
            if isinstance(op, LayerOp):
                values[op.result] = self.layer(op, inputs, scope)
            elif isinstance(op, ContainerOp):
                values[op.result] = self.container(op, inputs[0], scope)
            else:
                raise CompileError.at(op, f"{op.name} is no layer of the arch dialect")
        raise CompileError.at(self.model, "a body does not end in arch.yield")

    def container(self, op: ContainerOp, x: SSAValue, scope: Scope) -> SSAValue:
        """Expand a container on a value."""
        if isinstance(op, SeqOp):
            return self.body(op.body.block, {op.body.block.args[0]: x}, scope.inside(op))
        if isinstance(op, RepeatOp):
            times = int_of(op.times)
            for turn in range(1, times + 1):
                self.turns += 1
                if self.turns > MAX_LAYERS:
                    raise CompileError.at(op, f"the network has more than {MAX_LAYERS} repetitions")
                inside = scope.inside(op, turn if times > 1 else None)
                x = self.body(op.body.block, {op.body.block.args[0]: x}, inside)
            return x
        if isinstance(op, Add2Op):
            inside = scope.inside(op)
            shortcut = self.body(op.shortcut.block, {op.shortcut.block.args[0]: x}, inside)
            stem = self.body(op.stem.block, {op.stem.block.args[0]: x}, inside)
            return self.emit(AddOp, (shortcut, stem), {}, op, self.number(AddOp, inside, op))
        if isinstance(op, BlockOp):
            return self.merged(self.block_layer(op, x), x, scope)
        raise CompileError.at(op, f"{op.name} is no structure that arch-expand-tree knows")

    def block_layer(self, op: BlockOp, x: SSAValue) -> MergedOp:
        """The merged layer that a named block stands for, outside of any body."""
        style, out = op.style.data, int_of(op.out)
        channels = self.shapes[x][3]
        if channels is None:
            raise CompileError(
                self.shape_problem
                or diagnostic_at(
                    op,
                    f"a block of style {style} depends on the number of its input channels, which is not known here: "
                    "give the model's input its height, width and channels",
                )
            )
        same = style.stride == 1 and channels == out
        values: dict[str, Number] = {"out_channels": out, "stride": style.stride}
        kind: type[MergedOp]
        if style.ratio is not None:
            kind = InvertedResidualOp
            values["shortcut"] = Shortcut.IDENTITY if same else Shortcut.NONE
            values["expand_channels"] = None if style.ratio == 1 else channels * style.ratio
        else:
            kind = BottleneckOp if style.is_bottleneck else BasicBlockOp
            values["shortcut"] = Shortcut.IDENTITY if same else Shortcut.PROJECTION
            if op.mid is not None:
                values["mid_channels"] = int_of(op.mid)
        properties = kind.fields_from(values)
        if op.layer is not None:
            properties["layer"] = op.layer
        merged = kind.create(result_types=[tensor_of(UNKNOWN)], properties=properties)
        merged.location = op.location
        return merged

    def layer(self, op: LayerOp, inputs: tuple[SSAValue, ...], scope: Scope) -> SSAValue:
        """Copy a layer, or spell it out."""
        if isinstance(op, MergedOp):
            return self.merged(op, inputs[0], scope)
        if isinstance(op, SoftmaxCeOp):
            name = LOSS_NAME if op.layer is None else op.layer.data
        else:
            name = self.number(type(op), scope, op)
        return self.emit(type(op), inputs, op.properties, op, name, op.result.type)

    def merged(self, op: MergedOp, x: SSAValue, scope: Scope) -> SSAValue:
        """Keep a merged layer, with the names of its layers, or make these."""
        known = iter(op.leaf_names) if op.parts is not None else iter(())
        inside = scope if op.parts is not None else scope.inside(op)
        keep = self.fuse and not isinstance(op, CbrpOp | GapFcOp)

        if keep:
            parts: list[str] = []

            def note(kind: type[LayerOp], inputs: tuple[None, ...], values: Mapping[str, Number]) -> None:
                """Number a layer that stays inside; an identity does nothing, so it is no part."""
                if kind is IdentityOp and op.parts is not None:
                    return
                name = self.part_name(kind, inside, op, known)
                if kind is not IdentityOp:
                    parts.append(name)

            spell_out(op, note, None)
            properties = {**op.properties, "parts": ArrayAttr(map(string, parts))}
            return self.emit(type(op), (x,), properties, op, parts[0], op.result.type)

        def build(kind: type[LayerOp], inputs: tuple[SSAValue, ...], values: Mapping[str, Number]) -> SSAValue:
            """Make a layer."""
            if kind is IdentityOp and op.parts is not None:
                # Identities have no name among the parts; arch-normalize-identity gives empty shortcuts new ones.
                return inputs[0]
            name = self.part_name(kind, inside, op, known)
            return self.emit(kind, inputs, kind.fields_from(values), op, name)

        return spell_out(op, build, x)

    def part_name(self, kind: type[LayerOp], scope: Scope, op: MergedOp, known: Iterator[str]) -> str:
        """The name of a layer inside a merged one: the one that it has already, or a new number."""
        numbered = self.number(kind, scope, op, given=False)
        return self.claim(next(known, numbered), op, scope)

    def number(self, kind: type[LayerOp], scope: Scope, op: Operation, given: bool = True) -> str:
        """The name of the next layer of a kind. Those with a name count too, so that naming one renames no other."""
        stem = kind_name(kind)
        n = self.counters[stem] = self.counters.get(stem, 0) + 1
        if not given:
            return f"{scope.numbered}{stem}{n}"
        if isinstance(op, LayerOp) and op.layer is not None:
            return self.claim(scope.given + op.layer.data, op, scope)
        return self.claim(f"{scope.numbered}{stem}{n}", op, scope)

    def claim(self, name: str, op: Operation, scope: Scope) -> str:
        """Note who has a name; a second owner is a problem."""
        if name == LOSS_NAME:
            self.problems.append(diagnostic_at(op, "this is the name of the loss; choose another", name))
        elif (other := self.owners.setdefault(name, op)) is not op or name in self.claimed:
            self.problems.append(self.duplicate(name, op, other, scope))
        self.claimed.add(name)
        return name

    def duplicate(self, name: str, op: Operation, other: Operation, scope: Scope) -> Diagnostic:
        """Two layers of one name."""
        if other is op:
            where = "it is repeated"
        else:
            place = Location.from_attribute(other.location)
            where = "another layer has it" + (f" at {place}" if place else "")
        advice = "; give the repetition around it a name" if scope.unnamed_repeat else ""
        return diagnostic_at(op, f"this name is taken: {where}{advice}", name)

    def emit(
        self,
        kind: type[LayerOp],
        inputs: tuple[SSAValue, ...],
        properties: Mapping[str, Attribute],
        source: Operation,
        name: str,
        type_: Attribute | None = None,
    ) -> SSAValue:
        """Append a layer to the new body."""
        new = kind.create(
            operands=inputs,
            result_types=[tensor_of(UNKNOWN) if type_ is None else type_],
            properties={**properties, "layer": string(name)},
        )
        new.location = source.location
        new.result.name_hint = source.results[0].name_hint if source.results else None
        self.block.add_op(new)
        self.count += 1
        if self.count > MAX_LAYERS:
            raise CompileError.at(source, f"the network has more than {MAX_LAYERS} layers")
        if self.follow:
            try:
                self.shapes[new.result] = new.infer_shape([self.shapes[value] for value in inputs])
            except ShapeProblem as err:
                # arch-deduce-shapes reports all of these; here they matter only if a block depends on them.
                self.shape_problem = self.shape_problem or diagnostic_at(source, str(err), name)
                self.shapes[new.result] = UNKNOWN
        return new.result


def kind_name(kind: type[LayerOp]) -> str:
    """What layers of a kind are called, before their number. The three batch norms are one kind."""
    if issubclass(kind, NormOp):
        return "bn"
    name = kind.name.removeprefix("arch.")
    # relu61 would be both the 61st relu and the first relu6.
    return f"{name}_" if name[-1].isdigit() else name
