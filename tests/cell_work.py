"""Work for cells that costs nothing; processes that are spawned import it by this name."""

from __future__ import annotations

import os
import warnings
from typing import Any


def square(seed: int, data_dir: str | None = None) -> dict[str, Any]:
    """A cell with its square; nothing is made of negative numbers."""
    warnings.warn("a warning of work", stacklevel=1)
    if seed < 0:
        raise ValueError(f"seed={seed}: expected 0 or more")
    return {"square": seed**2, "process": os.getpid(), "threads": os.environ["OMP_NUM_THREADS"], "read": data_dir}
