"""Data sets in memory: unsigned bytes in NHWC with labels, and how to normalise them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trc_runtime.data import idx
from trc_runtime.data.idx import DataError
from trc_runtime.schema.config import Normalise

# Mean and standard deviation of the training images (spec/training-facts.md 3.10; Fashion-MNIST: computed from it).
MNIST = Normalise((0.1307,), (0.3081,))
"""For MNIST."""
FASHION = Normalise((0.2860,), (0.3530,))
"""For Fashion-MNIST."""
CIFAR = Normalise((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))
"""For CIFAR-10 and CIFAR-100."""
IMAGENET = Normalise((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
"""For ImageNet."""

NORMALISATIONS = {"mnist": MNIST, "fashion-mnist": FASHION, "cifar": CIFAR, "imagenet": IMAGENET}
"""By the names that tools take."""


@dataclass(frozen=True)
class Split:
    """Samples: images [n, h, w, c], labels i32 [n].

    Images of unsigned bytes need a normalisation; floating-point images are used as they are.
    """

    images: NDArray[Any]
    labels: NDArray[np.int32]
    normalisation: Normalise | None = None

    def __post_init__(self) -> None:
        if self.images.ndim != 4:
            raise DataError(f"images must be [samples, height, width, channels], not of shape {self.images.shape}")
        if self.labels.shape != self.images.shape[:1]:
            raise DataError(
                f"{len(self.images)} images need labels of shape ({len(self.images)},), not {self.labels.shape}"
            )
        if self.images.dtype == np.uint8:
            if self.normalisation is None:
                raise DataError("images of unsigned bytes need a normalisation (mean and std)")
            if len(self.normalisation.mean) != self.images.shape[3]:
                raise DataError(
                    f"the images have {self.images.shape[3]} channels, the normalisation has "
                    f"{len(self.normalisation.mean)}"
                )
        elif not np.issubdtype(self.images.dtype, np.floating):
            raise DataError(f"images must be unsigned bytes or floating-point numbers, not {self.images.dtype}")

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Height, width and channels of an image."""
        _, h, w, c = self.images.shape
        return h, w, c

    def check_labels(self, classes: int) -> None:
        """Raise DataError for the first label that is not in [0, classes)."""
        wrong = np.flatnonzero((self.labels < 0) | (self.labels >= classes))
        if wrong.size:
            first = int(wrong[0])
            raise DataError(f"label {first} is {self.labels[first]}; the network has classes 0 to {classes - 1}")

    def check_finite(self, limit: float = math.inf) -> None:
        """Raise DataError for the first floating-point image that holds NaN, infinity or a number beyond `limit`.

        `limit` is the largest number of the type that the images are converted to.
        """
        if self.images.dtype == np.uint8:
            return
        narrower = limit < float(np.finfo(self.images.dtype).max)
        for first in range(0, len(self), 1024):  # in pieces: the mask of a whole set would be large
            piece = self.images[first : first + 1024]
            good = np.abs(piece) <= limit if narrower else np.isfinite(piece)
            ok = good.all(axis=(1, 2, 3))
            if not ok.all():
                n = int(np.argmin(ok))
                h, w, c = (int(i) for i in np.argwhere(~good[n])[0])
                value = piece[n, h, w, c]
                why = f"beyond {limit:.5g}, the largest number here" if np.isfinite(value) else "images must be finite"
                raise DataError(f"image {first + n} holds {value} at row {h}, column {w}, channel {c}; {why}")


@dataclass(frozen=True)
class Dataset:
    """Training and validation samples of one problem."""

    name: str
    classes: int
    train: Split
    val: Split


def measure(images: NDArray[np.uint8]) -> Normalise:
    """The normalisation that gives these images mean 0 and standard deviation 1 in each channel.

    Computed from a histogram, so it does not depend on the order of the samples.
    """
    means: list[float] = []
    stds: list[float] = []
    values = np.arange(256) / 255
    for c in range(images.shape[3]):
        weight = np.bincount(images[..., c].reshape(-1), minlength=256) / images[..., c].size
        mean = float(weight @ values)
        means.append(mean)
        stds.append(max(float(np.sqrt(weight @ (values - mean) ** 2)), 1 / 255))
    return Normalise(tuple(means), tuple(stds))


FILES = {
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "val": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}
"""Names of the image and label files of each split, as MNIST is distributed."""


def find_file(folder: Path, name: str) -> Path | None:
    """The file of that name in a folder, plain or .gz, also with the spelling `x-images.idx3-ubyte`."""
    dotted = name.replace("-idx", ".idx")
    for candidate in (name, f"{name}.gz", dotted, f"{dotted}.gz"):
        if (path := folder / candidate).is_file():
            return path
    return None


def from_parts(
    name: str, parts: Sequence[NDArray[np.uint8]], normalisation: Normalise | None, classes: int = 10
) -> Dataset:
    """A data set of grey images [n, h, w] and labels: train images, train labels, val images, val labels.

    A normalisation of None is measured on the training images.
    """
    train_images, train_labels, val_images, val_labels = parts
    normalisation = normalisation or measure(train_images[..., None])
    train = Split(train_images[..., None], train_labels.astype(np.int32), normalisation)
    val = Split(val_images[..., None], val_labels.astype(np.int32), normalisation)
    if train.shape != val.shape:
        raise DataError(f"{name}: training images are {train.shape[:2]}, validation images {val.shape[:2]}")
    return Dataset(name, classes, train, val)


def load_folder(folder: Path, normalisation: Normalise | None = None) -> Dataset:
    """Read a folder of four IDX files named as MNIST's; classes are counted from the largest label.

    The normalisation is measured on the training images when it is not given.
    """
    if not folder.is_dir():
        raise DataError(f"{folder}: no such folder")
    paths: list[Path] = []
    missing: list[str] = []
    for name in (n for pair in FILES.values() for n in pair):
        if (path := find_file(folder, name)) is None:
            missing.append(name)
        else:
            paths.append(path)
    if missing:
        raise DataError(f"{folder}: lacks {', '.join(missing)} (plain or .gz)")
    parts = [idx.read_images(p) if n % 2 == 0 else idx.read_labels(p, classes=256) for n, p in enumerate(paths)]
    for n in (0, 2):
        idx.check_pair(parts[n], parts[n + 1], str(paths[n]), str(paths[n + 1]))
    classes = int(max(parts[1].max(), parts[3].max())) + 1
    return from_parts(folder.name, parts, normalisation, classes)
