"""The memory regions and the slot rule.

The 68 published regions come first, in their published order; trc's own follow. A region is one
contiguous span of bytes that holds whole tensor slots, so a closed interval of regions is one span
too: that is what makes range operations (one kernel over all weights) possible.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from math import prod

from trc_runtime.schema.dtypes import DType, Precision

SLOT_ALIGNMENT = 256
"""Every slot begins at a multiple of this many bytes and is a multiple of it long."""


class Storage(Enum):
    """How a region's element type follows from the precision."""

    MASTER = "master"  # f32, or f64 under fp64
    HALF = "half"  # f16 or bf16
    INPUT = "input"  # the compute type
    I32 = "i32"
    I8 = "i8"
    U8 = "u8"


class Condition(Enum):
    """When tensors may be placed in a region."""

    ALWAYS = "always"
    BN_FOLDED = "bn_folded"
    EMA = "has_ema"
    AMP = "amp"
    EMA_AMP = "has_ema && amp"
    NOT_AMP = "!amp"
    MOMENTUM = "use_momentum"
    ADAM = "use_adam"
    LARS = "use_lars"


_M, _H, _IN, _I32, _I8, _U8 = (
    Storage.MASTER,
    Storage.HALF,
    Storage.INPUT,
    Storage.I32,
    Storage.I8,
    Storage.U8,
)
_ALWAYS, _BN, _EMA, _AMP = Condition.ALWAYS, Condition.BN_FOLDED, Condition.EMA, Condition.AMP
_EMA_AMP, _NOT_AMP = Condition.EMA_AMP, Condition.NOT_AMP
_MOM, _ADAM, _LARS = Condition.MOMENTUM, Condition.ADAM, Condition.LARS
_STATE, _POOL = False, True


