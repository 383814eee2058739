"""Where caches lie, and saying once that one cannot be used."""

from __future__ import annotations

import logging
import os
from functools import cache
from pathlib import Path

LOG = logging.getLogger("trc.cache")


def cache_folder() -> Path | None:
    """Where trc keeps what it made or fetched: $XDG_CACHE_HOME/trc, or ~/.cache/trc. None without a home folder."""
    if base := os.environ.get("XDG_CACHE_HOME"):
        return Path(base) / "trc"
    try:
        return Path.home() / ".cache" / "trc"
    except RuntimeError:  # neither $HOME nor an entry in the list of users: containers with a user of a bare number
        return None


@cache
def warn_once(text: str) -> None:
    """Log a warning the first time that it comes up in this process."""
    LOG.warning("%s", text)
