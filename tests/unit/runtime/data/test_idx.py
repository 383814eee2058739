from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from trc_runtime.data import idx
from trc_runtime.data.idx import DataError

IMAGES = np.arange(2 * 3 * 4, dtype=np.uint8).reshape(2, 3, 4)
LABELS = np.array([3, 1, 9], np.uint8)


def test_images_and_labels_round_trip(tmp_path: Path) -> None:
    plain, packed = tmp_path / "images", tmp_path / "labels.gz"
    plain.write_bytes(idx.write_idx(IMAGES))
    packed.write_bytes(gzip.compress(idx.write_idx(LABELS)))
    assert np.array_equal(idx.read_images(plain), IMAGES)
    assert np.array_equal(idx.read_labels(packed), LABELS)
    assert plain.read_bytes()[:8] == bytes([0, 0, 8, 3, 0, 0, 0, 2])


GOOD = idx.write_idx(IMAGES)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "f: offset 0: expected a magic number of 4 bytes, found 0 bytes in all"),
        (idx.write_idx(LABELS), "f: offset 0: expected magic number 2051 (images), found 2049 (a file of labels)"),
        (b"\x89PNG" + GOOD, "found 2303741511"),
        (GOOD[:9], "f: offset 4: expected a header of 16 bytes, found 9 bytes in all"),
        (GOOD[:4] + bytes(4) + GOOD[8:], "f: offset 4: expected a dimension of at least 1, found 0"),
        (GOOD[:-1], "f: offset 39: expected 24 bytes of data (2 x 3 x 4), found 23: the file is truncated"),
        (GOOD + b"xy", "f: offset 40: expected 24 bytes of data (2 x 3 x 4), found 26: 2 bytes too many at the end"),
        (GOOD[:4] + b"\xff" * 12, "4294967295 x 4294967295 x 4294967295"),
    ],
)
def test_damaged_images_say_where(data: bytes, message: str) -> None:
    with pytest.raises(DataError) as error:
        idx.parse_images(data, "f")
    assert message in str(error.value)


def test_a_label_out_of_range_names_its_place() -> None:
    with pytest.raises(DataError, match=r"f: offset 10: expected a label below 9, found 9 \(label 2\)"):
        idx.parse_labels(idx.write_idx(LABELS), "f", classes=9)


def test_counts_must_agree() -> None:
    with pytest.raises(DataError, match="l: offset 4: expected 2 labels, one for each image of i, found 3"):
        idx.check_pair(IMAGES, LABELS, "i", "l")


@pytest.mark.parametrize("cut", [12, -9, -4])
def test_a_truncated_gzip_file(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "images.gz"
    path.write_bytes(gzip.compress(GOOD)[:cut])
    with pytest.raises(DataError, match="damaged gzip file"):
        idx.read_images(path)


def test_a_flipped_byte_in_a_gzip_file(tmp_path: Path) -> None:
    data = bytearray(gzip.compress(GOOD, compresslevel=0))
    data[25] ^= 1
    (tmp_path / "images.gz").write_bytes(data)
    with pytest.raises(DataError, match="damaged gzip file"):
        idx.read_images(tmp_path / "images.gz")


def test_a_small_file_cannot_fill_the_memory(tmp_path: Path) -> None:
    path = tmp_path / "bomb"
    path.write_bytes(gzip.compress(bytes(1 << 24)))
    with pytest.raises(DataError, match="holds more than 1048576 bytes"):
        idx.read_bytes(path, 1 << 20)


def test_no_more_is_decompressed_than_the_header_announces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "bomb.gz"
    path.write_bytes(gzip.compress(GOOD + bytes(1 << 26)))
    read = 0
    plain = gzip.GzipFile.read

    def counted(self: gzip.GzipFile, size: int | None = -1) -> bytes:
        nonlocal read
        data = plain(self, size)
        read += len(data)
        return data

    monkeypatch.setattr(gzip.GzipFile, "read", counted)
    with pytest.raises(DataError, match=r"bomb\.gz: holds more than the 40 bytes that its header announces"):
        idx.read_images(path)
    assert read < 1 << 22


def test_a_missing_file_and_a_folder(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read: No such file"):
        idx.read_images(tmp_path / "none")
    with pytest.raises(DataError, match="cannot be read"):
        idx.read_images(tmp_path)
