"""Renaming from a map: what is rewritten, what is refused, what the proof sees, and what keeps old names importable."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tools.renames import checks, proof, shims
from tools.renames.__main__ import main
from tools.renames.library import read_revision, read_working_tree
from tools.renames.mapping import load

MAP = """
[modules]
"service" = "collection"
"service/standing" = "collection/shuffler/admission"
"shapes" = "figures/areas"
[packages]
"collection/shuffler" = "The shuffler."
"figures" = "Figures."
[names]
"Standing" = "AdmissionRules"
"let_in" = "admit"
[scoped."service/standing"]
"_way" = "_direction"
"MOST" = "MOST_REPORTS"
[scoped."service/standing::measure"]
"found" = "width"
"one" = "part"
"""
FILES = {
    "src/metricshuffle/__init__.py": '''"""A package."""

from metricshuffle.lazily import exported, homes

_HOMES = homes(__file__)


def __getattr__(name: str) -> object:
    return exported(__name__, name, _HOMES)
''',
    "src/metricshuffle/__init__.pyi": "from metricshuffle.shapes import area as area\n",
    "src/metricshuffle/lazily.py": '''"""Lazy names."""

import importlib


def homes(file: str) -> dict[str, str]:
    return {"area": "shapes"}


def exported(package: str, name: str, listed: dict[str, str]) -> object:
    if name not in listed:
        raise AttributeError(name)
    return getattr(importlib.import_module(f"{package}.{'figures.areas'}"), name)
''',
    "src/metricshuffle/shapes.py": '"""Shapes."""\n\n\ndef area(side: float) -> float:\n    return side * side\n',
    "src/metricshuffle/service/__init__.py": '"""A service."""\n',
    "src/metricshuffle/service/clock.py": '"""Time; see `standing.Standing` and service/standing.py."""\n\nNOW = 1\n',
    "src/metricshuffle/service/standing.py": '''"""Who is let in."""

from __future__ import annotations

from metricshuffle.service import clock

MOST = 3
__all__ = ["MOST", "Standing", "measure"]


class Standing:
    """What a Standing is: see metricshuffle.service.standing.Standing.let_in."""

    def __init__(self) -> None:
        self._way = clock.NOW

    def let_in(self, other: "Standing") -> str:
        return f"{self._way:>{MOST}} {other.let_in.__name__!r} {[one for one in (self._way,)]}"


def measure(found: int, one: int = 0) -> int:
    inner = [one * found for one in range(found)]

    def nested() -> int:
        return found + sum(inner)

    return nested() + one
''',
    "tests/test_same.py": """from metricshuffle.service import standing


class Same:
    def standing(self) -> standing.Standing:
        return standing.Standing()


def test_a_method_may_have_the_name_of_a_module() -> None:
    assert isinstance(Same().standing(), standing.Standing)
""",
    "tests/test_it.py": """import re

from metricshuffle.service import clock, standing
from metricshuffle.service.standing import MOST, measure


def test_it(monkeypatch) -> None:
    monkeypatch.setattr(standing, "MOST", 5)
    monkeypatch.setattr("metricshuffle.service.standing.MOST", 6)
    found = standing.measure(found=MOST, one=1)
    assert measure(3, one=1) == found == 13 and clock.NOW == 1 and standing.MOST == 6
    assert hasattr(standing.Standing(), "let_in") and re.match("M", "MOST")
    assert standing.Standing().let_in(standing.Standing()).startswith("     1")


def test_taken() -> None:
    from metricshuffle.service import standing

    admission = standing.MOST
    assert admission == 3
""",
}


def git(root: Path, *arguments: str) -> None:
    subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments], cwd=root, check=True, capture_output=True)  # noqa: S607


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A small package under version control."""
    for path, text in {**FILES, "renames.toml": MAP}.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text, encoding="utf-8")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-qm", "old")
    return tmp_path


def applied(root: Path) -> None:
    assert main(["apply", str(root)]) == 0


def differences(root: Path) -> list[str]:
    return proof.differences(read_revision(root, "HEAD", load(root / "renames.toml")), root)


def changed(root: Path, old: str, new: str) -> list[str]:
    """What `check` says to a map with one change."""
    file = root / "renames.toml"
    assert old in MAP
    file.write_text(MAP.replace(old, new), encoding="utf-8")
    return checks.refusals(read_working_tree(root, load(file)))


