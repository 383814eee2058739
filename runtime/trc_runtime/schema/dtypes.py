"""Element types and precisions."""

from __future__ import annotations

from enum import StrEnum

import numpy as np


class DType(StrEnum):
    """Element type of a tensor; the value is the spelling used in IR and JSON."""

    F16 = "f16"
    BF16 = "bf16"
    F32 = "f32"
    F64 = "f64"
    I8 = "i8"
    U8 = "u8"
    I32 = "i32"
    I64 = "i64"

    @property
    def itemsize(self) -> int:
        """Size of one element in bytes."""
        return _ITEMSIZE[self]

    @property
    def numpy(self) -> np.dtype[np.generic]:
        """The NumPy storage type. bfloat16 is stored as uint16 (NumPy has no such type)."""
        return _NUMPY[self]

    @property
    def is_half(self) -> bool:
        """Whether the type is one of the two 16-bit floating-point types."""
        return self in (DType.F16, DType.BF16)

    @property
    def is_float(self) -> bool:
        """Whether the type is a floating-point type."""
        return self in (DType.F16, DType.BF16, DType.F32, DType.F64)


_ITEMSIZE = {
    DType.F16: 2,
    DType.BF16: 2,
    DType.F32: 4,
    DType.F64: 8,
    DType.I8: 1,
    DType.U8: 1,
    DType.I32: 4,
    DType.I64: 8,
}

_NUMPY: dict[DType, np.dtype[np.generic]] = {
    DType.F16: np.dtype(np.float16),
    DType.BF16: np.dtype(np.uint16),
    DType.F32: np.dtype(np.float32),
    DType.F64: np.dtype(np.float64),
    DType.I8: np.dtype(np.int8),
    DType.U8: np.dtype(np.uint8),
    DType.I32: np.dtype(np.int32),
    DType.I64: np.dtype(np.int64),
}


class Precision(StrEnum):
    """What a network is computed in; the value is the spelling users write."""

    FP32 = "fp32"
    TF32 = "tf32"
    AMP_FP16 = "amp-fp16"
    AMP_BF16 = "amp-bf16"
    FP64 = "fp64"

    @property
    def keyword(self) -> str:
        """The spelling as an identifier, for IR text (`amp_fp16`)."""
        return self.value.replace("-", "_")

    @classmethod
    def from_text(cls, text: str) -> Precision:
        """Read either spelling; ValueError lists the choices."""
        try:
            return cls(text.replace("_", "-"))
        except ValueError:
            choices = ", ".join(p.value for p in cls)
            raise ValueError(f"unknown precision '{text}'; choose one of {choices}") from None

    @property
    def is_amp(self) -> bool:
        """Whether activations and working weights are stored in a half type."""
        return self in (Precision.AMP_FP16, Precision.AMP_BF16)

    @property
    def master(self) -> DType:
        """Type of parameters, optimizer state, statistics, scalars and results."""
        return DType.F64 if self is Precision.FP64 else DType.F32

    @property
    def compute(self) -> DType:
        """Storage type of activations and of their gradients."""
        if self is Precision.AMP_FP16:
            return DType.F16
        if self is Precision.AMP_BF16:
            return DType.BF16
        return self.master
