"""README: its code runs, its commands exist, its links work."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from tests.tables import check_all

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
COMMANDS = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
MOST_WORDS = 900


def test_the_code_samples_run(capsys: pytest.CaptureFixture[str]) -> None:
    (sum_sample,), (users_sample,) = (
        re.findall(r"```python\n(.*?)```", text, re.S) for text in (README, COMMANDS)
    )
    users_sample = f"import metricshuffle as ms\n{users_sample}"
    names: dict[str, object] = {}
    exec(compile(sum_sample, "README.md", "exec"), names)  # noqa: S102 - the README's own code
    printed = capsys.readouterr().out
    release = names["release"]
    assert str(release.guarantee) in printed  # type: ignore[attr-defined]
    assert release.interval(0.95)[0] < release.value < release.interval(0.95)[1]  # type: ignore[attr-defined]
    truth = sum((137 * person) % 1001 for person in range(1_000)) / 1_000
    low, high = release.interval(1 - 1e-9)  # type: ignore[attr-defined]
    assert low <= truth <= high
    exec(compile(users_sample, "README.md", "exec"), names)  # noqa: S102
    told = capsys.readouterr().out
    assert all(
        words in told
        for words in ("tree-laplace", "item-wise", "curator", "Replacing all of one user's items")
    )


def test_it_is_short() -> None:
    assert len(README.split()) <= MOST_WORDS


def test_the_commands_run_on_the_data_that_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the file of the README to a report, in an empty folder that has the examples."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (block,) = [
        block
        for block in re.findall(r"```sh\n(.*?)```", README, re.S)
        if "metricshuffle plan" in block
    ]
    for line in block.splitlines():
        done = subprocess.run(
            [sys.executable, "-m", *shlex.split(line)], capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
    assert "kcal" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_the_two_commands_are_in_the_makefile() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for command in re.findall(r"^make (\w+)", README, re.M):
        assert re.search(rf"^{command}:", makefile, re.M), command
    assert {"demo", "test"} <= set(re.findall(r"^make (\w+)", README, re.M))


def test_commands_shown_are_commands_that_exist() -> None:
    reference = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    shown = set(
        re.findall(
            r"^metricshuffle +((?:(?:users|analyst|collection) )?[a-z-]+)", README + COMMANDS, re.M
        )
    )
    assert shown >= {
        "plan",
        "verify",
        "randomize",
        "shuffle",
        "estimate",
        "run",
        "users calibrate",
        "users compare",
    }
    for command in shown:
        assert f"## metricshuffle {command}\n" in reference
    for option in set(
        re.findall(
            r"(--[a-z-]+)", "\n".join(re.findall(r"^metricshuffle .*$", README + COMMANDS, re.M))
        )
    ):
        assert f"`{option}" in reference, option


def test_links_lead_to_files() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert (ROOT / target).exists(), target


@check_all("name", ["requirements.lock", "requirements-check.lock"])
def test_lock_files_name_versions_and_hashes_only(name: str) -> None:
    """Every package by one version and the hashes of its files; no index, and no other host."""
    text = (ROOT / name).read_text(encoding="utf-8")
    for block in text.replace(" \\\n", "").splitlines():
        assert re.fullmatch(
            r"[A-Za-z0-9._-]+==[A-Za-z0-9.+!-]+(    --hash=sha256:[0-9a-f]{64})+", block
        ), block[:80]


def test_only_files_with_those_hashes_are_installed() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    installed = [line for line in makefile.splitlines() if "pip install" in line]
    assert len(installed) == 3
    ours = " --editable ".join((".", "packages/papers", "packages/places"))
    own = f"--no-deps --no-build-isolation --editable {ours}"
    for line in installed:
        assert ("--require-hashes -r requirements" in line) != (own in line), line
