"""Parameters under torchvision's names and in its layouts, as safetensors files, both ways bit for bit.

| layer | trc | PyTorch |
|---|---|---|
| convolution | [K, R, S, C / groups] | [K, C / groups, R, S] |
| fully connected | [out, 1, 1, in], columns in the order height, width, channels | [out, in], columns in CHW order |
| batch norm, bias | [1, 1, 1, n] | [n], in CHW order after a flattened map |

PyTorch also counts the batches that a batch norm has seen; trc writes 0 and leaves the number aside when it reads. In
PyTorch such a file is `safetensors.torch.save_file(net.state_dict(), path)` and
`net.load_state_dict(safetensors.torch.load_file(path))`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, cast

import numpy as np
import safetensors
import safetensors.numpy
from numpy.typing import NDArray
from xdsl.dialects.builtin import ModuleOp

from trc.diagnostics import CompileError
from trc.interchange.parameters import Leaf, LeafKind, leaves, model_of
from trc_runtime.schema.files import write_atomically

Array = NDArray[Any]
Shape = tuple[int, ...]

COUNTER = "num_batches_tracked"

_FLOATS = {"F16": np.dtype(np.float16), "F32": np.dtype(np.float32), "F64": np.dtype(np.float64)}
_SHOWN = 8
"""How many problems a message lists."""


# --- names ----------------------------------------------------------------------------------------------------------


def _conv_norm(conv: str, norm: str) -> Iterator[tuple[LeafKind, str]]:
    yield LeafKind.CONV, conv
    yield LeafKind.NORM, norm


def _resnet(depths: Sequence[int], convolutions: int) -> Iterator[tuple[LeafKind, str]]:
    """`layer<stage>.<block>.conv<n>`, and a projection as `downsample`, which trc runs before the stem."""
    yield from _conv_norm("conv1", "bn1")
    for stage, depth in enumerate(depths, 1):
        for block in range(depth):
            at = f"layer{stage}.{block}."
            # Bottlenecks are four times as wide as the pool's result, so that their first block projects too.
            if block == 0 and (stage > 1 or convolutions == 3):
                yield from _conv_norm(f"{at}downsample.0", f"{at}downsample.1")
            for n in range(1, convolutions + 1):
                yield from _conv_norm(f"{at}conv{n}", f"{at}bn{n}")
    yield LeafKind.FC, "fc"


def _vgg(depths: Sequence[int]) -> Iterator[tuple[LeafKind, str]]:
    """Places in two sequences: conv, bn, relu each and a pool after every stage; linear, relu, dropout."""
    place = 0
    for depth in depths:
        for _ in range(depth):
            yield from _conv_norm(f"features.{place}", f"features.{place + 1}")
            place += 3
        place += 1
    for n in (0, 3, 6):
        yield LeafKind.FC, f"classifier.{n}"


def _mobilenet_v2(depths: Sequence[int]) -> Iterator[tuple[LeafKind, str]]:
    """Conv-bn-act triples are sequences of their own inside a block; only its first block does not expand."""
    yield from _conv_norm("features.0.0", "features.0.1")
    for block in range(1, sum(depths) + 1):
        at = f"features.{block}.conv."
        triples = 1 if block == 1 else 2
        for n in range(triples):
            yield from _conv_norm(f"{at}{n}.0", f"{at}{n}.1")
        yield from _conv_norm(f"{at}{triples}", f"{at}{triples + 1}")
    last = sum(depths) + 1
    yield from _conv_norm(f"features.{last}.0", f"features.{last}.1")
    yield LeafKind.FC, "classifier.1"


_NAMES: dict[str, Callable[[], Iterator[tuple[LeafKind, str]]]] = {
    "resnet18": lambda: _resnet((2, 2, 2, 2), 2),
    "resnet34": lambda: _resnet((3, 4, 6, 3), 2),
    "resnet50": lambda: _resnet((3, 4, 6, 3), 3),
    "resnet101": lambda: _resnet((3, 4, 23, 3), 3),
    "resnet152": lambda: _resnet((3, 8, 36, 3), 3),
    "vgg11_bn": lambda: _vgg((1, 1, 2, 2, 2)),
    "vgg13_bn": lambda: _vgg((2, 2, 2, 2, 2)),
    "vgg16_bn": lambda: _vgg((2, 2, 3, 3, 3)),
    "vgg19_bn": lambda: _vgg((2, 2, 4, 4, 4)),
    "mobilenet_v2": lambda: _mobilenet_v2((1, 2, 3, 4, 3, 3, 1)),
}

_OWN_NAMES = ("mlp", "lenet5", "nin")
"""Networks that torchvision does not have: modules are called as trc's layers (`conv1`, `bn1`, `fc1`)."""

