"""The law of one report: how it is drawn, what it hides alone, what a sum of many hides.

Local randomizers for `amplify` are listed in `__init__.pyi`; each has `law`, `local_epsilon`, `blanket`, `reports` and `totals`.
"""

import ast
from importlib import import_module
from pathlib import Path
from typing import Any


def _homes() -> dict[str, str]:
    """Where every randomizer lives, as __init__.pyi lists it; modules are imported when a name is first asked for."""
    listing = ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    imports = [node for node in listing.body if isinstance(node, ast.ImportFrom)]
    return {alias.name: str(node.module) for node in imports for alias in node.names}


_HOMES = _homes()
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
