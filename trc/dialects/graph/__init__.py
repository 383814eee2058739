"""The graph dialect: computation graphs without shapes, the steps that order their nodes, and the atlas.

```
graph.computation @train {
  graph.bucket DEEP_FWD_BWD on COMP_1 {
    graph.compute fc_fwd reads(@relu1.output, @fc2.weight, @fc2.bias) writes(@fc2.output) layer "fc2"
  }
  graph.bucket ZERO_GRAD on UPDATE {
    graph.range clear writes(G_BN_BIAS to G_DEEP_CONV_FP16)
  }
}
graph.variant @train_base uses @train
graph.step @train_a of @train columns [0, 2] buckets [ZERO_GRAD, DEEP_FWD_BWD] after [[], [0]]
```

Python values go in and come out (`op.kind_`, `op.reads_`, `op.params_`, ...); attributes behind them are shared.
"""

from __future__ import annotations

from xdsl.ir import Dialect

from trc.dialects.attributes import RangeAttr
from trc.dialects.graph.atlas import AtlasOp
from trc.dialects.graph.attributes import GraphIdAttr, OperandRef, Param, Range, StreamAttr
from trc.dialects.graph.bucket import BucketOp
from trc.dialects.graph.computation import ComputationOp
from trc.dialects.graph.node import ComputeOp, NodeOp, RangeOp
from trc.dialects.graph.step import StepOp
from trc.dialects.graph.variant import VariantOp

Graph = Dialect(
    "graph",
    [ComputationOp, BucketOp, ComputeOp, RangeOp, VariantOp, StepOp, AtlasOp],
    [GraphIdAttr, StreamAttr, RangeAttr],
)

__all__ = [
    "AtlasOp",
    "BucketOp",
    "ComputationOp",
    "ComputeOp",
    "Graph",
    "GraphIdAttr",
    "NodeOp",
    "OperandRef",
    "Param",
    "Range",
    "RangeOp",
    "StepOp",
    "StreamAttr",
    "VariantOp",
]
