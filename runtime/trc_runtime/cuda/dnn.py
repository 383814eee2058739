"""cuDNN graphs from the descriptions in a driver, their plans, and how plans are saved.

A description is a JSON-able dictionary:

    {"op": "conv_fwd", "dtype": "f16", "compute": "f32", "tensors": {"x": {"dim": [n, c, h, w], "stride": [...],
     "dtype": "f16"}, ...}, "padding": 1 or [h, w], "stride": 1 or [h, w], "groups": 1, "act": "relu"}

`op` is one of OPS; the roles of `tensors` are those of the kind of the same name, NHWC by their strides, with the
weight as [k, c / groups, r, s]. Optional: `bias`, `form` ("conv", the default, or "matmul", which only plans with a
device), `epilogue` (an activation after the bias). Only deterministic engines are eligible; under compute "f32" none
that rounds float32 inputs.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from trc_runtime.cuda._cudnn import Builder, DnnPlan, Handle, Planner, Tensor, versions
from trc_runtime.cuda.errors import ANEW, DnnError
from trc_runtime.schema.bundle import CUDNN_PLANS
from trc_runtime.schema.regions import align_up

Description = Mapping[str, Any]

NUMBERS = {
    "x": 1, "weight": 2, "y": 3, "scale": 4, "shift": 5, "sum": 6, "sumsq": 7, "bias": 8, "dy": 9, "dx": 10,
    "dweight": 11,
}  # fmt: skip
"""The number (uid) of each role's tensor in a graph; saved plans know tensors by these."""

_FORWARD = ("x", "weight", "y")
_NORM = ("scale", "shift")
_STATS = ("sum", "sumsq")

OPS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "conv_fwd": (_FORWARD, ("y",)),
    "conv_stats_fwd": ((*_FORWARD, *_STATS), ("y", *_STATS)),
    "conv_norm_fwd": ((*_FORWARD, *_NORM), ("y",)),
    "conv_norm_stats_fwd": ((*_FORWARD, *_NORM, *_STATS), ("y", *_STATS)),
    "conv_bwd_data": (("dy", "weight", "dx"), ("dx",)),
    "conv_bwd_weight": (("dy", "x", "dweight"), ("dweight",)),
    "conv_norm_bwd_weight": (("dy", "x", *_NORM, "dweight"), ("dweight",)),
    "fc_fwd": (_FORWARD, ("y",)),
    "fc_bwd_data": (("dy", "weight", "dx"), ("dx",)),
    "fc_bwd_weight": (("dy", "x", "dweight"), ("dweight",)),
}
"""Each operation's required roles and, of these, the outputs. Forward operations may have a bias too."""

ITEMSIZE = {"f16": 2, "bf16": 2, "f32": 4}
WORKSPACE_LIMIT = 256 << 20
"""Bytes of workspace beyond which a plan is taken only for want of a smaller one."""

_FORMAT, _VERSION = "trc-cudnn", 1
_ALIGNMENT = 256


