"""A data set without files: noisy prototypes, one a class, which any network that works can learn."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trc_runtime.data.dataset import Dataset, Split, measure
from trc_runtime.rng import Philox, Stream
from trc_runtime.schema.config import Normalise

TRAIN_SAMPLES = 2000
VAL_SAMPLES = 500


def synthetic(
    shape: tuple[int, int, int] = (28, 28, 1),
    classes: int = 10,
    train: int = TRAIN_SAMPLES,
    val: int = VAL_SAMPLES,
    seed: int = 0,
    noise: float = 0.5,
    normalisation: Normalise | None = None,
) -> Dataset:
    """Images that are their class's random prototype, mixed with uniform noise of the given share.

    Labels go round the classes. The same arguments give the same bytes; training and validation samples differ. A
    normalisation of None is measured on the training images.
    """
    random, pixels = Philox(), int(np.prod(shape))

    def uniforms(stream: str, rows: int) -> NDArray[np.float32]:
        out = np.empty((rows, pixels), np.float32)
        random.uniforms(Stream.named(seed, f"synthetic/{stream}"), out)
        return out

    prototypes = uniforms("prototypes", classes)

    def samples(stream: str, count: int) -> tuple[NDArray[np.uint8], NDArray[np.int32]]:
        labels = np.arange(count, dtype=np.int32) % classes
        mixed = (1 - noise) * prototypes[labels] + noise * uniforms(stream, count)
        return (mixed * 255).astype(np.uint8).reshape(count, *shape), labels

    train_images, train_labels = samples("train", train)
    val_images, val_labels = samples("val", val)
    normalisation = normalisation or measure(train_images)
    return Dataset(
        "synthetic",
        classes,
        Split(train_images, train_labels, normalisation),
        Split(val_images, val_labels, normalisation),
    )
