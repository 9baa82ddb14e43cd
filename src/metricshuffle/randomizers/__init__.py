"""Local randomizers: the exact law of one report, its sampler, its guarantee and its estimators.

Randomizers for `amplify` are listed in `__init__.pyi`; each has `law`, `local_epsilon`, `blanket`,
`reports` and `totals`.
"""

from typing import Any

from metricshuffle._lazy_exports import export_locations, exported

_HOMES = export_locations(__file__)
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    globals()[name] = exported(__name__, name, _HOMES)
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
