"""How much of the machine this process may use."""

from __future__ import annotations

import os


def usable_cores() -> int:
    """Those this process may run on, where the system tells; a container often has fewer than the machine."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
