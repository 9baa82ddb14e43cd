"""Applies the map to a working tree."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

from tools.renames.library import Library, Parsed
from tools.renames.prose import Prose
from tools.renames.rewriter import Rewriter

FENCE = re.compile(r"(?m)^( *)```(?:python|py)\n(.*?)^\1```", re.DOTALL)
NOT_REWRITTEN = ("CHANGELOG.md", "CHANGES-names.md", "renames.toml", ".lock", ".json", "LICENSE")
"""History, the map itself, and data."""


def rewritten(library: Library, prose: Prose, path: str) -> str:
    """The new text of one file."""
    text = library.texts[path]
    if path.endswith((".py", ".pyi")):
        return Rewriter(library, prose, library.files[path]).rewritten()
    if path.endswith(NOT_REWRITTEN):
        return text
    if path.endswith(".jinja"):
        return prose.template(text)
    if path.endswith(".md"):
        return page(library, prose, path, text)
    return prose.paths(text, whole_only=True)


def page(library: Library, prose: Prose, path: str, text: str) -> str:
    """A page: its Python blocks as code, everything else as sentences."""
    parts, at = [], 0
    for match in FENCE.finditer(text):
        try:
            ast.parse(match[2])
        except SyntaxError:
            continue
        parts += [prose.document(text[at : match.start(2)]), Rewriter(library, prose, Parsed.of(path, match[2])).rewritten()]
        at = match.end(2)
    return "".join([*parts, prose.document(text[at:])])


def apply(library: Library, root: Path) -> list[str]:
    """Move and rewrite everything; the answer is what a person still has to look at."""
    prose = Prose(library)
    texts = {path: rewritten(library, prose, path) for path in library.texts}
    for path in library.moves.removed:
        _git(root, "rm", "-q", "-f", "--", path)
    moved = {old: new for old, new in library.moves.paths.items() if old != new}
    for number, (old, _) in enumerate(moved.items()):  # in two steps, as a file may take the place of another one that moves
        _git(root, "mv", "--", old, f".moving-{number}")
    for number, (_, new) in enumerate(moved.items()):
        (root / new).parent.mkdir(parents=True, exist_ok=True)
        _git(root, "mv", "--", f".moving-{number}", new)
    for path, text in library.moves.created.items():
        (root / path).write_text(text, encoding="utf-8")
        _git(root, "add", "--", path)
    for old, text in texts.items():
        if old in library.moves.paths and text != library.texts[old]:
            (root / library.moves.paths[old]).write_text(text, encoding="utf-8")
    _remove_empty_folders(root / "src")
    ruff = Path(sys.executable).with_name("ruff")
    notes = []
    for command in (
        ["check", "--select", "I", "--fix", "-q", "."],
        ["format", "-q", "."],
        ["check", "-q", "--output-format", "concise", "."],
    ):
        done = subprocess.run([ruff, *command], cwd=root, capture_output=True, text=True, check=False)  # noqa: S603
        notes += [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    return notes


def _git(root: Path, *arguments: str) -> None:
    subprocess.run(["git", *arguments], cwd=root, check=True)  # noqa: S603, S607


def _remove_empty_folders(folder: Path) -> None:
    for inner in sorted((path for path in folder.rglob("*") if path.is_dir()), reverse=True):
        left = [path for path in inner.iterdir() if path.name != "__pycache__"]
        if not left and inner.name != "__pycache__":
            for cached in inner.rglob("*"):
                if cached.is_file():
                    cached.unlink()
            for emptied in [*inner.glob("__pycache__"), inner]:
                emptied.rmdir()
