"""What the graph passes write for a moving average of the weights."""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp

import trc.layers  # noqa: F401  (registers the kinds)
from tests.unit.passes.plan.brute import World
from tests.unit.passes.plan.nets import Net, article_mlp, planned
from trc.dialects.arch import AddOp, Bn1dOp, FcOp
from trc.dialects.graph import AtlasOp
from trc_runtime.schema.graphs import PUBLISHED_SHAPE_DEPENDENT, SHAPE_INVARIANT, GraphId, Variant
from trc_runtime.schema.regions import AVERAGES


def normed() -> ModuleOp:
    net = Net((1, 1, 6))
    value = net.add(Bn1dOp, net.add(FcOp, net.input, out_features=8))
    value = net.add(AddOp, value, net.add(FcOp, value, out_features=8))
    return net.finish(net.add(FcOp, value, out_features=5), 5)


def averaged(module: ModuleOp, **options: str | int) -> World:
    return World(planned(module, ema_decay="0.99", batch=4, **options))


def steps_with(world: World, bucket: GraphId) -> set[str]:
    return {name for name, step in world.steps.items() if bucket in step.buckets_}


def test_everything_that_inference_reads_has_a_counterpart() -> None:
    for precision in ("fp32", "amp-fp16"):
        world = averaged(normed(), precision=precision)
        for name, tensor in world.tensors.items():
            if tensor.region_ in AVERAGES:
                twin = world.tensors[f"{name}.ema"]
                assert twin.region_ is AVERAGES[tensor.region_]
                assert (twin.shapes_, twin.initial_, twin.channels_) == (
                    tensor.shapes_, tensor.initial_, tensor.channels_)  # fmt: skip
        assert ("fc1.weight.half.ema" in world.tensors) == (precision != "fp32")


def test_buckets_and_steps() -> None:
    world = averaged(normed(), precision="amp-fp16")
    assert steps_with(world, GraphId.EMA_UPDATE) == {"train_a", "train_b", "train_last_a", "train_last_b"}
    assert steps_with(world, GraphId.CAST_EMA_FP32_TO_FP16) == {"cast_ema"}, "not after every training step"
    assert steps_with(world, GraphId.INF_EMA_A) == {"infer_ema_a", "infer_ema_last_a"}
    assert steps_with(world, GraphId.INF_EMA_B) == {"infer_ema_b", "infer_ema_last_b"}
    train, infer = (world.computations[c].buckets_ for c in ("train", "infer"))
    assert [n.kind_ for n in train[GraphId.EMA_UPDATE].nodes_] == ["ema_update", "ema_update"]
    assert [n.kind_ for n in train[GraphId.UPDATE_BN_INF_PARAMS].nodes_] == ["bn_fold", "bn_fold"]
    assert [n.kind_ for n in infer[GraphId.INF_EMA_A].nodes_][:-1] == [
        n.kind_ for n in infer[GraphId.INF_MAIN_A].nodes_
    ]
    without = World(planned(normed(), batch=4, precision="amp-fp16"))
    assert set(world.steps) - set(without.steps) == {
        *(f"infer_ema_{x}" for x in ("a", "b", "last_a", "last_b")),
        "cast_ema",
    }
    assert not any("ema" in name for name in without.tensors)


def test_a_network_without_batch_norm_averages_its_weights_only() -> None:
    world = averaged(article_mlp())
    assert [n.op.kind_ for n in world.all_nodes].count("ema_update") == 1
    assert "cast_ema" not in world.steps


def test_its_inference_reads_averages_and_nothing_else_that_has_one() -> None:
    world = averaged(normed(), precision="amp-fp16")
    for letter in "ab":
        nodes = world.nodes(world.steps[f"infer_ema_{letter}"])
        read = {name for n in nodes for name in n.reads}
        assert not {n for n in read if world.tensors[n].region_ in AVERAGES}
        assert {"fc1.weight.half.ema", "fc1.bias.ema", "bn1.eq_scale.ema", "fc3.weight.half.ema"} <= read
        assert f"data_{letter}" in read
        written = {name for n in nodes for name in n.writes}
        assert {"accum_ema_loss", "accum_ema_top1", "accum_ema_top5"} <= written
        assert "accum_loss" not in written
        main = {name for n in world.nodes(world.steps[f"infer_{letter}"]) for name in n.reads}
        assert not any(name.endswith(".ema") for name in main)


def test_the_update_comes_after_weights_statistics_and_the_counter() -> None:
    world = averaged(normed())
    step = world.steps["train_a"]
    kinds = [n.op.kind_ for n in world.nodes(step)]
    after = step.after_

    def before(position: int) -> set[int]:
        found: set[int] = set()
        for p in after[position]:
            found |= {p} | before(p)
        return found

    averages = [n for n, kind in enumerate(kinds) if kind == "ema_update"]
    assert len(averages) == 2
    earlier = [{kinds[p] for p in before(n)} for n in averages]
    assert {"adam_update", "count_step", "check_nan"} <= earlier[0]
    assert {"commit_stats", "count_step", "check_nan"} <= earlier[1]


def test_the_atlas_shares_what_no_shape_enters() -> None:
    module = planned(normed(), ema_decay="0.99", precision="amp-fp16", batch=8, val_batch=6, train_samples=20,
                     val_samples=10)  # fmt: skip
    (atlas,) = [o for o in module.body.block.ops if isinstance(o, AtlasOp)]
    own = {c.bucket: c.shape != SHAPE_INVARIANT for c in atlas.captures_ if "EMA" in c.bucket.name}
    assert own == {g: g in PUBLISHED_SHAPE_DEPENDENT for g in own}
    assert set(own) == {GraphId.EMA_UPDATE, GraphId.CAST_EMA_FP32_TO_FP16, GraphId.INF_EMA_A, GraphId.INF_EMA_B}
    table = atlas.table_
    base, last = (table[v.value][GraphId.INF_EMA_A.value] for v in (Variant.VAL_BASE, Variant.VAL_LAST))
    assert (atlas.captures_[base].shape.n, atlas.captures_[last].shape.n) == (6, 4)
    update = [table[v.value][GraphId.EMA_UPDATE.value] for v in Variant]
    assert len(set(update[:4])) == 1
    assert update[4:] == [-1, -1]


def test_ranks_average_its_sums_too() -> None:
    world = averaged(normed(), world_size=2)
    (reduce,) = world.nodes(world.steps["reduce_metrics"])
    assert {"accum_loss", "accum_ema_loss", "accum_ema_top5"} <= set(reduce.writes)
