"""Adapters to other libraries: OpenDP, dp-accounting, Flower and DuckDB.

Each module adapts one library, which is imported when a name of the module is first used. If the
library is missing or has an unsupported version, a MissingExtra names it. `import *` imports the
names whose libraries are installed.
"""

from metricshuffle._lazy_exports import export_locations, exported
from metricshuffle.interop.peer_packages import has_peer_of, require_peer_of

_HOMES = export_locations(__file__)
__all__ = sorted(name for name, home in _HOMES.items() if has_peer_of(home))


def __getattr__(name: str) -> object:
    if name in _HOMES:
        require_peer_of(_HOMES[name])
    globals()[name] = exported(__name__, name, _HOMES)
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
