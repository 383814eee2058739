"""Step 3: the loss."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from trc.diagnostics import CompileError, diagnostic_at
from trc.dialects.arch import ModelOp, SoftmaxCeOp, float_of, int_of, tensor_of
from trc.dialects.arch.base import UNKNOWN
from trc.dialects.attributes import string
from trc.passes.arch.rewriting import end_of, erase, input_of, insert_before, layers, models

NAME = "softmax_ce"


@dataclass(frozen=True)
class ArchNormalizeSoftmaxCePass(ModulePass):
    """Leave exactly one loss, the last layer, named softmax_ce.

    `num-classes` and `label-smoothing` default to what a loss in the input says, the smoothing then to 0. It is an
    error if the number of classes is said nowhere, or if two places contradict each other.
    """

    name = "arch-normalize-softmax-ce"

    num_classes: int | None = None
    label_smoothing: float | None = None

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Normalise the loss of every model of the module."""
        if self.num_classes is not None and self.num_classes < 2:
            raise CompileError(f"{self.name}: num-classes is {self.num_classes} and should be at least 2")
        if self.label_smoothing is not None and not 0 <= self.label_smoothing < 1:
            raise CompileError(f"{self.name}: label-smoothing is {self.label_smoothing} and should be in [0, 1)")
        for model in models(op):
            self.normalize(model)

    def normalize(self, model: ModelOp) -> None:
        """One model."""
        end = end_of(model)
        losses = [layer for layer in layers(model) if isinstance(layer, SoftmaxCeOp)]
        classes, smoothing = self.agreed(model, losses)
        location = losses[-1].location if losses else end.location
        for loss in losses:
            loss.result.replace_all_uses_with(input_of(loss))
        erase(losses)
        properties = SoftmaxCeOp.fields_from({"num_classes": classes, "label_smoothing": smoothing})
        new = SoftmaxCeOp.create(
            operands=[end.value],
            result_types=[end.value.type if losses else tensor_of(UNKNOWN)],
            properties={**properties, "layer": string(NAME)},
        )
        new.location = location
        insert_before(end, new)
        end.operands = [new.result]

    def agreed(self, model: ModelOp, losses: list[SoftmaxCeOp]) -> tuple[int, float]:
        """Number of classes and label smoothing, from the options and the losses in the input."""
        classes, smoothing = self.num_classes, self.label_smoothing
        problems = [
            diagnostic_at(loss, f"this loss has {int_of(loss.num_classes)} classes, but {classes} are asked for")
            for loss in losses
            if classes is not None and int_of(loss.num_classes) != classes
        ]
        problems += [
            diagnostic_at(
                loss, f"this loss smooths labels by {float_of(loss.label_smoothing)}, but {smoothing} is asked for"
            )
            for loss in losses
            if smoothing is not None and float_of(loss.label_smoothing) not in (0.0, smoothing)
        ]
        for loss in losses[1:]:
            if loss.num_classes != losses[0].num_classes or loss.label_smoothing != losses[0].label_smoothing:
                problems.append(diagnostic_at(loss, "this loss differs from an earlier one"))
        if problems:
            raise CompileError(problems)
        if losses:
            classes = int_of(losses[0].num_classes) if classes is None else classes
            smoothing = float_of(losses[0].label_smoothing) if smoothing is None else smoothing
        if classes is None:
            raise CompileError.at(model, f"the number of classes is not known: give {self.name} num-classes")
        return classes, smoothing or 0.0
