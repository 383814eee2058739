"""A node in one column as lowerings see it, and the registry of lowerings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import prod

from trc.codegen.cuda.lowering.launch import Arg, I, Instance, Launch, Lowered, N, P, Parameter, S
from trc.diagnostics import CompileError, Diagnostic
from trc_runtime.schema.dtypes import DType
from trc_runtime.schema.kinds import Access
from trc_runtime.schema.plan import Node, Plan, RangeRef, Tensor, TensorRef
from trc_runtime.schema.regions import SLOT_ALIGNMENT, Region, align_up, channel_alignment, dtype_of, region_range

C_TYPES: dict[DType, str] = {
    DType.F16: "__half",
    DType.BF16: "__nv_bfloat16",
    DType.F32: "float",
    DType.I8: "i8",
    DType.U8: "u8",
    DType.I32: "int",
    DType.I64: "i64",
}
"""Element types in kernels. float64 exists on the CPU only."""

MULTIPROCESSORS = 132
"""Of an H200. Grids of reductions are sized for it, whatever the device, so that the order of sums is the plan's."""

VECTOR_BYTES = 16

_PADDED = (Region.I_A_DATA, Region.I_B_DATA, Region.F_FEATURE_FP16, Region.F_GRAD_SLOT_FP16)
"""Where half rows are padded, to multiples that differ from region to region."""


@dataclass(frozen=True)
class Matrix:
    """A tensor in one column as rows of channels: `rows` is the product of all dimensions but the last.

    In memory a row is `pitch` elements, of which the first `channels` count.
    """

    name: str
    offset: int
    dtype: DType
    shape: tuple[int, ...]
    pitch: int

    @property
    def channels(self) -> int:
        """Elements of a row that count."""
        return self.shape[-1]

    @property
    def rows(self) -> int:
        """Rows in memory."""
        return prod(self.shape[:-1])

    @property
    def elements(self) -> int:
        """Elements in memory, padding included."""
        return self.rows * self.pitch

    @property
    def dense(self) -> bool:
        """Whether no row is padded."""
        return self.pitch == self.channels

    @property
    def vector(self) -> int:
        """Elements in an access: 16 bytes where the pitch allows, or 8 of half numbers, else one."""
        return vector_of(self)

    @property
    def c_type(self) -> str:
        """The element type in a kernel."""
        return C_TYPES[self.dtype]

    @property
    def p(self) -> P:
        """The address."""
        return P(self.offset)


