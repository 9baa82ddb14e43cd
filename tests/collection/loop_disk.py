"""Small disks in files, mounted in a separate namespace, which tests fill, break and cut off."""

from __future__ import annotations

import fcntl
import os
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

MEGABYTE = 2**20
SHUTDOWN = 0x8004587D
"""FS_IOC_SHUTDOWN: the file system stops all reads and writes."""
NOTHING_ELSE = 2
NAMES_TOO = 1
"""What a cut leaves on the disk: synced data only, or also all names and sizes.

The latter is as if the journal had just been written.
"""


def run(*words: str | Path) -> None:
    subprocess.run(words, check=True)


@dataclass(frozen=True)
class Disk:
    """File with a file system, and its mount point."""

    image: Path
    where: Path

    @classmethod
    def new(cls, path: Path, size: int = 16 * MEGABYTE) -> Disk:
        disk = cls(path.with_suffix(".image"), path)
        path.mkdir(parents=True)
        with open(disk.image, "wb") as stream:
            stream.truncate(size)
        run("mke2fs", "-q", "-F", "-t", "ext4", "-m", "0", disk.image)
        disk.mount()
        return disk

    def mount(self) -> None:
        """Mount so that only explicit syncs are written.

        Not every few seconds, and not because a file replaces another one.
        """
        run("mount", "--no-mtab", "-o", "loop,commit=600,noauto_da_alloc", self.image, self.where)

    def unmount(self) -> None:
        run("umount", "--no-mtab", self.where)

    @contextmanager
    def away(self) -> Iterator[None]:
        """Unmount, and mount again afterwards."""
        self.unmount()
        yield
        self.mount()

    def again(self) -> None:
        with self.away():
            pass

    def filling(self) -> str:
        """Command that fills the disk.

        A write is rejected as a whole, so that smaller ones may still fit; it runs again after a
        sync, because reserved space may turn out not to be needed.
        """
        fill = (
            "for size in 131072 4096 1024 1; do dd if=/dev/zero bs=$size >> "
            f"{self.where}/filler 2>/dev/null && exit 1; done"
        )
        return f'{fill}; sync -f {self.where}; {fill}; test "$(stat -f -c %a {self.where})" = 0'

    def failing(self) -> str:
        """Command that does what the kernel does on a write error."""
        return f"mount --no-mtab -o remount,abort {self.where}"

    def cut(self, left: int) -> None:
        folder = os.open(self.where, os.O_RDONLY)
        fcntl.ioctl(folder, SHUTDOWN, struct.pack("I", left))
        os.close(folder)