ARCHITECTURES = (*_OWN_NAMES, *_NAMES)
"""What `architecture` may be."""


def module_names(model: ModuleOp, architecture: str | None = None) -> dict[str, str]:
    """PyTorch's module of each trc layer with parameters: `{"conv1": "layer1.0.conv1", ...}`.

    Layers are matched by their order and kind, whatever they are called. `architecture` is one of ARCHITECTURES, by
    default the model's own name. CompileError where it is none, or the network is another.
    """
    return {e.leaf.name: e.module for e in _entries(model, architecture)}


def tensor_names(model: ModuleOp, architecture: str | None = None) -> dict[str, str]:
    """PyTorch's name of each tensor of trc: `{"conv1.weight": "layer1.0.conv1.weight", ...}`. As `module_names`."""
    return {ours: theirs for e in _entries(model, architecture) for ours, theirs in e.names}


@dataclass(frozen=True)
class _Entry:
    leaf: Leaf
    module: str

    @property
    def names(self) -> list[tuple[str, str]]:
        """Trc's and PyTorch's name of each tensor."""
        return [(f"{self.leaf.name}.{part}", f"{self.module}.{part}") for part in self.leaf.tensors]


def _entries(model: ModuleOp, architecture: str | None) -> list[_Entry]:
    name = model_of(model).sym_name.data if architecture is None else architecture
    found = leaves(model)
    for leaf in found:
        if leaf.kind is LeafKind.CONV and leaf.map[0] * leaf.map[1] > 1:
            raise CompileError(f"layer '{leaf.name}': a convolution of a flattened map has no counterpart in PyTorch")
    if name in _OWN_NAMES:
        return [_Entry(leaf, leaf.name) for leaf in found]
    rule = _NAMES.get(name)
    if rule is None:
        close = get_close_matches(name, ARCHITECTURES, n=1)
        hint = f"; did you mean '{close[0]}'?" if close else f"; choose one of {', '.join(ARCHITECTURES)}"
        raise CompileError(f"no names in torchvision are known for a network called '{name}'{hint}")
    wanted = list(rule())
    for number, (leaf, (kind, module)) in enumerate(zip(found, wanted, strict=False), 1):
        if leaf.kind is not kind:
            raise CompileError(
                f"the network is no {name}: its layer with parameters number {number}, '{leaf.name}', is a {leaf.kind},"
                f" where {name} has the {kind} '{module}'"
            )
    if len(found) != len(wanted):
        raise CompileError(f"the network is no {name}: it has {len(found)} layers with parameters, not {len(wanted)}")
    return [_Entry(leaf, module) for leaf, (_, module) in zip(found, wanted, strict=True)]


# --- layouts --------------------------------------------------------------------------------------------------------


def _torch_shape(leaf: Leaf, part: str, shape: Shape) -> Shape:
    if part != "weight" or leaf.kind is LeafKind.NORM:
        return (shape[3],)
    k, r, s, c = shape
    return (k, c, r, s) if leaf.kind is LeafKind.CONV else (k, c)


def _is_permuted(leaf: Leaf, part: str) -> bool:
    """Whether the inputs that a tensor runs over are a map of several places."""
    over_inputs = leaf.kind is LeafKind.NORM or (leaf.kind is LeafKind.FC and part == "weight")
    return over_inputs and leaf.map[0] * leaf.map[1] > 1


