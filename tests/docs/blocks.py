"""Run the code of a page in order and compare the output with what the page shows.

A `python` block is executed; a `text` block right after it is its output. In a `console` block
lines that start with `$ ` are commands and the lines below them their output: `metricshuffle`, and
`mkdir` and `cp` of exchanged files. A command shown to print `metricshuffle: ...` must fail with
exit code 2, and any other must not. White space is ignored, a line `...` matches anything, and
after the comment `<!-- numbers vary -->` numbers are compared by their place only.
"""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from typer.testing import CliRunner

from metricshuffle.cli.command_group import app

_FENCE = re.compile(
    r"(?P<vary><!-- numbers vary -->\n)?^```(?P<kind>\w+)\n(?P<body>.*?)^```$", re.M | re.S
)
_NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?")


@dataclass(frozen=True)
class Block:
    kind: str
    body: str
    vary: bool


def blocks(page: str) -> list[Block]:
    return [
        Block(found["kind"], found["body"], bool(found["vary"])) for found in _FENCE.finditer(page)
    ]


def commands(body: str) -> Iterator[tuple[str, str]]:
    """Yield every command of a console block with its shown output."""
    for part in re.split(r"^\$ ", body.replace("\\\n", " "), flags=re.M)[1:]:
        command, _, said = part.partition("\n")
        yield command, said


def same(shown: str, said: str, vary: bool) -> bool:
    shown, said = (" ".join(text.split()) for text in (shown, said))
    if vary:
        shown, said = (_NUMBER.sub("#", text) for text in (shown, said))
    return re.fullmatch(re.escape(shown).replace(re.escape("..."), ".*"), said, re.S) is not None


def typed(command: str, *, refused: bool = False) -> str:
    """Output of a command on both streams; `refused` says whether it must fail."""
    program, *words = shlex.split(command, comments=True)
    if program == "mkdir":
        for folder in words:
            Path(folder).mkdir()
        return ""
    if program == "cp":
        source, folder = words
        assert Path(folder).is_dir(), f"{command}: {folder} is not a folder"
        shutil.copy(source, folder)
        return ""
    assert program == "metricshuffle", f"only metricshuffle, mkdir and cp are run, not {program}"
    result = CliRunner().invoke(app, words)
    assert result.exit_code == (2 if refused else 0), f"{command}\n{result.output}"
    return result.output


def run(page: str, name: str) -> int:
    """Run every block in the current folder; return their number."""
    names: dict[str, object] = {"__name__": "__main__"}
    printed = ""
    done = 0
    for block in blocks(page):
        if block.kind == "python":
            heard = io.StringIO()
            with contextlib.redirect_stdout(heard):
                exec(compile(block.body, name, "exec"), names)  # noqa: S102 - the page's own code
            printed = heard.getvalue()
        elif block.kind == "text":
            assert same(block.body, printed, block.vary), (
                f"{name} shows\n{block.body}\nbut it prints\n{printed}"
            )
        else:
            assert block.kind == "console", (
                f"{name} has a block of kind {block.kind}, which nobody runs"
            )
            for command, shown in commands(block.body):
                said = typed(command, refused=shown.startswith("metricshuffle: "))
                assert not shown.strip() or same(shown, said, block.vary), (
                    f"{name} shows for {command}\n{shown}\nbut it says\n{said}"
                )
        done += block.kind != "text"
    return done
