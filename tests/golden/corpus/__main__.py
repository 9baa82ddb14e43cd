"""`python -m tests.golden.corpus record|compare DIR`: see the package."""

from __future__ import annotations

import argparse
import sys
import time
from importlib import import_module
from pathlib import Path

from tests.golden.corpus import recording

SECTIONS = {
    "a": "plans",
    "b": "amplification",
    "c": "rounds",
    "d": "vectors",
    "e": "transcripts",
    "f": "commands",
    "g": "pages",
    "h": "names",
}
"""Section by letter; each is a module of this package with a function `record`.

Sections may differ between machines in the last digits of floats (BLAS and FFT round differently
from processor to processor), so a, b, e, f and g are compared on the machine that recorded.
"""


def items_of(section: str) -> recording.Items:
    """Record a section now."""
    items: recording.Items = import_module(f"tests.golden.corpus.{section}").record()
    return items


def chosen(text: str) -> list[str]:
    """Names of sections by letters or names, separated by commas; all for an empty text."""
    words = [word.strip() for word in text.split(",") if word.strip()] or list(SECTIONS)
    unknown = [word for word in words if word not in SECTIONS and word not in SECTIONS.values()]
    if unknown:
        sys.exit(
            f"unknown section {unknown[0]}; sections are "
            f"{', '.join(f'{letter} ({name})' for letter, name in SECTIONS.items())}."
        )
    return [SECTIONS.get(word, word) for word in words]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.golden.corpus", description=__doc__)
    parser.add_argument("action", choices=["record", "compare"])
    parser.add_argument("folder", type=Path, metavar="DIR")
    parser.add_argument(
        "--sections", default="", help="letters or names, separated by commas; all if left out"
    )
    parser.add_argument(
        "--without",
        choices=["texts"],
        help="leave out texts: what commands print, and the words of pages",
    )
    parser.add_argument(
        "--recorded",
        type=Path,
        metavar="OTHER",
        help="compare with this recording instead of recording anew",
    )
    options = parser.parse_args()
    count = 0
    for section in chosen(options.sections):
        begun = time.process_time()
        items = (
            items_of(section)
            if options.recorded is None
            else recording.read(options.recorded, section)
        )
        seconds = time.process_time() - begun
        if options.action == "record":
            size = recording.write(options.folder, section, items)
            print(
                f"{section}: {len(items)} items, {size:,} bytes, {seconds:.0f} s of CPU", flush=True
            )
            continue
        old = recording.read(options.folder, section)
        found = list(recording.differences(old, items, texts=options.without != "texts"))
        for item, before, after in found:
            print(f"{section}: {item}\n  old: {before}\n  new: {after}")
        print(
            f"{section}: {len(items)} items, {len(found)} differences, {seconds:.0f} s of CPU",
            flush=True,
        )
        count += len(found)
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
