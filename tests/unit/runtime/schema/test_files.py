"""Writing files: whole or not at all, links and devices left as they are."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from trc_runtime.schema.files import is_special, write_atomically


def test_a_file_is_replaced_and_nothing_else_appears(tmp_path: Path) -> None:
    path = tmp_path / "new folder" / "out put.txt"
    write_atomically(path, b"one")
    write_atomically(str(path), b"two")
    assert path.read_bytes() == b"two"
    assert list(path.parent.iterdir()) == [path]


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    link = tmp_path / "latest"
    link.symlink_to(tmp_path / "runs" / "5")
    write_atomically(link, b"new")
    assert link.is_symlink()
    assert (tmp_path / "runs" / "5").read_bytes() == b"new"


def test_a_pipe_is_written_to_not_replaced(tmp_path: Path) -> None:
    """With a rename, `--checkpoint /dev/null` as root would put a file in the place of the device."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()), daemon=True)
    reader.start()
    write_atomically(pipe, b"data")
    reader.join(10)
    assert got == [b"data"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


@pytest.mark.parametrize("name", ["folder", "file/below", "x" * 300, "a\0b"])
def test_errors_name_the_path_that_was_given(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_bytes(b"precious")
    with pytest.raises(OSError) as err:
        write_atomically(tmp_path / name, b"data")
    assert err.value.filename == str(tmp_path / name)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "folder"]
    assert (tmp_path / "file").read_bytes() == b"precious"


def test_a_file_in_the_way_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for name in ("file/x", "file/folder/x"):
        with pytest.raises(NotADirectoryError, match="Not a directory"):
            write_atomically(tmp_path / name, b"")


def test_shared_memory_holds_plain_files() -> None:
    """Of what lies under /dev only devices and open files are written to in place."""
    assert not is_special(Path("/dev/shm/trc-cache/x"))
    assert is_special(Path("/dev/full"))
    assert is_special(Path("/dev/stdout"))


def test_nothing_is_left_of_a_write_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "out"
    write_atomically(path, b"old")

    def full(_: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(KeyboardInterrupt):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
