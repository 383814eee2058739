"""Checkpoints: safetensors files with everything that a run needs to continue to the same bytes.

A checkpoint holds parameters, running statistics, moving averages, moments, counters and the loss scale, under
their tensors' names and in logical shapes. Its metadata, one JSON text under the key "trc", holds the epochs done,
the settings and a checksum. (One key, because safetensors writes several in no fixed order.)
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Generator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np
import safetensors
import safetensors.numpy
from numpy.typing import NDArray

from trc_runtime.schema.codec import to_json
from trc_runtime.schema.config import Constant, CosineWarmRestarts, Exponential, MultiStep, StepDecay
from trc_runtime.schema.files import is_special, write_atomically
from trc_runtime.schema.plan import Plan, Tensor
from trc_runtime.schema.regions import AVERAGE_SUFFIX, Region, region_range
from trc_runtime.train.average import average_name
from trc_runtime.train.tensors import is_average, is_averaged

VERSION = 1

_MOMENTS = frozenset(region_range(Region.M_BN_BIAS, Region.V_DEEP_CONV))
_COUNTERS = ("iteration", "applied", "scaling", "growth_counter")

# What must be equal for the same bytes; `epochs` only where the schedule looks at it.
_SETTINGS = ("optimizer", "schedule", "loss", "input", "num_classes", "batch", "train_samples", "train_resolution",
             "world_size", "precision", "seed", "ema")  # fmt: skip
_ENDLESS = (Constant, StepDecay, MultiStep, Exponential, CosineWarmRestarts)

Arrays = dict[str, NDArray[Any]]


class CheckpointError(ValueError):
    """A file that cannot be used: damaged, of another network, or of other settings."""


class _ReadWrite(Protocol):
    def read(self, name: str) -> NDArray[Any]: ...

    def write(self, name: str, array: NDArray[Any]) -> None: ...


def parameter_tensors(plan: Plan) -> list[Tensor]:
    """Parameters and running statistics."""
    return [t for t in plan.tensors if is_averaged(t)]


def state_tensors(plan: Plan) -> list[Tensor]:
    """Everything that a checkpoint holds."""
    return [t for t in plan.tensors if is_averaged(t) or is_average(t) or t.region in _MOMENTS or t.name in _COUNTERS]


def _shape(tensor: Tensor) -> tuple[int, ...]:
    """The shape in which sessions read and take a tensor: of the innermost dimension the real channels."""
    shape = next(s for s in tensor.shapes if s is not None)
    return shape if tensor.channels is None else (*shape[:-1], tensor.channels)


def _dtype(tensor: Tensor) -> np.dtype[Any]:
    """The type in which sessions read and take a tensor: halves are float32."""
    return np.dtype(np.float32) if tensor.dtype.is_half else tensor.dtype.numpy


def _digest(arrays: Mapping[str, NDArray[Any]], about: Mapping[str, Any]) -> str:
    """SHA-256 over the description and over names, types, shapes and bytes, in the order of the names."""
    described = {k: v for k, v in about.items() if k != "sha256"}
    digest = hashlib.sha256(json.dumps(described, sort_keys=True).encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        digest.update(array.data)
    return digest.hexdigest()


def _pack(arrays: Arrays, about: dict[str, Any]) -> bytes:
    about["version"] = VERSION
    about["sha256"] = _digest(arrays, about)
    contiguous = {name: np.ascontiguousarray(a) for name, a in arrays.items()}
    return safetensors.numpy.save(contiguous, {"trc": json.dumps(about, sort_keys=True, allow_nan=False)})


def dump(plan: Plan, session: _ReadWrite, epoch: int) -> bytes:
    """A checkpoint after `epoch` epochs, as bytes; the same state gives the same bytes."""
    arrays = {t.name: session.read(t.name) for t in state_tensors(plan)}
    return _pack(arrays, {"kind": "checkpoint", "plan": plan.name, "epoch": epoch, "config": to_json(plan.config)})


def check_writable(path: Path) -> None:
    """Raise CheckpointError before hours of training if a file cannot be written there."""
    if path.is_dir():
        raise CheckpointError(f"{path} is a folder: name a file for the checkpoint")
    if is_special(path):
        return
    path = Path(os.path.realpath(path))
    existing = next(p for p in (path.parent, *path.parent.parents) if p.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK):
        reason = "may not be written to" if existing.is_dir() else "is not a folder"
        raise CheckpointError(f"{path} cannot be written: {existing} {reason}")


def _write(path: Path, data: bytes) -> None:
    try:
        write_atomically(path, data)
    except OSError as err:
        raise CheckpointError(f"{path} cannot be written: {err.strerror or err}") from None


def save(path: Path, plan: Plan, session: _ReadWrite, epoch: int) -> None:
    """Write a checkpoint; the file appears whole or not at all."""
    _write(path, dump(plan, session, epoch))


def save_parameters(path: Path, plan: Plan, session: _ReadWrite, *, ema: bool = False) -> None:
    """Write parameters and running statistics only, or their moving averages under the same names."""
    names = (t.name for t in parameter_tensors(plan))
    arrays = {name: session.read(average_name(name) if ema else name) for name in names}
    _write(path, _pack(arrays, {"kind": "parameters", "plan": plan.name}))


@dataclass(frozen=True)
class Saved:
    """What a file holds: tensors by name, and what it says about them (empty for a file that is not trc's)."""

    path: Path
    arrays: Arrays
    about: dict[str, Any]


def read(path: Path) -> Saved:
    """Read a safetensors file and check its checksum, where it has one; CheckpointError says what is wrong."""
    try:
        with safetensors.safe_open(path, framework="numpy") as file:  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
            metadata = cast("dict[str, str] | None", file.metadata())  # pyright: ignore[reportUnknownMemberType]
            names = cast(list[str], file.keys())  # pyright: ignore[reportUnknownMemberType]
            arrays: Arrays = {name: file.get_tensor(name) for name in names}  # pyright: ignore[reportUnknownMemberType]
    except FileNotFoundError:
        raise CheckpointError(f"{path}: no such file") from None
    except OSError as err:
        raise CheckpointError(f"{path}: cannot be read: {err.strerror or err}") from None
    except Exception as err:  # SafetensorError, or a type that NumPy does not know
        raise CheckpointError(f"{path}: damaged, or not a safetensors file: {err}") from None
    about: dict[str, Any] = {}
    text = (metadata or {}).get("trc")
    if text is not None:
        try:
            parsed: object = json.loads(text)
        except (ValueError, RecursionError):
            parsed = None
        if not isinstance(parsed, dict):
            raise CheckpointError(f"{path}: damaged: its description is not readable")
        about = cast(dict[str, Any], parsed)
        if about.get("version") != VERSION:
            raise CheckpointError(f"{path}: checkpoint version {about.get('version')}, this trc reads {VERSION}")
        if about.get("sha256") != _digest(arrays, about):
            raise CheckpointError(f"{path}: damaged: its contents do not have the checksum written in it")
    return Saved(path, arrays, about)


def _listed(names: list[str]) -> str:
    shown = ", ".join(names[:5])
    return shown if len(names) <= 5 else f"{shown} and {len(names) - 5} more"


def _check_tensors(path: Path, arrays: Arrays, wanted: list[Tensor], exact: bool) -> None:
    """Every wanted tensor is there in its shape (and type, where `exact`), and no other is."""
    problems: list[str] = []
    names = {t.name for t in wanted}
    if missing := [t.name for t in wanted if t.name not in arrays]:
        problems.append(f"it lacks {_listed(missing)}")
    if unknown := [n for n in arrays if n not in names]:
        problems.append(f"the network has no {_listed(sorted(unknown))}")
    for tensor in wanted:
        array = arrays.get(tensor.name)
        if array is None:
            continue
        if array.shape != _shape(tensor):
            problems.append(f"{tensor.name} is {list(array.shape)} there, {list(_shape(tensor))} in the network")
        elif exact and array.dtype != _dtype(tensor):
            problems.append(f"{tensor.name} is {array.dtype} there, {tensor.dtype.value} in the network")
        elif not exact and not np.issubdtype(array.dtype, np.floating):
            problems.append(f"{tensor.name} is {array.dtype} there, not a floating-point type")
    if problems:
        raise CheckpointError(f"{path} does not fit this network: " + "; ".join(problems[:8]))


@contextmanager
def reading(path: Path | None) -> Generator[Callable[[], Saved | None]]:
    """Read a file (or none) in a thread of its own, while its session is being made ready.

    What is yielded waits for the end and returns it, or raises CheckpointError.
    """
    if path is None:
        yield lambda: None
        return
    with ThreadPoolExecutor(1, "trc-state") as pool:
        yield pool.submit(read, path).result


def restore(file: Saved, plan: Plan, session: _ReadWrite) -> int:
    """Restore a session from a checkpoint and return how many epochs were done.

    Nothing is written before everything has been checked. CheckpointError for one that does not fit.
    """
    path = file.path
    if file.about.get("kind") != "checkpoint":
        raise CheckpointError(f"{path}: holds parameters only: training cannot be continued from it")
    wanted = state_tensors(plan)
    _check_average(path, file.arrays, wanted)
    _check_tensors(path, file.arrays, wanted, exact=True)
    _check_settings(path, file.about.get("config"), plan)
    epoch = file.about.get("epoch")
    if not isinstance(epoch, int) or isinstance(epoch, bool) or epoch < 0:
        raise CheckpointError(f"{path}: damaged: {epoch!r} is not a number of epochs")
    for tensor in wanted:
        session.write(tensor.name, file.arrays[tensor.name])
    return epoch


def _check_average(path: Path, arrays: Arrays, wanted: list[Tensor]) -> None:
    """A file with moving averages is for a network with one, and the other way round."""
    plain = {t.name for t in wanted if not is_average(t)}
    theirs = any(name.endswith(AVERAGE_SUFFIX) for name in arrays.keys() - plain)
    ours = any(is_average(tensor) for tensor in wanted)
    if theirs != ours:
        raise CheckpointError(
            f"{path} was written {'with' if theirs else 'without'} a moving average of the weights, and this network "
            f"keeps {'one' if ours else 'none'}: compile it {'without' if ours else 'with'} ema= (--ema), or take the "
            "parameters only (load_parameters)"
        )


def _check_settings(path: Path, saved: object, plan: Plan) -> None:
    ours = cast(dict[str, Any], to_json(plan.config))
    theirs = cast(dict[str, Any], saved) if isinstance(saved, dict) else {}
    compared = [*_SETTINGS, *(() if isinstance(plan.config.schedule, _ENDLESS) else ("epochs",))]
    # The same data give the same bytes whether host or device normalises: compared only where both plans say how.
    compared += [n for n in ("normalise",) if n in ours and n in theirs]
    pairs = [(n, theirs.get(n), ours.get(n)) for n in compared]
    differ = [f"{name} was {_brief(old)}, now {_brief(new)}" for name, old, new in pairs if old != new]
    if differ:
        raise CheckpointError(f"{path} was written with other settings: {'; '.join(differ)}")


def _brief(value: object) -> str:
    if isinstance(value, dict):
        body = cast(dict[str, object], value)
        return f"{body.get('type')}({', '.join(f'{k}={_brief(v)}' for k, v in sorted(body.items()) if k != 'type')})"
    return json.dumps(value)


def label_smoothing(path: Path) -> float | None:
    """The label smoothing that a checkpoint was trained with; None where the file does not say."""
    config: object = read(path).about.get("config")
    loss = cast(dict[str, Any], config).get("loss") if isinstance(config, dict) else None
    value = cast(dict[str, Any], loss).get("label_smoothing") if isinstance(loss, dict) else None
    return float(value) if isinstance(value, int | float) else None


def load_parameters(path: Path, plan: Plan, session: _ReadWrite, *, ema: bool = False) -> None:
    """Take parameters and running statistics from a checkpoint or a file that holds just those.

    Moments, counters and moving averages of a checkpoint are left aside, with `ema` all but the averages, which are
    taken instead; floating-point types are converted.
    """
    file = read(path)
    wanted = parameter_tensors(plan)
    arrays = file.arrays
    names = {t.name for t in wanted}
    if ema:
        averages = (n for n in arrays if n.endswith(AVERAGE_SUFFIX) and n not in names)
        arrays = {n.removesuffix(AVERAGE_SUFFIX): arrays[n] for n in averages}
        if not arrays:
            raise CheckpointError(
                f"{path} holds no moving average: only checkpoints of a network that was compiled with one do"
            )
    elif file.about.get("kind") == "checkpoint":
        ends = (".m", ".v", AVERAGE_SUFFIX)
        arrays = {n: a for n, a in arrays.items() if n in names or not (n in _COUNTERS or n.endswith(ends))}
    _check_tensors(path, arrays, wanted, exact=False)
    for tensor in wanted:
        session.write(tensor.name, arrays[tensor.name].astype(_dtype(tensor)))
