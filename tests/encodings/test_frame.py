"""Frames: round trip, and detection of any change."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tables import check_all

from metricshuffle.encodings.binary_frame import (
    MAX_HEADER_BYTES,
    Frame,
    header_integer,
    read_header,
)
from metricshuffle.errors import PlanError

FORMATS = ("test/1", "test-seeded/1")
headers = st.dictionaries(
    st.text(max_size=5),
    st.one_of(st.integers(-(2**70), 2**70), st.text(max_size=5), st.none(), st.booleans()),
    max_size=4,
)


def read(data: bytes) -> Frame:
    return Frame.from_bytes(data, FORMATS, "a thing")


@given(format=st.sampled_from(FORMATS), header=headers, body=st.binary(max_size=60))
def test_what_is_written_comes_back(format: str, header: dict[str, object], body: bytes) -> None:
    """Format, header and body survive; equal frames give equal bytes in any header order."""
    frame = Frame(format, header, body)
    assert read(frame.to_bytes()) == frame
    assert Frame(format, dict(reversed(header.items())), body).to_bytes() == frame.to_bytes()


@given(body=st.binary(max_size=20), mask=st.integers(1, 255))
def test_every_byte_counts(body: bytes, mask: int) -> None:
    """Whichever byte is changed in whichever bits, the frame is refused in words."""
    whole = Frame("test/1", {"people": 3}, body).to_bytes()
    for place in range(len(whole)):
        with pytest.raises(PlanError):
            read(whole[:place] + bytes([whole[place] ^ mask]) + whole[place + 1 :])


@given(body=st.binary(max_size=20), more=st.binary(min_size=1, max_size=20))
def test_cuts_and_additions(body: bytes, more: bytes) -> None:
    """A frame that is cut, extended, or joined to another one is rejected."""
    whole = Frame("test/1", {"people": 3}, body).to_bytes()
    for kept in range(len(whole)):
        with pytest.raises(PlanError):
            read(whole[:kept])
    for longer in (whole + more, more + whole, whole + whole):
        with pytest.raises(PlanError):
            read(longer)


def test_lengths_that_are_lies() -> None:
    """A header length beyond the limit or the file is rejected before reading."""
    for length in (MAX_HEADER_BYTES + 1, 2**32 - 1):
        with pytest.raises(PlanError, match="cut short or damaged"):
            read(b"test/1\n" + length.to_bytes(4, "little") + bytes(8) + b"{}" + bytes(32))


@check_all(
    "text",
    [
        b"",
        b"[]",
        b"3",
        b"{",
        b"\xff",
        b"\x00{",
        b"[" * 100_000,
        b'{"people": ' + b"9" * 5000 + b"}",
    ],
)
def test_headers_that_are_none(text: bytes) -> None:
    """A header is an object of JSON; anything else, also what nests without end, is a sentence."""
    with pytest.raises(
        PlanError, match="a thing is damaged: its header cannot be read; ask for it again"
    ):
        read_header(text, "a thing")


@check_all("value", [None, True, 1.0, "1", -1, 2**63, [1]])
def test_whole_numbers_of_a_header(value: object) -> None:
    """Only a whole number of at most 63 bits is one; the sentence names the field."""
    assert header_integer({"people": 2**63 - 1}, "people", "a thing") == 2**63 - 1
    with pytest.raises(PlanError, match="its people is"):
        header_integer({"people": value}, "people", "a thing")
