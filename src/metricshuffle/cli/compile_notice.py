"""Inner loops are compiled when they are first used: which of them were compiled by an earlier run, and a word when that happens."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

PACKAGE = Path(__file__).parents[1]
LOOP = re.compile(r"^@njit\(.*cache=True.*\n(?:[@#].*\n)*def (\w+)", re.MULTILINE)
COMPILE_NOTICE = "Compiling inner loops, which happens once after an installation and takes some seconds; later runs start at once."


class _KernelImportHook(MetaPathFinder):
    """Finds nothing; sees that a module of loops is about to import numba, and asks numba to tell when it compiles."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self.tell = tell

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name.startswith("metricshuffle.") and name.endswith("_kernels"):
            sys.meta_path.remove(self)
            _listen(self.tell)
        return None


def announce_compilation(tell: Callable[[str], None]) -> None:
    """Have it said, once, when the first loop is compiled that no earlier run has kept. Does not import numba."""
    if any(isinstance(finder, _KernelImportHook) for finder in sys.meta_path):
        return
    if "numba" in sys.modules:
        _listen(tell)
    else:
        sys.meta_path.insert(0, _KernelImportHook(tell))


def _listen(tell: Callable[[str], None]) -> None:
    from numba.core import event

    class FirstTime(event.Listener):  # type: ignore[misc]
        told = False

        def on_start(self, happened: object) -> None:
            if not self.told:
                self.told = True
                tell(COMPILE_NOTICE)

        def on_end(self, happened: object) -> None:
            pass

    event.register("numba:compile", FirstTime())


def kernel_loops() -> list[tuple[Path, str, int]]:
    """File, name and line of every loop that is compiled and kept."""
    return [
        (file, match[1], text.count("\n", 0, match.start()) + 1)
        for file in sorted(PACKAGE.rglob("*_kernels.py"))
        for text in [file.read_text(encoding="utf-8")]
        for match in LOOP.finditer(text)
    ]


def compiled_loops() -> list[str]:
    """Those that an earlier run compiled from the files as they are now, where numba keeps them beside the files or in NUMBA_CACHE_DIR."""
    python = f"py{sys.version_info.major}{sys.version_info.minor}"
    cache_folder = os.environ.get("NUMBA_CACHE_DIR")
    places = [place for place in Path(cache_folder).glob("*") if place.is_dir()] if cache_folder else None
    names = []
    for file, name, line in kernel_loops():
        index = f"{file.stem}.{name}-{line}.{python}.nbi"
        for place in places if places is not None else [file.parent / "__pycache__"]:
            if (place / index).is_file() and (place / index).stat().st_mtime >= file.stat().st_mtime:
                names.append(f"{file.stem}.{name}")
                break
    return names
