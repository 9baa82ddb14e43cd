"""Whether the loops over laws are compiled already: the first time after an installation takes seconds, and people should know why."""

from __future__ import annotations

from pathlib import Path


def laws_are_compiled() -> bool:
    """Whether numba keeps compiled loops from an earlier run; also true where it cannot tell, or keeps none."""
    from metricshuffle.noise import _kernels

    kept = getattr(getattr(_kernels.half_line_deltas, "_cache", None), "cache_path", None)
    return not isinstance(kept, str) or any(Path(kept).glob("*half_line_deltas*.nbi"))
