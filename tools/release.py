"""Walk through the checklist of a release: `python -m tools.release [VERSION]`.

Checks what a program can check, builds the artefacts twice, and prints what is left for people.
Nothing is published or tagged. Without VERSION, that of the source is meant. `python -m
tools.release set VERSION` writes another version into every file that states it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable
from pathlib import Path

from metricshuffle import __version__
from tools.interpreters import SUPPORTED, TrialFailed, found_interpreters, try_wheels
from tools.licences import INVENTORY, UNKNOWN, written_rows
from tools.locked_packages import ROOT, locked_packages, vendored_files
from tools.sbom import bill_of_materials

EPOCH = "1580601600"
"""Time stamp of every file in an archive: what hatchling uses by default."""
JAR_DATE = "2020-02-02T00:00:00Z"
"""The same time, as `jar` takes it."""
JAVA_COMPILER = ("javac", "--release", "17", "-Xlint:all", "-Werror", "-encoding", "UTF-8")
VERSION_FILES = (
    "src/metricshuffle/__init__.py",
    "pyproject.toml",
    "CITATION.cff",
    "packages/papers/pyproject.toml",
    "packages/places/pyproject.toml",
    "clients/js/package.json",
    "clients/js/package-lock.json",
    "clients/java/manifest.txt",
)
BY_HAND = (
    "`make check` and `make test-all` passed on a fresh clone of this commit",
    "the changelog says under Privacy which numbers changed, and why",
    "docs/errata.md and SECURITY.md are still true",
    "tag the commit, and publish dist/ from it and from no other folder",
    "publish the hashes above with the release notes, so that anyone can build and compare",
)


class ReleaseProblem(Exception):
    """Something that must be corrected before a release."""


def python_version(node_version: str) -> str:
    """The version of an npm package as Python writes it: 0.2.0-dev.0 is 0.2.0.dev0."""
    return re.sub(r"-(dev|rc|a|b)\.?(\d+)$", r".\1\2", node_version).replace(".rc", "rc")


def node_version(version: str) -> str:
    """The version of the npm package, of one as Python writes it: 0.2.0.dev0 is 0.2.0-dev.0."""
    return re.sub(r"\.?(dev|rc|a|b)(\d+)$", r"-\1.\2", version)


def write_version(version: str, root: Path = ROOT) -> None:
    """Write a version into every file that states one, in place of the current version."""
    if not re.fullmatch(r"\d+\.\d+\.\d+(\.dev\d+|rc\d+)?", version):
        raise ReleaseProblem(f"a version is like 0.2.0, 0.2.0rc1 or 0.2.0.dev0, not {version!r}")
    before = package_version(root)
    texts = {}
    for name in VERSION_FILES:
        old, new = (
            (node_version(before), node_version(version))
            if name.startswith("clients/js/")
            else (before, version)
        )
        # A lock file states the version of every package; the first two are our own.
        count = 2 if name.endswith("package-lock.json") else -1
        text = (root / name).read_text(encoding="utf-8")
        for written in ('"{}"', '=={}"', "ersion: {}\n"):  # and not a bound like >=0.2.0
            text = text.replace(written.format(old), written.format(new), count)
        texts[name] = text
    for name, text in texts.items():
        (root / name).write_text(text, encoding="utf-8")
    check_versions(version, root)


def package_version(root: Path = ROOT) -> str:
    """The version that the source states."""
    text = (root / "src/metricshuffle/__init__.py").read_text(encoding="utf-8")
    stated = re.search(r'^__version__ = "([^"]+)"$', text, re.M)
    if stated is None:
        raise ReleaseProblem("src/metricshuffle/__init__.py states no version")
    return stated[1]


def stated_versions(root: Path = ROOT) -> dict[str, str]:
    """Every place that states the version, with what it states."""
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    papers, places = (
        tomllib.loads((root / "packages" / name / "pyproject.toml").read_text())["project"]
        for name in ("papers", "places")
    )
    citation = re.search(r"^version: (\S+)$", (root / "CITATION.cff").read_text(), re.M)
    pins = [
        line.partition("==")[2]
        for line in [
            *papers["dependencies"],
            *(line for lines in papers["optional-dependencies"].values() for line in lines),
        ]
        if line.startswith("metricshuffle")
    ]
    manifest = re.search(
        r"^Implementation-Version: (\S+)$", (root / "clients/java/manifest.txt").read_text(), re.M
    )
    client = json.loads((root / "clients/js/package.json").read_text())
    lock = json.loads((root / "clients/js/package-lock.json").read_text())
    return {
        "src/metricshuffle/__init__.py": package_version(root),
        "pyproject.toml": project["version"],
        "CITATION.cff": citation[1] if citation else "none",
        "packages/papers/pyproject.toml": papers["version"],
        "packages/places/pyproject.toml": places["version"],
        **{f"dependency {place} of packages/papers": pin for place, pin in enumerate(pins)},
        "clients/js/package.json": python_version(client["version"]),
        "clients/js/package-lock.json": python_version(lock["version"]),
        "clients/js/package-lock.json (package)": python_version(lock["packages"][""]["version"]),
        "clients/java/manifest.txt": manifest[1] if manifest else "none",
    }


def check_versions(version: str, root: Path = ROOT) -> str:
    """Every stated version is the one to release."""
    stated = stated_versions(root)
    other = {place: text for place, text in stated.items() if text != version}
    if other:
        raise ReleaseProblem(f"these places state another version than {version}: {other}")
    return f"{len(stated)} places state version {version}"


def check_changelog(version: str) -> str:
    """The changelog has a section for the version."""
    base = re.match(r"[\d.]+\d", version)
    heading = f"## {base[0] if base else version}"
    if heading not in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"):
        raise ReleaseProblem(f"CHANGELOG.md has no section {heading!r}")
    return f"CHANGELOG.md has a section {heading!r}"


def check_supported(version: str) -> str:
    """SECURITY.md says that the line of this version is supported."""
    line = ".".join(version.split(".")[:2])
    if f"| {line} | yes |" not in (ROOT / "SECURITY.md").read_text(encoding="utf-8"):
        raise ReleaseProblem(f"SECURITY.md has no row '| {line} | yes |' of supported versions")
    return f"SECURITY.md supports {line}"


def check_vendored(version: str) -> str:
    """Vendored files are those that were recorded."""
    for file in vendored_files():
        digest = hashlib.sha256((ROOT / file.file).read_bytes()).hexdigest()
        if digest != file.sha256:
            raise ReleaseProblem(f"{file.file} has the hash {digest}, not the recorded one")
    return f"{len(vendored_files())} vendored file(s) have their recorded hashes"


def check_licences(version: str) -> str:
    """The inventory has every locked package with a licence, and nothing else."""
    rows = written_rows((ROOT / INVENTORY).read_text(encoding="utf-8"))
    locked = {(package.name, package.version) for package in locked_packages()}
    unknown = sorted(name for (name, _), licence in rows.items() if licence == UNKNOWN)
    if set(rows) != locked or unknown:
        raise ReleaseProblem(
            f"{INVENTORY} differs from the lock files in {sorted(set(rows) ^ locked)}, or does not "
            f"know {unknown}; run python -m tools.licences"
        )
    return f"{INVENTORY} has a licence for each of {len(rows)} packages"


def check_tree(version: str) -> str:
    """Everything is committed, so that others can build the same."""
    git = shutil.which("git")
    if git is None:
        raise ReleaseProblem("git is not installed, so nobody knows which commit this is")
    done = subprocess.run(  # noqa: S603 - fixed words
        [git, "status", "--porcelain"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode or done.stdout:
        raise ReleaseProblem(f"not everything is committed: {done.stdout or done.stderr}".strip())
    return "everything is committed"


def build_wheels(folder: Path, root: Path = ROOT) -> list[Path]:
    """Build the wheels and source archives of all distributions into a folder."""
    environment = {**os.environ, "SOURCE_DATE_EPOCH": EPOCH}
    for project in (root, root / "packages" / "papers", root / "packages" / "places"):
        subprocess.run(  # noqa: S603 - our own builder
            [sys.executable, "-m", "hatchling", "build", "-d", str(folder)],
            cwd=project,
            env=environment,
            check=True,
            capture_output=True,
        )
    return sorted(path for path in folder.iterdir() if path.suffix in (".whl", ".gz"))


def build_node_package(folder: Path, root: Path = ROOT) -> Path:
    """Build the npm package of the JavaScript client into a folder; needs node and npm."""
    copy = folder / "client"
    ignored = shutil.ignore_patterns("node_modules", "dist")
    shutil.copytree(root / "clients" / "js", copy, ignore=ignored)
    npm = shutil.which("npm")
    if npm is None:
        raise ReleaseProblem("npm is not installed (on Debian: apt-get install nodejs npm)")
    for words in (["ci", "--ignore-scripts"], ["run", "build"], ["pack"]):
        done = subprocess.run(  # noqa: S603 - fixed words
            [npm, *words], cwd=copy, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise ReleaseProblem(f"npm {' '.join(words)} failed: {done.stderr[-500:]}")
    return next(copy.glob("*.tgz"))


def run_tool(words: list[str]) -> None:
    """Run a program of a toolchain; a ReleaseProblem says why it failed."""
    done = subprocess.run(  # noqa: S603 - fixed words
        words, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise ReleaseProblem(f"{words[0]} failed: {(done.stderr or done.stdout)[-500:]}")


def build_java_client(folder: Path, root: Path = ROOT) -> Path:
    """Build the jar of the Java client into a folder; needs a JDK.

    Names are sorted and times fixed, so that the same compiler gives the same bytes.
    """
    if None in map(shutil.which, ("javac", "jar")):
        raise ReleaseProblem(
            "no JDK is installed (on Debian: apt-get install default-jdk-headless)"
        )
    client = root / "clients" / "java"
    classes = folder / "classes"
    sources = sorted(map(str, (client / "src").rglob("*.java")))
    jar = folder / f"metricshuffle-client-{package_version(root)}.jar"
    run_tool([*JAVA_COMPILER, "-d", str(classes), *sources])
    packed = [path.relative_to(classes).as_posix() for path in sorted(classes.rglob("*.class"))]
    manifest = str(client / "manifest.txt")
    words = ["jar", "--create", "--file", str(jar), f"--date={JAR_DATE}", "--manifest", manifest]
    run_tool([*words, *(word for name in packed for word in ("-C", str(classes), name))])
    return jar


def hashes_of(files: list[Path]) -> dict[str, str]:
    """SHA-256 of files by their names."""
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def check_builds(version: str) -> str:
    """Two builds have the same hashes; one of them, with the bill of materials, is in dist/."""
    with tempfile.TemporaryDirectory() as scratch:
        builds = []
        for name in ("first", "second"):
            folder = Path(scratch) / name
            folder.mkdir()
            builds.append(
                [*build_wheels(folder), build_node_package(folder), build_java_client(folder)]
            )
        first, second = (hashes_of(files) for files in builds)
        if first != second:
            raise ReleaseProblem(f"two builds differ: {first} and {second}")
        output = ROOT / "dist"
        output.mkdir(exist_ok=True)
        for path in builds[0]:
            shutil.copy(path, output)
        bill = output / f"metricshuffle-{version}.cdx.json"
        bill.write_text(json.dumps(bill_of_materials(), indent=2) + "\n", encoding="utf-8")
    listed = "".join(f"\n    {digest}  {name}" for name, digest in first.items())
    return f"two builds have the same hashes, and are in dist/:{listed}"


def check_installations(version: str) -> str:
    """The wheels in dist/ work in an empty environment of every supported Python found here."""
    wheels = sorted((ROOT / "dist").glob(f"metricshuffle*-{version}-*.whl"))
    if len(wheels) != 2:
        raise ReleaseProblem(f"dist/ has {len(wheels)} wheels of version {version}, and not two")
    pythons = found_interpreters()
    for python in pythons.values():
        with tempfile.TemporaryDirectory() as scratch:
            try:
                try_wheels(python, wheels, Path(scratch))
            except TrialFailed as failed:
                raise ReleaseProblem(str(failed)) from None
    absent = [each for each in SUPPORTED if each not in pythons]
    unseen = f"; not here, and not tried: {', '.join(absent)}" if absent else ""
    return f"both wheels work on Python {', '.join(pythons)}{unseen}"


CHECKS: tuple[Callable[[str], str], ...] = (
    check_versions,
    check_changelog,
    check_supported,
    check_vendored,
    check_licences,
)
BUILDS: tuple[Callable[[str], str], ...] = (check_tree, check_builds, check_installations)


def main(words: list[str]) -> None:
    """Walk through the list; exit with 1 if something must be corrected."""
    if words[:1] == ["set"]:
        write_version(words[1])
        print(f"every file states version {words[1]}; install the package again")
        return
    version = words[0] if words else __version__
    problems = 0
    for check in (*CHECKS, *BUILDS):
        try:
            print(f"[x] {check(version)}")
        except ReleaseProblem as problem:
            problems += 1
            print(f"[ ] {problem}")
    for step in BY_HAND:
        print(f"[ ] by hand: {step}")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main(sys.argv[1:])
