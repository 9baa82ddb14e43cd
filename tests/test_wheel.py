"""Published wheel in an empty environment, and the source distribution."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest
from tools.interpreters import SUPPORTED, clean, found_interpreters, try_wheels, version_of
from tools.release import build_wheels

import metricshuffle

ROOT = Path(__file__).parents[1]
MOST_BYTES = 500_000_000
PIP = ("-m", "pip", "--disable-pip-version-check", "--quiet")

pytestmark = pytest.mark.thorough


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and the source distribution."""
    folder = tmp_path_factory.mktemp("dist")
    build = [
        sys.executable,
        *PIP,
        "wheel",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        str(folder),
        str(ROOT),
    ]
    subprocess.run(build, check=True, capture_output=True)
    source = [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", str(folder)]
    subprocess.run(source, cwd=ROOT, check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def installed(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of programs of an empty environment into which the wheel was installed."""
    folder = tmp_path_factory.mktemp("empty")
    venv.create(folder, with_pip=True)
    wheel = next(built.glob("*.whl"))
    subprocess.run(
        [folder / "bin" / "python", *PIP, "install", "--no-compile", str(wheel)],
        check=True,
        env=clean(),
    )
    return folder / "bin"


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
    assert {
        "metricshuffle/py.typed",
        "metricshuffle/__init__.pyi",
        "metricshuffle/report/templates/style.css",
    } <= names
    assert {name.split("/")[0] for name in names} == {
        "metricshuffle",
        next(name for name in names if name.endswith("METADATA")).split("/")[0],
    }
    beside = re.compile(
        r"papers|demo/|live_round|reproduc|users_compare|synthetic|_study|planning/compare"
    )
    assert [name for name in names if beside.search(name)] == [], (
        "the papers and the demo are not part of it"
    )
    assert any(name.endswith("licenses/LICENSE") for name in names)


def build_wheel(package: str, folder: Path) -> Path:
    """Build the wheel of a distribution of `packages`, as pip builds it."""
    words = ["wheel", "--no-deps", "--no-build-isolation", "-w", str(folder)]
    build = [sys.executable, *PIP, *words, str(ROOT / "packages" / package)]
    subprocess.run(build, check=True, capture_output=True)
    return next(folder.glob(f"metricshuffle_{package}-*.whl"))


PLACES = ROOT / "packages" / "places" / "src" / "metricshuffle_places"


def test_the_wheel_of_places_holds_the_data_and_its_licence(tmp_path: Path) -> None:
    with zipfile.ZipFile(build_wheel("places", tmp_path)) as wheel:
        names = set(wheel.namelist())
        about = wheel.read(next(name for name in names if name.endswith("METADATA"))).decode()
    assert {path.name for path in PLACES.iterdir() if path.is_file()} == {
        name.partition("/")[2] for name in names if ".dist-info/" not in name
    }
    for licence in ("data.md", "maplibre.txt"):
        assert any(name.endswith(f"licenses/LICENSE-{licence}") for name in names)
    assert f"Version: {metricshuffle.__version__}\n" in about


def test_the_wheel_of_the_papers_holds_the_papers_and_brings_the_commands(tmp_path: Path) -> None:
    """It needs the package of the same version, and holds nothing of it."""
    with zipfile.ZipFile(build_wheel("papers", tmp_path)) as wheel:
        names = set(wheel.namelist())
        points = wheel.read(
            next(name for name in names if name.endswith("entry_points.txt"))
        ).decode()
        about = wheel.read(next(name for name in names if name.endswith("METADATA"))).decode()
    package = ROOT / "packages" / "papers" / "src" / "metricshuffle_papers"
    files = [
        path for path in package.rglob("*") if path.is_file() and "__pycache__" not in path.parts
    ]
    wanted = {f"metricshuffle_papers/{path.relative_to(package).as_posix()}" for path in files}
    assert {name for name in names if ".dist-info/" not in name} == wanted
    assert {
        "metricshuffle_papers/earth_mover/values.json",
        "metricshuffle_papers/pages/templates/filter.js",
    } <= wanted
    assert points.startswith("[metricshuffle.commands]\n")
    assert f"Requires-Dist: metricshuffle=={metricshuffle.__version__}\n" in about
    assert f"\nVersion: {metricshuffle.__version__}\n" in about


def test_the_source_distribution_is_the_project_and_nothing_else(built: Path) -> None:
    source = next(built.glob("*.tar.gz"))
    assert source.stat().st_size < 20_000_000
    with tarfile.open(source) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {
        "pyproject.toml",
        "README.md",
        "LICENSE",
        "src/metricshuffle/__init__.py",
        "tests/test_wheel.py",
        "Makefile",
    } <= names
    assert not [
        name
        for name in names
        if name.split("/")[0] in (".venv", ".git", "build", "dist", "demo-output")
        or "__pycache__" in name
    ]


def test_the_wheel_works_in_an_empty_environment(installed: Path, tmp_path: Path) -> None:
    """Size, commands and missing extras in one test, because the installation is slow."""
    assert size_of(installed) < MOST_BYTES, f"{size_of(installed) / 1e6:.0f} MB"

    def run(line: str) -> str:
        done = subprocess.run(
            [installed / "metricshuffle", *line.split()],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            env=clean(),
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert run("--version").startswith("metricshuffle ")
    (tmp_path / "values.csv").write_text(
        "kcal\n" + "".join(f"{index % 21}\n" for index in range(100))
    )
    run(
        "plan --query mean --low 0 --high 20 --epsilon 1 --distance 5 --delta 1e-6 --users "
        "100 --save plan.json"
    )
    assert "mean = " in run("run plan.json values.csv --column kcal")
    extras = {
        part["name"]: part["found"]
        for part in json.loads(run("doctor --json"))["parts"]
        if part["kind"] == "extras"
    }
    assert set(extras.values()) == {False}, "no extra comes along"
    assert "mean = " in run("demo")

    def refused(line: str) -> str:
        done = subprocess.run(
            [installed / "metricshuffle", *line.split()],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            env=clean(),
        )
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.count("\n") == 1, done.stderr
        return done.stderr

    for command in ("reproduce list", "reproduce --help", "users compare --users 100 --quiet"):
        assert "install it with: pip install metricshuffle-papers." in refused(command)
    assert "pip install 'metricshuffle[report]'" in refused("report plan.json --output report.html")
    assert not (tmp_path / "report.html").exists()
    moved = [str(installed / "python"), "-c", "from metricshuffle import compare_users"]
    told = subprocess.run(
        moved, cwd=tmp_path, capture_output=True, text=True, check=False, env=clean()
    ).stderr
    assert told.endswith(
        "compare_users is part of metricshuffle-papers now; install it with: pip install "
        "metricshuffle-papers\n"
    )


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


@pytest.mark.slow
@pytest.mark.parametrize("version", SUPPORTED)
def test_both_wheels_work_on_every_supported_python(version: str, tmp_path: Path) -> None:
    """Installed together into an empty environment of each; plan, run, and the papers."""
    python = found_interpreters().get(version)
    if python is None:
        pytest.skip(f"Python {version} is not on this machine, so nobody tried the wheels on it.")
    dist = tmp_path / "dist"
    dist.mkdir()
    wheels = [path for path in build_wheels(dist) if path.suffix == ".whl"]
    stated, _, ran, listed = try_wheels(python, wheels, tmp_path)
    assert stated == f"metricshuffle {metricshuffle.__version__}\n"
    assert "mean = " in ran
    assert "shuffler-section-5-1" in listed


def test_supported_pythons_are_those_of_the_project() -> None:
    """The lowest is that of requires-python; a program that is no Python has no version."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["requires-python"] == f">={SUPPORTED[0]}"
    own = "{}.{}".format(*sys.version_info[:2])
    assert version_of(sys.executable) == own
    assert version_of("/no/such/python") == version_of("/bin/true") == ""
    assert set(found_interpreters()) <= set(SUPPORTED)
