"""Options and what the passes refuse."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.irdl import irdl_op_definition

from tests.unit.passes.plan.brute import World
from tests.unit.passes.plan.nets import Net, article_mlp, mlp, planned, run
from trc.diagnostics import CompileError
from trc.dialects.arch import Bn1dOp, CbrOp, ConvOp, FcOp, FlattenOp, GapOp, MaxPoolOp, ReluOp
from trc.dialects.arch.base import SameShapeOp
from trc.dialects.memplan import SpecOp
from trc.passes.plan.plan_create_compile_specs import last_batch


def batches(**options: int) -> list[int]:
    module = planned(article_mlp(), **options)
    return [o.batch_ for o in module.body.block.ops if isinstance(o, SpecOp)]


def test_last_batches() -> None:
    assert batches(batch=200) == [200] * 6
    assert batches(batch=128, train_samples=60000, val_samples=10000) == [128, 96, 128, 96, 128, 16]
    assert batches(batch=128, val_batch=100, train_samples=60000, val_samples=10000) == [128, 96, 128, 96, 100, 100]
    assert batches(batch=128, train_samples=60000, world_size=7) == [128, 124, 128, 124, 128, 128]


@pytest.mark.parametrize(
    ("samples", "batch", "world", "expected"), [(0, 8, 1, 8), (16, 8, 1, 8), (17, 8, 1, 1), (17, 8, 3, 6), (3, 8, 1, 3)]
)
def test_last_batch(samples: int, batch: int, world: int, expected: int) -> None:
    assert last_batch(samples, batch, world) == expected


def test_resolutions_of_the_variants() -> None:
    net = Net((4, 4, 8))
    value = net.add(ReluOp, net.input)
    module = net.finish(net.add(FcOp, value, out_features=5), 5)
    run(module, "plan-create-compile-specs{batch=2 height=4 width=6 end-height=8 val-width=10 precision=fp64}")
    found = [(o.height_, o.width_, o.channels_) for o in module.body.block.ops if isinstance(o, SpecOp)]
    assert found == [(4, 6, 8)] * 2 + [(8, 6, 8)] * 2 + [(4, 10, 8)] * 2


def test_columns_follow_the_variants() -> None:
    tensors = World(planned(mlp(8, 5), batch=4, val_batch=6, train_samples=7, val_samples=8)).tensors
    assert tensors["relu1.output"].shapes_ == ((4, 1, 1, 8), (3, 1, 1, 8), (4, 1, 1, 8), (3, 1, 1, 8), None, None)
    assert tensors["relu1.output.inf"].shapes_ == (None,) * 4 + ((6, 1, 1, 8), (2, 1, 1, 8))
    assert tensors["label"].shapes_[4] == (6, 1, 1, 1)
    assert tensors["val_batch_size"].initial_.value == 6
    assert tensors["last_val_batch_size"].initial_.value == 2


def test_the_state_of_each_optimizer() -> None:
    def state(**options: str | int) -> set[str]:
        names = World(planned(mlp(8, 5), **options)).tensors
        moments = {n.rsplit(".", 1)[1] for n in names if n.endswith((".m", ".v"))}
        return moments | {"beta1", "beta2", "bias_correction1"} & set(names)

    assert state(optimizer="sgd") == set()
    assert state(optimizer="sgd", momentum="0.9") == {"m", "beta1"}
    assert state(optimizer="adam") == {"m", "v", "beta1", "beta2", "bias_correction1"}


def decays(**options: str | int) -> list[object]:
    world = World(planned(mlp(8, 5), **options))
    return [n.op.params_["decay"] for n in world.all_nodes if "decay" in n.op.params_]


def test_decay_is_of_weights_only() -> None:
    assert decays(optimizer="sgd", weight_decay="0.1") == ["l2", "none"]
    assert decays(optimizer="sgd", weight_decay="0.1", decoupled="true") == ["decoupled", "none"]
    assert decays(optimizer="adam", weight_decay="0.1") == ["l2", "none"]
    assert decays(optimizer="adamw", weight_decay="1e-4") == ["decoupled", "none"]
    assert decays(optimizer="adamw") == ["none", "none"]


@irdl_op_definition
class StrangeOp(SameShapeOp):
    """A layer that nobody described."""

    name = "arch.test_strange"

    def __init__(self, x, layer=None):  # type: ignore[no-untyped-def]
        super().__init__((x,), {}, layer)


def strange_net() -> ModuleOp:
    net = Net((8, 8, 8))
    value = net.add(StrangeOp, net.add(StrangeOp, net.input, layer="odd"), layer="odder")
    return net.finish(net.add(FcOp, net.add(GapOp, value), out_features=5), 5)


def large_pool() -> ModuleOp:
    net = Net((16, 16, 8))
    value = net.add(ConvOp, net.input, out_channels=8, kernel=1)
    return net.finish(net.add(FcOp, net.add(MaxPoolOp, value, kernel=12, stride=1), out_features=5), 5)


def partless_block() -> ModuleOp:
    net = Net((8, 8, 8))
    value = net.add(CbrOp, net.input, out_channels=8, kernel=1)
    return net.finish(net.add(FcOp, value, out_features=5), 5)


def one_sample_bn() -> ModuleOp:
    net = Net((1, 1, 6))
    value = net.add(Bn1dOp, net.add(FcOp, net.input, out_features=8))
    return net.finish(net.add(FcOp, value, out_features=5), 5)


def fc_over_a_map() -> ModuleOp:
    net = Net((4, 4, 8))
    return net.finish(net.add(FcOp, net.input, out_features=5), 5)


def no_parameters() -> ModuleOp:
    net = Net((1, 1, 5))
    return net.finish(net.add(ReluOp, net.input), 5)


def unused_layer() -> ModuleOp:
    net = Net((1, 1, 6))
    value = net.add(FcOp, net.input, out_features=5)
    net.add(ReluOp, value)
    return net.finish(value, 5)


def unnamed_layer() -> ModuleOp:
    module = mlp(5)
    for op in module.walk():
        if isinstance(op, FlattenOp):
            del op.properties["layer"]
    return module


MISTAKES: list[tuple[Callable[[], ModuleOp], str, str]] = [
    (strange_net, "plan", "layer 'odd': trc cannot compile arch.test_strange yet"),
    (strange_net, "plan-select-kernels", "layer 'odder': trc cannot compile arch.test_strange yet"),
    (large_pool, "plan", "layer 'max_pool1': kernel is 12, and max pool goes up to 11"),
    (partless_block, "plan", "layer 'cbr1': arch.cbr stands for 3 layers here, but names none: run arch-plan first"),
    (one_sample_bn, "plan{batch=4 train-samples=9}", "layer 'bn1': batch norm needs at least two values a channel"),
    (fc_over_a_map, "plan{val-height=8}", "layer 'fc1': its weight is [5, 1, 1, 128] in train_base but"),
    (no_parameters, "plan", "the network has no parameters"),
    (unused_layer, "plan", "layer 'relu1': its result is never used"),
    (unnamed_layer, "plan", "arch.flatten has no name: run arch-plan first"),
    (article_mlp, "plan{batch=0}", "option batch must be at least 1, not 0"),
    (article_mlp, "plan{val-height=-2}", "option val-height must not be negative"),
    (article_mlp, "plan{precision=fp8}", "unknown precision 'fp8'; choose one of fp32"),
    (article_mlp, "plan{channels=3}", "@train_base has 3 channels, the network's input 1"),
    (article_mlp, "plan{target=tpu}", "unknown target 'tpu'; choose one of cpu, cuda"),
    (article_mlp, "plan{mode=dense}", "unknown planner mode 'dense'; choose one of packed, regions"),
    (article_mlp, "plan{optimizer=lion}", "unknown optimizer 'lion'; choose one of sgd, adam, adamw"),
    (article_mlp, "plan{nesterov=true}", "option nesterov belongs to sgd"),
    (article_mlp, "plan{momentum=0.9}", "option momentum belongs to sgd"),
    (article_mlp, "plan{decoupled=true}", "option decoupled belongs to sgd"),
    (article_mlp, "plan{optimizer=sgd nesterov=true}", "nesterov needs momentum > 0"),
    (article_mlp, "plan{beta1=1.5}", "betas must be two numbers between 0 and 1"),
    (
        article_mlp,
        "plan-create-compile-specs,plan-derive-all-shapes{eps=tiny}",
        "option eps must be a number, not 'tiny'",
    ),
    (article_mlp, "plan{rates=0}", "option rates must be at least 1, not 0"),
    (article_mlp, "plan{world-size=0}", "option world-size must be at least 1"),
    (article_mlp, "plan{bacth=3}", "plan has no option 'bacth'"),
    (article_mlp, "plan{batch=x}", "option batch must be a whole number, not 'x'"),
    (article_mlp, "plan-derive-all-shapes", "no memplan.spec: run plan-create-compile-specs first"),
    (article_mlp, "plan-compute-max-slot-bytes", "no memplan.tensor: run plan-derive-all-shapes first"),
    (article_mlp, "plan-create-memory-plans", "no memplan.tensor: run plan-derive-all-shapes first"),
    (article_mlp, "graph-build-computation", "no memplan.plan: run plan-create-memory-plans first"),
    (article_mlp, "graph-share-or-clone", "no graph.computation: run graph-build-computation first"),
    (article_mlp, "graph-schedule-steps", "no graph.computation: run graph-build-computation first"),
    (article_mlp, "plan-pack-transients", "no memplan.plan: run plan-create-memory-plans first"),
    (article_mlp, "graph-build-atlas", "no graph.step: run graph-schedule-steps first"),
    (article_mlp, "plan,plan-create-compile-specs", "plan-create-compile-specs has already run"),
    (article_mlp, "plan,graph-schedule-steps", "graph-schedule-steps has already run"),
    (article_mlp, "plan,plan-pack-transients", "the plan has a total already"),
    (article_mlp, "plan{mode=regions},plan-pack-transients", "the plan has mode regions"),
]

STEPS = "plan-create-compile-specs,plan-derive-all-shapes"


@pytest.mark.parametrize(
    ("make", "pipeline", "message"), MISTAKES, ids=[f"{p}-{n}" for n, (_, p, _) in enumerate(MISTAKES)]
)
def test_mistakes_are_named(make: Callable[[], ModuleOp], pipeline: str, message: str) -> None:
    with pytest.raises(CompileError) as caught:
        run(make(), pipeline)
    assert message in str(caught.value)


def test_all_layers_without_a_descriptor_are_reported_at_once() -> None:
    with pytest.raises(CompileError) as caught:
        run(strange_net(), "plan")
    assert [p.layer for p in caught.value.problems] == ["odd", "odder"]


def test_slots_come_before_offsets() -> None:
    with pytest.raises(CompileError, match="has no slot: run plan-compute-max-slot-bytes first"):
        run(article_mlp(), f"{STEPS},plan-create-memory-plans")


def test_the_optimizer_must_be_the_one_of_the_table() -> None:
    begin = f"{STEPS}{{optimizer=sgd}},plan-compute-max-slot-bytes,plan-create-memory-plans"
    with pytest.raises(CompileError, match="run plan-derive-all-shapes with the options of graph-build-computation"):
        run(article_mlp(), f"{begin},graph-build-computation{{optimizer=adam}}")
    begin = f"{STEPS}{{optimizer=adam}},plan-compute-max-slot-bytes,plan-create-memory-plans"
    with pytest.raises(CompileError, match="run plan-derive-all-shapes with the options of graph-build-computation"):
        run(article_mlp(), f"{begin},graph-build-computation{{optimizer=sgd}}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "cannot read the kernel choices"),
        ("[]", "must be an object of layer names and forms"),
        ('{"fc1": 3}', "the form of fc1 must be a word"),
        ('{"fc9": "materialised"}', "name a layer 'fc9' that the network does not have"),
        ('{"fc1": "stats"}', "layer 'fc1': has no form 'stats'; it has materialised, deferred"),
    ],
)
def test_kernel_choices_are_checked(tmp_path, text: str, message: str) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "choices.json"
    path.write_text(text)
    with pytest.raises(CompileError) as caught:
        run(article_mlp(), f'plan-select-kernels{{choices="{path}"}}')
    assert message in str(caught.value)


def test_kernel_choices_may_name_the_default(tmp_path) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "choices.json"
    path.write_text('{"fc1": "materialised"}')
    run(article_mlp(), f'plan-select-kernels{{choices="{path}"}}')
    with pytest.raises(CompileError, match="cannot read the kernel choices"):
        run(article_mlp(), f'plan-select-kernels{{choices="{path}.missing"}}')
