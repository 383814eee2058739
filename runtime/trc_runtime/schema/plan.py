"""The Plan: everything a runtime needs to run a compiled network, with a versioned JSON form."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import cast

from trc_runtime.schema.codec import LATER, CodecError, from_json, to_json
from trc_runtime.schema.config import RunConfig
from trc_runtime.schema.dtypes import DType
from trc_runtime.schema.graphs import GraphId, ShapeId, StreamKind
from trc_runtime.schema.kinds import Access
from trc_runtime.schema.regions import Region

PLAN_VERSION = 1
"""Version of the JSON form; a plan of another version is refused."""

POOL = "POOL"
"""Name of the span that transient tensors share in packed mode."""

Shape = tuple[int, ...]


INITIAL_RULES = ("zeros", "constant", "kaiming_uniform", "kaiming_normal", "trunc_normal", "table", "values")
"""What `Initial.rule` may be."""


@dataclass(frozen=True)
class Initial:
    """What a tensor holds before the first step.

    `rule` is one of zeros, constant (`value`), kaiming_uniform and kaiming_normal (`fan` input connections,
    gain sqrt 2), trunc_normal (`value` = standard deviation), table (filled from the schedule), and values (`values`,
    one an element, rounded to the tensor's type). `value` is 0, `fan` 0 and `values` empty where the rule has none.
    """

    rule: str
    value: float = 0.0
    fan: int = 0
    values: tuple[float, ...] = field(default=(), metadata=LATER)


@dataclass(frozen=True)
class Tensor:
    """A named tensor at a fixed address.

    `shapes` has one entry a variant, in the variants' order; None where no graph of that variant touches it.
    Shapes are logical; in memory the last dimension is padded (`regions.channel_alignment`). `offset` and `slot`
    are bytes from the beginning of the arena. Of the last dimension `channels` are real, None for all: the others hold
    zeros, exist for the kernels' sake only, and are never shown to users.
    """

    name: str
    region: Region
    dtype: DType
    shapes: tuple[Shape | None, ...]
    slot: int
    offset: int
    initial: Initial
    layer: str | None
    channels: int | None = None


@dataclass(frozen=True)
class Span:
    """A region's bytes: `name` is a Region's name, or POOL."""

    name: str
    offset: int
    bytes: int


@dataclass(frozen=True)
class TensorRef:
    """An operand that is one tensor: its place in `Plan.tensors`."""

    tensor: int


@dataclass(frozen=True)
class RangeRef:
    """An operand that is a closed interval of regions."""

    first: Region
    last: Region


@dataclass(frozen=True)
class Operand:
    """An operand of a node, by its role in the kind."""

    name: str
    access: Access
    ref: TensorRef | RangeRef


@dataclass(frozen=True)
class Node:
    """One operation. `scalars` are (role, tensor) pairs; `params` are constants by name."""

    kind: str
    computation: str
    bucket: GraphId
    stream: StreamKind
    layer: str | None
    operands: tuple[Operand, ...]
    scalars: tuple[tuple[str, int], ...]
    params: dict[str, bool | int | float | str]


@dataclass(frozen=True)
class Step:
    """An executable order of nodes.

    `nodes` are indices into `Plan.nodes` in a valid linear order; `after[i]` are the positions (in `nodes`) that
    must have finished before position i. `columns` are the variants that it runs in.
    """

    name: str
    computation: str
    columns: tuple[int, ...]
    nodes: tuple[int, ...]
    after: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Capture:
    """One entry to capture: a bucket of a computation at a shape."""

    computation: str
    bucket: GraphId
    shape: ShapeId
    column: int


@dataclass(frozen=True)
class VariantSpec:
    """One of the six shape variants."""

    name: str
    batch: int
    height: int
    width: int
    channels: int


@dataclass(frozen=True)
class Plan:
    """A compiled network. `atlas[variant][graph id]` is an index into `captures`, or -1."""

    name: str
    mode: str
    config: RunConfig
    variants: tuple[VariantSpec, ...]
    tensors: tuple[Tensor, ...]
    spans: tuple[Span, ...]
    total: int
    nodes: tuple[Node, ...]
    steps: tuple[Step, ...]
    captures: tuple[Capture, ...]
    atlas: tuple[tuple[int, ...], ...]

    def to_json(self) -> str:
        """The plan as text; the same plan gives the same bytes."""
        document = {"format": "trc-plan", "version": PLAN_VERSION, "plan": to_json(self)}
        return json.dumps(document, separators=(",", ":"), allow_nan=False) + "\n"

    def sha256(self) -> str:
        """The hash of the plan's text, by which a driver knows its plan."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """Read a plan; CodecError says what is wrong and where."""
        try:
            parsed: object = json.loads(text)
        except (ValueError, RecursionError) as err:
            raise CodecError(f"not a plan: {err}") from None
        document = cast(dict[str, object], parsed) if isinstance(parsed, dict) else {}
        if document.get("format") != "trc-plan":
            raise CodecError("not a plan: the key 'format' is not 'trc-plan'")
        if document.get("version") != PLAN_VERSION:
            raise CodecError(
                f"the plan has version {document.get('version')}, this runtime reads version {PLAN_VERSION}: "
                "compile the network again"
            )
        return from_json(cls, document.get("plan"), "plan")
