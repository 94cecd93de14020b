"""Jobs that leave what nobody asked for: each has its own end, and the daemon and the other jobs go on."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import daemons as d
import hostile_bodies as bodies
import pytest
from served import Served

import dreamlake.lakeshore as dls
from lakeshore import HttpDispatch
from lakeshore.nymph.keeping.protocol import VERSION

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="a keeper counts processes in /proc")


@pytest.fixture(scope="module")
def daemon(server: Served, tmp_path_factory: pytest.TempPathFactory) -> Iterator[d.Daemon]:
    with d.daemon(server.url, tmp_path_factory.mktemp("hostile") / "host") as one:
        yield one.start().polls()


@pytest.fixture(autouse=True)
def goes_on(daemon: d.Daemon) -> Iterator[None]:
    yield
    assert daemon.process.poll() is None, daemon.said()


def end_of(server: Served, daemon: d.Daemon, function: Any, *args: Any) -> dict[str, Any]:
    return d.ended(server, d.submit(server, daemon.queue, function, *args))


@pytest.mark.inventory("N-203")
@pytest.mark.parametrize("kind", ["link", "fifo", "directory", "endless"])
def test_a_result_that_is_no_file_is_not_read(server: Served, daemon: d.Daemon, kind: str) -> None:
    end = end_of(server, daemon, bodies.leaves, kind)

    assert end["state"] == "failed"
    assert end["error"]["message"].startswith("it ended with status 0, but ")
    assert "root:" not in str(end)


@pytest.mark.parametrize(
    "said",
    [
        *('{"type": "X", "message": "\\ud800", "traceback": "\\udfff"}', '{"type": "\\ud800", "message": "m"}'),
        *("[" * 200_000, '{"type": "X", "message": NaN}', "[]", '{"type": 5}', "{}"),
    ],
    ids=["text", "type", "deep", "number", "list", "kind", "empty"],
)
def test_an_error_that_is_no_text_is_told_as_well_as_it_can_be(server: Served, daemon: d.Daemon, said: str) -> None:
    end = end_of(server, daemon, bodies.fails_with, said)

    assert end["state"] == "failed"
    assert end["error"]["type"] in ("X", "?", "DaemonError")


def test_an_exception_whose_words_are_no_text_is_an_ordinary_failure(server: Served, daemon: d.Daemon) -> None:
    end = end_of(server, daemon, bodies.raises_no_text)

    assert (end["state"], end["error"]["type"]) == ("failed", "ValueError")


@pytest.mark.parametrize("kind", ["link", "fifo", "junk", "later", "many"])
def test_frames_that_are_none_fail_their_own_job(server: Served, daemon: d.Daemon, kind: str) -> None:
    end = end_of(server, daemon, bodies.frames_as, kind)

    assert (end["state"], end["error"]["type"]) == ("failed", "DispatchError")
    assert end["error"]["message"].startswith("what it yielded was not taken: ")


def test_what_is_nested_too_deep_is_cleared_away(server: Served, daemon: d.Daemon) -> None:
    id_ = d.submit(server, daemon.queue, bodies.nests)

    assert d.ended(server, id_)["state"] == "succeeded"
    daemon.until(lambda: not (daemon.root / id_).exists())


def test_a_job_has_nothing_to_say_to_the_keeper(server: Served, daemon: d.Daemon) -> None:
    messages = [
        b"[" * 200_000,
        b"\xff",
        b"[]",
        b'{"do":"hello","n":1}',
        b'{"do":"end"}',
        b'{"do":"list"}',
        b'{"do":[1]}',
    ]
    id_ = d.submit(server, daemon.queue, bodies.tells_the_keeper, messages)

    end = d.ended(server, id_)
    assert end["state"] == "succeeded", end
    plane = HttpDispatch(server.url)
    answers = dls.SyncQueue(daemon.queue, dispatch=plane).result(id_)
    plane.close()
    said = [json.loads(answer)["error"] if answer else "no JSON: it hung up" for answer in answers]
    assert [text.split(":")[0] for text in said[:3]] == ["no JSON", "no JSON", "no object"]
    assert said[3].startswith("another daemon uses")
    assert said[4:] == ["say hello first"] * 2 + [f"the keeper (version {VERSION}) does not know [1]"]