def key_of(description: Description) -> str:
    """A name for a description: the same for equal ones, whatever the order of their keys."""
    text = json.dumps(description, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def outputs_of(description: Description) -> tuple[str, ...]:
    """The roles that an execution writes."""
    return OPS[description["op"]][1]


def tensor_bytes(tensor: Mapping[str, Any]) -> int:
    """Bytes from a tensor's first to behind its last element."""
    last = sum((int(d) - 1) * int(s) for d, s in zip(tensor["dim"], tensor["stride"], strict=True))
    return (last + 1) * ITEMSIZE[tensor["dtype"]]


# ---------------------------------------------------------------- checks


def problems_of(description: Description) -> list[str]:
    """What is wrong with a description, as sentences: roles, ranks, types and the arithmetic of shapes."""
    try:
        return _problems_of(description)
    except (TypeError, ValueError, AttributeError, KeyError, IndexError, StopIteration, ZeroDivisionError) as err:
        return [f"not the description of a graph ({type(err).__name__}: {err})"]


def _problems_of(description: Description) -> list[str]:
    op = description.get("op")
    if op not in OPS:
        return [f"unknown operation {op!r}"]
    roles, _ = OPS[op]
    tensors: Mapping[str, Mapping[str, Any]] = description.get("tensors", {})
    optional = {"bias"} if op.endswith("_fwd") else set[str]()
    found = [f"{op}: tensor {r} is missing" for r in roles if r not in tensors]
    found += [f"{op}: there is no tensor {r}" for r in tensors if r not in roles and r not in optional]
    for role, t in tensors.items():
        dim, stride = t.get("dim", ()), t.get("stride", ())
        if len(dim) != 4 or len(stride) != 4 or any(not isinstance(v, int) or v < 1 for v in (*dim, *stride)):
            found.append(f"{op}: {role} needs four positive dimensions and strides, not {dim} and {stride}")
        elif t.get("dtype") not in ITEMSIZE:
            found.append(f"{op}: {role} has the type {t.get('dtype')!r}")
    return found or _shape_problems(op, description, tensors)


def _shape_problems(op: str, description: Description, tensors: Mapping[str, Mapping[str, Any]]) -> list[str]:
    groups = int(description.get("groups", 1))
    image = _dims(tensors, "x", "dx")
    result = _dims(tensors, "y", "dy")
    weight = _dims(tensors, "weight", "dweight")
    n, c, h, w = image
    k, per_group, r, s = weight
    (ph, pw), (sh, sw) = _pair(description, "padding", 0), _pair(description, "stride", 1)
    want = (n, k, (h + 2 * ph - r) // sh + 1, (w + 2 * pw - s) // sw + 1)
    found: list[str] = []
    if result != want:
        found.append(f"{op}: an image {image} and a weight {weight} give {want}, the description says {result}")
    if per_group * groups != c or k % groups:
        found.append(f"{op}: a weight {weight} in {groups} groups does not fit {c} channels")
    if "scale" in tensors and description.get("act") != "relu":
        # measured on an H200: with a clip at 6 the engines compute a plain relu; without any there is no engine
        found.append(f"{op}: the prologue's activation must be relu, not {description.get('act')!r}")
    for role in ("scale", "shift", "sum", "sumsq", "bias"):
        channels = c if role in _NORM else k
        if role in tensors and _dims(tensors, role) != (1, channels, 1, 1):
            found.append(f"{op}: {role} has the shape {_dims(tensors, role)}, not {(1, channels, 1, 1)}")
    return found


def _dims(tensors: Mapping[str, Mapping[str, Any]], *roles: str) -> tuple[int, ...]:
    return tuple(next(tensors[r]["dim"] for r in roles if r in tensors))


def _pair(description: Description, name: str, default: int) -> list[int]:
    value: int | Sequence[int] = description.get(name, default)
    return [value, value] if isinstance(value, int) else [int(v) for v in value]


# ---------------------------------------------------------------- graphs


class _Made:
    """The tensors of a graph under construction, by role."""

    def __init__(self, builder: Builder, description: Description) -> None:
        self.b = builder
        self.d = description
        self.tensors: Mapping[str, Mapping[str, Any]] = description["tensors"]
        self.padding, self.stride = _pair(description, "padding", 0), _pair(description, "stride", 1)

    def input(self, role: str) -> Tensor:
        t = self.tensors[role]
        return self.b.tensor(NUMBERS[role], t["dim"], t["stride"], t["dtype"])

    def output(self, tensor: Tensor, role: str) -> None:
        t = self.tensors[role]
        self.b.output(tensor, NUMBERS[role], t["dim"], t["stride"], t["dtype"])

    def image(self) -> Tensor:
        x = self.input("x")
        if "scale" not in self.tensors:
            return x
        return self.b.scale_shift(x, self.input("scale"), self.input("shift"), str(self.d.get("act", "none")))


def _build(builder: Builder, description: Description) -> None:
    if description.get("form") == "matmul":
        _build_matmul(builder, description)
        return
    m, op = _Made(builder, description), str(description["op"])
    if op.endswith("_fwd"):
        y = builder.fprop(m.image(), m.input("weight"), m.padding, m.stride)
        if "bias" in m.tensors:
            y = builder.bias(y, m.input("bias"))
        y = builder.activation(y, str(description.get("epilogue", "none")))
        m.output(y, "y")
        if _has_stats(description):
            k = m.tensors["weight"]["dim"][0]
            for tensor, role in zip(builder.genstats(y), _STATS, strict=True):
                builder.output(tensor, NUMBERS[role], [1, k, 1, 1], [k, 1, k, k], "f32")
    elif op.endswith("_bwd_data"):
        m.output(builder.dgrad(m.input("dy"), m.input("weight"), m.padding, m.stride), "dx")
    else:
        x = m.image()
        m.output(builder.wgrad(m.input("dy"), x, m.padding, m.stride), "dweight")


def _build_matmul(b: Builder, description: Description) -> None:
    """A fully connected layer as a product of matrices: y = x w^T, dx = dy w, dw = dy^T x."""
    op = str(description["op"])
    if not op.startswith("fc_"):
        raise DnnError(f"{op} cannot be a product of matrices")
    tensors: Mapping[str, Mapping[str, Any]] = description["tensors"]

    def matrix(role: str, transposed: bool = False) -> Tensor:
        return b.tensor(NUMBERS[role], *_matrix(tensors[role], transposed), tensors[role]["dtype"])

    if op == "fc_fwd":
        result, role = b.matmul(matrix("x"), matrix("weight", transposed=True)), "y"
        if "bias" in tensors:
            k = tensors["bias"]["dim"][1]
            result = b.bias(result, b.tensor(NUMBERS["bias"], [1, 1, k], [k, k, 1], tensors["bias"]["dtype"]))
    elif op == "fc_bwd_data":
        result, role = b.matmul(matrix("dy"), matrix("weight")), "dx"
    else:
        result, role = b.matmul(matrix("dy", transposed=True), matrix("x")), "dweight"
    b.output(result, NUMBERS[role], *_matrix(tensors[role], False), tensors[role]["dtype"])


def _matrix(tensor: Mapping[str, Any], transposed: bool) -> tuple[list[int], list[int]]:
    rows, columns = tensor["dim"][:2]
    down, across = tensor["stride"][:2]
    whole = rows * down
    return ([1, columns, rows], [whole, across, down]) if transposed else ([1, rows, columns], [whole, down, across])


def _has_stats(description: Description) -> bool:
    """Whether the graph has statistics: cuDNN has engines for a prologue only together with them."""
    return "stats" in description["op"] or _hidden_stats(description)


def _hidden_stats(description: Description) -> bool:
    return description["op"] == "conv_norm_fwd"


# ---------------------------------------------------------------- plans


@dataclass(frozen=True)
class Planned:
    """A description with its plan. `workspace` counts what the plan and its unused results need."""

    key: str
    description: Description
    plan: DnnPlan
    workspace: int
    unused: int
    """Bytes from the end of the workspace that take results nobody asked for."""

    def execute(self, addresses: Mapping[str, int], workspace: int, handle: Handle) -> None:
        """Run it on the handle's stream: device addresses by role, and that of the workspace."""
        bound = {NUMBERS[role]: address for role, address in addresses.items()}
        if self.unused:
            half = self.unused // 2
            end = workspace + self.workspace
            bound |= {NUMBERS["sum"]: end - 2 * half, NUMBERS["sumsq"]: end - half}
        self.plan.execute(bound, workspace, handle)


def _planned(key: str, description: Description, plan: DnnPlan) -> Planned:
    unused = 0
    if _hidden_stats(description):
        unused = 2 * align_up(4 * int(description["tensors"]["weight"]["dim"][0]), _ALIGNMENT)
    return Planned(key, description, plan, align_up(plan.workspace, _ALIGNMENT) + unused, unused)


def full_precision(description: Description) -> bool:
    """Whether engines that round float32 inputs are excluded."""
    return description["dtype"] == "f32" and description.get("compute", "f32") != "tf32"


def make_plan(
    planner: Planner,
    key: str,
    description: Description,
    choice: str | None = None,
    refused: Sequence[str] = (),
    limit: int = WORKSPACE_LIMIT,
) -> Planned:
    """Plan a description; `choice` names the engine that a measurement has found best. DnnError with the reason."""
    if wrong := problems_of(description):
        raise DnnError("; ".join(wrong))

    def build(builder: Builder) -> None:
        _build(builder, description)

    try:
        plan = planner.plan(str(description["dtype"]), build, full_precision(description), limit, choice, refused)
    except DnnError as err:
        raise DnnError(f"cuDNN has no engine for {describe(description)}: {err}") from None
    return _planned(key, description, plan)


def candidates(planner: Planner, description: Description) -> list[str]:
    """Names of the plans that a measurement may choose from, in cuDNN's order."""
    return planner.names(str(description["dtype"]), lambda b: _build(b, description), full_precision(description))


def describe(description: Description) -> str:
    """A description in a line, for messages."""
    shapes = ", ".join(f"{r} {'x'.join(map(str, t['dim']))}" for r, t in description["tensors"].items())
    return f"{description['op']} in {description['dtype']} ({shapes})"


def save_plans(plans: Mapping[str, Planned], architecture: str) -> bytes:
    """Plans as a file: JSON with the versions and the architecture that they hold for, engines by name."""
    frontend, backend = versions()
    document = {
        "format": _FORMAT,
        "version": _VERSION,
        "frontend": frontend,
        "cudnn": backend,
        "architecture": architecture,
        "plans": {
            key: {
                "engine": p.plan.name,
                "workspace": p.plan.workspace,
                "data": base64.b64encode(p.plan.serialise()).decode(),
            }
            for key, p in sorted(plans.items())
        },
    }
    return (json.dumps(document, indent=1) + "\n").encode()


@dataclass(frozen=True)
class SavedPlans:
    """What a file of plans holds."""

    cudnn: str
    architecture: str
    engines: Mapping[str, str]
    workspaces: Mapping[str, int]
    data: Mapping[str, bytes]


def read_plans(text: bytes, file: str = CUDNN_PLANS) -> SavedPlans:
    """Read what a file of plans holds; DnnError names the file and says what is wrong with it."""
    try:
        parsed: Any = json.loads(text)
        if parsed["format"] != _FORMAT or parsed["version"] != _VERSION:
            raise DnnError(f"{file} has version {parsed['version']!r}, this runtime reads {_VERSION}; {ANEW}")
        plans = cast(dict[str, dict[str, Any]], parsed["plans"])
        return SavedPlans(
            str(parsed["cudnn"]),
            str(parsed["architecture"]),
            {key: str(p["engine"]) for key, p in plans.items()},
            {key: _size(p["workspace"]) for key, p in plans.items()},
            {key: base64.b64decode(str(p["data"]), validate=True) for key, p in plans.items()},
        )
    except (ValueError, KeyError, TypeError, AttributeError, binascii.Error, RecursionError) as err:
        raise DnnError(f"{file} is damaged: {type(err).__name__}: {err}; {ANEW}") from None


def _size(value: object) -> int:
    if not isinstance(value, int) or value < 0:
        raise ValueError(f"a workspace of {value!r} bytes")
    return value


def load_plan(planner: Planner, key: str, description: Description, saved: SavedPlans) -> Planned:
    """A saved plan, ready to run; DnnError for one of another version of cuDNN, or one that does not load."""
    here = versions()[1]
    if saved.cudnn != here:
        raise DnnError(
            f"the saved cuDNN plans are of cuDNN {saved.cudnn}, here is {here}: compile the network again here, or "
            "install that version"
        )
    return _planned(key, description, planner.load(saved.data[key], saved.engines[key]))
