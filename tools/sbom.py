"""Write a software bill of materials from the lock files: `python -m tools.sbom [FILE]`.

The format is CycloneDX 1.6 as JSON; licences come from THIRD-PARTY.md. What depends on what comes
from the lock file of npm, and of Python packages from the metadata of what is installed here, so
run it after `make check` has installed everything. The same files and packages give the same bytes.
"""

from __future__ import annotations

import json
import sys
import tomllib
import uuid
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

from metricshuffle import __version__
from tools.licences import INVENTORY, written_rows
from tools.locked_packages import NODE_LOCK, ROOT, LockedPackage, locked_packages, vendored_files
from tools.service_lock import inner_requirements, normal

NAMESPACE = uuid.UUID("6ba7b811-9dad-11d1-80b4-00c04fd430c8")  # that of URLs (RFC 9562)
SHA256_PROPERTY = "metricshuffle:archive-sha256"
LOCK_PROPERTY = "metricshuffle:lock-file"


def reference(package: LockedPackage) -> str:
    """Name of a package inside the document."""
    return f"{package.purl}#{package.lock}"


def inner_names(name: str, extras: frozenset[str] = frozenset()) -> set[str]:
    """Names of the distributions that an installed one requires; none if it is not installed."""
    try:
        version(name)
    except PackageNotFoundError:
        return set()
    return {normal(each.name) for each in inner_requirements(name, extras)}


def reachable(names: set[str]) -> set[str]:
    """These distributions and all that they require."""
    waiting = list(names)
    seen: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            waiting += inner_names(name)
    return seen


def own_requirements(root: Path) -> tuple[set[str], set[str]]:
    """Names of the distributions that the package requires, and that its extras do."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lines = [line for extra in project["optional-dependencies"].values() for line in extra]
    required = {normal(Requirement(line).name) for line in project["dependencies"]}
    return required, {normal(Requirement(line).name) for line in lines}


def python_scopes(root: Path) -> Callable[[LockedPackage], str]:
    """How a package is used: required, optional with an extra, or for development only."""
    required, optional = map(reachable, own_requirements(root))

    def scope(package: LockedPackage) -> str:
        name = normal(package.name)
        return "required" if name in required else "optional" if name in optional else "excluded"

    return scope


def dependencies(packages: list[LockedPackage], root: Path) -> list[dict[str, Any]]:
    """What depends on what, as far as it is known here."""
    python = {normal(each.name): reference(each) for each in packages if each.ecosystem == "pypi"}
    edges: dict[str, set[str]] = {}
    required, optional = own_requirements(root)
    edges[own_reference()] = {python[name] for name in required | optional if name in python}
    for name, own in python.items():
        edges[own] = {python[inner] for inner in inner_names(name) if inner in python}
    edges |= node_edges(packages, root)
    return [{"ref": own, "dependsOn": sorted(edges[own])} for own in sorted(edges)]


def node_edges(packages: list[LockedPackage], root: Path) -> dict[str, set[str]]:
    """What packages of npm depend on, by their lock file; the innermost version is the one."""
    locked = json.loads((root / NODE_LOCK).read_text(encoding="utf-8"))["packages"]
    references = {
        (each.name, each.version): reference(each) for each in packages if each.ecosystem == "npm"
    }

    def resolved(path: str, name: str) -> str | None:
        while True:
            inner = f"{path}/node_modules/{name}".lstrip("/")
            if inner in locked:
                return references[name, locked[inner]["version"]]
            if not path:
                return None  # optional, and not for this system
            path = path.rpartition("node_modules/")[0].rstrip("/")

    edges: dict[str, set[str]] = {}
    for path, entry in locked.items():
        if path:
            name = path.rpartition("node_modules/")[2]
            targets = (resolved(path, inner) for inner in entry.get("dependencies", {}))
            own = references[name, entry["version"]]
            edges.setdefault(own, set()).update(inner for inner in targets if inner)
    return edges


def own_reference() -> str:
    """Name of the package itself inside the document."""
    return f"pkg:pypi/metricshuffle@{__version__}"


def component(package: LockedPackage, licence: str, scope: str) -> dict[str, Any]:
    """The component of one package."""
    kind = SHA256_PROPERTY if package.ecosystem == "pypi" else "metricshuffle:integrity"
    entry: dict[str, Any] = {
        "type": "library",
        "bom-ref": reference(package),
        "name": package.name,
        "version": package.version,
        "purl": package.purl,
        "properties": [
            {"name": LOCK_PROPERTY, "value": package.lock},
            *({"name": kind, "value": value} for value in package.hashes),
        ],
    }
    entry["scope"] = scope
    if licence:
        entry["licenses"] = [{"license": {"name": licence}}]
    return entry


def bill_of_materials(root: Path = ROOT) -> dict[str, Any]:
    """The document: packages of all lock files, and vendored files."""
    vendored = [
        {
            "type": "library",
            "bom-ref": f"pkg:npm/{file.name}@{file.version}#{file.file}",
            "name": file.name,
            "version": file.version,
            "purl": f"pkg:npm/{file.name}@{file.version}",
            "licenses": [{"license": {"name": file.licence}}],
            "hashes": [{"alg": "SHA-256", "content": file.sha256}],
            "properties": [{"name": "metricshuffle:vendored-as", "value": file.file}],
        }
        for file in vendored_files()
    ]
    licences = written_rows((root / INVENTORY).read_text(encoding="utf-8"))
    packages = locked_packages(root)
    scope = python_scopes(root)
    locked = [
        component(
            package,
            licences.get((package.name, package.version), package.licence),
            ("excluded" if package.development else "required")
            if package.ecosystem == "npm"
            else scope(package),
        )
        for package in packages
    ]
    components = [*locked, *vendored]
    edges = dependencies(packages, root)
    content = json.dumps([components, edges], sort_keys=True)
    own = own_reference()
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(NAMESPACE, own + content)}",
        "version": 1,
        "metadata": {
            "component": {
                "type": "library",
                "bom-ref": own,
                "name": "metricshuffle",
                "version": __version__,
                "purl": own,
                "licenses": [{"license": {"id": "Apache-2.0"}}],
            }
        },
        "components": components,
        "dependencies": edges,
    }


def main(words: list[str]) -> None:
    """Write the document to a file, or print it."""
    text = json.dumps(bill_of_materials(), indent=2) + "\n"
    if words:
        Path(words[0]).parent.mkdir(parents=True, exist_ok=True)
        Path(words[0]).write_text(text, encoding="utf-8")
    else:
        sys.stdout.write(text)


if __name__ == "__main__":
    main(sys.argv[1:])
