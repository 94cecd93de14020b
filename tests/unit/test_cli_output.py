"""What people see: times, records, and nothing that steers the terminal."""

from __future__ import annotations

import contextlib
import io
import json
from datetime import UTC, datetime, timedelta

import pytest

from lakeshore.cli.cells import cells
from lakeshore.cli.jobs.group import describe
from lakeshore.cli.listing import Listing, first
from lakeshore.cli.output import age, console, duration, moment, plain, print_table
from lakeshore.cli.streams import PLAINLY_TOO

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0.0s"), (4.26, "4.3s"), (59, "59s"), (119, "119s"), (125, "2m"), (7200, "2h"), (172800, "2d")],
)
def test_a_duration_has_one_unit(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_ages_are_relative_and_never_is_a_dash() -> None:
    assert age((NOW - timedelta(minutes=5)).isoformat(), NOW) == "5m"
    assert age("2026-01-02T03:04:02.500Z", NOW) == "2.5s"
    assert age(None, NOW) == age("soon", NOW) == "—"
    assert moment("2026-01-02T03:04:05") == NOW


def test_control_characters_of_others_are_shown_and_not_obeyed() -> None:
    assert plain("a\x1b[31mb\tc\n") == "a\\x1b[31mb\tc\n"


@pytest.mark.inventory("C-193")
def test_a_table_fits_80_columns_and_is_never_cut_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        (
            "01KBQ5NGEM3TJ5YZ0CE2Z3Y4X7",
            "succeeded",
            "a-very-long-name-of-a-host-123456-abcdef",
            "train",
            "1",
            "12m",
        )
    ]
    columns = ("id", "state", "worker", "queue", "attempt", "submitted")
    print_table(columns, rows, flexible="worker")
    assert rows[0][2] in capsys.readouterr().out
    print_table(columns, rows, right=("attempt", "submitted"), flexible="worker", width=80)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert len(lines) == 2
    assert [value in lines[1] for value in rows[0]] == [True, True, False, True, True, True]
    assert "\x1b" not in "".join(lines)


@pytest.mark.parametrize(("width", "shown"), [(80, 7), (75, 6), (60, 5), (59, 4), (46, 3), (30, 1), (10, 1)])
def test_where_the_terminal_is_narrow_the_last_columns_go_and_ids_stay_whole(
    width: int, shown: int, capsys: pytest.CaptureFixture[str]
) -> None:
    row = ("01KBQ5NGEM3TJ5YZ0CE2Z3Y4X7", "succeeded", "a-very-long-name-of-a-host", "train", "1", "12m", "3m")
    columns = ("id", "state", "worker", "queue", "attempt", "submitted", "started")
    print_table(columns, [row], right=columns[4:], flexible="worker", width=width)
    head, line = capsys.readouterr().out.splitlines()
    assert len(head.split()) == len(line.split()) == shown
    assert [cell for cell in line.split() if "…" not in cell] == [v for v in row[:shown] if v != row[2]]
    assert max(len(head), len(line)) <= max(width, len(row[0]))


@pytest.mark.parametrize(("value", "styled"), [("1", False), ("", True)])
def test_no_color_means_no_style_at_all(value: str, styled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("NO_COLOR", value)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    terminal = Terminal()
    console(terminal).print("HEAD", style="bold red")
    assert ("\x1b[" in terminal.getvalue()) == styled


def test_what_a_row_has_twice_is_told_once() -> None:
    row = {"workerId": "w", "worker": "w", "queueName": "q", "queue": "q", "state": "queued"}
    assert describe(row, NOW)[:3] == ["workerId   w", "queueName  q", "state      queued"]


@pytest.mark.inventory("C-194", "C-198")
def test_a_record_is_told_whole_with_the_traceback_as_it_is() -> None:
    row = {
        "id": "01K",
        "state": "failed",
        "workerId": None,
        "runConfig": {"queue": "q", "env": {"A": "1"}},
        "error": {"type": "ValueError", "message": "no", "traceback": "Traceback:\n  File x\nValueError: no\n"},
        "startedAt": "2026-01-02T03:04:00Z",
        "finishedAt": "2026-01-02T03:04:03Z",
        "somethingNew": 7,
    }
    lines = describe(row, NOW)
    text = "\n".join(lines)
    assert "workerId      —" in lines
    assert "somethingNew  7" in lines
    assert "took          3.0s" in lines
    assert "runConfig:\n  queue: q\n  env:\n    A: 1" in text
    assert text.endswith("error: ValueError: no\n  Traceback:\n    File x\n  ValueError: no")


@pytest.mark.parametrize("width", [40, 60, 80])
def test_several_columns_give_way_the_widest_first_and_a_row_stays_a_line(
    width: int, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [("host-1", "two\nlines", "a" * 60, "tags, " * 20), ("host-2", "", "b", "日本語" * 30)]
    print_table(("label", "note", "queues", "tags"), rows, flexible=("queues", "tags"), width=width)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert max(map(cells, lines)) <= width
    assert lines[0].split() == ["LABEL", "NOTE", "QUEUES", "TAGS"]
    assert "two\\nlines" in lines[1]
    shown = [len(word) for word in lines[1].split("  ") if "…" in word]
    assert len(shown) == 2
    assert abs(shown[0] - shown[1]) <= 3


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_a_table_fits_also_where_a_character_is_written_with_several(encoding: str) -> None:
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding=encoding, errors=PLAINLY_TOO)
    with contextlib.redirect_stdout(out):
        print_table(("name", "what"), [("snø", "måling → 日本語 " * 9)], flexible="what", width=40)
    out.flush()
    lines = raw.getvalue().decode(encoding).splitlines()
    assert max(map(cells, lines)) <= 40
    assert ("…" in lines[1], "..." in lines[1]) == ((True, False) if encoding == "utf-8" else (False, True))


def test_a_list_says_what_is_not_shown_and_its_emptiness_is_no_data(capsys: pytest.CaptureFixture[str]) -> None:
    rows, more = first(iter([{"name": "a"}, {"name": "b"}, {"name": "c"}]), 2)

    def show(rows: list[dict[str, str]], *, as_json: bool, more: str | None = None) -> tuple[str, str]:
        Listing(
            rows,
            columns=("name",),
            cells=lambda row, _now: (row["name"],),
            gives=(),
            empty="no names",
            as_json=as_json,
            more=more,
        ).print()
        return capsys.readouterr()

    assert show(rows, as_json=False, more="--all" if more else None) == ("NAME\na\nb\n", "2 shown; more with --all\n")
    assert json.loads(show(rows, as_json=True)[0]) == [{"name": "a"}, {"name": "b"}]
    assert show([], as_json=False) == ("", "no names\n")
    assert show([], as_json=True) == ("[]\n", "")
