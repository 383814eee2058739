"""Write the golden kernels.cu files anew: `python -m tests.unit.codegen.cuda.update_golden`, then read the diff."""

from __future__ import annotations

from pathlib import Path

from trc.codegen.cuda.bundle import generate
from trc.session import lower_to_plan
from trc_runtime.schema.plan import Plan

ROOT = Path(__file__).parents[4]
GOLDEN = Path(__file__).parent / "golden"
MODELS = ("mlp", "lenet5", "resnet18")


def plan_of(model: str, precision: str = "amp-fp16", **options: object) -> Plan:
    """A model of examples/ for CUDA."""
    return lower_to_plan(ROOT / f"examples/models/{model}.bp", target="cuda", precision=precision, **options)  # type: ignore[arg-type]


def golden_file(model: str) -> Path:
    """Where a model's source is kept."""
    return GOLDEN / f"{model}.kernels.cu"


def main() -> None:
    """Write all of them."""
    GOLDEN.mkdir(exist_ok=True)
    for model in MODELS:
        text = generate(plan_of(model)).kernels
        file = golden_file(model)
        same = file.exists() and file.read_text(encoding="utf-8") == text
        file.write_text(text, encoding="utf-8")
        print(f"{file.name}: {'unchanged' if same else 'written'}")


if __name__ == "__main__":
    main()
