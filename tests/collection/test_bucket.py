"""Mixers over a bucket: the same calls as over a folder, against a server of S3 on this machine."""

from __future__ import annotations

import importlib.util
import os
import secrets
import urllib.request
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.collection.conftest import missing
from tests.collection.mixers import MixedRound, need_objects

from metricshuffle.collection.mixer.object_store import ObjectStore, PieceLost
from metricshuffle.collection.store.records import StoreError

pytestmark = pytest.mark.thorough


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Address of an empty bucket."""
    need_objects()
    if importlib.util.find_spec("moto") is None:
        missing("this test needs a server of S3: pip install 'moto[s3]' flask flask-cors")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from moto.server import ThreadedMotoServer

        server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
        server.start()
        host, port = server.get_host_and_port()
        settings = {
            "AWS_ENDPOINT_URL": f"http://{host}:{port}",
            "AWS_ALLOW_HTTP": "true",
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
            "AWS_REGION": "us-east-1",
        }
        for name, value in settings.items():
            monkeypatch.setenv(name, value)
        name = f"spill-{secrets.token_hex(4)}"  # servers of one process share their buckets
        url = f"{settings['AWS_ENDPOINT_URL']}/{name}"
        urllib.request.urlopen(urllib.request.Request(url, method="PUT")).close()  # noqa: S310
        yield f"s3://{name}/mixers"
        server.stop()


def test_objects_are_written_read_listed_and_deleted(bucket: str) -> None:
    objects = ObjectStore(bucket)
    objects.put("d/a/cut/0.1", b"first")
    objects.put("d/a/cut/1.1", b"")
    objects.put("e/a/cut/0.1", b"x" * 10**6)
    assert objects.get("d/a/cut/0.1") == b"first"
    assert objects.get("e/a/cut/0.1") == b"x" * 10**6
    assert objects.names("d/a") == ["d/a/cut/0.1", "d/a/cut/1.1"]
    assert objects.names() == ["d/a/cut/0.1", "d/a/cut/1.1", "e/a/cut/0.1"]
    assert objects.collections() == ["d", "e"]
    assert ObjectStore(bucket.removesuffix("/mixers")).collections() == ["mixers"]
    for _ in range(2):
        objects.delete("d")
    assert objects.names() == ["e/a/cut/0.1"]
    with pytest.raises(PieceLost):
        objects.get("d/a/cut/0.1")


def test_a_bucket_with_versions_is_a_warning(bucket: str) -> None:
    objects = ObjectStore(bucket)
    assert objects.setting_warnings() == []
    assert objects.names() == []
    name = bucket.removeprefix("s3://").removesuffix("/mixers")
    body = b"<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>"
    url = f"{os.environ['AWS_ENDPOINT_URL']}/{name}?versioning"
    headers = {"Content-Type": "application/xml"}
    request = urllib.request.Request(url, body, headers, method="PUT")  # noqa: S310
    urllib.request.urlopen(request).close()  # noqa: S310
    [warning] = objects.setting_warnings()
    assert "keeps versions of objects" in warning


def test_a_bucket_that_is_missing_or_away_is_a_sentence(
    bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(StoreError, match="cannot use the object store") as missing_bucket:
        ObjectStore("s3://another/mixers").put("d/a", b"1")
    assert not isinstance(missing_bucket.value, PieceLost)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(StoreError, match="cannot use the object store") as away:
        ObjectStore(bucket).get("d/a")
    assert "127.0.0.1" not in str(away.value)


@pytest.mark.parametrize("kind", ["", "labels"])
def test_mixing_over_a_bucket_gives_the_bytes_of_one_process(
    bucket: str, kind: str, tmp_path: Path
) -> None:
    mixed = MixedRound(tmp_path, kind, (40_000, 20_000), objects_url=bucket)
    reports = mixed.boxes(60)
    reports[3][0] = reports[40][-1]
    mixed.put(reports)
    mixed.seal()
    expected = mixed.output_of_one()
    assert mixed.released(mixed.mixer(), mixed.mixer()) == expected
