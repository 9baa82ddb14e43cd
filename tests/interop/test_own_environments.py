"""Flower and dbt, each in an environment of its own with the versions of a lock file.

Neither can be installed beside the packages of requirements-check.lock. The lock files were made by
`uv pip compile --universal --generate-hashes` from the requirements of the package, pytest,
hypothesis and packaging, and its extra `flower` (with the versions of requirements.lock where
Flower accepts them) or its extra `sql`, dbt-duckdb and dbt-core below 1.12, which downloads a part
from elsewhere. The environments stay in build/ until the lock file changes.

The lowest supported version of each library is put before what is installed, from lowest.lock,
which has the hashes of its wheels.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from tests.collection.conftest import missing
from tests.docs.blocks import blocks, same

from metricshuffle.files import locked
from metricshuffle.interop.peer_packages import PEERS, release_numbers

ROOT = Path(__file__).parents[2]
LOCK = Path(__file__).with_name("flower.lock")
DBT_LOCK = Path(__file__).with_name("dbt.lock")
LOWEST_LOCK = Path(__file__).with_name("lowest.lock")
PEER_TESTS = {
    "dp-accounting": "test_dp_accounting_events.py",
    "duckdb": "test_duckdb_functions.py",
    "flwr": "test_flower_accountant.py",
    "opendp": "test_opendp_measurements.py",
}
QUICK = ("-m", "not slow and not thorough")
PAGE = ROOT / "docs" / "how-to" / "use-with-flower.md"
EXAMPLE = ROOT / "examples" / "flower_rounds.py"
INSTALLATION_SECONDS = 1800.0
OFFLINE = re.compile(
    r"NewConnectionError|NameResolutionError|ConnectTimeout|No matching distribution"
)


def locked_versions(*locks: Path) -> dict[str, str]:
    """Version of each package of some lock files."""
    text = "\n".join(lock.read_text(encoding="utf-8") for lock in locks)
    pairs = re.findall(r"^([\w.-]+)==([\w.!+]+)", text, re.M)
    return {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in pairs}


def test_every_extra_can_be_installed_beside_the_package() -> None:
    """The versions of a lock file meet the requirements of the package and of the extra at once."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    usual = locked_versions(ROOT / "requirements.lock", ROOT / "requirements-check.lock")
    for extra, lines in project["optional-dependencies"].items():
        versions = locked_versions(LOCK) if extra == "flower" else usual
        for line in [*project["dependencies"], *lines]:
            requirement = Requirement(line)
            name = re.sub(r"[-_.]+", "-", requirement.name).lower()
            assert requirement.specifier.contains(versions[name]), f"{extra}: {line}"


def test_the_page_shows_the_example() -> None:
    assert [block.body for block in blocks(PAGE.read_text()) if block.kind == "python"] == [
        EXAMPLE.read_text()
    ]


@pytest.fixture(scope="module")
def flower() -> Path:
    """Python of an environment with Flower; the package is not in it."""
    return installed(LOCK)


@pytest.fixture(scope="module")
def dbt() -> Path:
    """Python of an environment with dbt; the package is not in it."""
    return installed(DBT_LOCK)


def installed(lock: Path) -> Path:
    """Python of an environment that is made once for a lock file."""
    digest = hashlib.sha256(lock.read_bytes()).hexdigest()[:16]
    folder = ROOT / "build" / f"{lock.stem}-{digest}"
    python = folder / "bin" / "python"
    folder.parent.mkdir(exist_ok=True)
    with locked(folder.with_suffix(".done"), INSTALLATION_SECONDS):
        if folder.with_suffix(".done").exists():
            return python
        shutil.rmtree(folder, ignore_errors=True)
        venv.create(folder, with_pip=True)
        install(python, lock)
        checked = subprocess.run(
            [str(python), "-m", "pip", "check"], capture_output=True, text=True, check=False
        )
        assert checked.returncode == 0, checked.stdout
        folder.with_suffix(".done").touch()
    return python


def install(python: Path, lock: Path, *options: str) -> None:
    """Install the packages of a lock file and no others."""
    words = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
    only = ["--no-deps", "--require-hashes", "--only-binary", ":all:", "-r", str(lock)]
    done = subprocess.run(
        [str(python), *words, *only, *options], capture_output=True, text=True, check=False
    )
    if done.returncode and OFFLINE.search(done.stderr):
        missing(f"this test needs the package index, from which it installs {lock.stem}.")
    assert done.returncode == 0, done.stderr


def test_the_lowest_versions_are_those_of_the_adapters() -> None:
    lowest = {peer.distribution: peer.lowest for peer in PEERS.values()}
    stated = locked_versions(LOWEST_LOCK)
    assert set(stated) == set(lowest) == set(PEER_TESTS)
    for name, version in stated.items():
        numbers = release_numbers(version)
        assert numbers[: len(lowest[name])] == lowest[name]
        assert not any(numbers[len(lowest[name]) :])


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="the folder of programs has another name")
def test_the_lowest_versions_work(flower: Path, tmp_path: Path) -> None:
    """The quick tests of each adapter, with the lowest version of its library before others."""
    install(flower, LOWEST_LOCK, "--target", str(tmp_path))
    for name, file in PEER_TESTS.items():
        alone = tmp_path / f"only-{name}"
        alone.mkdir()
        stem = name.replace("-", "_")
        parts = [path for path in tmp_path.glob(f"*{stem}*") if path != alone]
        assert any(path.suffix == ".dist-info" for path in parts), parts
        for path in parts:
            (alone / path.name).symlink_to(path)
        python = flower if name == "flwr" else Path(sys.executable)
        output = run_tests_in(python, file, *QUICK, first=alone)
        assert re.search(r"\b[1-9]\d* passed", output), output


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="the folder of programs has another name")
def test_flower_itself_takes_the_accountant(flower: Path, tmp_path: Path) -> None:
    """The tests of the adapter and the example of the page, against the real package."""
    output = run_tests_in(flower, "test_flower_accountant.py", *QUICK)
    assert re.search(r"\b6 passed, 1 skipped", output), output
    assert "Flower is installed" in output
    shown = subprocess.run(
        [str(flower), "-W", "ignore", str(EXAMPLE)],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        env=environment(),
    ).stdout
    (output,) = (block.body for block in blocks(PAGE.read_text()) if block.kind == "text")
    assert same(output, shown, vary=False), shown


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="the folder of programs has another name")
def test_dbt_itself_builds_the_example(dbt: Path) -> None:
    """The model of examples/dbt, by the real program."""
    output = run_tests_in(dbt, "test_duckdb_functions.py", "-m", "thorough", "-k", "dbt_itself")
    assert re.search(r"\b1 passed", output), output


def environment(first: Path | None = None) -> dict[str, str]:
    """Variables with which an environment imports the package from its sources, after `first`."""
    folders = [*([] if first is None else [first]), ROOT / "src", ROOT]
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, folders))}
    variables.pop("PYTEST_ADDOPTS", None)
    return variables


def run_tests_in(python: Path, file: str, *selection: str, first: Path | None = None) -> str:
    """Run tests of a file in an environment; return what pytest printed."""
    options = ["-p", "no:cacheprovider", "-o", "addopts=", "-o", "filterwarnings=", "-rs"]
    ran = subprocess.run(
        [str(python), "-m", "pytest", *options, *selection, str(Path(__file__).with_name(file))],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env=environment(first),
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout
