"""File writes are atomic; links are followed; pipes and devices are written in place."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from metricshuffle.errors import InputError
from metricshuffle.files import (
    atomic_file,
    locked,
    make_folder,
    read_bytes,
    read_text,
    write_text,
    written_in_place,
)


@pytest.fixture
def open_umask() -> Iterator[None]:
    """A umask that the tests do not depend on."""
    before = os.umask(0o022)
    yield
    os.umask(before)


def permissions(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_text_and_bytes_come_back(tmp_path: Path) -> None:
    """What is written is read, line ends and letters as they are."""
    write_text(tmp_path / "text", "Zürich\r\n\n")
    assert (tmp_path / "text").read_bytes() == "Zürich\r\n\n".encode()
    with atomic_file(tmp_path / "bytes", "wb") as stream:
        stream.write(b"\0\xff\n")
    assert read_bytes(tmp_path / "bytes") == b"\0\xff\n"


def test_nothing_is_seen_before_the_end(tmp_path: Path) -> None:
    """During a write the old file stays, next to a temporary one that begins with a dot."""
    path = tmp_path / "file"
    path.write_text("old")
    with atomic_file(path) as stream:
        stream.write("new")
        stream.flush()
        assert path.read_text() == "old"
        (beside,) = {entry.name for entry in tmp_path.iterdir()} - {"file"}
        assert beside.startswith(".file.")
    assert path.read_text() == "new"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("wrong", [KeyboardInterrupt, ValueError, SystemExit])
@pytest.mark.parametrize("existed", [True, False])
def test_an_exception_leaves_what_was_there(
    wrong: type[BaseException], existed: bool, tmp_path: Path
) -> None:
    """After an error or interruption the old file stays, or none, and nothing temporary."""
    path = tmp_path / "file"
    if existed:
        path.write_text("old")

    def interrupted() -> None:
        with atomic_file(path) as stream:
            stream.write("half")
            raise wrong

    with pytest.raises(wrong):
        interrupted()
    assert [entry.read_text() for entry in tmp_path.iterdir()] == ["old"] * existed


def test_a_link_stays_and_its_target_is_replaced(tmp_path: Path) -> None:
    """Also through two links, from another folder, and to a target that does not exist yet."""
    (tmp_path / "kept").mkdir()
    target = tmp_path / "kept" / "target"
    link = tmp_path / "link"
    second = tmp_path / "second"
    dangling = tmp_path / "dangling"
    target.write_text("old")
    link.symlink_to(Path("kept") / "target")
    second.symlink_to(link)
    dangling.symlink_to(tmp_path / "kept" / "new")
    write_text(second, "through two links")
    assert target.read_text() == "through two links"
    write_text(dangling, "made")
    assert (tmp_path / "kept" / "new").read_text() == "made"
    assert all(path.is_symlink() for path in (link, second, dangling))
    assert not target.is_symlink()
    assert sorted(entry.name for entry in (tmp_path / "kept").iterdir()) == ["new", "target"]


def test_a_pipe_is_written_in_place(tmp_path: Path) -> None:
    """A named pipe, or a link to it, gets the bytes and remains a pipe."""
    pipe = tmp_path / "pipe"
    link = tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    for path in (pipe, link):
        assert written_in_place(path)
        heard: list[bytes] = []
        reader = threading.Thread(target=lambda heard=heard: heard.append(pipe.read_bytes()))
        reader.start()
        with atomic_file(path, "wb") as stream:
            stream.write(b"through the pipe")
        reader.join(timeout=10)
        assert heard == [b"through the pipe"]
        assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_devices_are_written_in_place() -> None:
    """/dev/null swallows what is written and stays a device."""
    assert written_in_place("/dev/null")
    write_text("/dev/null", "nothing")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


@pytest.mark.parametrize("name", ["-", "/dev/stdout", "/proc/self/fd/1"])
@pytest.mark.parametrize("mode", ["w", "wb"])
def test_standard_output(name: str, mode: str, tmp_path: Path) -> None:
    """Standard output gets only the content, in a pipe or redirected; no file is made."""
    code = (
        "from metricshuffle.files import atomic_file as whole_file\nwith "
        f"whole_file({name!r}, {mode!r}) as s: "
        f"s.write({'b' * (mode == 'wb')}'content')"
    )
    words = [sys.executable, "-c", code]
    assert subprocess.run(words, cwd=tmp_path, capture_output=True, check=True).stdout == b"content"
    with open(tmp_path / "redirected", "wb") as stream:
        subprocess.run(words, cwd=tmp_path, stdout=stream, check=True)
    assert (tmp_path / "redirected").read_bytes() == b"content"
    assert [entry.name for entry in tmp_path.iterdir()] == ["redirected"]


@pytest.mark.parametrize(("mask", "expected"), [(0o077, 0o600), (0o022, 0o644), (0o000, 0o666)])
def test_new_files_have_what_the_umask_allows(
    mask: int, expected: int, tmp_path: Path, open_umask: None
) -> None:
    """A umask of 077 makes private files; the temporary file is private too."""
    os.umask(mask)
    with atomic_file(tmp_path / "file") as stream:
        stream.write("new")
        (beside,) = tmp_path.iterdir()
        assert permissions(beside) == expected
    assert permissions(tmp_path / "file") == expected


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o444, 0o755])
def test_permissions_of_a_file_that_is_replaced_stay(
    mode: int, tmp_path: Path, open_umask: None
) -> None:
    """A file that only its owner may read is replaced by one that only its owner may read."""
    path = tmp_path / "file"
    path.write_text("old")
    path.chmod(mode)
    write_text(path, "new")
    assert path.read_text() == "new"
    assert permissions(path) == mode


def test_what_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    """A missing folder, a folder, or a file in place of a folder: an error with the name."""
    (tmp_path / "file").write_text("old")
    for path, told in (
        (tmp_path / "nowhere" / "file", "No such file or directory"),
        (tmp_path, "Is a directory"),
        (tmp_path / "file" / "deeper", "Not a directory"),
    ):
        with pytest.raises(InputError, match=f"cannot write {path}: {told}."):
            write_text(path, "new")
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_what_cannot_be_read_is_a_sentence(tmp_path: Path) -> None:
    """A missing file, a folder, and bytes that are no text."""
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x9c")
    with pytest.raises(InputError, match=r"cannot read .*bytes: it is not a text file."):
        read_text(tmp_path / "bytes")
    for read in (read_text, read_bytes):
        with pytest.raises(InputError, match=r"cannot read .*nothing: there is no such file."):
            read(tmp_path / "nothing")
        with pytest.raises(InputError, match=r"cannot read .*: Is a directory."):
            read(tmp_path)


def test_folders_are_made_or_told(tmp_path: Path) -> None:
    """A folder with its parents, one that is there, and a file in its place."""
    assert make_folder(tmp_path / "a" / "b").is_dir()
    assert make_folder(tmp_path / "a").is_dir()
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="a file has that name"):
        make_folder(tmp_path / "file")
    with pytest.raises(InputError, match="cannot make the folder"):
        make_folder(tmp_path / "file" / "deeper")


def test_a_lock_waits_and_gives_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One holder at a time, with and without flock; with flock, killed holders do not block."""
    path = tmp_path / "ledger"
    (tmp_path / ".ledger.lock").write_text("")
    for flock in (None, lambda: None):
        if flock is not None:
            monkeypatch.setattr("metricshuffle.files._flock", flock)
        with (
            locked(path, 1.0),
            pytest.raises(InputError, match="is being written by another command"),
            locked(path, 0.05),
        ):
            pass
        with locked(path, 1.0):
            pass
        assert not list(tmp_path.iterdir())
    (tmp_path / ".ledger.lock").write_text("")
    with (
        pytest.raises(InputError, match=r"if there is none, delete .*\.ledger\.lock"),
        locked(path, 0.05),
    ):
        pass
