"""The memplan dialect: the layout table with its six shape columns, and where every tensor lies.

```
memplan.spec @train_base {precision = fp32, batch = 200, height = 28, width = 28, channels = 1}
memplan.plan @mlp {mode = packed, total = 123904}
memplan.region W_FC_BIAS at 0 bytes 9216
memplan.tensor @fc1.weight W_FC_WEIGHT f32 [1024, 1, 1, 784] init kaiming_uniform fan 784 layer "fc1"
```

All operations stand in the module. Python values go in and come out (`op.name_`, `op.shapes_`, ...); attributes
behind them are shared.
"""

from __future__ import annotations

from xdsl.ir import Dialect

from trc.dialects.attributes import RegionAttr
from trc.dialects.memplan.attributes import Columns, InitialAttr, PrecisionAttr
from trc.dialects.memplan.plan import PlanOp
from trc.dialects.memplan.region import RegionOp
from trc.dialects.memplan.spec import SpecOp
from trc.dialects.memplan.tensor import TensorOp

MemPlan = Dialect(
    "memplan",
    [SpecOp, PlanOp, RegionOp, TensorOp],
    [RegionAttr, InitialAttr, PrecisionAttr],
)

__all__ = [
    "Columns",
    "InitialAttr",
    "MemPlan",
    "PlanOp",
    "PrecisionAttr",
    "RegionAttr",
    "RegionOp",
    "SpecOp",
    "TensorOp",
]
