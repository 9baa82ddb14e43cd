"""Metric differential privacy in the shuffle model, with guarantees that are true."""

import ast
from importlib import import_module
from pathlib import Path
from typing import Any

__version__ = "0.2.0.dev0"


def _homes() -> dict[str, str]:
    """Where every public name lives, as __init__.pyi lists it; modules are imported when a name is first asked for."""
    listing = ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    imports = [node for node in listing.body if isinstance(node, ast.ImportFrom)]
    return {alias.name: str(node.module) for node in imports for alias in node.names}


_HOMES = _homes()
__all__ = sorted(name for name, home in _HOMES.items() if home != __name__)


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = import_module(f"{__name__}.{name}") if home == __name__ else getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
