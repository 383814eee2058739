"""Bundles: a compiled network as a folder of files with a manifest.

The manifest holds the SHA-256 of each file. That detects damage, not malice.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from trc_runtime.schema.codec import CodecError
from trc_runtime.schema.plan import Plan

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


def cubin_name(architecture: str) -> str:
    """The file of a bundle that holds device code for an architecture, such as kernels.sm_90.cubin."""
    return f"kernels.{architecture}.cubin"


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
    An older bundle at `path` is replaced; anything else there is left alone and is a BundleError.
    """
    final = Path(path)
    if final.exists() and not _replaceable(final):
        raise BundleError(f"{final} exists and is not a bundle: choose another path or remove it")
    final.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=f".{final.name}.", dir=final.parent))
    try:
        hashes = {name: hashlib.sha256(body).hexdigest() for name, body in files.items()}
        manifest = {
            "format": _FORMAT,
            "version": BUNDLE_VERSION,
            "target": target,
            **({} if architecture is None else {"architecture": architecture}),
            "files": hashes,
        }
        for name, body in files.items():
            (fresh / name).write_bytes(body)
        (fresh / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
        fresh.chmod(0o755)
        _swap(fresh, final)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return final


def _replaceable(path: Path) -> bool:
    return path.is_dir() and ((path / MANIFEST).is_file() or not any(path.iterdir()))


def _swap(fresh: Path, final: Path) -> None:
    """Put `fresh` in the place of `final`; a folder cannot be renamed over a full one, so step aside first."""
    if not final.exists():
        fresh.rename(final)
        return
    aside = Path(tempfile.mkdtemp(prefix=f".{final.name}.old.", dir=final.parent))
    final.rename(aside / "old")
    try:
        fresh.rename(final)
    except OSError:
        (aside / "old").rename(final)
        raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def read_bundle(path: str | os.PathLike[str]) -> Bundle:
    """Read a bundle and check every file against the manifest; BundleError says what is wrong and where."""
    folder = Path(path)
    manifest = _read_manifest(folder)
    files = manifest.get("files")
    if not isinstance(files, dict) or PLAN not in files:
        raise BundleError(f"{folder / MANIFEST}: the list of files lacks {PLAN}")
    hashes: dict[str, str] = {}
    for name, wanted in cast(dict[str, object], files).items():
        if Path(name).name != name or name in ("", ".", ".."):
            raise BundleError(f"{folder / MANIFEST}: '{name}' is not a file name")
        hashes[name] = _check_file(folder / name, wanted)
    try:
        plan = Plan.from_json((folder / PLAN).read_text(encoding="utf-8"))
    except (CodecError, UnicodeDecodeError) as err:
        raise BundleError(f"{folder / PLAN}: {err}") from None
    architecture = manifest.get("architecture")
    return Bundle(
        folder, plan, str(manifest.get("target")), hashes, None if architecture is None else str(architecture)
    )


def _read_manifest(folder: Path) -> dict[str, object]:
    if not folder.is_dir():
        raise BundleError(f"{folder} is not a folder")
    file = folder / MANIFEST
    try:
        parsed: object = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BundleError(f"{folder} is not a bundle: it has no {MANIFEST}") from None
    except (OSError, ValueError, RecursionError) as err:
        raise BundleError(f"{file}: cannot be read: {err}") from None
    manifest = cast(dict[str, object], parsed) if isinstance(parsed, dict) else {}
    if manifest.get("format") != _FORMAT:
        raise BundleError(f"{file}: not the manifest of a trc bundle")
    if manifest.get("version") != BUNDLE_VERSION:
        raise BundleError(
            f"{folder}: bundle version {manifest.get('version')}, this trc reads version {BUNDLE_VERSION}: "
            "compile the network again"
        )
    return manifest


def _check_file(file: Path, wanted: object) -> str:
    try:
        found = hashlib.sha256(file.read_bytes()).hexdigest()
    except OSError as err:
        raise BundleError(f"{file}: cannot be read: {err.strerror}") from None
    if found != wanted:
        raise BundleError(f"{file}: damaged: SHA-256 is {found[:16]}..., the manifest says {str(wanted)[:16]}...")
    return found
