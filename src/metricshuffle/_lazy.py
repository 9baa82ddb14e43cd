"""What a package offers, from the one list in its __init__.pyi: type checkers read it there, and a lazy __getattr__ here.

Modules are imported when a name is first asked for, so that `metricshuffle --help` does not wait for numpy.
"""

from __future__ import annotations

import ast
import warnings
from importlib import import_module
from pathlib import Path
from typing import Any


def export_locations(init_file: str) -> dict[str, str]:
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


MOVED = frozenset({"LinearComparison", "UserComparison", "compare_linear", "compare_users"})
"""Names that `metricshuffle` offered before and that another distribution holds now."""
PAPERS, PAPERS_DISTRIBUTION = "metricshuffle_papers", "metricshuffle-papers"


def moved(name: str) -> Any:
    """A name that the papers hold now, with a warning that says so; a sentence if they are not installed."""
    from metricshuffle.errors import MissingExtra

    try:
        home = import_module(PAPERS)
    except ModuleNotFoundError as missing:
        if missing.name != PAPERS:
            raise
        raise MissingExtra(f"{name} is part of {PAPERS_DISTRIBUTION} now; install it with: pip install {PAPERS_DISTRIBUTION}") from None
    warnings.warn(
        f"metricshuffle.{name} moved: use {PAPERS}.{name} of the distribution {PAPERS_DISTRIBUTION}.", DeprecationWarning, stacklevel=3
    )
    return getattr(home, name)
