"""Bundles: a compiled network as a folder of files with a manifest.

The manifest holds the SHA-256 of each file. That detects damage, not malice.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import cast

from trc_runtime.schema.codec import CodecError
from trc_runtime.schema.plan import Plan
from trc_runtime.schema.valid import plan_problems

BUNDLE_VERSION = 1
MANIFEST = "manifest.json"
PLAN = "plan.json"
MODEL = "model.mlir"
STATE = "state.safetensors"
KERNELS = "kernels.cu"
DRIVER = "driver.py"
NODEMAP = "nodemap.json"
"""Of a bundle for target cuda: the kernels, the calls, and which layers they belong to."""

CUDNN_PLANS = "cudnn_plans.json"
"""Saved cuDNN plans, where the bundle was compiled for a known device."""

_FORMAT = "trc-bundle"

# Constants of renameat2(2).
_CWD, _EXCHANGE = -100, 2


def cubin_name(architecture: str) -> str:
    """The file of a bundle that holds device code for an architecture, such as kernels.sm_90.cubin."""
    return f"kernels.{architecture}.cubin"


def seal_of(files: Mapping[str, str]) -> str:
    """One SHA-256 over those files (names with their SHA-256) that were made from each other on the way to the GPU.

    The manifest keeps it beside the files' own: a file that is exchanged for that of another bundle, and its checksum
    with it, then shows.
    """
    made = sorted(i for i in files.items() if i[0] in (KERNELS, DRIVER, CUDNN_PLANS) or i[0].endswith(".cubin"))
    return hashlib.sha256(json.dumps(made).encode()).hexdigest()


class BundleError(ValueError):
    """A folder that is no bundle, of another version, or damaged."""


@dataclass(frozen=True)
class Bundle:
    """A bundle on disk whose files have been checked."""

    path: Path
    plan: Plan
    target: str
    files: Mapping[str, str]
    """File name to SHA-256."""
    architecture: str | None = None
    """The architecture that compiled parts were made for, None where there are none."""
    seal: str | None = None
    """`seal_of` the files when they were written, where there are compiled parts."""

    @property
    def state(self) -> Path | None:
        """The saved state (safetensors), where the bundle carries one."""
        return self.path / STATE if STATE in self.files else None

    def text(self, name: str) -> str:
        """A text file of the bundle."""
        return (self.path / name).read_text(encoding="utf-8")

    def read(self, name: str) -> bytes | None:
        """A file of the bundle, None where it carries none of that name."""
        return (self.path / name).read_bytes() if name in self.files else None


def write_bundle(
    path: str | os.PathLike[str], files: Mapping[str, bytes], target: str, architecture: str | None = None
) -> Path:
    """Write a bundle as a whole: the folder appears complete or not at all.

    `architecture` is that of the GPU that compiled files are for.
    An older bundle at `path` is replaced, through a link too; anything else there is left alone and is a BundleError,
    as is a place that cannot be written to.
    """
    try:
        final = Path(os.path.realpath(path))
        if final.exists():
            _refuse_others(final, Path(path))
        final.parent.mkdir(parents=True, exist_ok=True)
        _write_folder(final, files, target, architecture)
    except OSError as err:
        raise BundleError(f"{path}: a bundle cannot be written there: {err.strerror or err}") from None
    except ValueError as err:
        if isinstance(err, BundleError):
            raise
        raise BundleError(f"{str(path)!r}: a bundle cannot be written there: {err}") from None  # a zero byte in a path
    return Path(path)


def _write_folder(final: Path, files: Mapping[str, bytes], target: str, architecture: str | None) -> None:
    fresh = Path(tempfile.mkdtemp(prefix=f".{final.name[:100]}.", dir=final.parent))
    try:
        hashes = {name: hashlib.sha256(body).hexdigest() for name, body in files.items()}
        manifest = {
            "format": _FORMAT,
            "version": BUNDLE_VERSION,
            "target": target,
            **({} if architecture is None else {"architecture": architecture, "seal": seal_of(hashes)}),
            "files": hashes,
        }
        for name, body in files.items():
            (fresh / name).write_bytes(body)
        (fresh / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
        fresh.chmod(0o755)
        _swap(fresh, final)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _refuse_others(final: Path, path: Path) -> None:
    """BundleError unless the folder is empty or holds a bundle and nothing else: replacing it deletes the rest."""
    present = {p.name for p in final.iterdir()} if final.is_dir() else None
    if present is None or (present and MANIFEST not in present):
        raise BundleError(f"{path} exists and is not a bundle: choose another path or remove it")
    if not present:
        return
    try:
        ours = {MANIFEST, *_read_manifest(final, any_version=True)[1]}
    except BundleError:
        raise BundleError(
            f"{path} exists and its {MANIFEST} is not a bundle's: choose another path or remove it"
        ) from None
    if strangers := sorted(present - ours):
        raise BundleError(
            f"{path} holds {', '.join(strangers[:5])} beside a bundle: move that away or choose another path"
        )


def _swap(fresh: Path, final: Path) -> None:
    """Put `fresh` in the place of `final`, at once where the system can exchange two folders.

    Elsewhere the old one steps aside first, since a folder cannot be renamed over a full one.
    """
    if not final.exists():
        fresh.rename(final)
        return
    if _exchanged(fresh, final):
        return  # `fresh` is the old one now, and is removed
    aside = Path(tempfile.mkdtemp(prefix=f".{final.name[:100]}.old.", dir=final.parent))
    old = aside / "old"
    try:
        final.rename(old)
        fresh.rename(final)
    finally:  # also after Ctrl-C: never without one of the two
        if old.exists() and not final.exists():
            old.rename(final)
        shutil.rmtree(aside, ignore_errors=True)


def _exchanged(a: Path, b: Path) -> bool:
    """Exchange two folders in one step (Linux's renameat2); False where that does not exist."""
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError, TypeError):
        return False
    return rename(_CWD, os.fsencode(a), _CWD, os.fsencode(b), _EXCHANGE) == 0


def read_bundle(path: str | os.PathLike[str]) -> Bundle:
    """Read a bundle and check every file against the manifest; BundleError says what is wrong and where."""
    folder = Path(path)
    manifest, files = _read_manifest(folder)
    if PLAN not in files:
        raise BundleError(f"{folder / MANIFEST}: the list of files lacks {PLAN}")
    hashes: dict[str, str] = {}
    for name, wanted in files.items():
        if Path(name).name != name or name in ("", ".", "..") or not name.isprintable():
            raise BundleError(f"{folder / MANIFEST}: {name!r} is not a file name")
        hashes[name] = _check_file(folder / name, wanted)
    try:
        if MODEL in hashes:
            (folder / MODEL).read_text(encoding="utf-8")
    except UnicodeDecodeError as err:
        raise BundleError(f"{folder / MODEL}: {err}") from None
    try:
        plan = Plan.from_json((folder / PLAN).read_text(encoding="utf-8"))
    except (CodecError, UnicodeDecodeError) as err:
        raise BundleError(f"{folder / PLAN}: {err}") from None
    if problems := list(islice(plan_problems(plan), 3)):
        raise BundleError(f"{folder / PLAN}: {'; '.join(problems)}")
    architecture, seal = (None if (v := manifest.get(n)) is None else str(v) for n in ("architecture", "seal"))
    return Bundle(folder, plan, str(manifest.get("target")), hashes, architecture, seal)


def _read_manifest(folder: Path, any_version: bool = False) -> tuple[dict[str, object], dict[str, object]]:
    """The manifest, and its list of files."""
    file = folder / MANIFEST
    try:
        if not folder.is_dir():
            raise BundleError(f"{folder} is not a folder")
        parsed: object = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BundleError(f"{folder} is not a bundle: it has no {MANIFEST}") from None
    except BundleError:
        raise
    except (OSError, ValueError, RecursionError) as err:
        raise BundleError(f"{file}: cannot be read: {err}") from None
    manifest = cast(dict[str, object], parsed) if isinstance(parsed, dict) else {}
    if manifest.get("format") != _FORMAT:
        raise BundleError(f"{file}: not the manifest of a trc bundle")
    version = manifest.get("version")
    if not any_version and (version != BUNDLE_VERSION or isinstance(version, bool)):
        raise BundleError(
            f"{folder}: bundle version {version!r}, this trc reads version {BUNDLE_VERSION}: compile the network again"
        )
    files = manifest.get("files")
    return manifest, cast(dict[str, object], files) if isinstance(files, dict) else {}


def _check_file(file: Path, wanted: object) -> str:
    try:
        if file.exists() and not file.is_file():  # reading a pipe would wait for ever
            raise BundleError(f"{file}: is not a file")
        found = hashlib.sha256(file.read_bytes()).hexdigest()
    except OSError as err:
        raise BundleError(f"{file}: cannot be read: {err.strerror}") from None
    if found != wanted:
        raise BundleError(f"{file}: damaged: SHA-256 is {found[:16]}..., the manifest says {str(wanted)[:16]}...")
    return found
