"""Work for cells that costs nothing; processes that are spawned import it by this name."""

from __future__ import annotations

import os
import signal
import warnings
from typing import Any

from itocast.data.sources import NotPublished


def square(seed: int, data_dir: str | None = None) -> dict[str, Any]:
    """A cell with its square; nothing is made of negative numbers."""
    warnings.warn("not the published file", NotPublished, stacklevel=1)
    if seed < 0:
        raise ValueError(f"seed={seed}: expected 0 or more")
    return {"square": seed**2, "process": os.getpid(), "threads": os.environ["OMP_NUM_THREADS"], "read": data_dir}


def perish(seed: int) -> dict[str, Any]:
    """What a process does that the system kills."""
    os.kill(os.getpid(), signal.SIGKILL)
    return {}
