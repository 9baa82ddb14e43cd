"""Locked memory of a shuffler where the system allows it, and its message about it."""

from __future__ import annotations

import re
import resource
import shutil
import sys
from pathlib import Path

import pytest
from tests.collection.running import Running, post_report, report_of, running

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.skipif(sys.platform != "linux", reason="memory is locked on Linux"),
]
UNPRIVILEGED = ("setpriv", "--bounding-set", "-ipc_lock,-sys_resource")
"""Runs a command that the limit concerns, also if root runs the tests."""
LOCKED = "Memory is locked: keys are never written to swap."
NOT_LOCKED = "Memory is not locked (the limit is 8,388,608 bytes"


def kilobytes(shuffler: Running, name: str) -> int:
    """Memory of a process by the system; readable by its owner even if not dumpable."""
    found = re.search(
        rf"^{name}:\s+(\d+) kB$",
        Path(f"/proc/{shuffler.process.pid}/status").read_text(),
        re.MULTILINE,
    )
    assert found is not None
    return int(found[1])


def may_be_unlimited() -> bool:
    """Whether a test process can have no limit, by inheritance or as root."""
    capabilities = int(
        next(
            line.split()[1]
            for line in Path("/proc/self/status").read_text().splitlines()
            if line.startswith("CapEff")
        ),
        16,
    )
    return resource.getrlimit(resource.RLIMIT_MEMLOCK)[1] == resource.RLIM_INFINITY or bool(
        capabilities >> 14 & 1
    )


@pytest.mark.skipif(
    not may_be_unlimited(), reason="nobody may lock memory here; ulimit -l unlimited"
)
def test_memory_is_locked_where_there_is_no_limit(tmp_path: Path) -> None:
    """And not more of it is used for that: pages that nobody touched are not fetched."""
    resident = {}
    for name, before in (("locked", ()), ("not locked", limited())):
        with running(tmp_path / name, f"sqlite:///{tmp_path / name}.db", before=before) as shuffler:
            collection = shuffler.opened()
            assert set(
                post_report(collection.url, [report_of(collection) for _ in range(300)]).statuses
            ) == {204}
            assert ((LOCKED in shuffler.log), kilobytes(shuffler, "VmLck") > 0) == (
                name == "locked",
                name == "locked",
            )
            resident[name] = kilobytes(shuffler, "VmRSS")
            if name == "locked":
                assert kilobytes(shuffler, "VmLck") > resident[name] // 2
    print(resident)
    assert resident["locked"] < 1.5 * resident["not locked"]


def limited() -> tuple[str, ...]:
    if shutil.which("setpriv") is None or shutil.which("prlimit") is None:
        pytest.skip("a limit is lowered with setpriv and prlimit (util-linux)")
    return ("prlimit", f"--memlock={2**23}", *UNPRIVILEGED)


def test_a_limit_is_no_error_and_is_told(tmp_path: Path) -> None:
    with running(tmp_path / "s", f"sqlite:///{tmp_path / 's.db'}", before=limited()) as shuffler:
        assert kilobytes(shuffler, "VmLck") == 0
        assert NOT_LOCKED in shuffler.log
        assert "LimitMEMLOCK=infinity" in shuffler.log
        assert shuffler.operator.statuses() == []
