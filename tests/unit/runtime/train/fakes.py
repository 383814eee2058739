"""A plan of one linear layer and a session that computes it in a few lines of NumPy, to test the loop alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.unit.runtime.cpu.plans import PlanBuilder
from trc_runtime.schema.config import SGD, Constant
from trc_runtime.schema.graphs import GraphId, Variant
from trc_runtime.schema.plan import Initial, Plan, VariantSpec
from trc_runtime.schema.regions import Region

SHAPE = (2, 2, 1)
CLASSES = 4


def linear_plan(
    batch: int = 8,
    train_samples: int | None = 36,
    val_samples: int | None = 20,
    epochs: int | None = 3,
    rates: int = 15,
    **config: Any,
) -> Plan:
    """Batches of 8 (and 4) in training and 8 (and 4) in validation, momentum SGD, a table of `rates` rates.

    With `ema` among the settings the weight has a moving average.
    """
    averaged = config.get("ema") is not None
    b = PlanBuilder(seed=config.pop("seed", 0))
    features = int(np.prod(SHAPE))
    last = (train_samples or 0) % batch or batch
    val_last = (val_samples or 0) % batch or batch
    sizes = (batch, last, batch, last, batch, val_last)
    weight = (CLASSES, 1, 1, features)
    b.tensor("fc1.weight", Region.W_FC_WEIGHT, weight, initial=Initial("constant", 0.0))
    b.tensor("fc1.weight.grad", Region.G_FC_WEIGHT, weight)
    b.tensor("fc1.weight.m", Region.M_FC_WEIGHT, weight)
    if averaged:
        b.tensor("fc1.weight.ema", Region.E_FC_WEIGHT, weight, initial=Initial("constant", 0.0))
    for letter in "ab":
        b.tensor(f"label_{letter}", Region[f"I_{letter.upper()}_LABEL"], *((n, 1, 1, 1) for n in sizes))
        b.tensor(f"data_{letter}", Region[f"I_{letter.upper()}_DATA"], *((n, *SHAPE) for n in sizes))
    b.tensor("fc1.output", Region.F_FEATURE_FP32, *((n, 1, 1, CLASSES) for n in sizes))
    for name in ("has_nan", "zero_flag", "iteration", "applied", "batch_size"):
        b.scalar(name, 0)
    b.scalar("last_train_batch_size", last)
    b.scalar("last_val_batch_size", val_last)
    for name, value in (("lr", 0.0), ("scaling", 1.0)):
        b.scalar(name, value)
    for name in ("loss", "top1", "top5"):
        b.tensor(name, Region.R_RESULT, (1, 1, 1, 1))
        b.tensor(f"accum_{name}", Region.R_RESULT_ACCUMULATED, (1, 1, 1, 1))
        if averaged:
            b.tensor(f"accum_ema_{name}", Region.R_RESULT_ACCUMULATED, (1, 1, 1, 1))
    b.tensor("lr_table", Region.S_TABLE, (1, 1, 1, rates), initial=Initial("table"))
    results = {n: n for n in ("loss", "top1", "top5")}
    sums = {f"accum_{n}": f"accum_{n}" for n in results}
    for bucket, size in (
        (GraphId.ACCUM_METRICS, "batch_size"),
        (GraphId.ACCUM_METRICS_TRAIN_LAST, "last_train_batch_size"),
        (GraphId.ACCUM_METRICS_VAL_LAST, "last_val_batch_size"),
    ):
        read = {"batch_size": size, "has_nan": "has_nan"}
        b.node("accumulate_metrics", bucket, reads=results, updates=sums, scalars=read)
    for letter in "ab":
        b.step(f"transfer_{letter}", range(6), [])
        b.step(f"train_{letter}", [0, 2], [GraphId.ACCUM_METRICS])
        b.step(f"train_last_{letter}", [1, 3], [GraphId.ACCUM_METRICS_TRAIN_LAST])
        b.step(f"infer_{letter}", [4], [GraphId.ACCUM_METRICS])
        b.step(f"infer_last_{letter}", [5], [GraphId.ACCUM_METRICS_VAL_LAST])
        if averaged:
            b.step(f"infer_ema_{letter}", [4], [])
            b.step(f"infer_ema_last_{letter}", [5], [])
    for name in ("clear_metrics", "fold_bn", "cast_main"):
        b.step(name, range(6), [])
    settings: dict[str, Any] = {
        "optimizer": SGD(momentum=0.9),
        "schedule": Constant(base_lr=0.05),
        "input": SHAPE,
        "num_classes": CLASSES,
        "batch": batch,
        "val_batch": batch,
        "epochs": epochs,
        "train_samples": train_samples,
        "val_samples": val_samples,
    }
    plan = b.build("linear", **(settings | config))
    variants = tuple(VariantSpec(v.symbol, sizes[v.value], *SHAPE) for v in Variant)
    return replace(plan, variants=variants)


class FakeSession:
    """Runs `linear_plan`; `calls` are the steps in order, `poison` the iterations whose gradient is NaN."""

    def __init__(self, plan: Plan, poison: tuple[int, ...] = ()) -> None:
        self.plan = plan
        self.poison = poison
        self.calls: list[tuple[str, int]] = []
        self.values: dict[str, NDArray[Any]] = {}
        self._staging: dict[tuple[str, int], tuple[NDArray[np.int32], NDArray[np.float32]]] = {}
        self._input: dict[str, tuple[NDArray[Any], NDArray[Any]]] = {}

    def initialise(self, *, draw: bool = True) -> None:
        for t in self.plan.tensors:
            shape = next(s for s in t.shapes if s is not None)
            self.values[t.name] = np.full(shape, t.initial.value, t.dtype.numpy)

    def read(self, name: str) -> NDArray[Any]:
        return self.values[name].copy()

    def write(self, name: str, array: NDArray[Any]) -> None:
        if array.shape != self.values[name].shape:
            raise ValueError(f"tensor '{name}' has the shape {self.values[name].shape}, the given array {array.shape}")
        self.values[name][...] = array

    def staging(self, buffer: str, column: int) -> tuple[NDArray[np.int32], NDArray[Any]]:
        n = self.plan.variants[column].batch
        made = (np.zeros(n, np.int32), np.zeros((n, *SHAPE), np.float32))
        return self._staging.setdefault((buffer, column), made)

    def run(self, step: str, column: int) -> None:
        self.calls.append((step, column))
        kind, _, letter = step.rpartition("_")
        if kind == "transfer":
            labels, images = self._staging[letter.upper(), column]
            self._input[letter] = (labels.copy(), images.copy())
        elif kind in ("train", "train_last", "infer", "infer_last", "infer_ema", "infer_ema_last"):
            self._compute(kind, letter)
        elif step == "clear_metrics":
            for name in self.values:
                if name.startswith("accum_"):
                    self.values[name][...] = 0

    def _scalar(self, name: str) -> Any:
        return self.values[name].reshape(-1)[0]

    def _compute(self, kind: str, letter: str) -> None:
        labels, images = self._input[letter]
        averaged = kind.startswith("infer_ema")
        weight = self.values["fc1.weight.ema" if averaged else "fc1.weight"]
        x, w = images.reshape(len(labels), -1), weight.reshape(CLASSES, -1)
        logits = x @ w.T
        p = np.exp(logits - logits.max(1, keepdims=True))
        p /= p.sum(1, keepdims=True)
        rows = np.arange(len(labels))
        rank = (logits > logits[rows, labels][:, None]).sum(1)
        self.values["loss"][...] = -np.log(p[rows, labels]).mean()
        self.values["top1"][...], self.values["top5"][...] = (rank == 0).sum(), (rank < 5).sum()
        bad = kind.startswith("train") and self._scalar("iteration") in self.poison
        if averaged:
            self.values["accum_ema_loss"] += self._scalar("loss") * len(labels)
            for name in ("top1", "top5"):
                self.values[f"accum_ema_{name}"] += self._scalar(name)
        elif not bad:
            size = {"train": "batch_size", "infer": "batch_size"}.get(kind, "last_" + {"train_last": "train",
                    "infer_last": "val"}.get(kind, "") + "_batch_size")  # fmt: skip
            self.values["accum_loss"] += self._scalar("loss") * self._scalar(size)
            for name in ("top1", "top5"):
                self.values[f"accum_{name}"] += self._scalar(name)
        if kind.startswith("train"):
            p[rows, labels] -= 1
            self._update((p.T @ x / len(labels)).reshape(self.values["fc1.weight"].shape), bad)

    def _update(self, gradient: NDArray[Any], bad: bool) -> None:
        v = self.values
        v["has_nan"][...] = bad
        table = v["lr_table"].reshape(-1)
        v["lr"][...] = table[min(self._scalar("iteration"), len(table) - 1)]
        v["fc1.weight.grad"][...] = gradient * self._scalar("scaling")
        v["iteration"] += 1
        if not bad:
            v["applied"] += 1
            v["fc1.weight.m"][...] = 0.9 * v["fc1.weight.m"] + gradient
            v["fc1.weight"] -= self._scalar("lr") * v["fc1.weight.m"]
            if (ema := self.plan.config.ema) is not None:
                v["fc1.weight.ema"] += (1 - ema.decay) * (v["fc1.weight"] - v["fc1.weight.ema"])
