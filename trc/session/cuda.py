"""Target cuda: from a plan to code, to compiled parts for a known device, and to a session on the device at hand."""

from __future__ import annotations

import json
import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, cast

from trc.diagnostics import CompileError
from trc_runtime.cuda.errors import CompileProblem, CudaError, DnnError, EngineError
from trc_runtime.schema.bundle import CUDNN_PLANS, DRIVER, KERNELS, MODEL, PLAN, STATE, Bundle, cubin_name
from trc_runtime.schema.files import write_atomically
from trc_runtime.schema.plan import Plan
from trc_runtime.train.runner import Session

if TYPE_CHECKING:
    from trc.codegen.cuda.bundle import CudaCode
    from trc_runtime.cuda.session import CudaSession


@dataclass(frozen=True)
class CudaFiles:
    """What a bundle for target cuda carries besides plan, IR and state.

    `sources` are kernels.cu, driver.py and nodemap.json, `compiled` device code and cuDNN plans for `architecture`.
    """

    sources: Mapping[str, bytes]
    compiled: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    architecture: str | None = None

    @property
    def all(self) -> dict[str, bytes]:
        """The files by name."""
        return {**self.sources, **self.compiled}


@contextmanager
def messages() -> Generator[None]:
    """What goes wrong on the device, in its libraries, or for want of them or of memory becomes a CompileError."""
    try:
        yield
    except (CudaError, MemoryError, ValueError) as err:
        raise CompileError(str(err)) from None
    except OSError as err:
        raise CompileError(f"{err.filename}: {err.strerror}" if err.filename else str(err)) from None


def build(plan: Plan, properties: str | os.PathLike[str] | None = None) -> CudaFiles:
    """Generate code for a plan; with a file of device properties also device code and cuDNN plans for that device.

    Needs no GPU. The properties are what `write_properties` writes on the device. Raises
    CompileError for a kind without kernel, a missing extra, a file that cannot be read, or a graph without an engine.
    """
    from trc.codegen.cuda.bundle import generate  # a bundle opens without it

    code = generate(plan)
    if properties is None:
        return CudaFiles(code.files)
    text, architecture = read_properties(properties)
    with messages():
        try:
            return CudaFiles(code.files, compile_for(code, text, architecture), architecture)
        except (DnnError, CompileProblem) as err:
            raise CudaError(f"for the GPU of '{os.fspath(properties)}' ({architecture}): {err}") from None


def compile_for(code: CudaCode, properties: str, architecture: str) -> dict[str, bytes]:
    """Device code and cuDNN plans for the device of those properties, as files of a bundle. Raises CudaError.

    Where nothing is cuDNN's there are no plans, and cuDNN is not needed.
    """
    from trc_runtime.cuda import cubins

    cubins.check_architecture(architecture)
    layers = code.program.layers()
    plans = plans_for(code, properties, architecture) if code.program.descriptions else {}
    cubin = cubins.compile_cubin(code.kernels, architecture, users=layers)
    return {cubin_name(architecture): cubin.code, **plans}


def plans_for(code: CudaCode, properties: str, architecture: str) -> dict[str, bytes]:
    """The file of cuDNN plans; DnnError names every layer whose graph has no engine there."""
    from trc_runtime.cuda import _cudnn, dnn

    layers = code.program.layers()
    planner = _cudnn.Planner(properties=properties)
    plans: dict[str, dnn.Planned] = {}
    problems: list[str] = []
    for key, description in code.program.descriptions.items():
        try:
            plans[key] = dnn.make_plan(planner, key, cast(dnn.Description, description))
        except DnnError as err:
            problems.append(f"layer {', '.join(repr(name) for name in layers.get(key, ['?']))}: {err}")
    if problems:
        raise DnnError("\n".join(problems))
    return {CUDNN_PLANS: dnn.save_plans(plans, architecture)}


def read_properties(path: str | os.PathLike[str]) -> tuple[str, str]:
    """The text of a file of device properties and the architecture it names; CompileError says what is wrong."""
    try:
        text = Path(path).read_text(encoding="utf-8")
        parsed: object = json.loads(text)
    except (OSError, ValueError, RecursionError) as err:
        raise CompileError(f"cannot read the device properties '{os.fspath(path)}': {err}") from None
    version = cast(dict[str, object], parsed).get("deviceVer") if isinstance(parsed, dict) else None
    if not isinstance(version, int) or version < 100:
        raise CompileError(
            f"'{os.fspath(path)}' holds no device properties: there is no 'deviceVer' such as 900; on the machine with "
            "the GPU  trc-run device FILE  writes them"
        )
    return text, f"sm_{version // 10}"


# ---------------------------------------------------------------- on the device


def write_properties(path: str | os.PathLike[str], device: int = 0) -> str:
    """Write what `build` needs to know of a GPU of this machine; its name. CompileError says what is missing."""
    from trc_runtime.cuda import _cudnn
    from trc_runtime.cuda.context import Context

    with messages():
        context = Context(device)  # what is missing has better messages here than in cuDNN
        try:
            text = _cudnn.device_properties(device)
        finally:
            context.close()
        write_atomically(Path(path), text.encode())
    return context.name


def open_session(plan: Plan, files: CudaFiles, autotune: str | os.PathLike[str] | None = None) -> CudaSession:
    """A session on the first GPU. CompileError says what is missing.

    `autotune` is a file of cuDNN engines measured on this GPU; what it lacks is measured first.
    """
    with messages():
        from trc_runtime.cuda.session import CudaSession

        kernels, driver = (files.sources[name].decode() for name in (KERNELS, DRIVER))
        choices: Mapping[str, str] = {}
        if autotune is not None:
            from trc_runtime.cuda.autotune import tune
            from trc_runtime.cuda.bundle import read_sources

            choices = tune(read_sources(plan, kernels, driver), Path(autotune)).choices
        try:
            return CudaSession(plan, kernels, driver, choices=choices)
        except EngineError as err:
            raise CudaError(
                f"{os.fspath(autotune or '')}: the entry {err.key!r} chooses the engine {err.engine!r}, which cannot "
                f"be used here: {err}; delete the entry, or the file, and what is missing is measured again"
            ) from None


def open_bundle(bundle: Bundle) -> tuple[CudaSession, CudaFiles]:
    """A session on the first GPU from a bundle for target cuda, and what it carries; CompileError for what is wrong."""
    with messages():
        from trc_runtime.cuda.session import CudaSession

        session = CudaSession.of_bundle(bundle)
    carried = {name: (bundle.path / name).read_bytes() for name in bundle.files if name not in (PLAN, MODEL, STATE)}
    parts = {n: b for n, b in carried.items() if n == CUDNN_PLANS or n.endswith(".cubin")}
    sources = {n: b for n, b in carried.items() if n not in parts}
    return session, CudaFiles(sources, parts, bundle.architecture)


def with_compiled(files: CudaFiles, session: Session) -> CudaFiles:
    """The files with the device code and the cuDNN plans that a session on a GPU uses, where they carry none."""
    from trc_runtime.cuda import cubins
    from trc_runtime.cuda.session import CudaSession

    if files.compiled or not isinstance(session, CudaSession):
        return files
    with messages():
        report = session.report()
        cubin = cubins.compile_cubin(files.sources[KERNELS].decode(), report.architecture)
        compiled = {cubin_name(report.architecture): cubin.code}
        if report.engines:
            compiled[CUDNN_PLANS] = session.save_plans()
    return CudaFiles(files.sources, compiled, report.architecture)
