"""Other libraries that adapters are for, with the versions that are supported."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from metricshuffle.errors import MissingExtra

Version = tuple[int, ...]


@dataclass(frozen=True)
class Peer:
    """A library with the supported versions: from `lowest` on, and before `below`."""

    distribution: str
    extra: str
    lowest: Version
    below: Version

    @property
    def versions(self) -> str:
        """The supported versions, in words."""
        return f"from {_dotted(self.lowest)} to before {_dotted(self.below)}"

    def check(self) -> None:
        """Raise MissingExtra unless a supported version is installed."""
        install = f"pip install 'metricshuffle[{self.extra}]'"
        try:
            installed = version(self.distribution)
        except PackageNotFoundError:
            raise MissingExtra(
                f"This needs the optional package {self.distribution!r}; install it with: {install}"
            ) from None
        if not self.lowest <= release_numbers(installed) < self.below:
            raise MissingExtra(
                f"{self.distribution} {installed} is installed, but the adapter supports versions "
                f"{self.versions}; install one with: {install}"
            )


PEERS = {
    "opendp_measurements": Peer("opendp", "opendp", (0, 14), (0, 17)),
    "shuffled_events": Peer("dp-accounting", "compose", (0, 5), (0, 7)),
    "flower_accountant": Peer("flwr", "flower", (1, 39), (2,)),
    "duckdb_functions": Peer("duckdb", "sql", (1, 4), (3,)),
}
"""The library of each module that adapts one; pyproject.toml has the same versions."""


def require_peer_of(module: str) -> None:
    """Raise MissingExtra unless the library that a module adapts is installed and supported."""
    PEERS[module.rpartition(".")[2]].check()


def has_peer_of(module: str) -> bool:
    """Return whether the library that a module adapts is installed and supported."""
    try:
        require_peer_of(module)
    except MissingExtra:
        return False
    return True


def release_numbers(text: str) -> Version:
    """Return the leading whole numbers of a version: (1, 2) for 1.2rc1."""
    numbers = re.match(r"\d+(?:\.\d+)*", text)
    return tuple(int(part) for part in numbers[0].split(".")) if numbers else ()


def _dotted(numbers: Version) -> str:
    return ".".join(map(str, numbers))
