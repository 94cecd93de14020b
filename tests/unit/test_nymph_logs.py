"""What the daemon says and keeps of it: formats, filters, the ring. No daemon runs here."""

from __future__ import annotations

import io
import json
import logging
import os
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from lakeshore.nymph import logs
from lakeshore.nymph.config import Config, LogSection
from lakeshore.nymph.log_filter import TRACE, LogFilter
from lakeshore.nymph.logs import Lines, Ring
from lakeshore.nymph.lookup import Boot, Flags, boot


@pytest.fixture(autouse=True)
def _root() -> Iterator[None]:
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    root.handlers[:] = []
    yield
    for handler in root.handlers:
        handler.close()
    root.handlers[:] = before
    root.setLevel(level)


def booted(filter_: str = "info", format_: str = "human", buffer: int = 1024, warnings: tuple[str, ...] = ()) -> Boot:
    config = Config(log=LogSection(format=format_, event_buffer=buffer))
    return Boot(
        config=config,
        path=None,
        token=None,
        enroll_token=None,
        queue="default",
        worker_id=None,
        log_filter=filter_,
        warnings=warnings,
    )


def said(boot: Boot, *what: tuple[str, int, str, dict[str, object]]) -> tuple[Ring, list[str]]:
    stream = io.StringIO()
    ring = logs.install(boot, stream)
    for name, level, message, extra in what:
        logging.getLogger(name).log(level, message, extra=extra)
    logging.getLogger().handlers[-1].flush()
    return ring, stream.getvalue().splitlines()


POLL = ("lakeshore.nymph.drain", logging.WARNING, "poll failed", {"reason": "connection timeout", "after_s": 2})


@pytest.mark.inventory("N-291")
def test_a_line_for_a_human_has_time_level_target_message_and_fields() -> None:
    _, (line,) = said(booted(), POLL)
    time, rest = line.split(" ", 1)
    assert time.endswith("Z")
    assert rest == " WARN nymph::drain: poll failed after_s=2 reason=connection timeout"


@pytest.mark.inventory("N-291", "N-055")
def test_a_line_for_a_program_is_one_object_with_the_message_among_its_fields() -> None:
    _, (line,) = said(booted(format_="json"), POLL)
    told = json.loads(line)
    assert list(told) == ["timestamp", "level", "target", "fields"]
    assert (told["level"], told["target"]) == ("WARN", "nymph::drain")
    assert told["fields"] == {"message": "poll failed", "after_s": "2", "reason": "connection timeout"}


@pytest.mark.inventory("N-294", "N-284", "N-280")
@pytest.mark.inventory("N-289")
def test_what_is_said_is_in_the_ring_too_with_its_fields_as_text_in_order() -> None:
    ring, _ = said(booted(), ("lakeshore.nymph.drain", logging.INFO, "first event", {}), POLL)
    page = ring.page()
    assert list(page) == ["count", "capacity", "events"]
    assert {name: page[name] for name in ("count", "capacity")} == {"count": 2, "capacity": 1024}
    first, second = page["events"]
    assert isinstance(first.pop("ts"), float)
    assert first == {"level": "INFO", "target": "nymph::drain", "message": "first event", "fields": {}}
    assert list(second["fields"].items()) == [("after_s", "2"), ("reason", "connection timeout")]


@pytest.mark.inventory("N-290", "N-285", "N-281")
def test_the_ring_keeps_the_last_ones_and_a_limit_counts_after_the_filter() -> None:
    many = [("lakeshore.nymph.x", logging.WARNING if n % 3 == 0 else logging.INFO, str(n), {}) for n in range(10)]
    ring, _ = said(booted(buffer=6), *many)
    assert [event["message"] for event in ring.page()["events"]] == list("456789")
    page = ring.page(limit=1, level="warn")
    assert (page["count"], [event["message"] for event in page["events"]]) == (1, ["9"])
    assert ring.page(limit=0)["count"] == 0


@pytest.mark.inventory("N-056")
def test_a_ring_without_a_place_keeps_nothing_and_the_lines_come_all_the_same() -> None:
    ring, lines = said(booted(buffer=0), POLL)
    assert ring.page() == {"count": 0, "capacity": 0, "events": []}
    assert len(lines) == 1


@pytest.mark.inventory("N-282", "N-283")
@pytest.mark.parametrize(
    ("level", "count"),
    [("error", 1), ("ERROR", 1), ("warn", 2), ("Warning", 2), ("info", 3), ("debug", 4), ("trace", 5), ("loud", 5)],
)
def test_a_level_shows_itself_and_what_is_graver_and_an_unknown_one_shows_everything(level: str, count: int) -> None:
    numbers = (logging.ERROR, logging.WARNING, logging.INFO, logging.DEBUG, TRACE)
    ring, _ = said(booted("trace"), *[("lakeshore.nymph.x", number, "", {}) for number in numbers])
    assert ring.page(level=level)["count"] == count


