from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from trc_runtime.data import idx
from trc_runtime.data.dataset import CIFAR, FASHION, MNIST, Split, load_folder, measure
from trc_runtime.data.idx import DataError
from trc_runtime.data.loader import Batch, Batches, Filler, shuffled_order
from trc_runtime.data.synthetic import synthetic
from trc_runtime.rng import philox, stream_id, word64_of
from trc_runtime.schema.config import Normalise


def test_the_order_is_that_of_philox_keys() -> None:
    words = [philox(7, (stream_id("shuffle"), 3, n, 0)) for n in range(50)]
    keys = [word64_of(w[0], w[1]) for w in words]
    assert shuffled_order(50, 7, 3).tolist() == sorted(range(50), key=lambda n: keys[n])


def test_orders_are_permutations_that_differ_by_seed_and_epoch() -> None:
    orders = [shuffled_order(1000, seed, epoch) for seed in (0, 1) for epoch in (0, 1)]
    assert all(np.array_equal(np.sort(o), np.arange(1000)) for o in orders)
    assert len({o.tobytes() for o in orders}) == 4
    assert np.array_equal(orders[1], shuffled_order(1000, 0, 1))


@pytest.mark.parametrize(
    ("samples", "batch", "keep", "sizes", "dropped"),
    [(10, 4, True, [4, 4, 2], 0), (10, 4, False, [4, 4], 2), (8, 4, True, [4, 4], 0), (3, 4, True, [3], 0)],
)
def test_batches(samples: int, batch: int, keep: bool, sizes: list[int], dropped: int) -> None:
    batches = Batches.cut(samples, batch, keep)
    cut = list(batches)
    assert [b.size for b in cut] == sizes
    assert [b.first for b in cut] == [batch * i for i in range(len(cut))]
    assert (batches.steps, batches.samples, batches.dropped) == (len(sizes), sum(sizes), dropped)


@pytest.mark.parametrize("normalisation", [MNIST, CIFAR])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_filling_normalises_shuffled_and_in_order(normalisation: Normalise, dtype: type[np.floating]) -> None:
    c = len(normalisation.mean)
    rng = np.random.default_rng(1)
    raw = rng.integers(0, 256, (23, 5, 4, c), dtype=np.uint8)
    split = Split(raw, np.arange(23, dtype=np.int32), normalisation)
    exact = (raw / 255 - normalisation.mean) / normalisation.std
    images, labels = np.empty((6, 5, 4, c), dtype), np.empty(6, np.int32)
    tolerance = 8 * float(np.finfo(dtype).eps)
    filler = Filler(split)
    filler.shuffle(5, 2)
    order = shuffled_order(23, 5, 2)
    filler.fill(Batch(1, 6, 6), labels, images)
    assert labels.tolist() == order[6:12].tolist()
    np.testing.assert_allclose(images, exact[order[6:12]], rtol=tolerance, atol=4 * tolerance)
    filler.in_order()
    filler.fill(Batch(2, 12, 6), labels, images)
    assert labels.tolist() == list(range(12, 18))
    np.testing.assert_allclose(images, exact[12:18], rtol=tolerance, atol=4 * tolerance)


def test_a_buffer_with_padded_channels_gives_the_same() -> None:
    data = synthetic((4, 4, 3), 3, train=8, val=4)
    dense, padded = np.empty((4, 4, 4, 3), np.float32), np.zeros((4, 4, 4, 4), np.float32)
    labels, filler = np.empty(4, np.int32), Filler(data.train)
    filler.fill(Batch(0, 0, 4), labels, dense)
    filler.fill(Batch(0, 0, 4), labels, padded[..., :3])
    assert np.array_equal(dense, padded[..., :3])
    assert not padded[..., 3].any()


def test_a_buffer_of_another_shape_or_type_is_refused() -> None:
    filler, labels = Filler(synthetic((4, 4, 1), train=8, val=4).train), np.empty(4, np.int32)
    with pytest.raises(
        DataError, match=r"a batch of 4 images \(4, 4, 1\) does not fit a buffer of shape \(4, 4, 5, 1\)"
    ):
        filler.fill(Batch(0, 0, 4), labels, np.empty((4, 4, 5, 1), np.float32))
    with pytest.raises(DataError, match="type uint16"):
        filler.fill(Batch(0, 0, 4), labels, np.empty((4, 4, 4, 1), np.uint16))


