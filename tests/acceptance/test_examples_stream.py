"""`08_stream.py`, read over its page's events: dropped, killed and started again, it loses no row and doubles none."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import chromium
import pytest
from example_places import EXAMPLES, KINDS, place
from ports import free_port
from snippets.processes import Place, daemon, serving

from lakeshore import HttpDispatch

STREAM = str(EXAMPLES / "08_stream.py")
ROWS = 60
LONG = "4000"
"""Seconds of work, so that there is a middle."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One server-sent event."""

    kind: str
    number: int | None
    data: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """The example while it runs."""

    process: subprocess.Popen[str]
    url: str
    job: str


@contextlib.contextmanager
def serving_page(where: Place, *arguments: str) -> Iterator[Page]:
    with where.started(where.python, STREAM, *arguments) as process:
        assert process.stdout is not None
        told = process.stdout.readline()
        found = re.fullmatch(r"job (\w{26}): (http://127\.0\.0\.1:\d+/)\n", told)
        assert found, told + (process.stderr.read() if process.stderr and process.poll() is not None else "")
        yield Page(process=process, url=found[2], job=found[1])


def events(url: str, last: int | None = None) -> Iterator[Event]:
    """What an EventSource would see, which says what it saw last."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=90)
    with contextlib.closing(connection):
        connection.request("GET", "/events", headers={} if last is None else {"Last-Event-ID": str(last)})
        answer = connection.getresponse()
        assert (answer.status, answer.getheader("Content-Type")) == (200, "text/event-stream")
        fields: dict[str, str] = {}
        while line := answer.readline().decode():
            name, _, value = line.rstrip("\n").partition(":")
            if line != "\n":
                fields[name] = value.strip()
            elif "data" in fields:
                number = int(fields["id"]) if "id" in fields else None
                yield Event(kind=fields.get("event", "message"), number=number, data=fields["data"])
                fields = {}
            else:
                fields = {}


def rows(seen: Iterator[Event]) -> Iterator[Event]:
    return (event for event in seen if event.kind != "quiet")


@pytest.mark.parametrize("kind", KINDS)
def test_a_reader_goes_on_from_its_last_number_through_a_drop_and_a_kill(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    where = place(kind, tmp_path, request)
    options = ("--depth", LONG)
    port = str(free_port())
    with serving_page(where, "--port", port, *options) as page:
        job = page.job
        first = rows(events(page.url))
        seen = [next(first) for _ in range(5)]
        first.close()  # the tab was closed, say
        again = rows(events(page.url, last=seen[-1].number))
        seen += [next(again) for _ in range(5)]
        page.process.send_signal(signal.SIGKILL)
        page.process.wait()
    with serving_page(where, "--port", port, *options) as page:
        assert page.job == job, "the same job, not another"
        seen += list(rows(events(page.url, last=seen[-1].number)))
        assert list(rows(events(page.url, last=ROWS - 1))) == [seen[-1]], "who has seen all is told of the end"
        page.process.send_signal(signal.SIGINT)
        assert page.process.wait(60) == 0
    assert seen.pop() == Event(kind="end", number=None, data="")
    assert [event.number for event in seen] == list(range(ROWS))
    told = [json.loads(event.data) for event in seen]
    assert [(row["number"], row["of"]) for row in told] == [(number, ROWS) for number in range(ROWS)]
    done = where.run(STREAM, "--text", "--since", str(ROWS - 3), *options)
    assert done.stdout.splitlines() == [f"{row['number']:3} {row['text']}" for row in told[-2:]]


def test_with_a_server_its_workers_compute_the_picture_and_a_killed_job_ends_the_page_as_failed(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    (tmp_path / "server").mkdir()
    with serving(tmp_path / "server") as served:
        where = place("checkout", tmp_path, request, LAKESHORE_URL=served.url)
        with serving_page(where, "--port", "0", "--name", "killed") as page:
            with contextlib.closing(HttpDispatch(served.url)) as plane:
                assert plane.cancel(page.job), "nobody has taken it"
            assert [event.kind for event in rows(events(page.url))] == ["failed"]
        with where.working(*daemon(where.python, "stream", ["--allow-pickled"])):
            done = where.run(STREAM, "--text", "--depth", "100")
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == ROWS
    assert not (tmp_path / "home" / ".lakeshore").exists(), "nothing of it is on this machine's own plane"


@pytest.mark.skipif(chromium.PROGRAM is None, reason=chromium.ABSENT)
def test_a_browser_shows_every_row_once_though_the_program_is_killed_and_the_tab_reloaded(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    where = place("checkout", tmp_path, request)
    port = str(free_port())
    options = ("--port", port, "--depth", LONG)
    whole = f"rows.length === {ROWS} && !rows.includes(undefined) && state.textContent.endsWith('finished')"
    with chromium.browsing(tmp_path) as tab:
        with serving_page(where, *options) as page:
            tab.open(page.url)
            tab.wait_for("rows.length >= 1")
            tab.value("window.seen = []; events.addEventListener('message', e => seen.push(Number(e.lastEventId)))")
            tab.wait_for("seen.length >= 3")
            page.process.send_signal(signal.SIGKILL)
            page.process.wait()
        with serving_page(where, *options):
            tab.wait_for(whole)
            seen = tab.value("seen")
            assert seen == list(range(seen[0], ROWS)), "in order, none twice"
            shown = tab.value("picture.textContent")
            tab.reload()
            tab.wait_for(f"!window.seen && {whole}")
            assert tab.value("picture.textContent") == shown
    assert len(set(shown.splitlines())) > ROWS / 3, "it is a picture"
