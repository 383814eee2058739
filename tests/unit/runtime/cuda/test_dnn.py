"""cuDNN graphs planned without a GPU, and the file that plans are saved in."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from trc_runtime.cuda import dnn
from trc_runtime.cuda._cudnn import Planner, versions
from trc_runtime.cuda.errors import DnnError, MissingExtra

PROPERTIES = Path(__file__).resolve().parents[4] / "examples" / "devices" / "h200.json"


@cache
def planner() -> Planner:
    try:
        versions()
    except MissingExtra as err:
        pytest.skip(str(err))
    return Planner(properties=PROPERTIES.read_text())


def tensor(dim, dtype: str, pitch: int | None = None) -> dict:
    _, c, h, w = dim
    p = pitch or c
    return {"dim": list(dim), "stride": [h * w * p, 1, w * p, p], "dtype": dtype}


def describe(op: str, n=4, c=64, h=14, k=64, r=3, stride=1, pad=1, dtype="f16", groups=1, act="none", compute="f32",
             pitch=None, bias=None):  # fmt: skip
    o = (h + 2 * pad - r) // stride + 1
    image, result = tensor((n, c, h, h), dtype, pitch), tensor((n, k, o, o), dtype)
    weight, stats = tensor((k, c // groups, r, r), dtype), tensor((1, k, 1, 1), "f32")
    scale = tensor((1, c, 1, 1), dtype)
    every = {"x": image, "dx": image, "y": result, "dy": result, "weight": weight, "dweight": weight, "scale": scale}
    every |= {"shift": scale, "sum": stats, "sumsq": stats}
    tensors = {role: every[role] for role in dnn.OPS[op][0]}
    if bias:
        tensors["bias"] = tensor((1, k, 1, 1), bias)
    return {"op": op, "dtype": dtype, "compute": compute, "tensors": tensors, "padding": pad, "stride": stride,
            "groups": groups, "act": act}  # fmt: skip


CASES = [
    *(describe(op, dtype=d) for op in ("conv_fwd", "conv_bwd_data", "conv_bwd_weight") for d in dnn.ITEMSIZE),
    *(describe(op, h=1, r=1, pad=0, c=784, k=100, dtype=d) for op in ("fc_fwd", "fc_bwd_data", "fc_bwd_weight")
      for d in dnn.ITEMSIZE),
    describe("conv_stats_fwd"),
    describe("conv_norm_stats_fwd", act="relu"),
    describe("conv_norm_fwd", act="relu"),
    describe("conv_norm_bwd_weight", act="relu"),
    describe("conv_fwd", groups=4),
    describe("conv_bwd_weight", groups=4),
    describe("conv_fwd", c=3, k=5, pitch=8),
    describe("conv_fwd", dtype="f32", compute="tf32"),
    describe("conv_fwd", dtype="f32", bias="f32"),
    describe("conv_fwd", c=4, h=32, k=64, r=7, stride=2, pad=3),
]  # fmt: skip


@pytest.mark.parametrize("description", CASES, ids=lambda d: f"{d['op']}-{d['dtype']}-{dnn.key_of(d)[:4]}")
def test_plans(description) -> None:
    planned = dnn.make_plan(planner(), "key", description)
    assert planned.plan.name.startswith("eng")
    assert planned.workspace % 256 == 0
    assert planned.workspace >= planned.plan.workspace + planned.unused
    assert (planned.unused > 0) == (description["op"] == "conv_norm_fwd")
    again = dnn.make_plan(planner(), "key", description)
    assert again.plan.name == planned.plan.name
    assert len(planned.plan.serialise()) > 500


def test_choices() -> None:
    description = describe("conv_fwd")
    names = dnn.candidates(planner(), description)
    assert len(names) > 5
    chosen = dnn.make_plan(planner(), "key", description, names[3])
    assert chosen.plan.name == names[3]
    assert dnn.make_plan(planner(), "key", description, refused=[names[0]]).plan.name != names[0]
    with pytest.raises(DnnError, match="no plan named eng999"):
        dnn.make_plan(planner(), "key", description, "eng999")


def test_the_limit_of_workspaces() -> None:
    description = describe("conv_fwd", n=64, h=56, dtype="f32")
    free = dnn.make_plan(planner(), "key", description, limit=1 << 40)
    tight = dnn.make_plan(planner(), "key", description, limit=0)
    assert tight.workspace < free.workspace
    assert tight.plan.name != free.plan.name


def test_full_precision_uses_no_tensor_cores() -> None:
    exact, fast = (dnn.make_plan(planner(), "k", describe("conv_fwd", dtype="f32", compute=c)) for c in ("f32", "tf32"))
    assert exact.plan.name != fast.plan.name


def test_no_engine() -> None:
    with pytest.raises(DnnError, match=r"no engine for conv_stats_fwd in bf16 \(x 4x64x14x14, .*no deterministic plan"):
        dnn.make_plan(planner(), "key", describe("conv_stats_fwd", dtype="bf16"))


def test_saved_plans() -> None:
    planned = {d: dnn.make_plan(planner(), d, describe(d)) for d in ("conv_fwd", "conv_bwd_data")}
    text = dnn.save_plans(planned, "sm_90")
    assert text == dnn.save_plans(planned, "sm_90")
    saved = dnn.read_plans(text)
    assert saved.architecture == "sm_90"
    assert saved.engines == {k: p.plan.name for k, p in planned.items()}
    assert saved.data["conv_fwd"] == planned["conv_fwd"].plan.serialise()
    with pytest.raises(DnnError, match="only where there is a device"):
        dnn.load_plan(planner(), "conv_fwd", describe("conv_fwd"), saved)
    older = replace(saved, cudnn="9.1.0")
    with pytest.raises(DnnError, match=r"are of cuDNN 9\.1\.0, here is .*: compile the network again"):
        dnn.load_plan(planner(), "conv_fwd", describe("conv_fwd"), older)


@pytest.mark.parametrize("text", [b"", b"[]", b"{}", b"\xff", b'{"format": "trc-cudnn", "version": 9}'])
def test_damaged_files(text: bytes) -> None:
    with pytest.raises(DnnError, match=r"damaged|has version 9"):
        dnn.read_plans(text)


def test_damaged_plan_data() -> None:
    document = {"format": "trc-cudnn", "version": 1, "cudnn": "9", "architecture": "sm_90"}
    document["plans"] = {"a": {"engine": "e", "workspace": 1, "data": "###"}}
    with pytest.raises(DnnError, match="damaged"):
        dnn.read_plans(json.dumps(document).encode())


def test_keys_do_not_depend_on_order() -> None:
    description = describe("conv_fwd")
    turned = dict(reversed(list(description.items())))
    assert dnn.key_of(description) == dnn.key_of(turned)
    assert dnn.key_of(description) != dnn.key_of({**description, "stride": 2})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.update(op="conv_nope"), "unknown operation 'conv_nope'"),
        (lambda d: d["tensors"].pop("weight"), "tensor weight is missing"),
        (lambda d: d["tensors"].update(dy=d["tensors"]["x"]), "there is no tensor dy"),
        (lambda d: d["tensors"]["x"].update(dtype="f8"), "x has the type 'f8'"),
        (lambda d: d["tensors"]["x"].update(dim=[1, 2]), "x needs four positive dimensions"),
        (lambda d: d["tensors"]["x"].update(stride=[1, 0, 1, 1]), "x needs four positive"),
        (lambda d: d.update(stride=2), "the description says"),
        (lambda d: d.update(groups=3), "does not fit 64 channels"),
    ],
)
def test_wrong_descriptions(change, message: str) -> None:
    description = copy.deepcopy(describe("conv_fwd"))
    change(description)
    assert any(message in p for p in dnn.problems_of(description)), dnn.problems_of(description)


@pytest.mark.parametrize("act", ["none", "relu6"])
def test_prologues_without_a_right_engine(act: str) -> None:
    problems = dnn.problems_of(describe("conv_norm_stats_fwd", act=act))
    assert problems == [f"conv_norm_stats_fwd: the prologue's activation must be relu, not '{act}'"]


def test_bytes_of_tensors() -> None:
    assert dnn.tensor_bytes(tensor((2, 3, 4, 4), "f16", pitch=8)) == 2 * (2 * 16 * 8 - 8 + 3)
    assert dnn.tensor_bytes(tensor((2, 8, 1, 1), "f32")) == 64


def test_properties_that_are_none() -> None:
    planner()
    with pytest.raises(DnnError, match="no device properties"):
        Planner(properties="{}")
    with pytest.raises(DnnError, match="needs a device"):
        Planner()
