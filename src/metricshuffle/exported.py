"""What a package offers, from the one list in its __init__.pyi: type checkers read it there, and a lazy __getattr__ here.

Modules are imported when a name is first asked for, so that `metricshuffle --help` does not wait for numpy.
"""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path
from typing import Any


def homes(init_file: str) -> dict[str, str]:
    """Where every name lives that the .pyi beside an __init__.py imports."""
    listing = ast.parse(Path(init_file).with_suffix(".pyi").read_text(encoding="utf-8"))
    imports = [node for node in listing.body if isinstance(node, ast.ImportFrom)]
    return {alias.name: str(node.module) for node in imports for alias in node.names}


def exported(package: str, name: str, listed: dict[str, str]) -> Any:
    """The value of a listed name: a submodule of the package, or what its home holds under that name."""
    home = listed.get(name)
    if home is None:
        raise AttributeError(f"module {package!r} has no attribute {name!r}")
    return import_module(f"{package}.{name}") if home == package else getattr(import_module(home), name)
