"""Metric differential privacy in the shuffle model, with guarantees that are true."""

from typing import Any

from metricshuffle._lazy import MOVED, export_locations, exported, moved

__version__ = "0.2.0.dev0"

_HOMES = export_locations(__file__)
__all__ = sorted(name for name, home in _HOMES.items() if home != __name__)


def __getattr__(name: str) -> Any:
    if name in MOVED:
        return moved(name)
    globals()[name] = exported(__name__, name, _HOMES)
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
