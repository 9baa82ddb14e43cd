"""What a release needs: one version, licences, a bill of materials, reproducible archives."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.collection.conftest import missing
from tests.tables import check_all
from tools import release
from tools.licences import INVENTORY, inventory, written_rows
from tools.locked_packages import ROOT, VendoredFile, locked_packages, vendored_files
from tools.release import (
    ReleaseProblem,
    build_java_client,
    build_node_package,
    build_wheels,
    hashes_of,
    node_version,
    python_version,
    stated_versions,
    write_version,
)
from tools.sbom import bill_of_materials

from metricshuffle import __version__
from metricshuffle.web.application import HTMX_SHA256, HTMX_VERSION


def test_the_version_is_the_same_everywhere() -> None:
    stated = stated_versions()
    assert set(stated.values()) == {__version__}, stated
    assert len(stated) >= 8
    conf = (ROOT / "docs" / "conf.py").read_text()
    assert "release = __version__" in conf, "the site has the version of the package"


def test_versions_of_npm_as_python_writes_them() -> None:
    assert python_version("0.2.0-dev.0") == "0.2.0.dev0"
    assert python_version("0.2.0-rc.1") == "0.2.0rc1"
    assert python_version("1.0.0") == "1.0.0"


def test_another_version_is_written_everywhere(tmp_path: Path) -> None:
    for name in release.VERSION_FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    project = tmp_path / "pyproject.toml"
    bound = f'bounded = ["other>={__version__}"]\n'
    project.write_text(project.read_text() + bound)
    lines = (tmp_path / "clients/js/package-lock.json").read_text().count("\n")
    for version in ("1.2.3rc4", "1.2.3", "1.3.0.dev0"):
        write_version(version, tmp_path)
        assert set(stated_versions(tmp_path).values()) == {version}
        assert python_version(node_version(version)) == version
    assert (tmp_path / "clients/js/package-lock.json").read_text().count("\n") == lines
    assert project.read_text().endswith(bound), "bounds of dependencies stay"
    texts = [(tmp_path / name).read_text() for name in release.VERSION_FILES]
    with pytest.raises(ReleaseProblem, match=r"a version is like 0\.2\.0"):
        write_version("next", tmp_path)
    assert [(tmp_path / name).read_text() for name in release.VERSION_FILES] == texts


@check_all("check", release.CHECKS)
def test_the_checklist_passes(check: Callable[[str], str]) -> None:
    assert check(__version__)


def test_the_checklist_finds_another_version() -> None:
    for check in (release.check_versions, release.check_changelog, release.check_supported):
        with pytest.raises(ReleaseProblem):
            check("9.9.9")


def test_the_checklist_says_what_is_left(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(release, "BUILDS", ())
    with pytest.raises(SystemExit) as done:
        release.main([])
    assert done.value.code == 0
    printed = capsys.readouterr().out
    assert printed.count("[x] ") == len(release.CHECKS)
    assert printed.count("[ ] by hand: ") == len(release.BY_HAND)
    with pytest.raises(SystemExit) as failed:
        release.main(["9.9.9"])
    assert failed.value.code == 1


def test_vendored_files_have_their_recorded_hashes() -> None:
    """Every script and every data file that is not ours is recorded, and unchanged."""
    recorded = {file.file: file for file in vendored_files()}
    minified = {str(path.relative_to(ROOT)) for path in (ROOT / "src").rglob("*.min.js")}
    places = ROOT / "packages/places/src/metricshuffle_places"
    data = {
        str(path.relative_to(ROOT))
        for path in places.iterdir()
        if path.suffix not in {".py", ".typed", ""}
    }
    assert minified | data == set(recorded)
    for file in recorded.values():
        assert hashlib.sha256((ROOT / file.file).read_bytes()).hexdigest() == file.sha256
        assert file.version in file.source
    htmx = recorded["src/metricshuffle/web/static/htmx.min.js"]
    assert (htmx.version, htmx.sha256) == (HTMX_VERSION, HTMX_SHA256)


def test_a_changed_vendored_file_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    forged = VendoredFile("README.md", "x", "1", "x 1", "MIT", "0" * 64)
    monkeypatch.setattr(release, "vendored_files", lambda: [forged])
    with pytest.raises(ReleaseProblem, match=r"README\.md has the hash"):
        release.check_vendored(__version__)


def test_the_notice_names_the_versions_of_the_bundle() -> None:
    """client.js contains packages of npm; its notice has the locked versions."""
    notice = (ROOT / "src/metricshuffle/report/static/NOTICE.txt").read_text()
    for package in locked_packages():
        if package.name.startswith("@hpke/"):
            assert f"{package.name} {package.version}" in notice


def test_every_package_has_a_licence() -> None:
    """The page is what the tool writes from it and the lock files, wherever that runs."""
    text = (ROOT / INVENTORY).read_text()
    rows = written_rows(text)
    assert set(rows) == {(package.name, package.version) for package in locked_packages()}
    assert all(rows.values())
    assert set(written_rows(inventory(text))) == set(rows)
    copyleft = [name for (name, _), licence in rows.items() if re.search(r"\bA?GPL|GNU", licence)]
    assert set(copyleft) <= {"docutils", "psycopg", "psycopg-binary"}, (
        "look at the licence of a new package: docutils (partly GPL) builds the site only, psycopg "
        "(LGPL) is an extra"
    )


def test_the_bill_of_materials_is_of_the_lock_files() -> None:
    """Every package and vendored file once, by the fields that CycloneDX 1.6 requires."""
    bill = bill_of_materials()
    assert (bill["bomFormat"], bill["specVersion"], bill["version"]) == ("CycloneDX", "1.6", 1)
    assert re.fullmatch(r"urn:uuid:[0-9a-f-]{36}", bill["serialNumber"])
    assert bill["metadata"]["component"]["version"] == __version__
    parts = bill["components"]
    assert len(parts) == len(locked_packages()) + len(vendored_files())
    assert len({part["bom-ref"] for part in parts}) == len(parts)
    for part in parts:
        assert part["type"] == "library"
        assert part["name"]
        assert part["version"]
        assert re.fullmatch(r"pkg:(pypi|npm)/[^@ ]+@[^@ ]+", part["purl"])
        assert set(part) <= {
            "type",
            "bom-ref",
            "name",
            "version",
            "purl",
            "scope",
            "licenses",
            "hashes",
            "properties",
        }
        for item in part["properties"]:
            assert set(item) == {"name", "value"}
    assert json.dumps(bill_of_materials()) == json.dumps(bill)
    numpy = next(part for part in parts if part["name"] == "numpy")
    assert len(numpy["properties"]) > 10
    assert "BSD-3-Clause" in numpy["licenses"][0]["license"]["name"]


def test_the_bill_says_what_is_for_development_and_what_depends_on_what() -> None:
    bill = bill_of_materials()
    scopes = {part["name"]: part.get("scope") for part in bill["components"]}
    assert [scopes[name] for name in ("numpy", "pyarrow", "pytest", "ruff", "esbuild")] == [
        "required",
        "optional",
        "excluded",
        "excluded",
        "excluded",
    ]
    assert scopes["@hpke/core"] == "required"
    edges = {
        edge["ref"].partition("@")[0] if "#" not in edge["ref"] else edge["ref"]: [
            inner.partition("#")[0].rpartition("@")[0] for inner in edge["dependsOn"]
        ]
        for edge in bill["dependencies"]
    }
    assert {"pkg:pypi/numpy", "pkg:pypi/starlette"} <= set(edges["pkg:pypi/metricshuffle"])
    assert "pkg:pypi/pytest" not in edges["pkg:pypi/metricshuffle"]
    named = {
        part["name"]: edges[part["bom-ref"]]
        for part in bill["components"]
        if part["name"] in ("numba", "@hpke/core")
    }
    assert set(named["numba"]) == {"pkg:pypi/llvmlite", "pkg:pypi/numpy"}
    assert named["@hpke/core"] == ["pkg:npm/%40hpke/common"]
    references = {part["bom-ref"] for part in bill["components"]}
    for edge in bill["dependencies"]:
        assert set(edge["dependsOn"]) <= references


def test_the_bill_follows_the_schema_of_cyclonedx() -> None:
    """By the schema that the makers of the format publish, which refuses what it does not know."""
    json_validation = pytest.importorskip(
        "cyclonedx.validation.json", reason="needs cyclonedx-python-lib, which make check installs"
    )
    from cyclonedx.schema import SchemaVersion

    validator = json_validation.JsonStrictValidator(SchemaVersion.V1_6)
    bill = bill_of_materials()
    assert validator.validate_str(json.dumps(bill)) is None
    bill["components"][0]["scope"] = "development"
    assert validator.validate_str(json.dumps(bill)) is not None
    bill["components"][0]["scope"] = "excluded"
    bill["builtBy"] = "nobody"
    assert validator.validate_str(json.dumps(bill)) is not None


@pytest.mark.thorough
def test_two_builds_of_wheels_and_source_archives_are_the_same(tmp_path: Path) -> None:
    """The second from a copy of the tree, in another place and with other times of its files."""
    ignored = shutil.ignore_patterns(
        ".git", ".venv", "node_modules", ".*_cache", "__pycache__", ".hypothesis", "dist", "build"
    )
    copy = tmp_path / "elsewhere" / "copy"
    shutil.copytree(ROOT, copy, ignore=ignored, symlinks=True, copy_function=shutil.copy)
    shutil.copy(ROOT / ".gitignore", copy)
    builds = []
    for name, root in (("first", ROOT), ("second", copy)):
        folder = tmp_path / name
        folder.mkdir()
        builds.append(hashes_of(build_wheels(folder, root)))
    assert builds[0] == builds[1]
    assert sum(name.endswith(".whl") for name in builds[0]) == 3
    assert sum(name.endswith(".tar.gz") for name in builds[0]) == 3


@pytest.mark.thorough
def test_two_builds_of_the_java_client_are_the_same(tmp_path: Path) -> None:
    """From the tree and from a copy with other times; the manifest has the version."""
    if shutil.which("javac") is None:
        missing("this test needs a JDK (on Debian: apt-get install default-jdk-headless).")
    copy = tmp_path / "copy"
    for name in ("clients/java", "src/metricshuffle/__init__.py"):
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, copy / name, copy_function=shutil.copyfile)
        else:
            shutil.copyfile(ROOT / name, copy / name)
    jars = []
    for name, root in (("first", ROOT), ("second", copy)):
        (tmp_path / name).mkdir()
        jars.append(build_java_client(tmp_path / name, root))
    first, second = (hashes_of([jar]) for jar in jars)
    assert first == second
    with zipfile.ZipFile(jars[0]) as jar:
        manifest = jar.read("META-INF/MANIFEST.MF").decode()
    assert f"Implementation-Version: {__version__}\r\n" in manifest
    assert "Main-Class: metricshuffle.client.Main\r\n" in manifest


@pytest.mark.thorough
def test_two_builds_of_the_npm_package_are_the_same(tmp_path: Path) -> None:
    if shutil.which("npm") is None:
        missing("this test needs npm (on Debian: apt-get install nodejs npm).")
    packages = []
    for name in ("first", "second"):
        folder = tmp_path / name
        folder.mkdir()
        packages.append(build_node_package(folder))
    first, second = (hashes_of([path]) for path in packages)
    assert first == second
