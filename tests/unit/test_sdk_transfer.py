"""Payloads on their way, and the digest of what has passed."""

from __future__ import annotations

import hashlib
import os
import random

import pytest

from lakeshore.net.body import Readable, split_body
from lakeshore.sdk.transfer import HashedBody, joined


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize("size", [0, 1, 262_144, 300_000, 2_097_152, 5_000_001])
def test_a_hashed_body_is_sent_whole_and_knows_its_digest(size: int) -> None:
    data = os.urandom(size)
    body = HashedBody(data)
    assert isinstance(body, Readable)
    assert len(body) == size
    first, upload = split_body(body, len(body))
    assert (first, upload is not None and upload.content_length) == (b"", size)
    assert upload is not None
    assert b"".join(upload.pieces()) == data
    assert body.sha256() == sha256(data)


def test_a_hashed_body_that_is_sent_again_from_anywhere_has_the_digest_of_one_copy() -> None:
    data, rng = os.urandom(6_000_000), random.Random(7)
    body = HashedBody(data)
    _, upload = split_body(body, len(body))
    assert upload is not None
    assert upload.replayable
    for _ in range(5):
        for _ in range(rng.randrange(30)):
            body.read(rng.randrange(1, 1_000_000))
        upload.rewind()
        assert body.tell() == 0
    assert b"".join(upload.pieces()) == data
    upload.rewind()
    assert b"".join(upload.pieces()) == data
    assert body.sha256() == sha256(data)


def test_the_digest_does_not_wait_for_the_sending() -> None:
    data = os.urandom(700_000)
    body = HashedBody(data)
    body.read(100_000)
    assert body.sha256() == sha256(data)


def test_pieces_are_joined_and_hashed_and_no_more_of_them_taken_than_are_wanted() -> None:
    data = os.urandom(10_000)
    pieces = iter([data[:1], data[1:9_000], data[9_000:], b"x", b"never asked for"])
    assert joined(pieces, len(data)) == (data + b"x", sha256(data + b"x"))
    assert list(pieces) == [b"never asked for"]
    assert joined([], 0) == (b"", sha256(b""))
