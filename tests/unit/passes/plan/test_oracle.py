"""The published layout of the MLP under AMP at batch 200 with AdamW (spec/compiler-facts.md section 13.6)."""

from __future__ import annotations

from tests.unit.passes.plan.nets import article_mlp, planned
from trc.dialects.memplan import PlanOp, RegionOp

PUBLISHED = {
    "W_FC_BIAS": (0, 9216),
    "W_FC_WEIGHT": (9216, 5844992),
    "A_FC_WEIGHT": (5854208, 2922496),
    "G_FC_BIAS": (8776704, 9216),
    "G_FC_WEIGHT": (8785920, 5844992),
    "R_RESULT": (14630912, 1536),
    "G_FC_WEIGHT_FP16": (14632448, 2922496),
    "M_FC_BIAS": (17554944, 9216),
    "M_FC_WEIGHT": (17564160, 5844992),
    "V_FC_BIAS": (23409152, 9216),
    "V_FC_WEIGHT": (23418368, 5844992),
    "I_A_LABEL": (29263360, 1024),
    "I_A_DATA": (29264384, 1254656),
    "I_B_LABEL": (30519040, 1024),
    "I_B_DATA": (30520064, 1254656),
    "F_FEATURE_FP16": (31774720, 1762304),
    "S_SCALAR_FP32": (33537024, 6144),
    "S_SCALAR_INT32": (33543168, 3072),
    "S_MASK": (33546240, 359168),
    "T_TEMP_FP32": (33905408, 9216),
    "T_TEMP_INT32": (33914624, 3072),
    "R_PREDICTED_LABEL": (33917696, 1024),
    "R_RESULT_ACCUMULATED": (33918720, 1536),
}

ABSENT = {
    "G_FC_WEIGHT_FP16": "the original allocates half gradients of fc weights and never writes them",
    "S_MASK": "relu's backward reads its result, so relu keeps no mask",
}
"""Published regions that trc leaves out, and why."""

OTHERWISE = {
    "F_FEATURE_FP16": "inference has activations of its own, and the loss none: its gradient is fc4's",
    "S_SCALAR_FP32": "no scalars for label smoothing and batch norm; both decays are one",
    "S_SCALAR_INT32": "counters of steps begun and applied, a flag for inference, the validation batch, growth counter",
    "T_TEMP_FP32": "no loss partials",
    "T_TEMP_INT32": "no top-k partials",
}
"""Published regions of another size in trc, and why."""

NEW = {
    "F_GRAD_SLOT_FP16": "gradients are tensors of their own; whether they reuse bytes is the packer's finding",
    "S_TABLE": "learning rates of all steps, so that no step waits for the host",
}
"""Regions that the published layout does not have."""


def spans(mode: str) -> tuple[dict[str, tuple[int, int]], int]:
    module = planned(
        article_mlp(),
        batch=200,
        precision="amp-fp16",
        optimizer="adamw",
        mode=mode,
        train_samples=60000,
        val_samples=10000,
    )
    ops = list(module.body.block.ops)
    (plan,) = [o for o in ops if isinstance(o, PlanOp)]
    assert plan.total_ is not None
    return {o.name_: (o.offset_, o.bytes_) for o in ops if isinstance(o, RegionOp)}, plan.total_


def test_sizes_are_the_published_ones() -> None:
    found, _ = spans("regions")
    assert set(PUBLISHED) - set(found) == set(ABSENT)
    assert set(found) - set(PUBLISHED) == set(NEW)
    for name, (_, size) in PUBLISHED.items():
        if name not in ABSENT and name not in OTHERWISE:
            assert found[name][1] == size, name
    required = ("W_", "A_", "G_", "M_", "V_", "I_", "R_")
    assert not any(name.startswith(required) for name in OTHERWISE)


def test_offsets_are_the_published_ones_up_to_the_first_region_left_out() -> None:
    found, _ = spans("regions")
    names = list(PUBLISHED)
    until = names.index("G_FC_WEIGHT_FP16")
    assert {n: found[n] for n in names[:until]} == {n: PUBLISHED[n] for n in names[:until]}
    # ... and from there on by the size of what is left out, as long as nothing has another size
    missing = PUBLISHED["G_FC_WEIGHT_FP16"][1]
    for name in names[until + 1 : names.index("F_FEATURE_FP16") + 1]:
        assert found[name][0] == PUBLISHED[name][0] - missing, name


def test_packed_is_smaller() -> None:
    assert spans("packed")[1] < spans("regions")[1]
    assert spans("packed")[1] < 33920256, "the published total"
