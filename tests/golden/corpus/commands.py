"""(f) Commands of the documents: exit code, both streams and files; help of every command.

Commands run in this process, in the order of their page and in a separate folder, with the
operating system's randomness seeded, so that draws are repeatable. Code of a page runs too, because
commands read what it writes. The walk-through of docs/service/operate.md is left out: it closes
after twenty seconds and its result depends on the load of the machine. Section e runs the same
commands, step by step.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shlex
import shutil
import signal
import sys
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

from tests.docs.blocks import Block, blocks, commands
from tests.docs.test_pages import DOCS, RUN
from tests.golden.corpus.masks import digest, masked, parts_of_page, seeded_system
from tests.golden.corpus.recording import Fields, Items

LEFT_OUT = {
    "web": "runs until it is stopped; section e talks to it",
    "serve": "runs until it is stopped; section e talks to it",
    "analyst": "has to do with keys, which OpenSSL draws; section e runs it",
    "collection": "needs a shuffler; section e runs it",
    "submit": "needs a shuffler; section e runs it",
    "collect": "needs a shuffler; section e runs it",
    "join-page": "needs a collection; section e records the page",
    "reproduce": "takes minutes",
    "users compare": "takes minutes",
}
"""Commands in shell blocks that are not run here, by their first words, with the reason."""
SHELL_PAGES = {
    "commands.md": DOCS / "commands.md",
    "users.md": DOCS / "users.md",
    "tutorial-page.md": DOCS / "tutorial-page.md",
}
VALUES = "kcal\n" + "".join(f"{(137 * person) % 1001}\n" for person in range(1_000))
"""values.csv of the commands: the numbers of the README's Python sample."""
ENVIRONMENT = {
    "COLUMNS": "80",
    "LINES": "40",
    "NO_COLOR": "1",
    "TERM": "dumb",
    "OPENBLAS_NUM_THREADS": "1",
}


def _main() -> Any:
    """Entry point of the installed command `metricshuffle`."""
    (script,) = entry_points(group="console_scripts", name="metricshuffle")
    return script.load()


def typed(words: list[str], seed: str) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of a command."""
    out = io.StringIO()
    err = io.StringIO()
    code: Any = 0
    with (
        patch.object(sys, "argv", ["metricshuffle", *words]),
        seeded_system(seed),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            _main()()
        except SystemExit as end:
            code = end.code
    assert code != 128 + signal.SIGTERM, (
        "the recorder was stopped by a signal"
    )  # (the command has a handler of its own for it)
    return code if isinstance(code, int) else int(code is not None), out.getvalue(), err.getvalue()


def _content(path: Path, folder: Path) -> Any:
    """Recorded content of a file: JSON and tables as they are, pages as tags, else a digest."""
    if path.suffix in (".html", ".svg"):
        return digest(parts_of_page(masked(path.read_text(encoding="utf-8"), folder))["tags"])
    if path.suffix == ".json":
        text = masked(path.read_text(encoding="utf-8"), folder)
        with contextlib.suppress(ValueError):
            return (
                json.dumps(json.loads(text), indent=0, sort_keys=True, ensure_ascii=False)
                if len(text) < 60_000
                else digest(text)
            )
    if path.suffix == ".ledger":  # has times, and a checksum over them
        return digest(
            re.sub(r'"checksum": "\w+"', "", masked(path.read_bytes().decode("latin-1"), folder))
        )
    if path.suffix in (".csv", ".txt", ".md", ".geojson"):
        return digest(masked(path.read_text(encoding="utf-8"), folder))
    return (
        {"bytes": path.stat().st_size}
        if path.suffix in (".png", ".db")
        else {"sha256": digest(path.read_bytes())}
    )


def _files(folder: Path) -> dict[str, tuple[int, int]]:
    return {
        path.relative_to(folder).as_posix(): (path.stat().st_mtime_ns, path.stat().st_size)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }


def _command(command: str, seed: str, folder: Path) -> Fields:
    program, *words = shlex.split(command, comments=True)
    if program == "mkdir":
        for name in words:
            Path(name).mkdir()
        return {"exit code": 0}
    if program == "cp":
        shutil.copy(*words)
        return {"exit code": 0}
    before = _files(folder)
    code, out, err = typed(words, seed)
    changed = {
        name: _content(folder / name, folder)
        for name, stamp in _files(folder).items()
        if before.get(name) != stamp
    }
    return {
        "exit code": code,
        "stdout": masked(out, folder),
        "stderr": masked(err, folder),
        "files": changed,
    }


def _code(block: Block, names: dict[str, object], seed: str, page: str, folder: Path) -> Fields:
    out = io.StringIO()
    with contextlib.redirect_stdout(out), seeded_system(seed):
        exec(compile(block.body, page, "exec"), names)  # noqa: S102 - the page's own code
    return {"stdout": masked(out.getvalue(), folder)}


def _shell_commands(body: str) -> Iterator[str]:
    """Commands of a shell block that are run: those of metricshuffle that are not left out."""
    for line in body.replace("\\\n", " ").splitlines():
        words = line.split("#")[0].split()
        if words[:1] == ["metricshuffle"] and not {words[1], " ".join(words[1:3])} & set(LEFT_OUT):
            yield line


def _page(page: str, path: Path, folder: Path) -> Items:
    """Everything that a page asks its reader to run, in order."""
    items: Items = {}
    names: dict[str, object] = {"__name__": "__main__"}
    for block in blocks(path.read_text(encoding="utf-8")):
        if block.kind == "python":
            item = f"{page} {len(items) + 1:02}: Python"
            items[item] = _code(block, names, item, page, folder)
            continue
        shown = [command for command, _ in commands(block.body)] if block.kind == "console" else []
        for command in shown or (list(_shell_commands(block.body)) if block.kind == "sh" else []):
            item = f"{page} {len(items) + 1:02}: {' '.join(command.split())}"
            items[item] = _command(command, item, folder)
    return items


@contextlib.contextmanager
def inside(folder: Path) -> Iterator[None]:
    """Work in this folder, with a terminal of 80 columns and no colours."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    with patch.dict(os.environ, {**ENVIRONMENT, "PATH": path}), contextlib.chdir(folder):
        yield


def _helps() -> Items:
    """Help of every command in docs/cli.md, and the names of its options apart from the prose."""
    items: Items = {}
    for name in re.findall(
        r"^## metricshuffle ?(.*)$", (DOCS / "cli.md").read_text(encoding="utf-8"), re.M
    ):
        code, out, err = typed([*name.split(), "--help"], "help")
        options = sorted(set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", out)))
        items[f"help: {name}"] = {
            "exit code": code,
            "stdout": masked(out),
            "stderr": masked(err),
            "options": options,
        }
    return items


def record() -> Items:
    items: Items = {}
    pages = {**{name: DOCS / name for name in RUN}, **SHELL_PAGES}
    for page, path in pages.items():
        with TemporaryDirectory(prefix="corpus-") as name, inside(Path(name)):
            if page == "commands.md":
                Path("values.csv").write_text(VALUES, encoding="utf-8")
            items |= _page(page, path, Path(name))
    with TemporaryDirectory(prefix="corpus-") as name, inside(Path(name)):
        items |= _helps()
    return items
