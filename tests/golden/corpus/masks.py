"""Repeatable recordings: seeded system randomness, and masks for times, addresses, folders."""

from __future__ import annotations

import hashlib
import os
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html.parser import HTMLParser
from pathlib import Path
from unittest.mock import patch

MASKS = (
    (
        re.compile(r"\d{4}-\d\d-\d\d(?:[T ]| at )\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|\+00:00| UTC)?"),
        "<time>",
    ),
    (
        re.compile(r"\b(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT"),
        "<time>",
    ),
    (re.compile(r"(127\.0\.0\.1|localhost):\d+"), r"\1:<port>"),
    (re.compile(r"\b\d+(?:\.\d+)? (?:s|ms|seconds?|minutes?)\b(?= (?:of|on|ago)\b)"), "<seconds>"),
)
NUMBER = re.compile(r"(?:(?<![\w-])-)?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?")
HEXADECIMAL = re.compile(r"\b[0-9a-f]{16,}\b")


def digest(content: bytes | str) -> str:
    return hashlib.sha256(content.encode() if isinstance(content, str) else content).hexdigest()


def masked(text: str, *folders: Path) -> str:
    """Text without times, ports and these folders.

    White space at the ends of lines depends on their lengths, so it is removed too.
    """
    for folder in folders:
        for name in {str(folder), str(folder.resolve())}:
            text = text.replace(name, "<folder>")
    for pattern, mask in MASKS:
        text = pattern.sub(mask, text)
    return re.sub(r"[ \t]+$", "", text, flags=re.M)


def without_numbers(text: str) -> str:
    """Text without numbers, keys and digests, for draws of another process or of keys."""
    return NUMBER.sub("#", HEXADECIMAL.sub("<hex>", text))


@contextmanager
def seeded_system(seed: str) -> Iterator[None]:
    """Derive the operating system's random bytes from `seed`, for this process and Python.

    Each place that draws, and each size, has a separate stream: a compiler that names files of its
    cache (`uuid4` takes 16 bytes from `os.urandom`) does so on the first run only, and must not
    shift what the program draws (32 bytes, or through `secrets`). Keys made by OpenSSL are not
    affected; what contains one is masked.
    """
    counts: Counter[tuple[str, int]] = Counter()

    def source(place: str) -> Callable[[int], bytes]:
        def drawn(size: int) -> bytes:
            counts[place, size] += 1
            return hashlib.shake_256(
                f"{seed} {place} {size} {counts[place, size]}".encode()
            ).digest(size)

        return drawn

    with (
        patch.object(os, "urandom", source("os")),
        patch.object(random, "_urandom", source("random")),
    ):
        yield


KEPT = (
    "class",
    "id",
    "name",
    "type",
    "method",
    "href",
    "action",
    "for",
    "role",
    "value",
    "selected",
    "checked",
    "open",
    "disabled",
)
"""Attributes recorded with their values: structure and addresses; of others, only the name."""


class _Parts(HTMLParser):
    """Parser that collects tags, one per line, and texts."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.texts: list[str] = []
        self.inside = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        told = [
            f"{name}={value}" if name in KEPT and not (value or "").startswith("data:") else name
            for name, value in attrs
        ]
        self.tags.append(f"<{' '.join([tag, *told])}>")
        self.inside = tag

    def handle_endtag(self, tag: str) -> None:
        self.tags.append(f"</{tag}>")
        self.inside = ""

    def handle_data(self, data: str) -> None:
        words = " ".join(data.split())
        if words and self.inside in ("style", "script"):
            self.tags.append(f"({len(words)} characters, sha256 {digest(words)[:16]})")
        elif words:
            self.texts.append(words)


def parts_of_page(page: str) -> dict[str, str]:
    """Tags of a page and its words, apart; drawing data of charts (`path`, `d`) is left out."""
    parts = _Parts()
    parts.feed(page)
    parts.close()
    return {"tags": "\n".join(parts.tags), "text": "\n".join(parts.texts)}