class Region(Enum):
    """A memory region. Iteration follows the layout; `ordinal` is the place in it."""

    B_PREV_MEAN = (_M, _ALWAYS, _STATE, "running mean, committed")
    B_PREV_VAR = (_M, _ALWAYS, _STATE, "running variance, committed")
    B_NEXT_MEAN = (_M, _ALWAYS, _STATE, "running mean after the current step")
    B_NEXT_VAR = (_M, _ALWAYS, _STATE, "running variance after the current step")
    W_EQ_BIAS = (_M, _BN, _STATE, "inference bias: beta - mean * scale")
    W_EQ_SCALE = (_M, _BN, _STATE, "inference scale: gamma / sqrt(var + eps)")
    W_BN_BIAS = (_M, _ALWAYS, _STATE, "batch norm beta")
    W_BN_WEIGHT = (_M, _ALWAYS, _STATE, "batch norm gamma")
    W_FC_BIAS = (_M, _ALWAYS, _STATE, "bias of fully connected layers (and of convolutions)")
    W_FC_WEIGHT = (_M, _ALWAYS, _STATE, "weight of fully connected layers")
    W_FIRST_CONV = (_M, _ALWAYS, _STATE, "weight of the first layer's convolution")
    W_DEEP_CONV = (_M, _ALWAYS, _STATE, "weight of the other convolutions")
    E_BN_BIAS = (_M, _EMA, _STATE, "moving average of W_BN_BIAS")
    E_BN_WEIGHT = (_M, _EMA, _STATE, "moving average of W_BN_WEIGHT")
    E_FC_BIAS = (_M, _EMA, _STATE, "moving average of W_FC_BIAS")
    E_FC_WEIGHT = (_M, _EMA, _STATE, "moving average of W_FC_WEIGHT")
    E_FIRST_CONV = (_M, _EMA, _STATE, "moving average of W_FIRST_CONV")
    E_DEEP_CONV = (_M, _EMA, _STATE, "moving average of W_DEEP_CONV")
    E_FC_WEIGHT_FP16 = (_H, _EMA_AMP, _STATE, "half copy of E_FC_WEIGHT")
    E_FIRST_CONV_FP16 = (_H, _EMA_AMP, _STATE, "half copy of E_FIRST_CONV")
    E_DEEP_CONV_FP16 = (_H, _EMA_AMP, _STATE, "half copy of E_DEEP_CONV")
    A_FC_WEIGHT = (_H, _AMP, _STATE, "working half copy of W_FC_WEIGHT")
    A_FIRST_CONV = (_H, _AMP, _STATE, "working half copy of W_FIRST_CONV")
    A_DEEP_CONV = (_H, _AMP, _STATE, "working half copy of W_DEEP_CONV")
    G_BN_BIAS = (_M, _ALWAYS, _STATE, "gradient of W_BN_BIAS")
    G_BN_WEIGHT = (_M, _ALWAYS, _STATE, "gradient of W_BN_WEIGHT")
    G_FC_BIAS = (_M, _ALWAYS, _STATE, "gradient of W_FC_BIAS")
    G_FC_WEIGHT = (_M, _ALWAYS, _STATE, "gradient of W_FC_WEIGHT")
    G_FIRST_CONV = (_M, _ALWAYS, _STATE, "gradient of W_FIRST_CONV")
    G_DEEP_CONV = (_M, _ALWAYS, _STATE, "gradient of W_DEEP_CONV")
    R_RESULT = (_M, _ALWAYS, _STATE, "loss, top-1 and top-5 of the current batch")
    G_FC_WEIGHT_FP16 = (_H, _AMP, _STATE, "half gradient of W_FC_WEIGHT")
    G_FIRST_CONV_FP16 = (_H, _AMP, _STATE, "half gradient of W_FIRST_CONV")
    G_DEEP_CONV_FP16 = (_H, _AMP, _STATE, "half gradient of W_DEEP_CONV")
    M_BN_BIAS = (_M, _MOM, _STATE, "momentum of W_BN_BIAS")
    M_BN_WEIGHT = (_M, _MOM, _STATE, "momentum of W_BN_WEIGHT")
    M_FC_BIAS = (_M, _MOM, _STATE, "momentum of W_FC_BIAS")
    M_FC_WEIGHT = (_M, _MOM, _STATE, "momentum of W_FC_WEIGHT")
    M_FIRST_CONV = (_M, _MOM, _STATE, "momentum of W_FIRST_CONV")
    M_DEEP_CONV = (_M, _MOM, _STATE, "momentum of W_DEEP_CONV")
    V_BN_BIAS = (_M, _ADAM, _STATE, "second moment of W_BN_BIAS")
    V_BN_WEIGHT = (_M, _ADAM, _STATE, "second moment of W_BN_WEIGHT")
    V_FC_BIAS = (_M, _ADAM, _STATE, "second moment of W_FC_BIAS")
    V_FC_WEIGHT = (_M, _ADAM, _STATE, "second moment of W_FC_WEIGHT")
    V_FIRST_CONV = (_M, _ADAM, _STATE, "second moment of W_FIRST_CONV")
    V_DEEP_CONV = (_M, _ADAM, _STATE, "second moment of W_DEEP_CONV")
    N_FC_WEIGHT = (_M, _LARS, _STATE, "trust ratio of each weight in W_FC_WEIGHT")
    N_FIRST_CONV = (_M, _LARS, _STATE, "trust ratio of W_FIRST_CONV")
    N_DEEP_CONV = (_M, _LARS, _STATE, "trust ratio of each weight in W_DEEP_CONV")
    I_A_LABEL = (_I32, _ALWAYS, _STATE, "labels, input buffer A")
    I_A_DATA = (_IN, _ALWAYS, _STATE, "images, input buffer A")
    I_B_LABEL = (_I32, _ALWAYS, _STATE, "labels, input buffer B")
    I_B_DATA = (_IN, _ALWAYS, _STATE, "images, input buffer B")
    F_FEATURE_FP32 = (_M, _NOT_AMP, _POOL, "activations")
    F_GRAD_SLOT_FP32 = (_M, _NOT_AMP, _POOL, "gradients of activations")
    F_FEATURE_FP16 = (_H, _AMP, _POOL, "half activations")
    F_GRAD_SLOT_FP16 = (_H, _AMP, _POOL, "gradients of half activations")
    S_SCALAR_FP32 = (_M, _ALWAYS, _STATE, "rate, loss scale, hyper-parameters")
    S_SCALAR_FP16 = (_H, _AMP, _STATE, "half scalars")
    S_SCALAR_INT32 = (_I32, _ALWAYS, _STATE, "flags, counters, batch sizes")
    S_SCALAR_INT8 = (_I8, _ALWAYS, _STATE, "byte scalars")
    S_MASK = (_I8, _ALWAYS, _POOL, "masks of pooling and dropout")
    T_TEMP_FP32 = (_M, _ALWAYS, _POOL, "temporaries of one layer")
    T_TEMP_FP16 = (_H, _ALWAYS, _POOL, "half temporaries")
    T_TEMP_INT32 = (_I32, _ALWAYS, _POOL, "the batch's labels, integer temporaries")
    T_TEMP_INT8 = (_I8, _ALWAYS, _POOL, "byte temporaries")
    R_PREDICTED_LABEL = (_I32, _ALWAYS, _STATE, "predicted class of each sample")
    R_RESULT_ACCUMULATED = (_M, _ALWAYS, _STATE, "sums of loss, top-1 and top-5 over an epoch")
    # trc's own, after the published ones
    E_STAT_MEAN = (_M, _EMA, _STATE, "running mean that belongs to the moving average")
    E_STAT_VAR = (_M, _EMA, _STATE, "running variance that belongs to the moving average")
    E_EQ_BIAS = (_M, _EMA, _STATE, "inference bias of the moving average")
    E_EQ_SCALE = (_M, _EMA, _STATE, "inference scale of the moving average")
    D_RESIDENT_DATA = (_U8, _ALWAYS, _STATE, "a whole data set's images, kept on the device")
    D_RESIDENT_LABEL = (_I32, _ALWAYS, _STATE, "a whole data set's labels, kept on the device")
    S_TABLE = (_M, _ALWAYS, _STATE, "tables: the learning rate of each step, scale and shift of the input's channels")
    T_WORKSPACE = (_U8, _ALWAYS, _POOL, "workspace of one node")
    I_A_BYTES = (_U8, _ALWAYS, _STATE, "images as unsigned bytes, input buffer A, where the device normalises them")
    I_B_BYTES = (_U8, _ALWAYS, _STATE, "images as unsigned bytes, input buffer B")

    def __init__(self, storage: Storage, condition: Condition, transient: bool, meaning: str) -> None:
        self.ordinal = len(self.__class__.__members__)
        self.storage = storage
        """How the element type follows from the precision."""
        self.condition = condition
        """When tensors may be placed here."""
        self.transient = transient
        """Whether tensors live within one step, so that the packed planner may share bytes."""
        self.meaning = meaning


