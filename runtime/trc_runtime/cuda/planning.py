"""The plan of every cuDNN graph that a driver uses: as saved, as a measurement chose, or as the heuristics find."""

from __future__ import annotations

from collections.abc import Mapping

from trc_runtime.cuda import dnn
from trc_runtime.cuda._cudnn import Planner
from trc_runtime.cuda.bundle import Sources
from trc_runtime.cuda.calls import DriverError
from trc_runtime.cuda.errors import ANEW, DnnError, EngineError


def plan_graphs(
    planner: Planner,
    sources: Sources,
    architecture: str,
    saved: bytes | None,
    choices: Mapping[str, str],
    file: str,
) -> dict[str, dnn.Planned]:
    """Plans by key. `saved` is what `file` holds: if it is there at all, every plan comes from it.

    DnnError says which layers want a graph that has none, EngineError also which choice cannot be had.
    """
    stored = None if saved is None else _saved_for(saved, architecture, file)
    planned: dict[str, dnn.Planned] = {}
    for key, layers in sources.cudnn_users.items():
        where = f"layer {', '.join(repr(x) for x in layers[:3])}"
        description = _described(sources, key, where)
        if stored is not None and key not in stored.data:
            raise DnnError(f"{file} has no plan for the graph {key} ({where}); {ANEW}")
        choice = choices.get(key)
        try:
            if stored is not None:
                planned[key] = dnn.load_plan(planner, key, description, stored)
            else:
                planned[key] = dnn.make_plan(planner, key, description, choice)
        except DnnError as err:
            text = f"{where}: {err}"
            if stored is None and choice is not None:
                raise EngineError(key, choice, text) from None
            raise DnnError(text) from None
    return planned


def _saved_for(saved: bytes, architecture: str, file: str) -> dnn.SavedPlans:
    stored = dnn.read_plans(saved, file)
    if stored.architecture != architecture:
        raise DnnError(
            f"{file}: the saved cuDNN plans are for {stored.architecture}, this GPU is {architecture}: compile the "
            "network again for this GPU"
        )
    return stored


def _described(sources: Sources, key: str, where: str) -> dnn.Description:
    description = sources.cudnn.get(key)
    if description is None:
        raise DriverError(f"{sources.path} describes no cuDNN graph {key} ({where}); {ANEW}")
    if wrong := dnn.problems_of(description):
        raise DriverError(f"{sources.path}: the cuDNN graph {key} ({where}): {'; '.join(wrong)}; {ANEW}")
    return description
