"""Bundles under hostile hands: what writing may delete, and what reading must notice."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.runtime.schema.plans import tiny_plan
from trc_runtime.schema import bundle as bundles
from trc_runtime.schema.bundle import MANIFEST, PLAN, BundleError, read_bundle, write_bundle
from trc_runtime.schema.valid import plan_problems

Document = dict[str, Any]


def write(path: Path, text: str = "one") -> Path:
    return write_bundle(path, {PLAN: tiny_plan().to_json().encode(), "note.txt": text.encode()}, "cpu")


def rewrite(path: Path, change: Callable[[Document], None]) -> None:
    """Change the plan of a bundle and its checksum with it."""
    document = json.loads((path / PLAN).read_text())
    change(document["plan"])
    body = json.dumps(document).encode()
    (path / PLAN).write_bytes(body)
    manifest = json.loads((path / MANIFEST).read_text())
    manifest["files"][PLAN] = hashlib.sha256(body).hexdigest()
    (path / MANIFEST).write_text(json.dumps(manifest))


def cannot_exchange(_: Path, __: Path) -> bool:
    return False


def test_a_folder_with_a_manifest_of_another_kind_is_left_alone(tmp_path: Path) -> None:
    """Many programs keep a manifest.json."""
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / MANIFEST).write_text('{"manifest_version": 3, "name": "my extension"}')
    (tmp_path / "b" / "code.js").write_text("precious")
    with pytest.raises(BundleError, match="is not a bundle's"):
        write(tmp_path / "b")
    assert (tmp_path / "b" / "code.js").read_text() == "precious"


def test_files_beside_a_bundle_are_not_deleted_with_it(tmp_path: Path) -> None:
    path = write(tmp_path / "b")
    (path / "checkpoint.safetensors").write_text("precious")
    write(path / "inner")
    with pytest.raises(BundleError, match=r"holds checkpoint\.safetensors, inner beside a bundle"):
        write(path)
    assert (path / "checkpoint.safetensors").exists()


def test_a_bundle_of_another_version_is_replaced(tmp_path: Path) -> None:
    path = write(tmp_path / "b")
    manifest = json.loads((path / MANIFEST).read_text()) | {"version": 99}
    (path / MANIFEST).write_text(json.dumps(manifest))
    assert read_bundle(write(path)).text("note.txt") == "one"


@pytest.mark.parametrize("exchange", [True, False])
@pytest.mark.parametrize("stop", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_an_interrupted_replacement_keeps_the_old_bundle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exchange: bool, stop: BaseException
) -> None:
    path = write(tmp_path / "b", "old")
    if exchange:

        def exchange_fails(_: Path, __: Path) -> bool:
            raise stop

        monkeypatch.setattr(bundles, "_exchanged", exchange_fails)
    else:
        real = Path.rename

        def rename(self: Path, target: Path) -> Path:
            if Path(target) == path and self.name != "old":
                raise stop
            return real(self, target)

        monkeypatch.setattr(bundles, "_exchanged", cannot_exchange)
        monkeypatch.setattr(Path, "rename", rename)
    with pytest.raises((BundleError, KeyboardInterrupt)):
        write(path, "new")
    assert read_bundle(path).text("note.txt") == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["b"]


def test_replacement_where_folders_cannot_be_exchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "b", "old")
    monkeypatch.setattr(bundles, "_exchanged", cannot_exchange)
    assert read_bundle(write(path, "new")).text("note.txt") == "new"
    assert [p.name for p in tmp_path.iterdir()] == ["b"]


def test_a_link_to_a_bundle_stays_a_link(tmp_path: Path) -> None:
    write(tmp_path / "run 5", "old")
    (tmp_path / "latest").symlink_to("run 5")
    write(tmp_path / "latest", "new")
    assert (tmp_path / "latest").is_symlink()
    assert read_bundle(tmp_path / "run 5").text("note.txt") == "new"


@pytest.mark.parametrize("name", ["file/below", "file", "x" * 300, "a\0b"])
def test_places_that_cannot_be_written_to(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("precious")
    with pytest.raises(BundleError):
        write(tmp_path / name)
    with pytest.raises(BundleError):
        read_bundle(tmp_path / name)
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("name", ["a\0b", "\ud800", "..", "x/y", "x" * 300, "a\nb"])
def test_names_that_are_no_files(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / "b")
    manifest = json.loads((path / MANIFEST).read_text())
    manifest["files"][name] = "0"
    (path / MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(BundleError, match=r"is not a file name|cannot be read"):
        read_bundle(path)


def test_a_pipe_in_the_place_of_a_file(tmp_path: Path) -> None:
    path = write(tmp_path / "b")
    (path / "note.txt").unlink()
    os.mkfifo(path / "note.txt")
    with pytest.raises(BundleError, match=r"note\.txt: is not a file"):
        read_bundle(path)


def test_a_sound_plan_has_no_problems() -> None:
    assert list(plan_problems(tiny_plan())) == []


def _at(*keys: str | int, value: Any) -> Callable[[Document], None]:
    def change(document: Document) -> None:
        place: Any = document
        for key in keys[:-1]:
            place = place[key]
        place[keys[-1]] = value

    return change


def _same_name(document: Document) -> None:
    first, second = document["tensors"][:2]
    second["name"] = first["name"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_at("total", value=-1), "a total of -1 bytes"),
        (_at("variants", value=[]), "0 variants instead of 6"),
        (_at("variants", 0, "batch", value=0), "variant v0 is 0 x"),
        (_at("tensors", 0, "shapes", value=[]), "has 0 shapes for 6 variants"),
        (_at("tensors", 0, "shapes", 0, value=[1, 1, -1, 1]), "is not a shape"),
        (_at("tensors", 0, "shapes", 0, value=[1, 1, 1]), "is not a shape"),
        (_at("tensors", 0, "shapes", 0, value=[1, 1, 1, 1 << 70]), "does not fit a slot"),
        (_at("tensors", 0, "offset", value=-256), "leave the arena"),
        (_at("tensors", 0, "offset", value=1 << 70), "leave the arena"),
        (_at("tensors", 0, "initial", "rule", value="ones"), "unknown initial rule 'ones'"),
        (_at("tensors", 0, "initial", "rule", value="values"), r"rule values with 0 values for the shape \["),
        (_at("tensors", 0, "initial", "values", value=[1.0, 2.0]), "rule zeros with 2 values"),
        (_at("tensors", 0, "initial", "value", value=float("nan")), "an initial value of nan"),
        (_at("tensors", 0, "initial", "values", value=[0.5, float("inf")]), "an initial value of inf"),
        (_same_name, "two tensors are called"),
        (_at("spans", 0, "bytes", value=-1), "span .* leaves the arena"),
        (_at("nodes", 0, "scalars", value=[["lr", 99]]), "scalar lr is tensor 99"),
        (_at("steps", 0, "columns", value=[6]), r"no variants \[6\]"),
        (_at("steps", 0, "nodes", 0, value=-1), "a node outside the plan's"),
        (_at("steps", 0, "after", value=[]), "orders 0 of"),
        (_at("steps", 0, "after", 0, value=[0]), r"waits for \[0\]"),
        (_at("atlas", value=[[]]), "the atlas is not 6 x 33"),
        (_at("atlas", 0, 0, value=99), "names a capture outside"),
    ],
)
def test_numbers_of_a_plan_are_checked_before_use(
    tmp_path: Path, change: Callable[[Document], None], message: str
) -> None:
    path = write(tmp_path / "b")
    rewrite(path, change)
    with pytest.raises(BundleError, match=rf"plan\.json: .*{message}"):
        read_bundle(path)
