"""Write the inventory of licences, THIRD-PARTY.md: `python -m tools.licences`.

Licences of Python packages come from the metadata of what is installed here, so run it after `make
check` has installed everything.
"""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path

from tools.locked_packages import ROOT, LockedPackage, locked_packages, vendored_files

INVENTORY = "THIRD-PARTY.md"
HEAD = """# Other people's software

What the lock files name, with its licence, and the files of other projects in this repository.
`python -m tools.licences` writes this page. The wheel of metricshuffle contains the vendored files
in `src` and the packages of `src/metricshuffle/report/static/NOTICE.txt`; it depends on the others.

"""
UNKNOWN = "not stated"
LONGEST_LICENCE = 60


def installed_licence(name: str) -> str:
    """Licence of an installed package by its metadata: expression, classifiers or text."""
    try:
        described = metadata(name)
    except PackageNotFoundError:
        return UNKNOWN
    if "License-Expression" in described:
        return described["License-Expression"]
    classifiers = [
        line.rpartition(" :: ")[2]
        for line in described.get_all("Classifier") or []
        if line.startswith("License :: ") and line != "License :: OSI Approved"
    ]
    text = described["License"].strip().split("\n")[0] if "License" in described else ""
    return " or ".join(classifiers) or text[:LONGEST_LICENCE] or UNKNOWN


def licence_of(package: LockedPackage, known: dict[tuple[str, str], str]) -> str:
    """Licence of a package; what is not installed keeps the licence of the written page."""
    licence = package.licence or installed_licence(package.name)
    return licence if licence != UNKNOWN else known.get((package.name, package.version), UNKNOWN)


def written_rows(text: str) -> dict[tuple[str, str], str]:
    """(name, version) -> licence of the rows of a written page."""
    cells = [
        [cell.strip().strip("`") for cell in line.split("|")[1:-1]]
        for line in text.splitlines()
        if line.startswith("| `")
    ]
    return {(row[0], row[1]): row[2] for row in cells}


def inventory(before: str = "") -> str:
    """The page, made from the lock files and `before`, the page as it was."""
    known = written_rows(before)
    packages = {(package.name.lower(), package.version): package for package in locked_packages()}
    lines = ["| package | version | licence | lock file |", "|---|---|---|---|"]
    lines += [
        f"| `{package.name}` | {package.version} | {licence_of(package, known)} | {package.lock} |"
        for _, package in sorted(packages.items())
    ]
    lines += ["", "| vendored file | of | version | licence | source |", "|---|---|---|---|---|"]
    lines += [
        f"| {file.file} | {file.name} | {file.version} | {file.licence} | {file.source}; "
        f"SHA-256 {file.sha256} |"
        for file in vendored_files()
    ]
    return HEAD + "\n".join(lines) + "\n"


def main() -> None:
    """Write the page and say which licences are not known."""
    page = ROOT / INVENTORY
    text = inventory(page.read_text(encoding="utf-8") if page.exists() else "")
    Path(page).write_text(text, encoding="utf-8")
    unknown = [name for (name, _), licence in written_rows(text).items() if licence == UNKNOWN]
    if unknown:
        sys.exit(f"the licences of these packages are not known here: {', '.join(unknown)}")


if __name__ == "__main__":
    main()
