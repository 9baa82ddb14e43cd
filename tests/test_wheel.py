"""What is published works: the wheel, in an empty environment with nothing but what it asks for, and the source distribution."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MOST_BYTES = 500_000_000
PIP = ("-m", "pip", "--disable-pip-version-check", "--quiet")
# An environment of its own: nothing of this one may be seen.
HIDDEN = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "NUMBA_CACHE_DIR", "PYTEST_CURRENT_TEST")

pytestmark = pytest.mark.thorough


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and the source distribution."""
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-d", str(folder)], cwd=ROOT, check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def installed(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of programs of an empty environment into which the wheel was installed."""
    folder = tmp_path_factory.mktemp("empty")
    venv.create(folder, with_pip=True)
    wheel = next(built.glob("*.whl"))
    subprocess.run([folder / "bin" / "python", *PIP, "install", "--no-compile", str(wheel)], check=True, env=clean())
    return folder / "bin"


def clean() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in HIDDEN}


def test_the_wheel_holds_what_is_not_python_too(built: Path) -> None:
    with zipfile.ZipFile(next(built.glob("*.whl"))) as wheel:
        names = set(wheel.namelist())
    package = ROOT / "src" / "metricshuffle"
    wanted = {
        f"metricshuffle/{path.relative_to(package).as_posix()}"
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {name for name in names if name.startswith("metricshuffle/")} == wanted
    assert {"metricshuffle/py.typed", "metricshuffle/__init__.pyi", "metricshuffle/pages/templates/style.css"} <= names
    assert not [name for name in names if name.startswith(("tests/", "docs/", "benchmarks/", "tools/"))]
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_the_source_distribution_is_the_project_and_nothing_else(built: Path) -> None:
    source = next(built.glob("*.tar.gz"))
    assert source.stat().st_size < 20_000_000
    with tarfile.open(source) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "src/metricshuffle/__init__.py", "tests/test_wheel.py", "Makefile"} <= names
    assert not [name for name in names if name.split("/")[0] in (".venv", ".git", "build", "dist", "demo-output") or "__pycache__" in name]


def test_the_wheel_works_in_an_empty_environment(installed: Path, tmp_path: Path) -> None:
    """One test, because the installation is what takes time: it is small enough, it runs, and it says what is missing."""
    assert size_of(installed) < MOST_BYTES, f"{size_of(installed) / 1e6:.0f} MB"

    def run(line: str) -> str:
        done = subprocess.run(
            [installed / "metricshuffle", *line.split()], cwd=tmp_path, capture_output=True, text=True, check=False, env=clean()
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert run("--version").startswith("metricshuffle ")
    (tmp_path / "values.csv").write_text("kcal\n" + "".join(f"{index % 21}\n" for index in range(100)))
    run("plan --query mean --low 0 --high 20 --epsilon 1 --distance 5 --delta 1e-6 --users 100 --save plan.json")
    assert "mean = " in run("run plan.json values.csv --column kcal")
    extras = {part["name"]: part["found"] for part in json.loads(run("doctor --json"))["parts"] if part["kind"] == "extras"}
    assert set(extras.values()) == {False}, "no extra comes along"
    refused = subprocess.run([installed / "metricshuffle", "demo"], cwd=tmp_path, capture_output=True, text=True, check=False, env=clean())
    assert refused.returncode == 2
    assert "pip install 'metricshuffle[report]'" in refused.stderr
    assert not (tmp_path / "demo-output").exists()


def size_of(programs: Path) -> int:
    """Bytes of all that pip brought, but for pip itself."""
    packages = next((programs.parent / "lib").glob("python3*")) / "site-packages"
    return sum(
        path.stat().st_size
        for folder in packages.iterdir()
        if not folder.name.startswith(("pip", "setuptools", "pkg_resources", "_distutils_hack"))
        for path in (folder.rglob("*") if folder.is_dir() else [folder])
        if path.is_file()
    )