def _to_torch(leaf: Leaf, part: str, array: Array) -> Array:
    shape = _torch_shape(leaf, part, array.shape)
    if leaf.kind is LeafKind.CONV and part == "weight":
        return np.ascontiguousarray(array.transpose(0, 3, 1, 2))
    if _is_permuted(leaf, part):
        h, w, c = leaf.map
        array = array.reshape(-1, h, w, c).transpose(0, 3, 1, 2)
    return np.ascontiguousarray(array).reshape(shape)


def _from_torch(leaf: Leaf, part: str, array: Array, shape: Shape) -> Array:
    if leaf.kind is LeafKind.CONV and part == "weight":
        return np.ascontiguousarray(array.transpose(0, 2, 3, 1))
    if _is_permuted(leaf, part):
        h, w, c = leaf.map
        array = array.reshape(-1, c, h, w).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(array).reshape(shape)


def _misfit(leaf: Leaf, part: str, shape: Shape) -> str | None:
    """How a tensor's shape differs from what its layer says; an image's channels may be fewer than the padded ones."""
    wanted = leaf.weight
    if part != "weight" or leaf.kind is LeafKind.NORM:
        wanted = (1, 1, 1, leaf.weight[3] if leaf.kind is LeafKind.NORM else leaf.weight[0])
    elif leaf.kind is LeafKind.CONV and shape[:3] == wanted[:3] and len(shape) == 4 and 1 <= shape[3] <= wanted[3]:
        return None
    return None if shape == wanted else f"'{leaf.name}.{part}' is {list(shape)}, not {list(wanted)}"


# --- files ----------------------------------------------------------------------------------------------------------


def to_torch(tensors: Mapping[str, Array], model: ModuleOp, architecture: str | None = None) -> dict[str, Array]:
    """The network's parameters and running statistics as PyTorch's `state_dict` has them.

    Args:
        tensors: arrays by trc's names, such as `exe.tensors`; others than those of the network's parameters are not
            looked at.
        model: the network as `arch.model`, with shapes (`trc.lower(net, to="arch")`, or any later phase).
        architecture: one of ARCHITECTURES; by default the model's name.

    Raises:
        CompileError: a tensor is missing or has another shape, or the network is not that architecture.
    """
    result: dict[str, Array] = {}
    problems: list[str] = []
    for entry in _entries(model, architecture):
        for part, (ours, theirs) in zip(entry.leaf.tensors, entry.names, strict=True):
            if ours not in tensors:
                problems.append(f"there is no tensor '{ours}'")
                continue
            array = tensors[ours]
            if (misfit := _misfit(entry.leaf, part, array.shape)) is not None:
                problems.append(misfit)
                continue
            result[theirs] = _to_torch(entry.leaf, part, array)
        if entry.leaf.kind is LeafKind.NORM:
            result[f"{entry.module}.{COUNTER}"] = np.zeros((), np.int64)
    if problems:
        raise CompileError("the parameters do not fit the network: " + _listed(problems))
    return result


def export_file(
    tensors: Mapping[str, Array], model: ModuleOp, path: str | os.PathLike[str], architecture: str | None = None
) -> Path:
    """Write what `to_torch` gives to a safetensors file; the file appears whole or not at all.

    Raises CompileError as `to_torch` does, and for a path that cannot be written.
    """
    arrays = to_torch(tensors, model, architecture)
    final = Path(path)
    # PyTorch's readers look for this entry.
    data = safetensors.numpy.save(arrays, {"format": "pt"})
    try:
        write_atomically(final, data)
    except OSError as err:
        raise CompileError(f"{final} cannot be written: {err.strerror or err}") from None
    return final


