"""Published formulas as published, wrong ones included; none of them can become a guarantee.

One folder per paper: its formulas, the numbers it prints (values.json), and the items that
`metricshuffle reproduce` compares.
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
