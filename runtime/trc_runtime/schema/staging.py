"""What the host stages of an input buffer: the tensors that `h2d_copy` fills."""

from __future__ import annotations

from collections.abc import Mapping

from trc_runtime.schema.plan import Tensor

BUFFERS = ("A", "B")
"""The two input buffers."""

BYTES = "bytes"
"""The part of images that the device normalises."""


def staged_parts(tensors: Mapping[str, Tensor], buffer: str) -> dict[str, Tensor]:
    """The staged tensors of a buffer by part: "label", and "bytes" where the device normalises images, else "data".

    Empty for a plan without that input buffer.
    """
    suffix = f"_{buffer.lower()}"
    images = BYTES if BYTES + suffix in tensors else "data"
    found = {part: tensors.get(part + suffix) for part in ("label", images)}
    return {part: tensor for part, tensor in found.items() if tensor is not None} if all(found.values()) else {}
