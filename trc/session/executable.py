"""A compiled network that trains, and how it is saved and loaded."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cached_property
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from trc.diagnostics import CompileError
from trc_runtime.cpu.session import CpuSession
from trc_runtime.schema.bundle import MODEL, PLAN, STATE, Bundle, BundleError, read_bundle, write_bundle
from trc_runtime.schema.plan import Plan
from trc_runtime.schema.report import MemoryReport, memory_report
from trc_runtime.train.average import average_name
from trc_runtime.train.checkpoint import CheckpointError, reading
from trc_runtime.train.runner import Runner, Session

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from xdsl.dialects.builtin import ModuleOp

    from trc.session.cuda import CudaFiles

# What belongs to the compiler is imported where it is used: loading a bundle needs none of it.


class Executable(Runner):
    """A compiled network on its device: step, run, evaluate, tensors, checkpoints, and what was decided for it."""

    def __init__(
        self,
        plan: Plan,
        session: Session,
        *,
        module: ModuleOp | None = None,
        text: str | None = None,
        cuda: CudaFiles | None = None,
        draw: bool = True,
    ) -> None:
        super().__init__(plan, session, draw=draw)
        self._module = module
        self._text = text
        self._cuda = cuda

    @property
    def target(self) -> str:
        """The target that it runs on: cpu or cuda."""
        return "cpu" if self._cuda is None else "cuda"

    @cached_property
    def ir(self) -> str:
        """The whole IR: network, layout table, graphs, steps and atlas."""
        if self._text is not None:
            return self._text
        stream = StringIO()
        if self._module is not None:
            from xdsl.printer import Printer

            Printer(stream=stream).print_op(self._module)
        return stream.getvalue() + "\n"

    @cached_property
    def module(self) -> ModuleOp:
        """The same IR as operations; CompileError where there is none or a bundle's is damaged."""
        from trc.dialects.parsing import parse_module

        return parse_module(self.ir, MODEL) if self._module is None else self._module

    def export_torchvision(
        self, path: str | os.PathLike[str], architecture: str | None = None, *, ema: bool = False
    ) -> Path:
        """Write parameters and running statistics under torchvision's names and in its layouts, as safetensors.

        `architecture` names the network (`resnet50`), by default as the model is called;
        `trc.interchange.torchvision.ARCHITECTURES` lists them. With `ema` their moving averages are written;
        AverageError where none is kept. The file appears whole or not at all. CompileError for a network that is no
        such architecture.
        """
        from trc.interchange import torchvision

        tensors: Mapping[str, NDArray[Any]] = self.tensors
        if ema:
            self.average.require()
            tensors = {name: tensors[average_name(name)] for name in self.average.names}
        return torchvision.export_file(tensors, self.module, path, architecture)

    def import_torchvision(self, path: str | os.PathLike[str], architecture: str | None = None) -> None:
        """Take parameters and running statistics from a file with torchvision's names and layouts.

        Nothing is written before everything has been checked. CompileError names what is missing, unknown or of
        another shape or type.
        """
        from trc.interchange import torchvision

        for name, array in torchvision.import_file(path, self.module, self.tensors, architecture).items():
            self.session.write(name, array)
        self._parameters_replaced()

    def memory_report(self) -> MemoryReport:
        """Where the bytes of the plan go; `print` it, or `.to_json()`."""
        return memory_report(self.plan)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write a bundle with the plan, the IR and the present state; it runs with `python -m trc_runtime`.

        For target cuda it also carries the sources, and device code and cuDNN plans for this GPU, so that loading it
        compiles and plans nothing. An older bundle at `path` is replaced, anything else is left alone and is a
        BundleError.
        """
        files = {PLAN: self.plan.to_json().encode(), MODEL: self.ir.encode(), STATE: self.checkpoint_bytes()}
        if self._cuda is None:
            return write_bundle(path, files, "cpu")
        from trc.session import cuda

        self._cuda = cuda.with_compiled(self._cuda, self.session)
        return write_bundle(path, {**files, **self._cuda.all}, "cuda", self._cuda.architecture)


def load(path: str | os.PathLike[str]) -> Executable:
    """Load a bundle that `Executable.save` or trc-compile wrote, its state included.

    Raises CompileError for a folder that is no bundle, of another version, damaged, or whose target cannot run here.
    Loading a bundle for target cuda executes its driver.py: load only what you would run.
    """
    if not isinstance(cast(object, path), str | os.PathLike):
        raise CompileError(f"trc.load takes the path of a bundle as text or a Path, not {path!r}")
    try:
        bundle = read_bundle(path)
        with reading(bundle.state) as saved:
            exe = _open(bundle)
            if (state := saved()) is not None:
                exe.restore(state)
    except (BundleError, CheckpointError) as err:
        raise CompileError(str(err)) from None
    return exe


def _open(bundle: Bundle) -> Executable:
    if MODEL not in bundle.files:
        raise CompileError(f"{bundle.path}: the bundle lacks {MODEL}")
    plan, text, draw = bundle.plan, bundle.text(MODEL), bundle.state is None
    if bundle.target == "cpu":
        try:
            return Executable(plan, CpuSession(plan), text=text, draw=draw)
        except (MemoryError, ValueError) as err:
            raise CompileError(f"{bundle.path}: {err}") from None
    if bundle.target == "cuda":
        from trc.session import cuda

        session, files = cuda.open_bundle(bundle)
        return Executable(plan, session, text=text, cuda=files, draw=draw)
    raise CompileError(f"{bundle.path} is compiled for target '{bundle.target}', which this version does not know")