def test_bytes_go_into_a_buffer_of_bytes_as_they_are() -> None:
    data = synthetic((4, 5, 3), 3, train=23, val=4)
    how = data.train.normalisation
    images, labels, filler = np.empty((6, 4, 5, 3), np.uint8), np.empty(6, np.int32), Filler(data.train, how)
    filler.shuffle(5, 2)
    filler.fill(Batch(1, 6, 6), labels, images)
    chosen = shuffled_order(23, 5, 2)[6:12]
    assert np.array_equal(images, data.train.images[chosen])
    assert np.array_equal(labels, data.train.labels[chosen])
    filler.in_order()
    filler.fill(Batch(2, 12, 6), labels, images)
    assert np.array_equal(images, data.train.images[12:18])
    with pytest.raises(DataError, match=r"a batch of 6 images .* does not fit a buffer of shape"):
        filler.fill(Batch(0, 0, 6), labels, images[:5])
    with pytest.raises(DataError, match="of type float32 cannot be filled with unsigned bytes, which the plan normal"):
        filler.fill(Batch(0, 0, 6), labels, np.empty((6, 4, 5, 3), np.float32))
    with pytest.raises(DataError, match="of type uint8 cannot be filled with floating-point numbers"):
        Filler(data.train).fill(Batch(0, 0, 6), labels, images)


def test_a_split_that_the_plan_normalises_otherwise_is_refused() -> None:
    images, labels = np.zeros((2, 4, 4, 1), np.uint8), np.zeros(2, np.int32)
    with pytest.raises(
        DataError, match=r"normalisation is mean 0\.1307, std 0\.3081, but this .* for mean 0\.286, std 0\.353: com"
    ):
        Filler(Split(images, labels, MNIST), FASHION)
    with pytest.raises(DataError, match=r"the images are float32, .* \(mean 0\.1307, std 0\.3081\): give it bytes"):
        Filler(Split(images.astype(np.float32), labels), MNIST)


def test_splits_are_checked() -> None:
    images, labels = np.zeros((2, 4, 4, 1), np.uint8), np.zeros(2, np.int32)
    with pytest.raises(DataError, match="need a normalisation"):
        Split(images, labels)
    with pytest.raises(DataError, match="the images have 1 channels, the normalisation has 3"):
        Split(images, labels, CIFAR)
    with pytest.raises(DataError, match=r"need labels of shape \(2,\), not \(3,\)"):
        Split(images, np.zeros(3, np.int32), MNIST)
    with pytest.raises(DataError, match="height, width, channels"):
        Split(images[..., 0], labels, MNIST)
    with pytest.raises(DataError, match="int64"):
        Split(images.astype(np.int64), labels)
    with pytest.raises(DataError, match="label 1 is 5; the network has classes 0 to 4"):
        Split(images, np.array([4, 5], np.int32), MNIST).check_labels(5)
    floats = np.zeros((2, 4, 4, 1), np.float32)
    floats[1, 2, 3, 0] = np.nan
    with pytest.raises(DataError, match="image 1 holds nan at row 2, column 3, channel 0"):
        Split(floats, labels).check_finite()


def test_measuring() -> None:
    images = np.random.default_rng(0).integers(0, 256, (100, 3, 3, 2), dtype=np.uint8)
    found = measure(images)
    np.testing.assert_allclose(found.mean, (images / 255).mean((0, 1, 2)))
    np.testing.assert_allclose(found.std, (images / 255).std((0, 1, 2)))


def test_a_folder_of_idx_files(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for split, n in (("train", 6), ("t10k", 4)):
        (tmp_path / f"{split}-images-idx3-ubyte").write_bytes(
            idx.write_idx(rng.integers(0, 256, (n, 5, 7), dtype=np.uint8))
        )
        (tmp_path / f"{split}-labels-idx1-ubyte").write_bytes(idx.write_idx(np.arange(n, dtype=np.uint8)))
    data = load_folder(tmp_path)
    assert (data.train.shape, data.classes, len(data.train), len(data.val)) == ((5, 7, 1), 6, 6, 4)
    (tmp_path / "t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(DataError, match="lacks t10k-labels-idx1-ubyte"):
        load_folder(tmp_path)
    with pytest.raises(DataError, match="no such folder"):
        load_folder(tmp_path / "x")


def test_synthetic_data_is_reproducible() -> None:
    a, b, c = synthetic(seed=1, train=20, val=10), synthetic(seed=1, train=20, val=10), synthetic(train=20, val=10)
    assert np.array_equal(a.train.images, b.train.images)
    assert not np.array_equal(a.train.images, c.train.images)
    assert not np.array_equal(a.train.images[:10], a.val.images)
