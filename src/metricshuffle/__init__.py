"""Metric differential privacy in the shuffle model, with guarantees that are true."""

from typing import Any

from metricshuffle._lazy_exports import export_locations, exported
from metricshuffle._old_names import MOVED, install, moved, new_name

__version__ = "0.2.0.dev0"

install()
_HOMES = export_locations(__file__)
__all__ = sorted(name for name, home in _HOMES.items() if home != __name__)


def __getattr__(name: str) -> Any:
    if name in MOVED:
        return moved(name)
    globals()[name] = exported(__name__, new_name(name, _HOMES), _HOMES)
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
