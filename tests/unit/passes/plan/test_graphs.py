"""What the graph passes write for particular networks."""

from __future__ import annotations

import pytest
from xdsl.dialects.builtin import ModuleOp

import trc.layers  # noqa: F401  (registers the kinds)
from tests.unit.passes.plan.brute import World
from tests.unit.passes.plan.nets import Net, article_mlp, mlp, planned
from trc.dialects.arch import AddOp, Bn1dOp, DropoutOp, FcOp, FlattenOp, IdentityOp, ReluOp
from trc.dialects.graph import AtlasOp
from trc_runtime.schema.graphs import PUBLISHED_SHAPE_DEPENDENT, SHAPE_INVARIANT, GraphId, Variant


def kinds(world: World, step: str) -> list[str]:
    return [n.op.kind_ for n in world.nodes(world.steps[step])]


def bucket(world: World, graph_id: GraphId, computation: str = "train") -> list[str]:
    buckets = world.computations[computation].buckets_
    return [n.kind_ for n in buckets[graph_id].nodes_] if graph_id in buckets else []


def test_node_counts_of_the_article_mlp() -> None:
    """Published for AMP with AdamW (section 13.6); differences are explained."""
    world = World(planned(article_mlp(), precision="amp-fp16"))
    published = {
        GraphId.TRANSFER_A: 1,
        GraphId.FIRST_LAYER_FWD_A: 2,
        GraphId.FIRST_LAYER_FWD_B: 2,
        GraphId.ZERO_GRAD: 1,
        GraphId.CAST_MAIN_FP32_TO_FP16: 1,
        GraphId.ACCUM_METRICS: 1,
        GraphId.CLEAR_METRICS: 1,
        GraphId.UPDATE_BN_INF_PARAMS: 0,
        GraphId.STATS_COMM: 0,
    }
    assert {g: len(bucket(world, g)) for g in published} == published
    # 10 there: the three activations are part of the products here
    assert len(bucket(world, GraphId.INF_MAIN_A, "infer")) == 10 - 3
    # 16 there: weight, bias and data gradients of a layer are nodes of their own here, and activations, forward and
    # back, part of the products
    assert len(bucket(world, GraphId.DEEP_FWD_BWD)) == 16 + 2 * 4 - 1 - 2 * 3
    # 1 there: the flatten's backward does nothing
    assert bucket(world, GraphId.FIRST_LAYER_BWD_A) == []
    # 4 there: the rate is fetched, the scale updated here (there it is halved with the check)
    assert bucket(world, GraphId.OPTIMIZER) == [
        "fetch_rate",
        "bias_correction",
        "adam_update",
        "adam_update",
        "scale_update",
        "count_step",
    ]


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_the_counters_advance_last(optimizer: str) -> None:
    world = World(planned(mlp(8, 5), optimizer=optimizer))
    assert bucket(world, GraphId.OPTIMIZER)[-1] == "count_step"


def test_an_input_with_one_reader_is_not_copied() -> None:
    world = World(planned(article_mlp()))
    assert bucket(world, GraphId.FIRST_LAYER_FWD_A) == ["copy", "flatten_fwd"]


def test_a_first_layer_with_weights_has_its_gradient_in_buckets_of_the_buffers() -> None:
    net = Net((1, 1, 6))
    world = World(planned(net.finish(net.add(FcOp, net.input, out_features=5), 5)))
    assert bucket(world, GraphId.FIRST_LAYER_BWD_A) == ["fc_bwd_weight", "fc_bwd_bias"]
    assert "fc_bwd_weight" not in bucket(world, GraphId.DEEP_FWD_BWD)


def branching() -> ModuleOp:
    net = Net((1, 1, 6))
    a = net.add(FcOp, net.input, out_features=6)
    skip = net.add(IdentityOp, net.input)
    b = net.add(AddOp, skip, a)
    c = net.add(AddOp, b, net.add(FcOp, b, out_features=6))
    return net.finish(net.add(AddOp, net.add(FcOp, c, out_features=5), net.add(FcOp, c, out_features=5)), 5)


def test_an_input_with_several_readers_is_copied_once_a_buffer() -> None:
    world = World(planned(branching()))
    assert bucket(world, GraphId.FIRST_LAYER_FWD_A) == ["copy", "copy"]
    readers = [n.op.kind_ for n in world.all_nodes if "data_a" in n.reads]
    assert sorted(readers) == ["add_fwd", "copy", "fc_fwd"], "inference reads the buffer itself"