def import_file(
    path: str | os.PathLike[str], model: ModuleOp, tensors: Mapping[str, Array], architecture: str | None = None
) -> dict[str, Array]:
    """Read parameters and running statistics from a safetensors file with PyTorch's names and layouts.

    Args:
        path: the file.
        model: the network as for `to_torch`.
        tensors: arrays by trc's names; they say which shape and type each tensor has. Values are read exactly or not
            at all: half to single and single to double precision, not back.
        architecture: one of ARCHITECTURES; by default the model's name.

    Returns:
        The arrays by trc's names, to be assigned to `exe.tensors`.

    Raises:
        CompileError: the file is missing or damaged, lacks a tensor, has one that the network does not know or one of
            another shape or type; all of them are named. Also as `to_torch`.
    """
    entries = _entries(model, architecture)
    with _open(Path(path)) as file:
        problems = _check(file, entries, tensors)
        if problems:
            raise CompileError(f"{path} does not fit this network: " + _listed(problems))
        result: dict[str, Array] = {}
        for entry in entries:
            for part, (ours, theirs) in zip(entry.leaf.tensors, entry.names, strict=True):
                like = tensors[ours]
                read = file.read(theirs).astype(like.dtype, copy=False)
                result[ours] = _from_torch(entry.leaf, part, read, like.shape)
    return result


def _check(file: _File, entries: Sequence[_Entry], tensors: Mapping[str, Array]) -> list[str]:
    known = {theirs for e in entries for _, theirs in e.names}
    counters = {f"{e.module}.{COUNTER}" for e in entries if e.leaf.kind is LeafKind.NORM}
    problems: list[str] = []
    for entry in entries:
        for part, (ours, theirs) in zip(entry.leaf.tensors, entry.names, strict=True):
            if ours not in tensors:
                problems.append(f"there is no tensor '{ours}'")
                continue
            like = tensors[ours]
            if (misfit := _misfit(entry.leaf, part, like.shape)) is not None:
                problems.append(misfit)
                continue
            wanted = _torch_shape(entry.leaf, part, like.shape)
            if theirs not in file.types:
                problems.append(f"it lacks '{theirs}' {list(wanted)}")
                continue
            type_, shape = file.types[theirs]
            if shape != wanted:
                problems.append(f"'{theirs}' is {list(shape)} there, {list(wanted)} in the network ('{ours}')")
            elif type_ not in _FLOATS:
                problems.append(f"'{theirs}' is of type {type_}; {', '.join(_FLOATS)} can be read")
            elif not np.can_cast(_FLOATS[type_], like.dtype, "safe"):
                problems.append(f"'{theirs}' is of type {type_}, which {like.dtype} ('{ours}') cannot hold exactly")
    for name in sorted(file.types.keys() - known - counters):
        problems.append(f"the network has no '{name}' {list(file.types[name][1])}")
    return problems


class _File:
    """An open safetensors file: its table has been checked by the library, its numbers are read on demand."""

    def __init__(self, path: Path, handle: Any) -> None:
        self._path = path
        self._handle = handle
        self.types: dict[str, tuple[str, Shape]] = {}
        for name in cast("list[str]", handle.keys()):
            piece = handle.get_slice(name)
            self.types[name] = (str(piece.get_dtype()), tuple(int(n) for n in piece.get_shape()))

    def read(self, name: str) -> Array:
        """A tensor's numbers."""
        try:
            return cast(Array, self._handle.get_tensor(name))
        except Exception as err:
            raise _damaged(self._path, err) from None

    def __enter__(self) -> _File:
        return self

    def __exit__(self, *args: object) -> None:
        self._handle.__exit__(*args)


def _open(path: Path) -> _File:
    """CompileError for a file that cannot be read or is no safetensors file."""
    opener = cast(Any, safetensors.safe_open)  # pyright: ignore[reportUnknownMemberType]
    if path.is_dir():
        raise CompileError(f"{path} is a folder, not a safetensors file")
    try:
        return _File(path, opener(path, framework="numpy").__enter__())
    except FileNotFoundError:
        raise CompileError(f"{path}: no such file") from None
    except OSError as err:
        raise CompileError(f"{path}: cannot be read: {err.strerror or err}") from None
    except Exception as err:
        raise _damaged(path, err) from None


def _damaged(path: Path, err: Exception) -> CompileError:
    return CompileError(f"{path}: damaged, or not a safetensors file: {err}")


def _listed(problems: Sequence[str]) -> str:
    more = f"; and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
    return "; ".join(problems[:_SHOWN]) + more
