"""Java client for tests: compiled with all warnings as errors, and packed as a jar."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.collection.conftest import missing
from tests.collection.javascript import run
from tools.release import JAVA_COMPILER, build_java_client

from metricshuffle.files import locked

CLIENT = Path(__file__).parents[2] / "clients" / "java"
COMPILE = JAVA_COMPILER
JVM = ("java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Dfile.encoding=UTF-8")


@dataclass(frozen=True)
class BuiltClient:
    """Folder with the jar of the client and the classes of its tests."""

    folder: Path

    @property
    def jar(self) -> Path:
        return self.folder / "metricshuffle-client.jar"

    def command(self, name: str) -> list[str]:
        """Words that run a class of the tests."""
        classes = os.pathsep.join((str(self.jar), str(self.folder / "tests")))
        return [*JVM, "-cp", classes, f"metricshuffle.client.{name}"]

    def ask(self, scratch: Path, *requests: dict[str, Any]) -> list[Any]:
        """Answers of test/.../Draws.java to these requests."""
        file = scratch / "request.json"
        file.write_text(json.dumps(requests), encoding="utf-8")
        answers: list[Any] = json.loads(run(*self.command("Draws"), str(file), cwd=self.folder))
        return answers


def build_client(folder: Path) -> None:
    """Build the client as for a release, and compile its tests, with nothing but the JDK."""
    tests = sorted(map(str, (CLIENT / "test").rglob("*.java")))
    jar = "metricshuffle-client.jar"
    build_java_client(folder).rename(folder / jar)
    run(*COMPILE, "-cp", jar, "-d", "tests", *tests, cwd=folder)


def built_client(shared: Path) -> BuiltClient:
    """Built client, shared by the workers of one run."""
    for tool in ("javac", "jar", "java"):
        if shutil.which(tool) is None:
            missing(f"these tests need {tool} (on Debian: apt-get install default-jdk-headless).")
    folder = shared / "java"
    done = shared / "java.done"
    with locked(done, 300.0):
        if not done.exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            build_client(folder)
            done.touch()
    return BuiltClient(folder)


@pytest.fixture(scope="session")
def java(tmp_path_factory: pytest.TempPathFactory) -> BuiltClient:
    base = tmp_path_factory.getbasetemp()
    return built_client(base.parent if "PYTEST_XDIST_WORKER" in os.environ else base)
