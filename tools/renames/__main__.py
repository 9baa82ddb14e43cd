"""`python -m tools.renames check|apply|prove|shims|document`: rename the tree from `renames.toml`, and prove it."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from tools.renames import application, checks, proof, shims
from tools.renames.library import read_revision, read_working_tree
from tools.renames.mapping import MapError, load


def main(arguments: list[str] | None = None) -> int:
    """Run one command; the answer is the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.renames", description=__doc__)
    parser.add_argument("--map", type=Path, help="the map (renames.toml at the root)")
    parser.add_argument("--root", type=Path, default=Path(), help="the working tree (this folder)")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("check", help="whether the map can be applied to the tree")
    commands.add_parser("apply", help="move and rewrite the files of a tree").add_argument("tree", type=Path)
    commands.add_parser("prove", help="whether only names differ from an older commit").add_argument("revision")
    commands.add_parser("shims", help="write what keeps old module paths and public names importable").add_argument("revision")
    commands.add_parser("document", help="write CHANGES-names.md")
    given = parser.parse_args(arguments)
    root = given.tree if given.command == "apply" else given.root
    try:
        renames = load(given.map or root / "renames.toml")
        if given.command == "document":
            (root / "CHANGES-names.md").write_text(shims.document(renames), encoding="utf-8")
            return 0
        if given.command == "prove":
            return report(proof.differences(read_revision(root, given.revision, renames), root))
        if given.command == "shims":
            shims.write(read_revision(root, given.revision, renames), root)
            return 0
        library = read_working_tree(root, renames)
        refused = checks.refusals(library)
        if given.command == "check" or refused:
            return report(refused)
        for line in application.apply(library, root):
            print(line)
    except (MapError, subprocess.CalledProcessError) as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def report(lines: list[str]) -> int:
    """Print what is wrong, one line each; 1 if there is anything."""
    for line in lines:
        print(line)
    print(f"{len(lines)} to mend." if lines else "nothing to mend.")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