PUBLISHED_REGIONS = 68
"""How many of the regions are the published ones (spec/compiler-facts.md section 6)."""


def dtype_of(region: Region, precision: Precision) -> DType:
    """The element type of the region's tensors under a precision.

    Raises ValueError for a half region without mixed precision.
    """
    storage = region.storage
    if storage is Storage.MASTER:
        return precision.master
    if storage is Storage.INPUT:
        return precision.compute
    if storage is Storage.HALF:
        if not precision.is_amp:
            raise ValueError(f"region {region.name} exists under mixed precision only, not {precision.value}")
        return precision.compute
    return DType(storage.value)


def region_range(first: Region, last: Region) -> list[Region]:
    """The regions of a closed interval, in order; ValueError if it runs backwards."""
    if first.ordinal > last.ordinal:
        raise ValueError(f"range {first.name} to {last.name} runs backwards")
    return [r for r in Region if first.ordinal <= r.ordinal <= last.ordinal]


AVERAGES: dict[Region, Region] = {
    **{r: Region[f"E_{r.name[2:]}"] for r in region_range(Region.W_BN_BIAS, Region.W_DEEP_CONV)},
    **{r: Region[f"E_{r.name[2:]}_FP16"] for r in region_range(Region.A_FC_WEIGHT, Region.A_DEEP_CONV)},
    Region.B_PREV_MEAN: Region.E_STAT_MEAN,
    Region.B_PREV_VAR: Region.E_STAT_VAR,
    Region.W_EQ_BIAS: Region.E_EQ_BIAS,
    Region.W_EQ_SCALE: Region.E_EQ_SCALE,
}
"""Where what belongs to the moving average lies, by the region of what is averaged, cast or folded."""

AVERAGE_SUFFIX = ".ema"
"""What the name of a tensor of the moving average ends with, after the name of its counterpart."""


def channel_alignment(region: Region, dtype: DType) -> int:
    """To what multiple the innermost dimension (C) of a tensor is padded in memory."""
    if dtype.is_half and region in (Region.I_A_DATA, Region.I_B_DATA):
        return 4
    if dtype.is_half and region in (Region.F_FEATURE_FP16, Region.F_GRAD_SLOT_FP16):
        return 8
    if region is Region.S_MASK:
        return 8
    return 1


def align_up(value: int, alignment: int) -> int:
    """`value` rounded up to a multiple of `alignment`."""
    return (value + alignment - 1) // alignment * alignment


def padded_elements(shape: Sequence[int], dtype: DType, region: Region) -> int:
    """Elements of a tensor in memory, channel padding included."""
    return prod(shape[:-1]) * align_up(shape[-1], channel_alignment(region, dtype))


def slot_bytes(shape: Sequence[int], dtype: DType, region: Region) -> int:
    """Bytes of a tensor's slot (spec/compiler-facts.md section 7.1).

    With e the padded elements and A rounding up to 256: 16-bit types take A(2e + 16), 8-bit types
    A(e + 16), 32-bit types 2 A(2e + 16), 64-bit types 4 A(2e + 16). A 32-bit slot is thus exactly
    twice its half counterpart, which is what lets one flat kernel cast a whole range.
    """
    e = padded_elements(shape, dtype, region)
    if dtype.itemsize == 1:
        return align_up(e + 16, SLOT_ALIGNMENT)
    return dtype.itemsize // 2 * align_up(2 * e + 16, SLOT_ALIGNMENT)
