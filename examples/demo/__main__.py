"""`python -m examples.demo --output FOLDER`, in the repository."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from examples.demo.demo import demo
from examples.demo.live import kept_open

from metricshuffle.cli.console import console
from metricshuffle.errors import InputError, MetricShuffleError


def main(arguments: list[str] | None = None) -> int:
    """Play the demo; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m examples.demo", description=__doc__)
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("demo-output"),
        help="folder for report.html (default: demo-output)",
    )
    parser.add_argument(
        "--live",
        action="store_true",
        help="add a round through a shuffler that really runs, and is killed in the middle",
    )
    parser.add_argument(
        "--keep",
        action="store_true",
        help="with --live: leave a collection open, with a page to join it, until Ctrl-C",
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help="print one JSON document on stdout; everything else goes to stderr",
    )
    chosen = parser.parse_args(arguments)
    try:
        if chosen.keep and not chosen.live:
            raise InputError("--keep belongs to --live: it leaves a live collection open.")
        page = demo(chosen.output, live=chosen.live, console=console(stderr=chosen.json))
        if chosen.json:
            print(json.dumps({"report": str(page)}), flush=True)
        if chosen.keep:
            kept_open(console(stderr=chosen.json))
    except MetricShuffleError as wrong:
        print(wrong, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
