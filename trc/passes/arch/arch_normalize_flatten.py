"""Step 5: flattens."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue
from xdsl.passes import ModulePass

from trc.dialects.arch import AddOp, FcOp, FlattenOp, LayerOp, ModelOp, SoftmaxCeOp, shape_of, tensor_of
from trc.dialects.arch.dense import flat_size
from trc.dialects.attributes import string
from trc.passes.arch.rewriting import Names, end_of, erase, input_of, layers, models, require_static, set_shape

ALIGNED = 8
"""A map whose channels are a multiple of this is dense in memory, so a fully connected layer reads it as it is."""


@dataclass(frozen=True)
class ArchNormalizeFlattenPass(ModulePass):
    """Leave a flatten exactly where one is needed.

    A fully connected layer flattens by itself; it needs one before it only if its input is a map whose channels are not
    a multiple of 8. The loss needs one after any map. Layers that work on each place alike run before a flatten as well
    as after it; before any other layer (batch norm, sum with something unlike) a flatten of the network stays.
    """

    name = "arch-normalize-flatten"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Normalise every model of the module."""
        for model in models(op):
            require_static(layers(model))
            Normalization(model).run()


class Normalization:
    """The normalisation of one model: flattens sink down to where they are needed, or vanish."""

    def __init__(self, model: ModelOp) -> None:
        self.model = model
        self.ops = layers(model)
        self.names = Names(self.ops)
        self.asked: dict[SSAValue, FlattenOp] = {}
        """Values that the network has flattened, with the flatten that says so. It is not made yet."""
        self.maps: dict[SSAValue, SSAValue] = {}
        """What such a value is before it is flattened: the flatten's input, or a layer's result, which is a map now."""
        self.made: dict[SSAValue, SSAValue] = {}
        """Maps and what they are once flattened."""
        self.used: set[FlattenOp] = set()

    def run(self) -> None:
        """One sweep in order; each layer's inputs are settled before its result."""
        asked: list[FlattenOp] = []
        for op in self.ops:
            if isinstance(op, FlattenOp):
                asked.append(op)
                self.sink(op)
            elif isinstance(op, FcOp | SoftmaxCeOp):
                self.reader(op)
            else:
                self.other(op)
        end = end_of(self.model)
        if end.value in self.asked:
            end.operands = [self.flatten(end.value, end)]
        erase(asked)

    def sink(self, op: FlattenOp) -> None:
        """Remember a flatten; one of a vector is not even remembered."""
        x = input_of(op)
        if x in self.asked:
            self.asked[op.result], self.maps[op.result] = self.asked[x], self.maps[x]
        elif is_vector(x):
            op.result.replace_all_uses_with(x)
        else:
            self.asked[op.result], self.maps[op.result] = op, x

    def reader(self, op: FcOp | SoftmaxCeOp) -> None:
        """A layer that reads the map as one vector, flattened or not."""
        x = input_of(op)
        if needs_flatten(op, self.maps.get(x, x)):
            op.operands = [self.flatten(x, op)]
        elif x in self.maps:
            op.operands = [self.maps[x]]
        if isinstance(op, SoftmaxCeOp):
            set_shape(op.result, shape_of(input_of(op)))

    def other(self, op: LayerOp) -> None:
        """A layer that wants what the network says: a flatten passes it or is made before it."""
        waiting = [value for value in op.operands if value in self.asked]
        if not waiting:
            return
        shapes = {shape_of(self.maps[value]) for value in waiting}
        if op.POSITIONWISE or (isinstance(op, AddOp) and len(waiting) == 2 and len(shapes) == 1):
            op.operands = [self.maps[value] for value in op.operands]
            result = set_shape(op.result, shapes.pop())
            self.asked[result], self.maps[result] = self.asked[waiting[0]], result
        else:
            op.operands = [self.flatten(value, op) if value in self.asked else value for value in op.operands]

    def flatten(self, value: SSAValue, place: Operation) -> SSAValue:
        """A value as one vector; a flatten is made where it is first needed, with its name in the network."""
        x = self.maps.get(value, value)
        if x not in self.made:
            size = flat_size(shape_of(x))
            asked = self.asked.get(value)
            if asked is None or asked.layer is None or asked in self.used:
                name = string(self.names.fresh("flatten"))
            else:
                name = asked.layer
                self.used.add(asked)
            new = FlattenOp.create(
                operands=[x], result_types=[tensor_of((None, 1, 1, size))], properties={"layer": name}
            )
            new.location = place.location if asked is None else asked.location
            block = place.parent
            assert block is not None
            block.insert_op_before(new, place)
            self.made[x] = new.result
        return self.made[x]


def is_vector(value: SSAValue) -> bool:
    """Whether there is one place only."""
    return shape_of(value)[1:3] == (1, 1)


def needs_flatten(op: FcOp | SoftmaxCeOp, x: SSAValue) -> bool:
    """Whether this layer cannot read this value as it lies in memory."""
    channels = shape_of(x)[3]
    assert channels is not None
    return not is_vector(x) and (isinstance(op, SoftmaxCeOp) or channels % ALIGNED != 0)
