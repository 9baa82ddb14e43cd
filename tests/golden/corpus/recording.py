"""Recordings as files, and the differences between two of them."""

from __future__ import annotations

import difflib
import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Fields = dict[str, Any]
Items = dict[str, Fields]
"""Recorded items of a section: fields of each item, all of them JSON."""

TEXTS = frozenset({"stdout", "stderr", "text"})
"""Fields with prose, which `--without texts` leaves out."""
MOST_LINES = 12


def path_of(folder: Path, name: str) -> Path:
    return folder / f"{name}.json.gz"


def write(folder: Path, name: str, items: Items) -> int:
    """Write a section and return the size of its file in bytes; equal items give equal bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(items, indent=0, sort_keys=True, ensure_ascii=False) + "\n"
    data = gzip.compress(text.encode(), 9, mtime=0)
    path_of(folder, name).write_bytes(data)
    return len(data)


def read(folder: Path, name: str) -> Items:
    items: Items = json.loads(gzip.decompress(path_of(folder, name).read_bytes()))
    return items


def differences(old: Items, new: Items, *, texts: bool = True) -> Iterator[tuple[str, str, str]]:
    """Yield (item, old, new) of every field that differs and every item in only one of them."""
    new = json.loads(json.dumps(new))  # as it is read back: tuples are lists
    for item in sorted(old.keys() | new.keys()):
        if item not in new or item not in old:
            yield (
                item,
                "(recorded)" if item in old else "(not recorded)",
                "(recorded)" if item in new else "(not recorded)",
            )
            continue
        for field in sorted(old[item].keys() | new[item].keys()):
            before = old[item].get(field)
            after = new[item].get(field)
            if before != after and (texts or field not in TEXTS):
                yield f"{item}: {field}", *_shown(before, after)


def _shown(before: Any, after: Any) -> tuple[str, str]:
    """Both values; of long ones at most a dozen lines that differ."""
    lines = [_lines(before), _lines(after)]
    if max(map(len, lines)) <= 1:
        return "\n".join(lines[0]), "\n".join(lines[1])
    matcher = difflib.SequenceMatcher(None, lines[0], lines[1], autojunk=False)
    left: list[str] = []
    right: list[str] = []
    for tag, i, j, k, m in matcher.get_opcodes():
        if tag != "equal":
            left += [f"{number + 1}: {lines[0][number]}" for number in range(i, j)]
            right += [f"{number + 1}: {lines[1][number]}" for number in range(k, m)]
    return _cut(left), _cut(right)


def _lines(value: Any) -> list[str]:
    return (
        value
        if isinstance(value, str)
        else json.dumps(value, indent=0, sort_keys=True, ensure_ascii=False)
    ).splitlines()


def _cut(lines: list[str]) -> str:
    left_out = len(lines) - MOST_LINES
    return "\n".join(
        [
            *(line[:300] for line in lines[:MOST_LINES]),
            *([f"({left_out} more lines)"] if left_out > 0 else []),
        ]
    )
