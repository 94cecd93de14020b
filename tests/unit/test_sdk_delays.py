"""When a submit may begin, in a caller's words."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

import dreamlake.lakeshore as dls
from lakeshore.sdk import delays, http_wire
from lakeshore.sdk.dispatch import Dispatch
from lakeshore.sdk.errors import DispatchError
from lakeshore.sdk.queues import Queue, SyncQueue


@dls.udf(queue="gpu")
def embed(x: Any) -> Any:
    return x


@dls.udf(queue="gpu")
async def slowly(x: Any) -> Any:
    return x


@pytest.fixture
def plane() -> Iterator[Dispatch]:
    made = Dispatch()
    yield made
    made.close()


def due_in(plane: Dispatch, inv_id: str) -> float:
    row = plane.get(inv_id)
    assert row is not None and row["delayed"]
    found: float = row["due"] - time.time()
    return found


@pytest.mark.parametrize("delay", [300, 300.0, timedelta(minutes=5)])
def test_a_delay_is_seconds_or_a_timedelta(plane: Dispatch, delay: Any) -> None:
    queue = SyncQueue("gpu", dispatch=plane)
    for sent in (
        embed.submit(1, _delay=delay, _dispatch=plane),
        queue.submit(1, delay=delay),
        queue.submit(1, _delay=delay),
        queue.submit(dls.thunk(embed, 1), delay=delay),
        asyncio.run(Queue("gpu", dispatch=plane).submit(1, delay=delay)),
    ):
        assert 290 < due_in(plane, sent) <= 300
    assert plane.claim("gpu", "w") is None


def test_an_instant_is_the_same_in_every_zone(plane: Dispatch) -> None:
    queue = SyncQueue("gpu", dispatch=plane)
    now = datetime.now(UTC).replace(microsecond=0)
    for zone in (UTC, ZoneInfo("Asia/Kolkata"), ZoneInfo("America/New_York")):
        at = (now + timedelta(hours=1)).astimezone(zone)
        for sent in (
            embed.submit(1, _at=at, _dispatch=plane),
            queue.submit(1, at=at),
            queue.submit(1, _at=at),
            asyncio.run(Queue("gpu", dispatch=plane).submit(1, at=at)),
        ):
            row = plane.get(sent)
            assert row is not None and row["due"] == now.timestamp() + 3600


@pytest.mark.parametrize(
    ("given", "kind", "says"),
    [
        (
            {"_at": datetime(2030, 1, 1, 8)},
            ValueError,
            r"_at=2030-01-01T08:00:00 has no time zone.*now.UTC.",
        ),
        ({"_at": 1893456000}, TypeError, "_at takes a datetime, got int; for a length of time use _delay"),
        ({"_at": timedelta(hours=1)}, TypeError, "use _delay"),
        ({"_at": datetime(9000, 1, 1, tzinfo=UTC)}, ValueError, "away"),
        ({"_delay": -1}, ValueError, "from 0 to"),
        ({"_delay": float("nan")}, ValueError, "from 0 to"),
        ({"_delay": float("inf")}, ValueError, "from 0 to"),
        ({"_delay": timedelta(days=-1)}, ValueError, "from 0 to"),
        ({"_delay": True}, TypeError, "seconds or a timedelta, got bool"),
        ({"_delay": "5m"}, TypeError, "seconds or a timedelta, got str"),
        ({"_delay": 1, "_at": datetime.now(UTC)}, TypeError, "exclude each other"),
        ({"delay": 1}, TypeError, "spelled _delay"),
    ],
)
def test_a_mistake_is_said_before_anything_is_sent(
    plane: Dispatch, given: dict[str, Any], kind: type[Exception], says: str
) -> None:
    for call in (embed.submit, embed.remote, slowly.remote):
        with pytest.raises(kind, match=says):
            call(1, **given, _dispatch=plane)
    assert plane.count("gpu") == 0


def test_a_wait_counts_from_when_the_call_may_begin(plane: Dispatch) -> None:
    before = time.monotonic()
    with pytest.raises(TimeoutError):
        embed.remote(1, _delay=0.5, _timeout=0.1, _dispatch=plane)
    assert time.monotonic() - before >= 0.6
    assert delays.after(None, {"delay": 5.0}) is None
    assert delays.after(30.0, {}) == 30.0
    assert delays.after(30.0, {"due": time.time() - 100}) == 30.0
    with pytest.raises(TimeoutError):
        SyncQueue("gpu", dispatch=plane).call(1, delay=0.3, timeout=0.1)
    assert time.monotonic() - before >= 1.0


def test_a_submit_for_later_goes_where_an_older_server_has_nothing() -> None:
    args = {"args_blob": b""}
    assert not http_wire.waits(http_wire.submit_item("q", args, id="a"))
    for when, field in (({"delay": 0.0}, "delay_s"), ({"due": 5.0}, "due")):
        item = http_wire.submit_item("q", args, id="a", **when)  # type: ignore[arg-type]  # floats by name
        assert http_wire.waits(item) and field in item
    missing = http_wire.Refusal("no such route", status=404, body={"error": "no such route"})
    assert "older than delayed submits" in str(http_wire.too_old(missing))
    other = http_wire.Refusal("unknown namespace", status=404, body={"error": "…", "field": "namespace"})
    assert http_wire.too_old(other) is other
    assert http_wire.too_old(failed := DispatchError("away")) is failed
