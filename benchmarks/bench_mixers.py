"""Benchmark of mixers over an object store, against the sort of one process.

`python -m benchmarks.bench_mixers [REPORTS]`: ten messages per report, in boxes of 105 bytes, in a
SQLite file. Pieces are in memory, as a bucket is not on this disk (`--disk`: on the same disk). One
run: ratios count, seconds do not; on a busy machine that of processor time, of the driver and the
mixer that needs most. It is not part of `python -m benchmarks`, because it needs gigabytes.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.collection.conftest import roomy_memory

from benchmarks.bench_shuffle import MESSAGES, START, filled
from metricshuffle.collection.keys import KeyFolder
from metricshuffle.collection.mixer.object_mixing import MixerSettings
from metricshuffle.collection.mixer.object_store import ObjectStore
from metricshuffle.collection.shuffler.collection_mixing import CollectionMixing
from metricshuffle.collection.shuffler.external_sort import SORT_MEMORY_BYTES
from metricshuffle.collection.shuffler.output_files import OutputFolder, write_out
from metricshuffle.collection.shuffler.scheduler import PAUSE_SECONDS
from metricshuffle.collection.store.factory import connect_store
from metricshuffle.collection.terms import Collection

REPORTS = 1_000_000
TARGET = 0.65
MIXERS = (0, 1, 2)


def mixed(folder: Path, objects: str) -> dict[str, float | str]:
    """Mix the sealed collection into a file, by mixers if there is an object store."""
    store = connect_store(f"sqlite:///{folder}/shuffler.db", lambda: time.time() - begun + ends)
    ends, begun = START + 61, time.time()
    keys = KeyFolder.at(folder / "keys")
    [row] = store.rows()
    if row.state == "open":
        store.seal(row.digest)
        [row] = store.rows()
    own = keys.of(row.key)
    assert own is not None
    settings = MixerSettings(ObjectStore(objects), 0) if objects else None
    collection = Collection(row.served)
    outputs = OutputFolder.of(keys)
    passed: dict[str, float | str] = {}
    start = time.perf_counter()
    used = time.process_time()

    def at(point: str) -> None:
        passed[point] = time.perf_counter() - start

    mixing = CollectionMixing(store, outputs, SORT_MEMORY_BYTES, row, collection, own, settings, at)
    while (write := mixing.writer()) is None:
        time.sleep(PAUSE_SECONDS)
    at("sorted")
    digest = write_out(folder / "output", write, at).digest
    at("output in a file")
    used = time.process_time() - used
    return {**passed, "processor": used, "gigabytes": peak_gigabytes("self"), "digest": digest}


def peak_gigabytes(process: int | str) -> float:
    """Largest memory of a running process."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    [peak] = [line.split()[1] for line in lines if line.startswith("VmHWM")]
    return int(peak) / 1e6


def processor_time(process: subprocess.Popen[bytes]) -> float:
    """Processor seconds of a running process."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def run_mixers(folder: Path, count: int, spill: Path) -> dict[str, float | str]:
    objects = f"file://{spill}" if count else ""
    words = [sys.executable, "-m"]
    mix = ["metricshuffle", "mix", "--store", f"sqlite:///{folder}/shuffler.db"]
    places = ["--objects", objects, "--keys", str(folder / "keys")]
    mixers = [subprocess.Popen([*words, *mix, *places]) for _ in range(count)]
    time.sleep(8.0 * bool(count))  # they have started
    before = [processor_time(mixer) for mixer in mixers]
    try:
        driven = [*words, "benchmarks.bench_mixers", "--mixed", str(folder), objects]
        answer = subprocess.run(driven, check=True, capture_output=True, text=True).stdout
        used = [processor_time(mixer) - base for mixer, base in zip(mixers, before, strict=True)]
        peaks = [peak_gigabytes(mixer.pid) for mixer in mixers]
    finally:
        for mixer in mixers:
            mixer.terminate()
            mixer.wait()
    shutil.rmtree(spill, ignore_errors=True)
    passed: dict[str, float | str] = json.loads(answer)
    longest = float(passed["processor"]) + max([0.0, *used])
    gigabytes = max([0.0, *peaks])
    return {**passed, "gigabytes of a mixer": gigabytes, "processor of the longest": longest}


def main() -> None:
    words = [word for word in sys.argv[1:] if word != "--disk"]
    reports = int(words[0]) if words else REPORTS
    memory = None if "--disk" in sys.argv else roomy_memory()
    with (
        tempfile.TemporaryDirectory(prefix="ms-bench-") as name,
        tempfile.TemporaryDirectory(prefix="ms-bench-", dir=memory) as spill,
    ):
        folder = Path(name)
        filled(folder, reports)
        print(f"{reports * MESSAGES:,} boxes")
        runs = {}
        for count in MIXERS:
            runs[count] = run_mixers(folder, count, Path(spill) / "objects")
            label = f"{count} mixers" if count else "one process"
            print(label, {key: value for key, value in runs[count].items() if key != "digest"})
    assert len({run["digest"] for run in runs.values()}) == 1
    for measure in ("output in a file", "processor of the longest"):
        taken = {count: float(run[measure]) for count, run in runs.items()}
        for count in MIXERS[1:]:
            ratio = taken[count] / taken[0]
            print(f"{measure}: {count} mixers / one process {ratio:.2f}, target for two {TARGET}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--mixed"]:
        print(json.dumps(mixed(Path(sys.argv[2]), sys.argv[3])))
    else:
        main()
