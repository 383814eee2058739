"""Giving things back: everything, also after something could not be given back."""

from __future__ import annotations

from collections.abc import Callable, Iterable


def release(actions: Iterable[Callable[[], object]]) -> None:
    """Do every action in order. The first failure is raised once all of them have been tried."""
    failed: Exception | None = None
    for action in actions:
        try:
            action()
        except Exception as err:
            failed = failed or err
    if failed is not None:
        raise failed
