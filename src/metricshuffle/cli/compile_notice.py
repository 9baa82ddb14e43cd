"""Notice about the one-time compilation of inner loops, and which loops are already compiled."""

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
COMPILE_NOTICE = (
    "Compiling inner loops, which happens once after an installation and takes some seconds; "
    "later runs start at once."
)


class _KernelImportHook(MetaPathFinder):
    """Import hook that finds no modules: it registers with numba before the first kernels load."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self.tell = tell

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name.startswith("metricshuffle.") and name.endswith("_kernels"):
            sys.meta_path.remove(self)
            _listen(self.tell)
        return None


def announce_compilation(tell: Callable[[str], None]) -> None:
    """Arrange one notice when the first uncached loop is compiled. Does not import numba."""
    if any(isinstance(finder, _KernelImportHook) for finder in sys.meta_path):
        return
    if "numba" in sys.modules:
        _listen(tell)
    else:
        sys.meta_path.insert(0, _KernelImportHook(tell))


def _listen(tell: Callable[[str], None]) -> None:
    from numba.core import event

    class FirstTime(event.Listener):  # type: ignore[misc]
        is_announced = False

        def on_start(self, happened: object) -> None:
            if not self.is_announced:
                self.is_announced = True
                tell(COMPILE_NOTICE)

        def on_end(self, happened: object) -> None:
            pass

    event.register("numba:compile", FirstTime())


def kernel_loops() -> list[tuple[Path, str, int]]:
    """Return file, name and line of every loop that is compiled and cached."""
    return [
        (file, match[1], text.count("\n", 0, match.start()) + 1)
        for file in sorted(PACKAGE.rglob("*_kernels.py"))
        for text in [file.read_text(encoding="utf-8")]
        for match in LOOP.finditer(text)
    ]


def compiled_loops() -> list[str]:
    """Return the loops that an earlier run compiled from the current files.

    The cache is next to the files or in NUMBA_CACHE_DIR.
    """
    python = f"py{sys.version_info.major}{sys.version_info.minor}"
    cache_folder = os.environ.get("NUMBA_CACHE_DIR")
    places = (
        [place for place in Path(cache_folder).glob("*") if place.is_dir()]
        if cache_folder
        else None
    )
    names = []
    for file, name, line in kernel_loops():
        index = f"{file.stem}.{name}-{line}.{python}.nbi"
        for place in places if places is not None else [file.parent / "__pycache__"]:
            if (place / index).is_file() and (
                place / index
            ).stat().st_mtime >= file.stat().st_mtime:
                names.append(f"{file.stem}.{name}")
                break
    return names
