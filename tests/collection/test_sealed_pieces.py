"""Pieces in an object store open under their own name and attempt alone."""

from __future__ import annotations

import secrets
from dataclasses import replace
from pathlib import Path

import pytest
from tests.collection.mixers import need_objects
from tests.tables import check_all

from metricshuffle.collection.keys import CollectionKeys, derive_key
from metricshuffle.collection.mixer.object_store import ObjectStore, PieceLost
from metricshuffle.collection.mixer.sealed_pieces import SealedPieces
from metricshuffle.errors import InputError, MissingExtra

CONTENT = b"boxes of people" * 100


@pytest.fixture
def pieces(tmp_path: Path) -> SealedPieces:
    need_objects()
    objects = ObjectStore(f"file://{tmp_path}/objects")
    return SealedPieces(objects, "d" * 64, "a" * 32, secrets.token_bytes(32))


def test_a_piece_is_read_as_it_was_written_and_is_not_readable_in_the_store(
    pieces: SealedPieces,
) -> None:
    receipt = pieces.write_recorded("cut/3", CONTENT)
    assert receipt.name.startswith(f"{'d' * 64}/{'a' * 32}/cut/3.")
    assert pieces.read(receipt.name, receipt.digest) == CONTENT
    assert pieces.read(receipt.name) == CONTENT
    stored = pieces.objects.get(receipt.name)
    assert len(stored) == len(CONTENT) + 16
    assert CONTENT[:8] not in stored


def test_the_same_content_twice_has_two_names_and_two_keys(pieces: SealedPieces) -> None:
    first, second = (pieces.write("cut/3", CONTENT) for _ in range(2))
    assert first != second
    one, two = (pieces.objects.get(name) for name in (first, second))
    # Under one key and nonce the same content would be the same bytes.
    assert not any(one[start : start + 8] == two[start : start + 8] for start in range(0, 99, 8))
    assert pieces._key(first) != pieces._key(second)


def test_a_key_is_hkdf_of_the_whole_name(pieces: SealedPieces) -> None:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    name = pieces.write("sort/0", CONTENT)
    key = derive_key(pieces.mix_key, f"piece {name}")
    assert AESGCM(key).decrypt(bytes(12), pieces.objects.get(name), None) == CONTENT


@check_all("change", ["name", "attempt", "mix key", "bit", "shorter", "replaced", "gone"])
def test_a_piece_of_another_name_attempt_or_content_does_not_open(
    change: str, tmp_path: Path
) -> None:
    need_objects()
    objects = ObjectStore(f"file://{tmp_path}/{secrets.token_hex(4)}")
    pieces = SealedPieces(objects, "d" * 64, "a" * 32, secrets.token_bytes(32))
    receipt = pieces.write_recorded("cut/1", CONTENT)
    other = pieces.write("cut/2", CONTENT[1:])
    sealed = objects.get(receipt.name)
    match change:
        case "name":
            renamed = f"{receipt.name[:-1]}{'1' if receipt.name[-1] != '1' else '2'}"
            objects.put(renamed, sealed)
            receipt = replace(receipt, name=renamed)
        case "attempt":
            pieces = replace(pieces, attempt="b" * 32)
        case "mix key":
            pieces = replace(pieces, mix_key=secrets.token_bytes(32))
        case "bit":
            objects.put(receipt.name, sealed[:20] + bytes([sealed[20] ^ 1]) + sealed[21:])
        case "shorter":
            objects.put(receipt.name, sealed[:-1])
        case "replaced":
            objects.put(receipt.name, objects.get(other))
        case "gone":
            objects.delete("d" * 64)
    for digest in (receipt.digest, ""):  # a piece that only an index names has no digest
        with pytest.raises(PieceLost):
            pieces.read(receipt.name, digest)


def test_mix_keys_differ_by_collection_attempt_and_secret() -> None:
    one, two = (CollectionKeys(secrets.token_bytes(64)) for _ in range(2))
    keys = [
        one.mix_key("d" * 64, "a"),
        one.mix_key("d" * 64, "b"),
        one.mix_key("e" * 64, "a"),
        two.mix_key("d" * 64, "a"),
    ]
    assert len(set(keys)) == 4
    assert one.mix_key("d" * 64, "a") == keys[0]


def test_objects_are_listed_and_deleted_by_prefix(pieces: SealedPieces, tmp_path: Path) -> None:
    objects = pieces.objects
    other = replace(pieces, digest="e" * 64)
    pieces.write("cut/1", CONTENT)
    kept = other.write("cut/1", CONTENT)
    assert objects.collections() == ["d" * 64, "e" * 64]
    for _ in range(2):
        objects.delete("d" * 64)
        assert objects.names() == [kept]
        assert objects.collections() == ["e" * 64]
    assert [path.name for path in (tmp_path / "objects").iterdir()] == ["e" * 64]
    assert (tmp_path / "objects").stat().st_mode & 0o777 == 0o700


def test_a_folder_that_others_may_use_is_a_warning(tmp_path: Path) -> None:
    need_objects()
    objects = ObjectStore(f"file://{tmp_path}/objects")
    assert objects.setting_warnings() == []
    assert objects.names() == []
    (tmp_path / "objects").chmod(0o755)
    [warning] = objects.setting_warnings()
    assert "chmod 700" in warning


@check_all(
    "url",
    [
        *("", "spill", "/srv/spill", "file://", "file:///", "file://host/x", "file:///x?y"),
        *("s3://", "s3://user@bucket/x", "s3://bucket#x", "https://a/b"),
    ],
)
def test_other_addresses_are_refused_in_a_sentence(url: str) -> None:
    with pytest.raises(InputError, match="--objects must be an address like file:///srv"):
        ObjectStore(url)


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(MissingExtra, match=r"metricshuffle\[objects\]"):
        ObjectStore("s3://bucket/prefix")
