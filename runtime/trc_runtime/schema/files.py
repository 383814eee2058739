"""Writing files so that nobody ever sees half of one."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import tempfile
from pathlib import Path


def write_atomically(path: str | os.PathLike[str], data: bytes, *, make_folders: bool = True) -> None:
    """Write a file under a temporary name beside it and rename it.

    A link stays a link: the file that it names is replaced. What is no regular file (a device such as /dev/null, a
    pipe) is written to and never replaced. OSError names `path`, not the temporary file.
    """
    target = Path(path)
    try:
        if "\0" in str(target):
            raise OSError(0, "a path holds no zero byte")
        if is_special(target):
            with target.open("wb") as stream:
                stream.write(data)
            return
        final = Path(os.path.realpath(target))
        if make_folders:
            _make_folder(final.parent)
        _replace(final, data)
    except OSError as err:
        if err.errno is not None:
            err.filename, err.filename2 = str(target), None
        raise


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError:  # of what is in the way; as a reason it would speak of the file to write
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)) from None


def is_special(path: Path) -> bool:
    """Whether a path names a device, a pipe or an open file (/dev/stdout): a rename would put it out of use."""
    parts = path.absolute().parts
    if parts[:2] in (("/", "dev"), ("/", "proc")) and parts[:3] != ("/", "dev", "shm"):  # shm holds plain files
        return True
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def _replace(path: Path, data: bytes) -> None:
    if path.is_dir():
        raise IsADirectoryError(0, "is a folder")
    # A long name must leave room for what the temporary one adds.
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name[:100]}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        umask = os.umask(0)
        os.umask(umask)
        Path(temporary).chmod(0o666 & ~umask)  # mkstemp makes files for the owner only
        Path(temporary).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(temporary).unlink()
        raise
