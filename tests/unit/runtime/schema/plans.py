"""A tiny plan by hand: y = relu(x), dx = relu'(dy), with a weight range, to test what works on plans."""

from dataclasses import replace

from trc_runtime.schema.config import SGD, Constant, CrossEntropy, RunConfig
from trc_runtime.schema.dtypes import DType, Precision
from trc_runtime.schema.graphs import GraphId, ShapeId, StreamKind
from trc_runtime.schema.kinds import Access, Kind, KindRegistry, reads, updates, writes
from trc_runtime.schema.plan import (
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
from trc_runtime.schema.regions import Region

KINDS = KindRegistry()
KINDS.register(Kind("make", writes("y")))
KINDS.register(Kind("inplace", reads("x") + writes("y"), may_alias=(("y", "x"),)))
KINDS.register(Kind("use", reads("x") + updates("w")))

CONFIG = RunConfig(
    optimizer=SGD(),
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
    seed=0,
)


def tensor(name: str, region: Region, offset: int, shape: tuple[int, ...] | None = (1, 1, 1, 8)) -> Tensor:
    return Tensor(name, region, DType.F32, (shape,) * 6, 512, offset, Initial("zeros"), name.split(".")[0])


def node(kind: str, **operands: tuple[Access, int]) -> Node:
    refs = tuple(Operand(role, access, TensorRef(index)) for role, (access, index) in operands.items())
    return Node(kind, "train", GraphId.DEEP_FWD_BWD, StreamKind.COMP_1, "l1", refs, (), {})


R, U, W = Access.READ, Access.UPDATE, Access.WRITE
WEIGHTS = RangeRef(Region.W_FC_BIAS, Region.W_FC_WEIGHT)


def tiny_plan() -> Plan:
    """make(a); inplace(a -> b at the same place); use(b, w); clear the weight range."""
    tensors = (
        tensor("l1.bias", Region.W_FC_BIAS, 0),
        tensor("l1.weight", Region.W_FC_WEIGHT, 512),
        tensor("l1.a", Region.F_FEATURE_FP32, 1024),
        tensor("l1.b", Region.F_FEATURE_FP32, 1024),
    )
    nodes = (
        node("make", y=(W, 2)),
        node("inplace", x=(R, 2), y=(W, 3)),
        node("use", x=(R, 3), w=(U, 1)),
        replace(node("clear"), operands=(Operand("range", W, WEIGHTS),)),
    )
    step = Step("train_a", "train", (0, 2), (0, 1, 2, 3), ((), (0,), (1,), (2,)))
    return Plan(
        name="tiny",
        mode="packed",
        config=CONFIG,
        variants=tuple(VariantSpec(f"v{i}", 4, 1, 1, 1) for i in range(6)),
        tensors=tensors,
        spans=(Span("W_FC_BIAS", 0, 512), Span("W_FC_WEIGHT", 512, 512), Span("POOL", 1024, 512)),
        total=1536,
        nodes=nodes,
        steps=(step,),
        captures=(Capture("train", GraphId.DEEP_FWD_BWD, ShapeId(4, 1, 1, 1), 0),),
        atlas=((0,) * 33,) * 6,
    )