def test_names_follow_wherever_they_stand(tree: Path) -> None:
    """Definitions, f-strings, comprehensions, nested functions, keywords, strings that name attributes, and sentences."""
    applied(tree)
    text = (tree / "src/metricshuffle/collection/shuffler/admission.py").read_text()
    assert '__all__ = ["MOST_REPORTS", "AdmissionRules", "measure"]' in text
    assert "see metricshuffle.collection.shuffler.admission.AdmissionRules.admit." in text
    assert 'def admit(self, other: "AdmissionRules") -> str:' in text
    assert 'f"{self._direction:>{MOST_REPORTS}} {other.admit.__name__!r} {[one for one in (self._direction,)]}"' in text
    assert "def measure(width: int, part: int = 0) -> int:" in text
    assert "[part * width for part in range(width)]" in text
    clock = (tree / "src/metricshuffle/collection/clock.py").read_text()
    assert "`admission.AdmissionRules` and collection/shuffler/admission.py" in clock
    test = (tree / "tests/test_it.py").read_text()
    assert 'monkeypatch.setattr("metricshuffle.collection.shuffler.admission.MOST_REPORTS", 6)' in test
    assert "found = standing.measure(width=MOST_REPORTS, part=1)" in test, "another function's local name, and a stem that is taken here"
    assert "from metricshuffle.collection.shuffler import admission as standing" in test
    assert 're.match("M", "MOST")' in test
    assert not (tree / "src/metricshuffle/service").exists()


def test_the_renamed_tree_is_proved_and_runs(tree: Path) -> None:
    assert differences(tree), "the old tree is not the new one"
    applied(tree)
    assert differences(tree) == []
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"],
        cwd=tree,
        env={"PYTHONPATH": "src"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("src/metricshuffle/collection/shuffler/admission.py", "part * width", "width * part"),
        ("src/metricshuffle/collection/shuffler/admission.py", "MOST_REPORTS = 3", "MOST_REPORTS = 4"),
        ("src/metricshuffle/collection/shuffler/admission.py", "Who is let in", "Who is left out"),
        ("src/metricshuffle/collection/shuffler/admission.py", "nested() + part", "nested() + width"),
        ("tests/test_it.py", '"admit")', '"let_in")'),
        ("src/metricshuffle/figures/__init__.py", '"""Figures."""', "import os"),
    ],
)
def test_the_proof_sees_what_is_no_rename(tree: Path, file: str, old: str, new: str) -> None:
    applied(tree)
    text = (tree / file).read_text()
    assert old in text
    (tree / file).write_text(text.replace(old, new), encoding="utf-8")
    git(tree, "add", "-A")
    assert len(differences(tree)) == 1


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"shapes" =', '"shades" =', "no such module"),
        ("figures/areas", "figures/clock", "clock is also the name of"),
        ("figures/areas", "collection/shuffler", "a module and a folder"),
        ('"figures" = "Figures."', "", "is a new folder"),
        ('"let_in" =', '"let_out" =', "no such identifier"),
        ('= "admit"', '= "measure"', "measure is an identifier already"),
        ('= "admit"', '= "match"', "has a match too"),
        ('= "admit"', '= "print"', "a builtin"),
        ('"let_in" = "admit"', '"area" = "surface"', "a public name"),
        ('"let_in" = "admit"', '"side" = "edge"', "side: is a parameter of metricshuffle.area"),
        ('"one" = "part"', '"one" = "inner"', "inner is taken there"),
        ('"one" = "part"', '"two" = "part"', "two is no local name"),
        ('"_way" =', '"_path" =', "neither a name of the module nor a private one"),
        ("::measure", "::measured", "no such function"),
    ],
)
def test_a_map_that_would_break_something_is_refused(tree: Path, old: str, new: str, said: str) -> None:
    assert any(said in line for line in changed(tree, old, new))


def test_a_map_that_is_fine_is_not_refused(tree: Path) -> None:
    assert checks.refusals(read_working_tree(tree, load(tree / "renames.toml"))) == []


def test_old_modules_and_names_can_be_imported_with_a_warning(tree: Path) -> None:
    applied(tree)
    shims.write(read_revision(tree, "HEAD", load(tree / "renames.toml")), tree)
    program = """
import warnings
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    from metricshuffle.service import standing
    from metricshuffle.service.standing import MOST, Standing
    from metricshuffle.collection.shuffler import admission
    import metricshuffle
    assert Standing is admission.AdmissionRules and MOST == 3 and standing.measure is admission.measure
    assert metricshuffle.area(2) == 4
    said = [str(one.message) for one in seen]
assert any("metricshuffle.service.standing is now metricshuffle.collection.shuffler.admission" in one for one in said), said
try:
    import metricshuffle.service.nothing
except ModuleNotFoundError:
    print("as it should")
"""
    done = subprocess.run(
        [sys.executable, "-c", program], env={"PYTHONPATH": str(tree / "src")}, capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == "as it should", done.stderr


def test_the_page_lists_what_changed(tree: Path) -> None:
    assert main(["--root", str(tree), "document"]) == 0
    page = (tree / "CHANGES-names.md").read_text()
    assert "| `service/standing` | `collection/shuffler/admission` |" in page
    assert "| `Standing` | `AdmissionRules` |" in page
