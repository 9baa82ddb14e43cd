"""Work in several threads: once, in order, in parallel, with errors reported."""

import threading

import pytest

from metricshuffle.numerics.threads import MAX_PARTS, run_in_parts, start_in_thread, usable_cores


@pytest.mark.parametrize("many", [0, 1, 2, 3, 7, 100])
@pytest.mark.parametrize("cores", [1, 2, 3, 64])
def test_parts_are_consecutive_and_cover_everything_once(
    many: int, cores: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("metricshuffle.numerics.threads.usable_cores", lambda: cores)
    found = run_in_parts(lambda start, stop: list(range(start, stop)), many)
    assert [place for part in found for place in part] == list(range(many))
    assert len(found) == max(1, min(cores, many, MAX_PARTS))


def test_parts_run_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("metricshuffle.numerics.threads.usable_cores", lambda: 3)
    together = threading.Barrier(3, timeout=20.0)  # broken if one part waits for another to end
    assert run_in_parts(lambda start, _: (together.wait(), start)[1], 3) == [0, 1, 2]


@pytest.mark.parametrize("where", [0, 1, 2])
def test_a_part_that_fails_is_told(where: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("metricshuffle.numerics.threads.usable_cores", lambda: 3)

    def work(start: int, _: int) -> int:
        if start == where:
            raise ValueError(f"part {start}")
        return start

    with pytest.raises(ValueError, match=f"part {where}"):
        run_in_parts(work, 3)


def test_what_goes_on_aside_is_waited_for_and_leaves_no_thread() -> None:
    go_on = threading.Event()
    before = threading.active_count()
    begun = start_in_thread(lambda: go_on.wait(20.0))
    go_on.set()  # (it could not have ended before)
    assert begun() is True
    assert threading.active_count() == before

    def failing() -> None:
        raise ValueError("aside")

    waited = start_in_thread(failing)
    with pytest.raises(ValueError, match="aside"):
        waited()


def test_there_is_a_core() -> None:
    assert usable_cores() >= 1
