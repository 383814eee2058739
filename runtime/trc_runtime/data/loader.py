"""Batches: which samples, in which order, written into a session's input buffers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trc_runtime.data.dataset import Split
from trc_runtime.data.idx import DataError
from trc_runtime.rng import Philox, Stream
from trc_runtime.schema.config import Normalise
from trc_runtime.schema.normalise import scale_and_shift

SHUFFLE_STREAM = "shuffle"
"""Name of the random stream that orders the training samples."""


def shuffled_order(samples: int, seed: int, epoch: int) -> NDArray[np.intp]:
    """The order of an epoch's samples.

    Each sample draws a 64-bit key from the stream (seed, "shuffle", epoch) at its own row; samples follow each
    other by rising key, equal keys by index. So the order depends on nothing else, and not on earlier epochs.
    """
    keys = np.empty(samples, np.uint64)
    Philox().row_words64(Stream.named(seed, SHUFFLE_STREAM, epoch), keys)
    return np.argsort(keys, kind="stable")


@dataclass(frozen=True)
class Batch:
    """Samples `first` to `first + size` of an epoch's order; `index` counts the epoch's batches."""

    index: int
    first: int
    size: int


@dataclass(frozen=True)
class Batches:
    """How a number of samples is cut: `full` batches of `batch`, and perhaps one of `last` (0 = none).

    `dropped` samples belong to no batch.
    """

    batch: int
    full: int
    last: int
    dropped: int

    @classmethod
    def cut(cls, samples: int, batch: int, keep_last: bool) -> Batches:
        """Cut `samples`; without `keep_last` an incomplete batch is dropped."""
        full, rest = divmod(samples, batch)
        return cls(batch, full, rest if keep_last else 0, 0 if keep_last else rest)

    @property
    def steps(self) -> int:
        """Batches in all."""
        return self.full + (self.last > 0)

    @property
    def samples(self) -> int:
        """Samples in all batches."""
        return self.full * self.batch + self.last

    def __iter__(self) -> Iterator[Batch]:
        for i in range(self.full):
            yield Batch(i, i * self.batch, self.batch)
        if self.last:
            yield Batch(self.full, self.full * self.batch, self.last)


def check_normalise(split: Split, normalise: Normalise | None) -> None:
    """Raise DataError where a plan that normalises as given (None: not at all) cannot take a split."""
    if normalise is None:
        return
    if split.images.dtype != np.uint8:
        raise DataError(
            f"the images are {split.images.dtype}, but this network takes unsigned bytes and normalises them itself "
            f"({normalise}): give it bytes; for images that are normalised already compile without normalise="
        )
    if split.normalisation != normalise:
        raise DataError(
            f"the data's normalisation is {split.normalisation}, but this network was compiled for {normalise}: "
            "compile it for the data's, or give the data the network's"
        )


class Filler:
    """Writes batches of a split into staging buffers.

    The buffers are the session's: labels i32 [n] and images [n, h, w, c]. Images of a floating-point type are
    normalised here. Where the plan normalises, as `normalise` says, they are unsigned bytes, which are gathered into
    the buffer as they are; DataError where the split does not go with such a plan. Filling allocates nothing of a
    batch's size: where bytes become numbers, the order's gather goes through one buffer that is kept.
    """

    def __init__(self, split: Split, normalise: Normalise | None = None) -> None:
        check_normalise(split, normalise)
        self._split = split
        self._bytes = normalise is not None
        self._gathered: NDArray[Any] | None = None
        self._affine: tuple[np.dtype[np.generic], NDArray[Any], NDArray[Any]] | None = None
        self._order: NDArray[np.intp] | None = None

    def shuffle(self, seed: int, epoch: int) -> None:
        """Take the samples in the order of (seed, epoch)."""
        self._order = shuffled_order(len(self._split), seed, epoch)

    def in_order(self) -> None:
        """Take the samples as they stand."""
        self._order = None

    def fill(self, batch: Batch, labels: NDArray[np.int32], images: NDArray[Any]) -> None:
        """Write a batch. DataError if the buffers have another shape or type."""
        split = self._split
        if images.shape != (batch.size, *split.shape) or labels.shape != (batch.size,):
            raise DataError(
                f"a batch of {batch.size} images {split.shape} does not fit a buffer of shape {images.shape} "
                f"with labels of shape {labels.shape}"
            )
        if not (images.dtype == np.uint8 if self._bytes else np.issubdtype(images.dtype, np.floating)):
            wanted = "unsigned bytes, which the plan normalises" if self._bytes else "floating-point numbers"
            raise DataError(f"an input buffer of type {images.dtype} cannot be filled with {wanted}")
        span = slice(batch.first, batch.first + batch.size)
        if self._order is None:
            source: NDArray[Any] = split.images[span]
            np.copyto(labels, split.labels[span])
        else:
            chosen = self._order[span]
            source = images if self._bytes else self._room(batch.size)
            # The indices are in range by construction; "clip" lets take write to `out` directly.
            np.take(split.images, chosen, axis=0, out=source, mode="clip")
            np.take(split.labels, chosen, out=labels, mode="clip")
        if source is not images:
            self._convert(source, images)

    def _room(self, size: int) -> NDArray[Any]:
        if self._gathered is None or len(self._gathered) < size:
            self._gathered = np.empty((size, *self._split.shape), self._split.images.dtype)
        return self._gathered[:size]

    def _convert(self, source: NDArray[Any], out: NDArray[Any]) -> None:
        normalisation = self._split.normalisation
        if self._bytes or source.dtype != np.uint8 or normalisation is None:
            np.copyto(out, source, casting="same_kind")
            return
        if self._affine is None or self._affine[0] != out.dtype:
            # One entry a pixel of a row, not a channel: inner loops over one or three channels would be slow.
            scale, shift = (np.tile(v, out.shape[2]) for v in scale_and_shift(normalisation, out.dtype))
            self._affine = (out.dtype, scale, shift)
        _, scale, shift = self._affine
        rows = (out.shape[0], out.shape[1], -1)
        if out.flags.c_contiguous:
            source, out = source.reshape(rows), out.reshape(rows)
        else:
            scale, shift = scale.reshape(out.shape[2:]), shift.reshape(out.shape[2:])
        np.multiply(source, scale, out=out, casting="same_kind")
        np.add(out, shift, out=out)
