"""Writes what keeps old names importable for one version, and the page that lists them."""

from __future__ import annotations

import ast
import json
from pathlib import Path

from tools.renames.library import Library
from tools.renames.mapping import PACKAGE, SOURCE, MapError, RenameMap

IMPORT = "from {package}.{lazy} import exported, homes"
OLD_LOOKUP = "exported(__name__, name, _HOMES)"
NEW_LOOKUP = "exported(__name__, new_name(name, _HOMES), _HOMES)"


def data(library: Library) -> dict[str, dict[str, str]]:
    """Old module paths, and old identifiers, with their new names."""
    modules = {old: new for old, new in library.new_modules.items() if old != new and old.split(".")[0] == PACKAGE}
    for path in library.moves.removed:  # a package that is gone: its modules are found one by one
        folder = ".".join(Path(path).parts[1:-1])
        modules[folder] = ""
    members: dict[str, str] = {}
    for path, names in library.renames.in_file.items():
        top = library.files[path].scopes.top
        bound = set(top.bound) - set(top.imports)
        members |= {
            f"{module}:{old}": new for old, new in names.items() if old in bound for module, file in library.modules.items() if file == path
        }
    return {
        "modules": dict(sorted(modules.items())),
        "names": {old: new for old, new in sorted(library.renames.names.items()) if not old.startswith("_")},
        "members": {old: new for old, new in sorted(members.items()) if ":_" not in old},
    }


def write(library: Library, root: Path) -> None:
    """One data file, one module that reads it, and two lines in the package that call it."""
    folder = root / SOURCE
    (folder / "_old_names.json").write_text(json.dumps(data(library), indent=1) + "\n", encoding="utf-8")
    source = (Path(__file__).parent / "old_names.py").read_text(encoding="utf-8")
    (folder / "_old_names.py").write_text(source, encoding="utf-8")
    init = folder / "__init__.py"
    text = init.read_text(encoding="utf-8")
    if "_old_names" in text:
        return
    imports = [
        node for node in ast.parse(text).body if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith(PACKAGE)
    ]
    if len(imports) != 1 or OLD_LOOKUP not in text:
        raise MapError(
            f"{init}: expects one import of the package and {OLD_LOOKUP}; call install() and new_name() of _old_names there by hand."
        )
    line = ast.get_source_segment(text, imports[0]) or ""
    text = text.replace(line, f"from {PACKAGE}._old_names import install, new_name\n{line}").replace(OLD_LOOKUP, NEW_LOOKUP)
    init.write_text(text.replace("_HOMES = homes(__file__)", "install()\n_HOMES = homes(__file__)"), encoding="utf-8")


def document(renames: RenameMap) -> str:
    """CHANGES-names.md."""

    def shown(parts: tuple[str, ...]) -> str:
        return "/".join(parts).removeprefix(SOURCE + "/")

    def table(title: str, rows: list[tuple[str, str]]) -> list[str]:
        body = [f"| `{old}` | `{new}` |" for old, new in sorted(rows)]
        return ["", f"## {title}", "", "| old | new |", "|---|---|", *body] if rows else []

    lines = ["# Names that changed", "", "Generated from `renames.toml` by `python -m tools.renames document`.", ""]
    lines += ["Old module paths and old public names still work in this version, with a DeprecationWarning that names the new one."]
    lines += table("Modules and folders", [(shown(old), shown(new)) for old, new in renames.modules.items()])
    lines += table("Identifiers", [pair for pair in renames.names.items() if not pair[0].startswith("_")])
    for path, names in sorted(renames.in_file.items()):
        lines += table(f"In {path.removeprefix(SOURCE + '/')}", [pair for pair in names.items() if not pair[0].startswith("_")])
    return "\n".join(lines) + "\n"
