"""Lock file of the container image: `python -m tools.service_lock > deploy/requirements.lock`.

The distributions that `metricshuffle[service,postgres,objects]` needs, with versions and hashes
from the lock files of the repository.
"""

from __future__ import annotations

import re
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
LOCKS = ("requirements.lock", "requirements-check.lock")
EXTRAS = ("service", "postgres", "objects")
HEADER = (
    "# Written by python -m tools.service_lock; versions and hashes are those of the repository.\n"
)
BLOCK = re.compile(r"(?m)^([A-Za-z0-9._-]+)==[^\n]+\\\n(?:    --hash=[^\n]+\n?)+")


def normal(name: str) -> str:
    return re.sub("[-_.]+", "-", name).lower()


def locked_blocks() -> dict[str, str]:
    """Text of each distribution in the lock files."""
    blocks: dict[str, str] = {}
    for lock in LOCKS:
        text = (ROOT / lock).read_text(encoding="utf-8")
        for match in BLOCK.finditer(text):
            blocks.setdefault(normal(match[1]), match[0].rstrip("\n") + "\n")
    return blocks


def needed() -> set[str]:
    """Names of all distributions that the image needs."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lines = [*project["dependencies"]]
    for extra in EXTRAS:
        lines += project["optional-dependencies"][extra]
    waiting = [Requirement(line) for line in lines]
    seen: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        requirement = waiting.pop()
        key = (normal(requirement.name), frozenset(requirement.extras))
        if key not in seen:
            seen.add(key)
            waiting += inner_requirements(*key)
    return {name for name, _ in seen}


def inner_requirements(name: str, extras: frozenset[str]) -> list[Requirement]:
    """Requirements of an installed distribution with some extras, on this system."""
    try:
        lines = requires(name) or []
    except PackageNotFoundError:
        raise SystemExit(f"{name} is not installed here; install it first.") from None
    return [
        requirement
        for requirement in map(Requirement, lines)
        if requirement.marker is None
        or any(requirement.marker.evaluate({"extra": extra}) for extra in ("", *extras))
    ]


def service_lock() -> str:
    blocks = locked_blocks()
    return HEADER + "".join(blocks[name] for name in sorted(needed()))


if __name__ == "__main__":
    sys.stdout.write(service_lock())
