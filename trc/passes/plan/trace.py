"""Asking the descriptors for their nodes: forward, backward, inference.

All passes that need to know what a network does trace it here, so that they agree: which values are deferred and where
they come into memory, which tensors exist, whose gradient is whose.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import overload

from trc.layers.descriptor import Builder, Deferred, Descriptor, Layer, Materialised, Value
from trc.layers.joining import ADD_FWD
from trc.layers.system import COPY
from trc.layers.values import NO_ACT
from trc.passes.plan.gradients import Gradients, plan_gradients
from trc.passes.plan.network import INPUT, Network
from trc.passes.plan.nodes import Bucket, Buckets, Params
from trc_runtime.schema.graphs import GraphId
from trc_runtime.schema.kinds import Kind
from trc_runtime.schema.regions import AVERAGE_SUFFIX

Chooser = Callable[[int, Sequence[str], str], frozenset[str]]
"""(layer, forms that fit, activation of a deferred input) to the chosen forms."""


class Phase(Enum):
    """What is being built; the value is the name of a layer's result."""

    FORWARD = "output"
    BACKWARD = "output.bwd"
    INFERENCE = "output.inf"


@dataclass
class Trace:
    """The nodes of one network, one phase after another.

    `values[l]` is what layer l hands on (INPUT: what the network is fed with); `folded` are the layers that have no
    backward of their own, since they became part of their input or their only reader does it; `results[l]` is the value
    of a layer with what became part of it.
    """

    network: Network
    buckets: Buckets = field(default_factory=Buckets)
    chooser: Chooser | None = None
    values: dict[int, Value] = field(default_factory=dict[int, Value])
    folded: set[int] = field(default_factory=set[int])
    results: dict[str, Value] = field(default_factory=dict[str, Value])
    _places: dict[str, int] = field(default_factory=dict[str, int])
    _written: dict[tuple[Phase, str], str] = field(default_factory=dict[tuple[Phase, str], str])

    def __post_init__(self) -> None:
        """Number the layers."""
        self._places = {layer.name: n for n, layer in enumerate(self.network.layers)}

    def forward(self) -> None:
        """Training forward. Where the input has one reader that runs in a bucket a buffer, else on a copy."""
        network = self.network
        first = 0
        for letter in "AB":
            data = f"data_{letter.lower()}"
            bucket = self.buckets[GraphId[f"FIRST_LAYER_FWD_{letter}"]]
            bucket.emit(COPY, reads=[f"label_{letter.lower()}"], writes=["label"])
            if network.direct:
                self.values[INPUT] = Materialised(data)
                self._forward_layer(0, bucket)
                self._settle(0, bucket)
                first = 1
            else:
                copied = f"{network.layers[0].name}.input"
                self.values[INPUT] = Materialised(copied)
                bucket.emit(COPY, reads=[data], writes=[copied])
        deep = self.buckets[GraphId.DEEP_FWD_BWD]
        for n in range(first, len(network.layers)):
            self._forward_layer(n, deep)

    def _forward_layer(self, n: int, bucket: Bucket) -> None:
        layer = self.network.layers[n]
        value = self.network.descriptors[n].forward(LayerBuilder(self, n, bucket, Phase.FORWARD))
        self.values[n] = self.results[layer.name] = value
        if isinstance(value, Materialised) and value.act != NO_ACT:
            self.folded.add(n)
        if isinstance(value, Deferred) and value.owner not in (None, layer.name):
            assert value.owner is not None
            self.results[value.owner] = value
            if not self.network.descriptors[n].alias:
                self.folded.add(n)

    def _settle(self, n: int, bucket: Bucket) -> None:
        """Write a deferred value where it was made: its readers' bucket would take it from the other buffer."""
        value = self.values[n]
        if isinstance(value, Deferred):
            settled = Materialised(self.memory(value, bucket, Phase.FORWARD))
            self._written.clear()  # the other buffer's bucket writes it too
            self.values[n] = self.results[self.network.layers[n].name] = settled

    def backward(self) -> Gradients:
        """Backward in reverse order; before each layer the parts of its result's gradient are added."""
        network = self.network
        gradients = plan_gradients(network, self.folded)
        deep = self.buckets[GraphId.DEEP_FWD_BWD]
        for n in reversed(range(len(network.layers))):
            layer = network.layers[n]
            for a, b, total in gradients.sums[n]:
                deep.emit(ADD_FWD, reads=[a, b], writes=[total], layer=layer.name, location=layer.op.location)
            if not layer.trained or network.descriptors[n].passes_gradient or n in self.folded:
                continue
            if n == 0 and network.direct:
                for letter in "AB":
                    self.values[INPUT] = Materialised(f"data_{letter.lower()}")
                    self._backward_layer(n, self.buckets[GraphId[f"FIRST_LAYER_BWD_{letter}"]], gradients)
            else:
                self._backward_layer(n, deep, gradients)
        return gradients

    def _backward_layer(self, n: int, bucket: Bucket, gradients: Gradients) -> None:
        builder = LayerBuilder(self, n, bucket, Phase.BACKWARD, gradients.of_output[n], gradients.of_input[n])
        self.network.descriptors[n].backward(builder)

    def inference(self, letter: str, averages: frozenset[str] | None = None) -> Bucket:
        """The inference of one input buffer, in its bucket.

        With `averages` that of the moving average: tensors of these names are replaced by their averages.
        """
        self.values = {INPUT: Materialised(f"data_{letter.lower()}")}
        self._written.clear()
        bucket = self.buckets[GraphId[f"INF_{'MAIN' if averages is None else 'EMA'}_{letter}"]]
        bucket.emit(COPY, reads=[f"label_{letter.lower()}"], writes=["label"])
        for n, descriptor in enumerate(self.network.descriptors):
            builder = LayerBuilder(self, n, bucket, Phase.INFERENCE, averages=averages or frozenset())
            self.values[n] = descriptor.inference(builder)
        return bucket

    def fold(self, averages: frozenset[str] = frozenset()) -> None:
        """The nodes that derive inference parameters, or those of the moving average (see `inference`)."""
        bucket = self.buckets[GraphId.UPDATE_BN_INF_PARAMS]
        for n, descriptor in enumerate(self.network.descriptors):
            descriptor.fold(LayerBuilder(self, n, bucket, Phase.INFERENCE, averages=averages))

    def memory(self, value: Value, bucket: Bucket, phase: Phase) -> str:
        """The tensor that holds a value; one node writes a deferred one, before its first reader of the phase."""
        if isinstance(value, Materialised):
            return value.symbol
        if value.owner is None and phase is Phase.BACKWARD:
            phase = Phase.FORWARD  # a sum is kept
        key = phase, value.layer
        if key not in self._written:
            self._written[key] = f"{value.layer}.{phase.value}"
            location = self.network.layers[self._places[value.layer]].op.location
            bucket.emit(
                value.kind,
                reads=value.reads,
                writes=[self._written[key]],
                params={"act": value.act},
                layer=value.layer,
                location=location,
            )
        return self._written[key]

    def choose(self, n: int, candidates: Sequence[str], act: str) -> frozenset[str]:
        """The chosen ones of the forms that fit a layer."""
        if self.chooser is not None:
            return self.chooser(n, candidates, act)
        form, descriptor = self.network.layers[n].form, self.network.descriptors[n]
        if form is None:
            return descriptor.default(candidates)
        return frozenset(form.split("+")).intersection(candidates)


