"""Generate docs/cli.md from the commands: `python -m tools.reference`."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any


def every_command(app: Any, before: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every command with its full name, including those of groups."""
    import typer

    group: Any = typer.main.get_command(app) if isinstance(app, typer.Typer) else app
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from every_command(command, f"{before}{name} ")
        else:
            yield f"{before}{name}", command


def reference() -> str:
    """Return every command with its arguments and options, as Markdown."""
    import typer

    from metricshuffle.cli.command_group import app

    group: Any = typer.main.get_command(app)
    commands = dict(every_command(group))
    lines = [
        "# The command line",
        "",
        "Generated from the code by `make docs`.",
        "",
        *_words(group.help),
        "",
        "| command | what it does |",
        "| --- | --- |",
        *(
            f"| [`{name}`](#metricshuffle-{name.replace(' ', '-')}) | {_words(command.help)[0]} |"
            for name, command in commands.items()
        ),
    ]
    for name, command in commands.items():
        arguments = [
            parameter for parameter in command.params if parameter.param_type_name == "argument"
        ]
        options = [
            parameter for parameter in command.params if parameter.param_type_name == "option"
        ]
        needed = [argument.metavar for argument in arguments] + [
            _usage(option) for option in options if option.required
        ]
        usage = " ".join(["metricshuffle", name, *needed, "[OPTIONS]"])
        lines += [
            "",
            f"## metricshuffle {name}",
            "",
            *_words(command.help),
            *_brought_by(command),
            "",
            "```text",
            usage,
            "```",
            *_examples(command),
            "",
            "| | |",
            "| --- | --- |",
        ]
        lines += [
            f"| `{_escaped(argument.metavar)}` | {_described(argument)} |" for argument in arguments
        ]
        lines += [f"| `{_escaped(_usage(option))}` | {_described(option)} |" for option in options]
    return "\n".join(lines) + "\n"


def _brought_by(command: Any) -> list[str]:
    """Note on the package to install for a command of another distribution."""
    home = inspect.unwrap(command.callback).__module__.split(".")[0]
    return (
        []
        if home == "metricshuffle"
        else ["", f"Comes with `pip install {home.replace('_', '-')}`."]
    )


def _examples(command: Any) -> list[str]:
    lines = (command.epilog or "").split("\n\n")[1:]
    return ["", "```sh", *lines, "```"] if lines else []


def _usage(option: Any) -> str:
    return option.opts[0] if option.is_flag else f"{option.opts[0]} {option.metavar}"


def _described(parameter: Any) -> str:
    description = _escaped(" ".join(parameter.help.split()))
    if len(parameter.opts) > 1:
        description += f" Also {', '.join(f'`{name}`' for name in parameter.opts[1:])}."
    if parameter.required:
        return f"{description} Required."
    if parameter.default in (None, False, ""):
        return description
    return f"{description} Default: `{parameter.default}`."


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")


def _words(text: str) -> list[str]:
    """Split a docstring into paragraphs, one line each with an empty line between."""
    paragraphs = [" ".join(paragraph.split()) for paragraph in text.split("\n\n")]
    return "\n\n".join(paragraphs).split("\n")


if __name__ == "__main__":
    print(reference(), end="")
