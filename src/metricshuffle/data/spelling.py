"""Arguments as whoever gave them wrote them: options on the command line, names in Python."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Spelling:
    """How sentences name an argument."""

    as_options: bool

    def __call__(self, argument: str, value: str | None = None) -> str:
        """`--per-user mean` or `per_user='mean'`; without a value `--per-user` or `per_user=`."""
        if self.as_options:
            return f"--{argument.replace('_', '-')}" + ("" if value is None else f" {value}")
        return f"{argument}=" + ("" if value is None else repr(value))

    def flag(self, argument: str) -> str:
        """`--clamp` or `clamp=True`."""
        return self(argument) if self.as_options else f"{argument}=True"


OPTIONS, ARGUMENTS = Spelling(True), Spelling(False)
