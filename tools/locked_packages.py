"""Packages that the lock files name, and files of other projects in this repository."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PYTHON_LOCKS = ("requirements.lock", "requirements-check.lock")
NODE_LOCK = "clients/js/package-lock.json"
VENDORED = Path(__file__).with_name("vendored.json")


@dataclass(frozen=True)
class LockedPackage:
    """A package with its version, as one lock file has it."""

    ecosystem: str
    name: str
    version: str
    lock: str
    hashes: tuple[str, ...]
    """Hashes of its files: sha256 in hex, or sha512 as npm writes it."""
    licence: str = ""
    """Licence, where the lock file states it."""
    development: bool = False

    @property
    def purl(self) -> str:
        """Package URL."""
        name = self.name.replace("@", "%40") if self.ecosystem == "npm" else self.name.lower()
        return f"pkg:{self.ecosystem}/{name}@{self.version}"


@dataclass(frozen=True)
class VendoredFile:
    """A file of another project, unchanged."""

    file: str
    name: str
    version: str
    source: str
    licence: str
    sha256: str


def vendored_files() -> list[VendoredFile]:
    """Files of other projects in this repository, with where they come from."""
    return [VendoredFile(**entry) for entry in json.loads(VENDORED.read_text(encoding="utf-8"))]


def python_packages(root: Path = ROOT) -> list[LockedPackage]:
    """Packages of the lock files of Python."""
    packages = []
    for lock in PYTHON_LOCKS:
        text = (root / lock).read_text(encoding="utf-8").replace(" \\\n", "")
        for line in text.splitlines():
            named, *hashes = re.split(r"\s+--hash=sha256:", line)
            name, _, version = named.partition("==")
            if not version or not hashes:
                raise ValueError(f"{lock}: {line[:60]!r} names no version or no hash")
            packages.append(LockedPackage("pypi", name, version, lock, tuple(hashes)))
    return packages


def node_packages(root: Path = ROOT) -> list[LockedPackage]:
    """Packages of the lock file of the JavaScript client, without the client itself."""
    packages = json.loads((root / NODE_LOCK).read_text(encoding="utf-8"))["packages"]
    return [
        LockedPackage(
            "npm",
            path.rpartition("node_modules/")[2],
            entry["version"],
            NODE_LOCK,
            (entry["integrity"],),
            entry.get("license", ""),
            bool(entry.get("dev")),
        )
        for path, entry in sorted(packages.items())
        if path
    ]


def locked_packages(root: Path = ROOT) -> list[LockedPackage]:
    """Every package of every lock file."""
    return [*python_packages(root), *node_packages(root)]