class Inputs(Sequence[str]):
    """The inputs of a layer in memory; looking at one brings it there."""

    def __init__(self, builder: LayerBuilder, count: int) -> None:
        self._builder = builder
        self._count = count

    @overload
    def __getitem__(self, index: int) -> str: ...

    @overload
    def __getitem__(self, index: slice) -> list[str]: ...

    def __getitem__(self, index: int | slice) -> str | list[str]:
        """The tensor of an input, or those of several."""
        if isinstance(index, slice):
            return [self._builder.memory(i) for i in range(*index.indices(self._count))]
        return self._builder.memory(range(self._count)[index])

    def __len__(self) -> int:
        """How many inputs the layer has."""
        return self._count

    def __iter__(self) -> Iterator[str]:
        """All of them, in operand order."""
        return iter(self[:])


class LayerBuilder(Builder):
    """The `Builder` of trc.layers.descriptor, for one layer and one bucket."""

    def __init__(
        self,
        trace: Trace,
        n: int,
        bucket: Bucket,
        phase: Phase,
        output_grad: str | None = None,
        input_grads: Sequence[str | None] = (),
        averages: frozenset[str] = frozenset(),
    ) -> None:
        self._trace = trace
        self._n = n
        self._layer = trace.network.layers[n]
        self._bucket = bucket
        self._phase = phase
        self._output_grad = output_grad
        self._input_grads = input_grads
        self._averages = averages

    @property
    def layer(self) -> Layer:
        """The layer whose nodes are being built."""
        return self._layer

    @property
    def inputs(self) -> Inputs:
        """The layer's inputs in memory."""
        return Inputs(self, len(self._layer.inputs))

    def value(self, index: int) -> Value:
        """An input as its layer handed it on."""
        return self._trace.values[self._trace.network.sources[self._n][index]]

    def memory(self, index: int) -> str:
        """An input's tensor."""
        return self._trace.memory(self.value(index), self._bucket, self._phase)

    def sole(self, index: int) -> bool:
        """Whether nobody else reads that input's value."""
        root = self._trace.network.roots[self._n][index]
        return root != INPUT and len(self._trace.network.readers[root]) == 1

    @property
    def statistics(self) -> tuple[str, str] | None:
        """Where the result's only reader wants its channels' sums."""
        reader = self._only_reader()
        return None if reader is None else reader[0].statistics(reader[1])

    @property
    def reader_masks(self) -> bool:
        """Whether the result's only reader applies the derivative of an activation."""
        reader = self._only_reader()
        return reader is not None and reader[0].masks(reader[1])

    def _only_reader(self) -> tuple[Descriptor, Layer] | None:
        network = self._trace.network
        readers = network.readers[self._n]
        if len(readers) != 1:
            return None
        index = readers[0][0]
        return network.descriptors[index], network.layers[index]

    @property
    def output(self) -> str:
        """The tensor for the layer's result."""
        return self.tensor((Phase.FORWARD if self._phase is Phase.BACKWARD else self._phase).value)

    @property
    def result(self) -> Value:
        """The layer's result as its readers see it."""
        return self._trace.results[self._layer.name]

    @property
    def output_grad(self) -> str:
        """The gradient of the layer's result."""
        if self._output_grad is None:
            raise ValueError(f"layer '{self._layer.name}' asks for a gradient that does not exist")
        return self._output_grad

    def input_grad(self, index: int) -> str | None:
        """The tensor for the gradient of an input."""
        return self._input_grads[index]

    def tensor(self, name: str) -> str:
        """The layer's own tensor of that name, or its average."""
        own = f"{self._layer.name}.{name}"
        return f"{own}{AVERAGE_SUFFIX}" if own in self._averages else own

    def choose(self, candidates: Sequence[str], act: str = "none") -> frozenset[str]:
        """The chosen ones of the forms that fit here."""
        return self._trace.choose(self._n, candidates, act)

    def emit(
        self,
        kind: Kind,
        *,
        reads: Sequence[str] = (),
        updates: Sequence[str] = (),
        writes: Sequence[str] = (),
        scalars: Sequence[str] = (),
        params: Params | None = None,
    ) -> None:
        """Append a node of this layer."""
        self._bucket.emit(
            kind,
            reads=tuple(reads),
            updates=tuple(updates),
            writes=tuple(writes),
            scalars=tuple(scalars),
            params=params,
            layer=self._layer.name,
            location=self._layer.op.location,
        )


@dataclass(frozen=True)
class Touched:
    """What a whole trace says to the layout table: the tensors that nodes name, and the gradients of activations."""

    names: frozenset[str]
    gradients: Gradients


def touched_by(network: Network) -> Touched:
    """Trace a network for the tensors that exist."""
    trace = Trace(network)
    trace.forward()
    gradients = trace.backward()
    trace.fold()
    infer = Trace(network)
    for letter in "AB":
        infer.inference(letter)
    return Touched(frozenset(trace.buckets.touched() | infer.buckets.touched()), gradients)