def vector_of(*matrices: Matrix) -> int:
    """Elements of one access that suits the rows of all matrices, which have one type.

    16 bytes where all pitches are multiples of that, or four half numbers, to which half images are padded; else one.
    """
    itemsize = matrices[0].dtype.itemsize
    widths = (VECTOR_BYTES // itemsize, 4) if itemsize == 2 else (VECTOR_BYTES // itemsize,)
    return next((w for w in widths if all(m.pitch % w == 0 for m in matrices)), 1)


def pitches(*matrices: Matrix) -> str:
    """The pitches of matrices as a part of a kernel's name: one, if they have no more."""
    found = [m.pitch for m in matrices]
    return f"p{found[0]}" if len(set(found)) == 1 else "_".join(f"p{p}" for p in found)


@dataclass(frozen=True)
class Span:
    """The bytes of a range of regions of one type."""

    offset: int
    elements: int
    dtype: DType

    @property
    def p(self) -> P:
        """The address."""
        return P(self.offset)


class NodeView:
    """A node of a plan in one column: shapes, types and addresses by role, parameters, and scratch memory."""

    def __init__(self, plan: Plan, index: int, column: int) -> None:
        self.plan = plan
        self.index = index
        self.column = column
        self.node: Node = plan.nodes[index]
        self.scratch = 0
        self._operands = {o.name: o for o in reversed(self.node.operands)}
        self._scalars = dict(self.node.scalars)

    @property
    def kind(self) -> str:
        """The node's kind."""
        return self.node.kind

    def problem(self, message: str) -> CompileError:
        """An error that names the node's layer and kind."""
        return CompileError(Diagnostic(f"kind {self.kind} on target cuda: {message}", layer=self.node.layer))

    # ------------------------------------------------------------ tensors

    def __contains__(self, role: str) -> bool:
        return role in self._operands

    def tensor(self, role: str) -> Tensor:
        """The tensor of an operand, or of a scalar."""
        if role in self._scalars:
            return self.plan.tensors[self._scalars[role]]
        operand = self._operands.get(role)
        if operand is None or not isinstance(operand.ref, TensorRef):
            raise self.problem(f"has no tensor '{role}'")
        return self.plan.tensors[operand.ref.tensor]

    def __getitem__(self, role: str) -> Matrix:
        """An operand in this column."""
        tensor = self.tensor(role)
        shape = tensor.shapes[self.column]
        if shape is None:
            raise self.problem(f"'{tensor.name}' does not exist in variant {self.plan.variants[self.column].name}")
        if tensor.dtype not in C_TYPES:
            raise self.problem(f"'{tensor.name}' is {tensor.dtype.value}, which exists on the CPU only")
        pitch = align_up(shape[-1], channel_alignment(tensor.region, tensor.dtype))
        return Matrix(tensor.name, tensor.offset, tensor.dtype, shape, pitch)

    def get(self, role: str) -> Matrix | None:
        """An optional operand, or None."""
        return self[role] if role in self._operands else None

    def p(self, role: str) -> P:
        """The address of an operand or a scalar."""
        return P(self.tensor(role).offset)

    def same(self, *matrices: Matrix) -> None:
        """Refuse matrices that differ in shape or type; how their rows are padded is for the kernel to know."""
        first = matrices[0]
        for other in matrices[1:]:
            if other.shape != first.shape or other.dtype is not first.dtype:
                raise self._mismatch(first, other)

    def same_channels(self, *matrices: Matrix) -> None:
        """Refuse matrices that differ in channels or type."""
        first = matrices[0]
        for other in matrices[1:]:
            if other.channels != first.channels or other.dtype is not first.dtype:
                raise self._mismatch(first, other)

    def _mismatch(self, first: Matrix, other: Matrix) -> CompileError:
        return self.problem(
            f"'{first.name}' is {first.dtype.value}{first.shape}, '{other.name}' is {other.dtype.value}{other.shape}"
        )

    def one_pitch(self) -> None:
        """Refuse features and images of the same channels whose rows are padded differently."""
        found: dict[tuple[int, DType], Matrix] = {}
        for operand in self.node.operands:
            if isinstance(operand.ref, TensorRef) and self.tensor(operand.name).region in _PADDED:
                m = self[operand.name]
                other = found.setdefault((m.channels, m.dtype), m)
                if m.pitch != other.pitch:
                    raise self.problem(
                        f"rows of '{other.name}' are {other.pitch} elements long in memory and rows of '{m.name}' "
                        f"{m.pitch}, but its kernels know one length only"
                    )

    # ------------------------------------------------------------ ranges

    def ranges(self, access: Access) -> list[Span]:
        """The range operands of one access in order."""
        spans = {s.name: s for s in self.plan.spans}
        found: list[Span] = []
        for operand in self.node.operands:
            if operand.access is not access or not isinstance(operand.ref, RangeRef):
                continue
            parts = [spans[r.name] for r in region_range(operand.ref.first, operand.ref.last) if r.name in spans]
            parts = sorted((s for s in parts if s.bytes), key=lambda s: s.offset)
            dtype = dtype_of(operand.ref.first, self.plan.config.precision)
            if dtype not in C_TYPES:
                raise self.problem(f"{operand.ref.first.name} is {dtype.value}, which exists on the CPU only")
            start = parts[0].offset if parts else 0
            end = parts[-1].offset + parts[-1].bytes if parts else 0
            if sum(s.bytes for s in parts) != end - start:
                raise self.problem(f"the regions of {operand.name} do not lie side by side")
            found.append(Span(start, (end - start) // dtype.itemsize, dtype))
        return found

    # ------------------------------------------------------------ parameters

    def number(self, name: str) -> float:
        """A numeric parameter."""
        value = self.node.params.get(name)
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise self.problem(f"lacks the numeric parameter '{name}'")
        return float(value)

    def integer(self, name: str) -> int:
        """An integer parameter."""
        value = self.node.params.get(name)
        if not isinstance(value, int) or isinstance(value, bool):
            raise self.problem(f"lacks the integer parameter '{name}'")
        return value

    def text(self, name: str, default: str | None = None) -> str:
        """A textual parameter."""
        value = self.node.params.get(name, default)
        if not isinstance(value, str):
            raise self.problem(f"lacks the textual parameter '{name}'")
        return value

    def flag(self, name: str) -> bool:
        """A boolean parameter."""
        value = self.node.params.get(name)
        if not isinstance(value, bool):
            raise self.problem(f"lacks the boolean parameter '{name}'")
        return value

    # ------------------------------------------------------------ launches

    def temporary(self, nbytes: int) -> S:
        """A piece of the node's scratch memory, aligned like a tensor."""
        place = S(self.scratch)
        self.scratch = align_up(self.scratch + nbytes, SLOT_ALIGNMENT)
        return place

    def launch(
        self,
        name: str,
        family: str,
        call: str,
        arguments: Sequence[tuple[str, Arg]],
        grid: tuple[int, int, int],
        threads: int,
        bound: int | None = None,
        resident: int = 0,
    ) -> Launch:
        """A launch of one kernel. Each argument's text is its C++ type and name, such as `const float* x`.

        `call` may mention the names; `threads` is the block, `bound` the largest block of the instance if the
        block varies, `resident` as in Instance.
        """
        if not 0 < threads <= 1024 or not (0 < grid[0] < 1 << 31 and 0 < grid[1] < 1 << 16 and 0 < grid[2] < 1 << 16):
            raise self.problem(f"kernel {name} cannot be launched as {grid} blocks of {threads} threads")
        for text, value in arguments:
            if isinstance(value, N) and not -(1 << 31) <= value.value < 1 << 31:
                raise self.problem(f"kernel {name} counts with 32 bits, and its argument '{text}' is {value.value}")
        parameters = tuple(Parameter(*text.rsplit(" ", 1)) for text, _ in arguments)
        instance = Instance(name, family, parameters, call, bound or threads, resident)
        return Launch(instance, grid, (threads, 1, 1), tuple(a for _, a in arguments))


Lowering = Callable[[NodeView], list[Launch]]

_LOWERINGS: dict[str, Lowering] = {}
_CONDITIONS: dict[str, Callable[[NodeView], bool]] = {}
_ANY_PITCH: set[str] = set()


def lowering(
    *kinds: str, when: Callable[[NodeView], bool] | None = None, any_pitch: bool = False
) -> Callable[[Lowering], Lowering]:
    """Register a function as the lowering of kinds; with `when`, only of the nodes for which that holds.

    A network's half images have shorter rows than the features that layers make of them. A node where that shows is
    refused, unless its lowering says with `any_pitch` that it takes the pitch of each operand from the operand.
    """

    def register(function: Lowering) -> Lowering:
        for kind in kinds:
            if kind in _LOWERINGS:
                raise ValueError(f"kind '{kind}' has two lowerings")
            _LOWERINGS[kind] = function
            if when is not None:
                _CONDITIONS[kind] = when
            if any_pitch:
                _ANY_PITCH.add(kind)
        return function

    return register


def lowered_kinds() -> Iterator[str]:
    """The kinds that have a lowering, some of them for certain nodes only."""
    return iter(sorted(_LOWERINGS))


def owns(plan: Plan, index: int, column: int) -> bool:
    """Whether a node becomes kernels of kernels.cu in that column (and not cuDNN calls, copies or collectives)."""
    kind = plan.nodes[index].kind
    condition = _CONDITIONS.get(kind)
    return kind in _LOWERINGS and (condition is None or condition(NodeView(plan, index, column)))


def lower(plan: Plan, index: int, column: int) -> Lowered:
    """The launches of a node in one column. CompileError, which names the layer, if it has no kernels."""
    view = NodeView(plan, index, column)
    if not owns(plan, index, column):
        raise view.problem("there is no kernel")
    if view.kind not in _ANY_PITCH:
        view.one_pitch()
    launches = _LOWERINGS[view.kind](view)
    return Lowered(tuple(launches), view.scratch)


# ---------------------------------------------------------------- shapes of blocks


def ceil_div(a: int, b: int) -> int:
    """The quotient rounded up."""
    return -(-a // b)


def clamp(value: int, low: int, high: int) -> int:
    """The nearest number between two."""
    return max(low, min(value, high))


@dataclass(frozen=True)
class Rectangle:
    """A block as lanes along the channels times rows: thread t is lane t % wide of row t // wide.

    `chunks` blocks side by side cover a row of `groups` vectors.
    """

    wide: int
    tall: int
    chunks: int

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.wide * self.tall


def rows_first(groups: int, threads: int = 256) -> Rectangle:
    """Whole rows where they fit: accesses of a block are one run of memory."""
    chunks = ceil_div(groups, threads)
    wide = ceil_div(groups, chunks)
    return Rectangle(wide, max(1, threads // wide), chunks)


def columns_first(groups: int, lanes: int = 16, threads: int = 256) -> Rectangle:
    """Few channels and many rows, for sums over rows; an even number of lanes keeps segments on sectors of 32 bytes."""
    chunks = ceil_div(groups, lanes)
    wide = ceil_div(groups, chunks)
    if chunks > 1:
        wide += wide % 2
        chunks = ceil_div(groups, wide)
    return Rectangle(wide, threads // wide, chunks)


def i64(value: int) -> I:
    """A 64-bit argument."""
    return I(value)
