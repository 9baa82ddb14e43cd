"""Small disks in files, which tests fill, break and cut off from their power. Whoever mounts them has a mount namespace of its own."""

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
"""FS_IOC_SHUTDOWN: the file system takes and gives nothing from then on."""
NOTHING_ELSE, NAMES_TOO = 2, 1
"""What a cut leaves on the disk: what was written through; or also all names and sizes, as if their journal had been written just then."""


def run(*words: str | Path) -> None:
    subprocess.run(words, check=True)


@dataclass(frozen=True)
class Disk:
    """A file with a file system in it, and where that is mounted."""

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
        """Nothing is written through but what somebody asks for: not every few seconds, and not because a file replaces another one."""
        run("mount", "--no-mtab", "-o", "loop,commit=600,noauto_da_alloc", self.image, self.where)

    def unmount(self) -> None:
        run("umount", "--no-mtab", self.where)

    @contextmanager
    def away(self) -> Iterator[None]:
        """Unmounted, and mounted again."""
        self.unmount()
        yield
        self.mount()

    def again(self) -> None:
        with self.away():
            pass

    def filling(self) -> str:
        """A command that leaves no room: a piece is refused as a whole, so that smaller ones may still find some; and again when all is
        written through, because room that was set aside turns out not to be needed then.
        """
        fill = f"for size in 131072 4096 1024 1; do dd if=/dev/zero bs=$size >> {self.where}/filler 2>/dev/null && exit 1; done"
        return f'{fill}; sync -f {self.where}; {fill}; test "$(stat -f -c %a {self.where})" = 0'

    def failing(self) -> str:
        """A command that does what the kernel does if the disk cannot be written."""
        return f"mount --no-mtab -o remount,abort {self.where}"

    def cut(self, left: int) -> None:
        folder = os.open(self.where, os.O_RDONLY)
        fcntl.ioctl(folder, SHUTDOWN, struct.pack("I", left))
        os.close(folder)
