"""Plans and bundles on disk, and the report."""

import json
from pathlib import Path

import pytest

from tests.unit.runtime.schema.plans import tiny_plan
from trc_runtime.schema.bundle import MANIFEST, PLAN, BundleError, read_bundle, write_bundle
from trc_runtime.schema.codec import CodecError
from trc_runtime.schema.plan import Plan
from trc_runtime.schema.report import memory_report


def bundle(folder: Path) -> Path:
    files = {PLAN: tiny_plan().to_json().encode(), "model.mlir": b"builtin.module {}\n"}
    return write_bundle(folder, files, "cpu")


def test_plan_round_trip() -> None:
    plan = tiny_plan()
    assert Plan.from_json(plan.to_json()) == plan
    assert plan.to_json() == tiny_plan().to_json()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not a plan"),
        ("[1]", "not a plan: the key 'format'"),
        ('{"format": "trc-plan", "version": 99}', "version 99, this runtime reads version 1"),
        ('{"format": "trc-plan", "version": 1, "plan": 3}', "plan: expected a Plan object, found 3"),
        ("[" * 100000, "not a plan"),
    ],
)
def test_bad_plans(text: str, message: str) -> None:
    with pytest.raises(CodecError, match=message):
        Plan.from_json(text)


def test_bundle_round_trip_and_replacement(tmp_path: Path) -> None:
    path = bundle(tmp_path / "b")
    read = read_bundle(path)
    assert read.plan == tiny_plan()
    assert read.target == "cpu"
    assert read.state is None
    assert read.text("model.mlir").startswith("builtin.module")
    bundle(tmp_path / "b")
    assert [p.name for p in tmp_path.iterdir()] == ["b"]


def test_a_folder_that_is_no_bundle_is_left_alone(tmp_path: Path) -> None:
    precious = tmp_path / "b" / "thesis.txt"
    precious.parent.mkdir()
    precious.write_text("years of work")
    with pytest.raises(BundleError, match="is not a bundle: choose another path"):
        bundle(tmp_path / "b")
    assert precious.read_text() == "years of work"


def test_damage_is_found(tmp_path: Path) -> None:
    path = bundle(tmp_path / "b")
    body = bytearray((path / "model.mlir").read_bytes())
    body[3] ^= 1
    (path / "model.mlir").write_bytes(body)
    with pytest.raises(BundleError, match=r"model\.mlir: damaged"):
        read_bundle(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 7}, "bundle version 7, this trc reads version 1"),
        ({"format": "zip"}, "not the manifest of a trc bundle"),
        ({"files": {}}, "lacks plan.json"),
        ({"files": {"plan.json": "0", "../x": "0"}}, r"damaged|is not a file name"),
    ],
)
def test_bad_manifests(tmp_path: Path, change: dict[str, object], message: str) -> None:
    path = bundle(tmp_path / "b")
    manifest = json.loads((path / MANIFEST).read_text()) | change
    (path / MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(BundleError, match=message):
        read_bundle(path)


def test_missing_pieces(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="is not a folder"):
        read_bundle(tmp_path / "nowhere")
    with pytest.raises(BundleError, match=r"has no manifest\.json"):
        read_bundle(tmp_path)
    path = bundle(tmp_path / "b")
    (path / PLAN).unlink()
    with pytest.raises(BundleError, match=r"plan\.json: cannot be read"):
        read_bundle(path)


def test_report() -> None:
    report = memory_report(tiny_plan())
    assert report.total == 1536
    assert report.transient == 512
    assert report.unshared == 1024
    assert report.peak is not None
    assert report.peak.bytes == 512  # `inplace` writes over its operand: the two count once
    assert report.ratio == 1.0
    document = report.to_json()
    assert document["regions"] == {
        "W_FC_BIAS": {"offset": 0, "bytes": 512},
        "W_FC_WEIGHT": {"offset": 512, "bytes": 512},
        "POOL": {"offset": 1024, "bytes": 512},
    }
    assert "1,536 bytes" in str(report)