def test_gradients_of_a_value_with_several_uses_are_added() -> None:
    world = World(planned(branching()))
    sums = [n for n in world.all_nodes if n.op.kind_ == "add_fwd" and any(".grad" in w for w in n.writes)]
    # b feeds fc2 and a sum; c feeds fc3 and fc4; the gradient of a sum is that of both its inputs
    assert [sorted(n.reads) for n in sums] == [
        ["add2.output.grad.part0", "add2.output.grad.part1"],
        ["add1.output.grad.part0", "add2.output.grad"],
    ]
    assert "add3.output.grad" in world.tensors
    assert "fc3.output.grad" not in world.tensors, "the gradient of a sum serves both branches"


def test_nothing_above_the_first_parameter_gets_a_gradient() -> None:
    net = Net((1, 1, 6))
    value = net.add(ReluOp, net.input)
    value = net.add(DropoutOp, value, p=0.5)
    world = World(planned(net.finish(net.add(FcOp, value, out_features=5), 5)))
    assert not {"relu_bwd", "dropout_bwd", "fc_bwd_data"} & {n.op.kind_ for n in world.all_nodes}
    assert "dropout1.mask" not in world.tensors
    assert {n for n in world.tensors if n.endswith(".output.grad")} == {"fc1.output.grad"}


def test_batch_norm_commits_and_folds() -> None:
    net = Net((1, 1, 6))
    value = net.add(Bn1dOp, net.add(FcOp, net.input, out_features=8))
    world = World(planned(net.finish(net.add(FcOp, value, out_features=5), 5), batch=4))
    assert bucket(world, GraphId.UPDATE_STATS) == ["commit_stats"]
    assert kinds(world, "fold_bn") == ["bn_fold"]
    assert "affine_fwd" in kinds(world, "infer_a")


def test_dropout_vanishes_in_inference() -> None:
    net = Net((2, 2, 1))
    value = net.add(DropoutOp, net.add(FlattenOp, net.input), p=0.5)
    world = World(planned(net.finish(net.add(FcOp, value, out_features=5), 5)))
    assert kinds(world, "infer_a") == ["copy", "flatten_fwd", "fc_fwd", "softmax_ce_infer", "accumulate_metrics"]
    assert "seed" in world.tensors
    assert "seed" not in World(planned(article_mlp())).tensors


def test_ranks_average_gradients_statistics_and_results() -> None:
    world = World(planned(article_mlp(), world_size=2))
    assert bucket(world, GraphId.FIRST_COMM) == ["mean_allreduce"]
    assert bucket(world, GraphId.DEEP_COMM) == ["mean_allreduce"]
    assert kinds(world, "reduce_metrics") == ["mean_allreduce"]
    assert "mean_allreduce" not in {n.op.kind_ for n in World(planned(article_mlp())).all_nodes}


def atlas(**options: int) -> AtlasOp:
    module = planned(article_mlp(), **options)
    (found,) = [o for o in module.body.block.ops if isinstance(o, AtlasOp)]
    return found


def test_the_atlas_shares_what_no_shape_enters() -> None:
    found = atlas(batch=200, train_samples=60050, val_samples=10000)
    captures, table = found.captures_, found.table_
    base, last, lowres = (table[v.value] for v in (Variant.TRAIN_BASE, Variant.TRAIN_LAST, Variant.TRAIN_LOWRES))
    deep, optimizer = GraphId.DEEP_FWD_BWD.value, GraphId.OPTIMIZER.value
    assert captures[base[deep]].shape == (200, 28, 28, 1)
    assert captures[last[deep]].shape == (50, 28, 28, 1)
    assert base[deep] == lowres[deep], "one resolution, one capture"
    assert captures[base[optimizer]].shape == SHAPE_INVARIANT
    assert base[optimizer] == last[optimizer]
    assert table[Variant.VAL_BASE.value][deep] == -1


def test_shape_dependence_agrees_with_the_published_table() -> None:
    """But for the transfers, which copy as many samples as there are, and the optimizer, which no shape enters."""
    found = atlas(batch=200, val_batch=100, train_samples=60050, val_samples=10050)
    computed = {c.bucket: c.shape != SHAPE_INVARIANT for c in found.captures_}
    differing = {g for g, dependent in computed.items() if dependent != (g in PUBLISHED_SHAPE_DEPENDENT)}
    assert differing == {GraphId.TRANSFER_A, GraphId.TRANSFER_B, GraphId.OPTIMIZER}
