"""Lazy exports of a package, read from the imports in its __init__.pyi.

A module is imported when one of its names is first used, so that `metricshuffle --help` does not
wait for numpy. Type checkers read the same .pyi.
"""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path
from typing import Any


def export_locations(init_file: str) -> dict[str, str]:
    """Map each name imported in the .pyi next to an __init__.py to its module."""
    listing = ast.parse(Path(init_file).with_suffix(".pyi").read_text(encoding="utf-8"))
    imports = [node for node in listing.body if isinstance(node, ast.ImportFrom)]
    return {alias.name: str(node.module) for node in imports for alias in node.names}


def exported(package: str, name: str, listed: dict[str, str]) -> Any:
    """Return an exported name: a submodule of the package, or an attribute of its module."""
    home = listed.get(name)
    if home is None:
        raise AttributeError(f"module {package!r} has no attribute {name!r}")
    return (
        import_module(f"{package}.{name}")
        if home == package
        else getattr(import_module(home), name)
    )