@pytest.mark.inventory("N-018", "N-054")
@pytest.mark.parametrize(
    ("directives", "target", "lowest"),
    [
        ("info", "nymph.drain", logging.INFO),
        ("WARN", "trio", logging.WARNING),
        ("nymph::drain=debug,hyper=warn", "nymph.drain", logging.DEBUG),
        ("nymph::drain=debug,hyper=warn", "nymph.drain.second", logging.DEBUG),
        ("nymph::drain=debug,hyper=warn", "nymph.polls", None),
        ("nymph=debug,nymph::drain=error,info", "nymph.drain", logging.ERROR),
        ("nymph=debug,nymph::drain=error,info", "nymph.polls", logging.DEBUG),
        ("nymph=debug,nymph::drain=error,info", "net", logging.INFO),
        ("nymph::drain", "nymph.drain", TRACE),
        ("off", "nymph.drain", None),
        ("info,nymph=off", "nymph.drain", None),
        ("4", "nymph", logging.DEBUG),
        ("", "nymph", logging.ERROR),
        ("[span]=loud", "nymph", logging.ERROR),
    ],
)
def test_directives_choose_the_level_of_each_target(directives: str, target: str, lowest: int | None) -> None:
    chosen = LogFilter(directives)
    shown = [
        level
        for level in (logging.ERROR, logging.WARNING, logging.INFO, logging.DEBUG, TRACE)
        if chosen.filter(logging.makeLogRecord({"name": f"lakeshore.{target}", "levelno": level}))
    ]
    assert min(shown, default=None) == lowest


def test_a_directive_that_makes_no_sense_is_named_and_the_others_hold() -> None:
    _, lines = said(booted("nymph[poll]=debug,info"), POLL)
    assert [line.split(": ", 1)[1] for line in lines] == [
        "RUST_LOG: ignoring 'nymph[poll]=debug': it is no directive",
        "poll failed after_s=2 reason=connection timeout",
    ]


@pytest.mark.inventory("N-292", "N-019")
def test_an_unknown_format_is_said_on_stderr_in_the_documented_words(capsys: pytest.CaptureFixture[str]) -> None:
    found = boot(Flags(), {"LAKESHORE_LOG_FORMAT": "xml", "HOME": "/nowhere"}, system=Path("/-"))
    _, lines = said(found, POLL)
    assert capsys.readouterr().err == 'nymph: unknown log.format xml; falling back to "human"\n'
    assert len(lines) == 1


@pytest.mark.inventory("N-382")
def test_what_is_odd_about_the_configuration_is_logged() -> None:
    ring, _ = said(replace(booted(), warnings=("f.toml: [poll] has no key 'wait', it is ignored",)))
    assert [event["message"] for event in ring.page()["events"]] == ["f.toml: [poll] has no key 'wait', it is ignored"]


def test_an_exception_comes_with_its_traceback() -> None:
    stream = io.StringIO()
    ring = logs.install(booted(), stream)
    try:
        int("no number")
    except ValueError:
        logging.getLogger("lakeshore.nymph.x").exception("odd")
    logging.getLogger().handlers[-1].flush()
    (event,) = ring.page()["events"]
    assert event["fields"]["traceback"].endswith("no number'")
    assert stream.getvalue().splitlines()[-1] == "ValueError: invalid literal for int() with base 10: 'no number'"


def test_who_logs_never_waits_for_a_reader_and_what_was_given_up_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "WAITING", 3)
    ours, theirs = os.pipe()
    lines = Lines(open(theirs, "w"), "human")  # noqa: SIM115
    log = logging.getLogger("lakeshore.nymph.x")
    log.addHandler(lines)
    log.setLevel(logging.INFO)
    log.propagate = False
    try:
        big = "x" * (1 << 16)
        for _ in range(50):
            log.info(big)  # the pipe takes one of them
        read: list[str] = []

        def drain() -> None:
            with open(ours) as file:
                read.extend(file)

        reader = threading.Thread(target=drain)
        reader.start()
        lines.flush()
        log.info("and on")
        lines.close()
        lines._stream.close()
        reader.join()
    finally:
        log.removeHandler(lines)
        log.setLevel(logging.NOTSET)
        log.propagate = True
    assert read[-1].endswith("nymph::x: and on\n")
    told = [line for line in read if "lines were not written: nobody read them" in line]
    assert read[-2] in told, "before what is written next"
    given_up = sum(int(line.split(": ", 1)[1].split()[0]) for line in told)
    assert given_up + len(read) - len(told) - 1 == 50
