"""What tensors hold before the first step."""

from __future__ import annotations

from math import sqrt

import numpy as np

from trc_runtime.cpu.bind import Array
from trc_runtime.cpu.half import narrowed
from trc_runtime.rng import Philox, Stream
from trc_runtime.schema.plan import Tensor
from trc_runtime.schema.regions import AVERAGE_SUFFIX, AVERAGES

STREAM = "init/{}"
"""The random stream of a tensor; the draw of element `e` is that of row 0, element `e`."""

TRUNCATION = 2.0
"""Where trunc_normal cuts, in standard deviations (before truncation)."""

_GAIN = sqrt(2.0)
_RANDOM = ("kaiming_uniform", "kaiming_normal", "trunc_normal")

_AVERAGES = frozenset(AVERAGES.values())


def counterpart(tensor: Tensor) -> str | None:
    """The name of the tensor that a moving average begins as a copy of; None for everything else.

    An average has its counterpart's rule, which says what it holds, but nothing is drawn for it.
    """
    return tensor.name.removesuffix(AVERAGE_SUFFIX) if tensor.region in _AVERAGES else None


def stream_name(tensor: Tensor) -> str:
    """The name of the stream that a tensor's first values come from."""
    return STREAM.format(tensor.name)


def is_random(tensor: Tensor) -> bool:
    """Whether a tensor's initial values are drawn."""
    return tensor.initial.rule in _RANDOM and counterpart(tensor) is None


def fill(tensor: Tensor, view: Array, seed: int, generator: Philox) -> None:
    """Write a tensor's initial values into its array (its real channels: element numbers count those only).

    Rules (spec/training-facts.md section 2.5, a = 0): kaiming_uniform draws from [-b, b) with b = gain sqrt(3 / fan),
    kaiming_normal has the deviation gain / sqrt(fan), both with gain = sqrt 2; trunc_normal draws again what lies
    beyond two deviations (attempt n takes its numbers from step n of the stream) and corrects no variance. `table`
    stays zero: the trainer writes it. ValueError for an unknown rule, a fan below 1, or values of another number.
    """
    rule, value = tensor.initial.rule, tensor.initial.value
    if rule in ("zeros", "table"):
        view.fill(0)
        return
    if rule == "constant":
        view[...] = narrowed(np.array(value, np.float64), view.dtype)
        return
    if rule == "values":
        numbers = np.array(tensor.initial.values, np.float64)
        if numbers.size != view.size:
            raise ValueError(f"tensor '{tensor.name}' has {view.size} elements, its initial rule {numbers.size} values")
        view[...] = narrowed(numbers, view.dtype).reshape(view.shape)
        return
    if rule not in _RANDOM:
        raise ValueError(f"tensor '{tensor.name}': unknown initial rule '{rule}'")
    if rule != "trunc_normal" and tensor.initial.fan < 1:
        raise ValueError(f"tensor '{tensor.name}': rule {rule} needs a fan of at least 1, not {tensor.initial.fan}")
    stream = Stream.named(seed, stream_name(tensor))
    draws = np.empty((1, view.size), np.float64)
    if rule == "kaiming_uniform":
        generator.uniforms(stream, draws)
        draws *= 2.0
        draws -= 1.0
        draws *= _GAIN * sqrt(3.0 / tensor.initial.fan)
    elif rule == "kaiming_normal":
        generator.normals(stream, draws)
        draws *= _GAIN / sqrt(tensor.initial.fan)
    else:
        _truncated(stream, draws, generator)
        draws *= value
    view[...] = narrowed(draws, view.dtype).reshape(view.shape)


def _truncated(stream: Stream, draws: Array, generator: Philox) -> None:
    generator.normals(stream, draws)
    again = np.abs(draws) > TRUNCATION
    attempt = 0
    while again.any():
        attempt += 1
        fresh = np.empty_like(draws)
        generator.normals(Stream(stream.seed, stream.name_id, attempt), fresh)
        np.copyto(draws, fresh, where=again)
        again = np.abs(draws) > TRUNCATION
