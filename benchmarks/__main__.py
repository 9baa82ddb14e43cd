"""Run benchmarks and print one table: `python -m benchmarks [sampling ...] [--output FILE]`."""

from __future__ import annotations

import argparse
import json
import platform
from importlib import import_module
from pathlib import Path
from typing import Any

# release first: it reports the peak memory of the process so far
SUBJECTS = (
    "release",
    "sampling",
    "accounting",
    "amplification",
    "peers",
    "transport",
    "users",
    "questions",
    "vectors",
    "dummies",
    "service",
    "shuffle",
    "clients",
    "dummy_boxes",
    "liars",
    "adders",
    "oblivious",
    "web",
    "scale",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "subjects",
        nargs="*",
        choices=[*SUBJECTS, []],
        help="which benchmarks (all if none is named)",
    )
    parser.add_argument("--output", type=Path, help="write the rows as JSON here")
    arguments = parser.parse_args()
    record: dict[str, object] = {"python": platform.python_version(), "machine": platform.machine()}
    for subject in arguments.subjects or SUBJECTS:
        rows: list[dict[str, Any]] = []
        record[subject] = rows
        print(f"\n{subject}", flush=True)
        for row in import_module(
            f"benchmarks.bench_{subject}"
        ).measurements():  # some yield a row as soon as it is measured
            rows.append(row)
            goal = (
                ""
                if row["target"] is None
                else f"  target {row['target']:.3g}: {'reached' if row['reached'] else 'MISSED'}"
            )
            print(f"  {row['name']:<58} {row['value']:>12.4g} {row['unit']}{goal}", flush=True)
    if arguments.output:
        arguments.output.write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
