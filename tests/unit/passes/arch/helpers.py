"""Running arch passes on text."""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp

from trc.dialects.context import make_context
from trc.dialects.parsing import parse_module
from trc.dialects.verifier import verify
from trc.passes.registry import parse_pipeline


def transform(text: str, pipeline: str) -> ModuleOp:
    """The module after the passes, verified after each; what it prints reads back to the same."""
    ctx = make_context()
    module = parse_module(text, "net.mlir")
    verify(module)
    for one in parse_pipeline(pipeline):
        one.apply(ctx, module)
        verify(module)
    printed = str(module)
    assert str(parse_module(printed, "again.mlir")) == printed
    return module


def network(lines: list[str], shape: str = "16x16x8") -> str:
    """A model of these lines; the last one's value is its result."""
    result = lines[-1].split("=")[0].strip() if lines else "%x"
    return "\n".join([f"arch.model @net(%x: tensor<?x{shape}xf32>) {{", *lines, f"arch.output {result}", "}"])


def names_of(module: ModuleOp) -> list[str]:
    """Kinds of the layers, in order."""
    model = next(iter(module.body.block.ops))
    return [op.name.removeprefix("arch.") for op in model.regions[0].block.ops][:-1]
