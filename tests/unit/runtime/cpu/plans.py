"""Small plans by hand: a builder, one kernel alone, and a whole MLP."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from trc_runtime.cpu.session import CpuSession
from trc_runtime.rng import stream_id
from trc_runtime.schema.config import AdamW, Constant, CrossEntropy, RunConfig
from trc_runtime.schema.dtypes import Precision
from trc_runtime.schema.graphs import GRAPH_STREAM, GraphId, ShapeId
from trc_runtime.schema.kinds import Access
from trc_runtime.schema.plan import (
    POOL,
    Capture,
    Initial,
    Node,
    Operand,
    Plan,
    RangeRef,
    Span,
    Step,
    Tensor,
    TensorRef,
    VariantSpec,
)
from trc_runtime.schema.regions import Region, dtype_of, slot_bytes

Shape = tuple[int, ...]
Ref = str | tuple[Region, Region]

CONFIG = RunConfig(
    optimizer=AdamW(),
    schedule=Constant(base_lr=0.1),
    loss=CrossEntropy(),
    input=(1, 1, 1),
    num_classes=2,
    batch=4,
    val_batch=4,
    epochs=None,
    train_samples=None,
    val_samples=None,
    train_resolution=((1, 1), (1, 1)),
    val_resolution=(1, 1),
    world_size=1,
    precision=Precision.FP32,
    seed=0x123456789ABCDEF0,
)


@dataclass
class PlanBuilder:
    """Collects tensors, nodes and steps; `build` lays the tensors out one after another, region by region.

    `alias` maps a tensor to the one whose place it takes.
    """

    precision: Precision = Precision.FP32
    seed: int = CONFIG.seed
    tensors: dict[str, Tensor] = field(default_factory=dict)
    alias: dict[str, str] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)

    def tensor(
        self,
        name: str,
        region: Region,
        *shapes: Shape | None,
        initial: Initial | None = None,
        channels: int | None = None,
    ) -> str:
        """One shape for all six columns, or six."""
        assert len(shapes) in (1, 6)
        dtype = dtype_of(region, self.precision)
        six = shapes * 6 if len(shapes) == 1 else shapes
        slot = max(slot_bytes(s, dtype, region) for s in six if s is not None)
        layer = name.rpartition(".")[0] or None
        self.tensors[name] = Tensor(name, region, dtype, six, slot, 0, initial or Initial("zeros"), layer, channels)
        return name

    def scalar(self, name: str, value: float = 0.0, region: Region | None = None) -> str:
        """A tensor of one element."""
        whole = isinstance(value, int)
        place = region or (Region.S_SCALAR_INT32 if whole else Region.S_SCALAR_FP32)
        return self.tensor(name, place, (1, 1, 1, 1), initial=Initial("constant", value=float(value)))

    def node(
        self,
        kind: str,
        bucket: GraphId = GraphId.DEEP_FWD_BWD,
        reads: Mapping[str, Ref] | None = None,
        updates: Mapping[str, Ref] | None = None,
        writes: Mapping[str, Ref] | None = None,
        scalars: Mapping[str, str] | None = None,
        layer: str | None = None,
        computation: str = "train",
        **params: Any,
    ) -> int:
        index = {n: i for i, n in enumerate(self.tensors)}
        operands = tuple(
            Operand(role, access, TensorRef(index[ref]) if isinstance(ref, str) else RangeRef(*ref))
            for access, group in ((Access.READ, reads), (Access.UPDATE, updates), (Access.WRITE, writes))
            for role, ref in (group or {}).items()
        )
        bound = tuple((role, index[name]) for role, name in (scalars or {}).items())
        self.nodes.append(Node(kind, computation, bucket, GRAPH_STREAM[bucket], layer, operands, bound, params))
        return len(self.nodes) - 1

    def step(self, name: str, columns: Sequence[int], buckets: Sequence[GraphId], computation: str = "train") -> None:
        """The nodes of these buckets, in order."""
        order = [
            n
            for bucket in buckets
            for n, node in enumerate(self.nodes)
            if node.bucket is bucket and node.computation == computation
        ]
        after = tuple((n - 1,) if n else () for n in range(len(order)))
        self.steps.append(Step(name, computation, tuple(columns), tuple(order), after))

    def build(self, name: str = "test", **config: Any) -> Plan:
        placed: dict[str, Tensor] = {}
        spans: list[Span] = []
        end = 0
        for region in Region:
            begin = end
            for t in self.tensors.values():
                if t.region is region and t.name not in self.alias:
                    placed[t.name] = replace(t, offset=end)
                    end += t.slot
            if end > begin and not region.transient:
                spans.append(Span(region.name, begin, end - begin))
        for t in self.tensors.values():
            if t.name in self.alias:
                placed[t.name] = replace(t, offset=placed[self.alias[t.name]].offset)
        pool = [t for t in placed.values() if t.region.transient]
        if pool:
            first = min(t.offset for t in pool)
            spans.append(Span(POOL, first, max(t.offset + t.slot for t in pool) - first))
        captures: list[Capture] = []
        atlas = [[-1] * 33 for _ in range(6)]
        for step in self.steps:
            for column in step.columns:
                for bucket in dict.fromkeys(self.nodes[n].bucket for n in step.nodes):
                    if atlas[column][bucket.value] < 0:
                        atlas[column][bucket.value] = len(captures)
                        captures.append(Capture(step.computation, bucket, ShapeId(column, 0, 0, 0), column))
        return Plan(
            name=name,
            mode="packed",
            config=replace(CONFIG, precision=self.precision, seed=self.seed, **config),
            variants=tuple(VariantSpec(f"v{i}", 4, 1, 1, 1) for i in range(6)),
            tensors=tuple(placed[n] for n in self.tensors),
            spans=tuple(spans),
            total=end,
            nodes=tuple(self.nodes),
            steps=tuple(self.steps),
            captures=tuple(captures),
            atlas=tuple(tuple(row) for row in atlas),
        )


def precision_of(dtype: Any) -> Precision:
    return Precision.FP64 if np.dtype(dtype) == np.float64 else Precision.FP32


HALVES = {"fp16": Precision.AMP_FP16, "bf16": Precision.AMP_BF16}
PACKED_HALF = ("weight", "scale", "shift", "shortcut_scale", "shortcut_shift")
"""Half operands whose channels are not padded in memory."""
MASTER = (
    *("gamma", "beta", "bias", "prev_mean", "prev_var", "next_mean", "next_var", "saved_mean", "saved_invstd"),
    *("offset", "sum", "sumsq", "dgamma", "dbeta", "dbias", "probs", "loss", "top1", "top5", "dweight"),
)
"""Operands that stay in the master type under mixed precision."""


def run_kernel(
    kind: str,
    inputs: Mapping[str, np.ndarray],
    outputs: Mapping[str, Shape],
    dtype: Any = np.float32,
    scalars: Mapping[str, float | int | Sequence[int]] | None = None,
    alias: Mapping[str, str] | None = None,
    master: Sequence[str] = (),
    twice: bool = True,
    **params: Any,
) -> dict[str, np.ndarray]:
    """Run one node of whole tensors and return its outputs.

    Integer inputs become int32 tensors, `mask` an int8 one; an output named predicted is int32, mask is int8.
    `dtype` is a NumPy type, or "fp16" or "bf16" for mixed precision: then what neither MASTER nor `master` names is of
    half storage. Bytes that belong to no tensor, and padded channels, are NaNs before.
    """
    precision = HALVES[dtype] if isinstance(dtype, str) else precision_of(dtype)
    b = PlanBuilder(precision=precision, alias=dict(alias or {}))

    def region(name: str, array: np.ndarray | None) -> Region:
        if name == "mask":
            return Region.S_MASK
        if name == "predicted" or (array is not None and array.dtype.kind == "i"):
            return Region.T_TEMP_INT32
        if precision.is_amp and name not in (*MASTER, *master):
            return Region.T_TEMP_FP16 if name in PACKED_HALF else Region.F_FEATURE_FP16
        return Region.T_TEMP_FP32 if precision.is_amp else Region.F_FEATURE_FP32

    for name, array in inputs.items():
        b.tensor(name, region(name, array), array.shape)
    for name, shape in outputs.items():
        b.tensor(name, region(name, None), shape)
    for name, value in (scalars or {}).items():
        if isinstance(value, Sequence):
            b.tensor(name, Region.S_SCALAR_INT32, (1, 1, 1, len(value)))
        else:
            b.scalar(name, value)
    b.node(
        kind,
        reads={n: n for n in inputs},
        writes={n: n for n in outputs},
        scalars={n: n for n in scalars or {}},
        layer="layer1",
        **params,
    )
    b.step("step", [0], [GraphId.DEEP_FWD_BWD])
    session = CpuSession(b.build())

    def run() -> dict[str, np.ndarray]:
        session.arena[:] = 0xFF  # what a kernel does not write is garbage: NaN in every floating-point type
        for name, array in inputs.items():
            session.write(name, array)
        for name, value in (scalars or {}).items():
            session.write(name, np.reshape(value, (1, 1, 1, -1)))
        session.run("step", 0)
        return {n: session.read(n) for n in outputs}

    first = run()
    if twice:  # what one run leaves in the scratch memory does not matter to the next
        again = run()
        assert all(first[n].tobytes() == again[n].tobytes() for n in outputs)
    return first


# ---------------------------------------------------------------- an MLP

R = Region
WEIGHTS = (R.W_BN_BIAS, R.W_DEEP_CONV)


def mlp_plan(
    sizes: Sequence[int],
    batches: tuple[int, int, int],
    precision: Precision = Precision.FP32,
    smoothing: float = 0.1,
    weight_decay: float = 1e-2,
    dropout: float = 0.0,
    seed: int = CONFIG.seed,
) -> Plan:
    """fc, relu, ... fc with AdamW, as the compiler lays it out; batches of training, last training, validation."""
    b = PlanBuilder(precision=precision, seed=seed)
    train, last, val = batches
    one: Shape = (1, 1, 1, 1)

    def six(*channels: int, grad: bool = False) -> tuple[Shape | None, ...]:
        rows = (train, last, train, last, None, None) if grad else (train, last, train, last, val, val)
        return tuple(None if n is None else (n, 1, 1, *channels) for n in rows)

    layers = len(sizes) - 1
    for i in range(layers):
        shapes = {"weight": (sizes[i + 1], 1, 1, sizes[i]), "bias": (1, 1, 1, sizes[i + 1])}
        for leaf, shape in shapes.items():
            rule = Initial("kaiming_uniform", fan=sizes[i]) if leaf == "weight" else Initial("zeros")
            for suffix, letter in (("", "W"), (".grad", "G"), (".m", "M"), (".v", "V")):
                region = R[f"{letter}_FC_{leaf.upper()}"]
                b.tensor(f"fc{i}.{leaf}{suffix}", region, shape, initial=None if suffix else rule)
    for letter in "ab":
        b.tensor(f"label_{letter}", R[f"I_{letter.upper()}_LABEL"], *six(1))
        b.tensor(f"data_{letter}", R[f"I_{letter.upper()}_DATA"], *six(sizes[0]))
    b.tensor("label", R.T_TEMP_INT32, *six(1))
    for i in range(layers):
        b.tensor(f"fc{i}.output", R.F_FEATURE_FP32, *six(sizes[i + 1]))
        b.tensor(f"fc{i}.output.grad", R.F_GRAD_SLOT_FP32, *six(sizes[i + 1], grad=True))
        if i < layers - 1:
            b.tensor(f"relu{i}.output", R.F_FEATURE_FP32, *six(sizes[i + 1]))
            b.tensor(f"relu{i}.output.grad", R.F_GRAD_SLOT_FP32, *six(sizes[i + 1], grad=True))
            if dropout:
                b.tensor(f"dropout{i}.mask", R.S_MASK, *six(sizes[i + 1], grad=True))
    b.tensor("probs", R.T_TEMP_FP32, *six(sizes[-1], grad=True))
    for name in ("has_nan", "zero_flag", "iteration", "applied"):
        b.scalar(name, 0)
    for name, value in (("batch_size", train), ("last_train_batch_size", last), ("last_val_batch_size", val)):
        b.scalar(name, value)
    b.tensor("seed", R.S_SCALAR_INT32, (1, 1, 1, 2))
    scalars = {"lr": 0.0, "scaling": 1.0, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": weight_decay}
    for name, value in {**scalars, "bias_correction1": 0.0, "bias_correction2": 0.0}.items():
        b.scalar(name, value)
    for name in ("loss", "top1", "top5"):
        b.tensor(name, R.R_RESULT, one)
    b.tensor("predicted", R.R_PREDICTED_LABEL, *six(1))
    for name in ("accum_loss", "accum_top1", "accum_top5"):
        b.tensor(name, R.R_RESULT_ACCUMULATED, one)
    b.tensor("lr_table", R.S_TABLE, (1, 1, 1, 4), initial=Initial("constant", value=1e-3))

    for letter in "AB":
        bucket = GraphId[f"TRANSFER_{letter}"]
        b.node("h2d_copy", bucket, writes={"range": (R[f"I_{letter}_LABEL"], R[f"I_{letter}_DATA"])}, buffer=letter)
        b.step(f"transfer_{letter.lower()}", range(6), [bucket])

    def forward(computation: str, bucket: GraphId, data: str) -> None:
        x = data
        for i in range(layers):
            layer = {"layer": f"fc{i}", "computation": computation}
            reads = {"x": x, "weight": f"fc{i}.weight", "bias": f"fc{i}.bias"}
            b.node("fc_fwd", bucket, reads=reads, writes={"y": f"fc{i}.output"}, **layer)
            x = f"fc{i}.output"
            if i < layers - 1:
                y = f"relu{i}.output"
                b.node("relu_fwd", bucket, reads={"x": x}, writes={"y": y}, **layer)
                x = y
                if dropout and computation == "train":
                    b.node(
                        "dropout_fwd",
                        bucket,
                        reads={"x": x},
                        writes={"y": x, "mask": f"dropout{i}.mask"},
                        scalars={"seed": "seed", "iteration": "iteration"},
                        p=dropout,
                        stream=stream_id(f"dropout/dropout{i}"),
                        layer=f"dropout{i}",
                    )

    main = GraphId.DEEP_FWD_BWD
    results = {"loss": "loss", "top1": "top1", "top5": "top5"}
    b.node("clear", GraphId.ZERO_GRAD, writes={"range": (R.G_BN_BIAS, R.G_DEEP_CONV)})
    b.node("copy", main, reads={"x": "label_a"}, writes={"y": "label"})
    forward("train", main, "data_a")
    logits = f"fc{layers - 1}.output"
    b.node(
        "softmax_ce_fwd",
        main,
        reads={"logits": logits, "label": "label"},
        writes={"probs": "probs", **results},
        label_smoothing=smoothing,
    )
    b.node(
        "softmax_ce_bwd",
        main,
        reads={"probs": "probs", "label": "label"},
        writes={"dlogits": f"{logits}.grad"},
        scalars={"scaling": "scaling"},
        label_smoothing=smoothing,
    )
    for i in reversed(range(layers)):
        dy = f"fc{i}.output.grad"
        x = f"relu{i - 1}.output" if i else "data_a"
        b.node("fc_bwd_weight", main, reads={"dy": dy, "x": x}, writes={"dweight": f"fc{i}.weight.grad"})
        b.node("fc_bwd_bias", main, reads={"dy": dy}, writes={"dbias": f"fc{i}.bias.grad"})
        if i:
            dx = f"relu{i - 1}.output.grad"
            b.node("fc_bwd_data", main, reads={"dy": dy, "weight": f"fc{i}.weight"}, writes={"dx": dx})
            if dropout:
                b.node(
                    "dropout_bwd", main, reads={"dy": dx, "mask": f"dropout{i - 1}.mask"}, writes={"dx": dx}, p=dropout
                )
            b.node("relu_bwd", main, reads={"dy": dx, "y": x}, writes={"dx": f"fc{i - 1}.output.grad"})
    check, optimizer = GraphId.NAN_CHECK_AND_GRAD_SCALING, GraphId.OPTIMIZER
    b.node("check_nan", check, reads={"range": (R.G_BN_BIAS, R.G_DEEP_CONV)}, writes={"has_nan": "has_nan"})

    def accumulate(bucket: GraphId, computation: str, size: str, flag: str) -> None:
        sums = {f"accum_{n}": f"accum_{n}" for n in results}
        read = {"batch_size": size, "has_nan": flag}
        b.node("accumulate_metrics", bucket, reads=results, updates=sums, scalars=read, computation=computation)

    accumulate(GraphId.ACCUM_METRICS, "train", "batch_size", "has_nan")
    accumulate(GraphId.ACCUM_METRICS_TRAIN_LAST, "train", "last_train_batch_size", "has_nan")
    b.node("fetch_rate", optimizer, writes={"lr": "lr"}, scalars={"lr_table": "lr_table", "iteration": "iteration"})
    b.node(
        "bias_correction",
        optimizer,
        writes={f"bias_correction{i}": f"bias_correction{i}" for i in (1, 2)},
        scalars={n: n for n in ("beta1", "beta2", "applied")},
    )
    names = [*scalars, "bias_correction1", "bias_correction2", "has_nan"]
    for first, end, decay in (("FC_WEIGHT", "DEEP_CONV", "decoupled"), ("BN_BIAS", "FC_BIAS", "none")):
        ranges = {x.lower(): (R[f"{x}_{first}"], R[f"{x}_{end}"]) for x in "GWMV"}
        b.node(
            "adam_update",
            optimizer,
            reads={"g": ranges.pop("g")},
            updates=ranges,
            scalars={n: n for n in names},
            decay=decay,
        )
    b.node("count_step", optimizer, updates={n: n for n in ("iteration", "applied")}, scalars={"has_nan": "has_nan"})
    before, after = [GraphId.ZERO_GRAD, main, check], [optimizer]
    b.step("train_a", [0, 2], [*before, GraphId.ACCUM_METRICS, *after])
    b.step("train_last_a", [1, 3], [*before, GraphId.ACCUM_METRICS_TRAIN_LAST, *after])

    infer = GraphId.INF_MAIN_A
    b.node("copy", infer, reads={"x": "label_a"}, writes={"y": "label"}, computation="infer")
    forward("infer", infer, "data_a")
    b.node(
        "softmax_ce_infer",
        infer,
        reads={"logits": logits, "label": "label"},
        writes={"predicted": "predicted", **results},
        computation="infer",
        label_smoothing=smoothing,
    )
    accumulate(GraphId.ACCUM_METRICS, "infer", "last_val_batch_size", "zero_flag")
    b.step("infer_a", [4], [infer, GraphId.ACCUM_METRICS], computation="infer")
    accumulated = (R.R_RESULT_ACCUMULATED, R.R_RESULT_ACCUMULATED)
    b.node("clear", GraphId.CLEAR_METRICS, writes={"range": accumulated}, computation="simple")
    b.step("clear_metrics", range(6), [GraphId.CLEAR_METRICS], computation="simple")
    return b.build("mlp", num_classes=sizes[-1])
