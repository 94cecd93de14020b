"""`nymph tui` before a daemon's own status page: every key, what is on the screen, and the terminal afterwards."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import sys
import termios
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from status_page import StatusPage, status_page
from textual.pilot import Pilot
from whole_terminal import Terminal

from lakeshore.cli.nymph import tui as nymph_tui
from lakeshore.client.introspection import Introspection, Unreachable
from lakeshore.tui.nymph_app import LEGEND, NymphApp

OFTEN_S = 0.1
NEVER_S = 3600.0
WIDE = (140, 40)


class Screen:
    """The app without a terminal: its keys, and the text that is on it."""

    def __init__(self, app: NymphApp, pilot: Pilot[None]) -> None:
        self.app, self.pilot = app, pilot

    def lines(self) -> list[str]:
        return [strip.text for strip in self.app.screen._compositor.render_strips()]

    def text(self) -> str:
        return "\n".join(self.lines())

    def title(self) -> str:
        return next(line for line in self.lines() if " events " in line).strip("╭╮─ ")

    def rows(self) -> list[str]:
        """What is within the log."""
        lines = self.lines()
        first = next(at for at, line in enumerate(lines) if " events " in line)
        last = next(at for at, line in enumerate(lines) if line.startswith("╰") and at > first)
        return [line.strip("│ ▁▂▃▄▅▆▇█") for line in lines[first + 1 : last]]

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)
        await self.pilot.pause()

    async def until(self, true: Callable[[], Any]) -> None:
        deadline = time.monotonic() + 60
        while not true():
            assert time.monotonic() < deadline, self.text()
            await self.pilot.pause(0.02)


@asynccontextmanager
async def screen(
    url: str, size: tuple[int, int] = WIDE, interval: float = OFTEN_S, hint: str | None = None
) -> AsyncIterator[Screen]:
    app = NymphApp(url, interval=interval, hint=hint)
    async with app.run_test(size=size) as pilot:
        yield Screen(app, pilot)


def said(page: StatusPage, *levels: str) -> None:
    for number, level in enumerate(levels):
        page.say(level, f"event {number}")


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(main())


@pytest.mark.inventory("N-311", "N-312", "N-318")
@pytest.mark.inventory("C-436", "C-440", "C-446")
def test_the_header_the_log_and_the_legend_show_what_the_daemon_tells() -> None:
    async def main() -> None:
        with status_page() as page:
            page.told = {
                "worker_id": "host-01J",
                "run_state": "backoff",
                "backoff_s": 3.25,
                "last_poll_ok_ts": time.time() - 65,
                "inflight": {"count": 2, "last_exec_id": "01JX"},
            }
            said(page, "INFO")
            async with screen(page.url) as shown:
                await shown.until(lambda: "● connected" in shown.text() and "in-flight" in shown.text())
                text = shown.text()
                for pattern in (
                    r"run-state backoff ",
                    r"version   \d+\.\d+\.\d+",
                    r"queue     gpu ",
                    r"worker    host-01J ",
                    r"uptime    \d",
                    r"last poll \d\d:\d\d:\d\d \(1m 0\ds ago\)",
                    r"backoff   3\.2s ",
                    r"in-flight 2 \(last 01JX\)",
                ):
                    assert re.search(pattern, text), pattern
                order = [text.index(part) for part in ("● connected", " events ", LEGEND)]
                assert order == sorted(order)
                assert shown.lines()[-1].strip() == LEGEND
                states = {}
                for state in ("starting", "polling", "backoff", "hibernating", "draining"):
                    page.told["run_state"] = state
                    await shown.until(lambda state=state: f"run-state {state}" in shown.text())
                    strips = shown.app.screen._compositor.render_strips()
                    states[state] = next(s.style.color for strip in strips for s in strip if s.text.startswith(state))
                assert len(set(states.values())) == 5

    run(main)


@pytest.mark.inventory("N-313", "C-437", "C-439")
@pytest.mark.inventory("N-313", "C-438")
def test_before_any_answer_it_waits_and_then_it_says_why_there_is_none() -> None:
    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            url = f"http://127.0.0.1:{silent.getsockname()[1]}"
            async with screen(url, interval=0.5, hint="switch it on") as shown:
                assert f"◌ waiting for daemon at {url} (retrying…)" in shown.text()
                assert "no status yet — the header populates on the first successful poll" in shown.text()
                assert "switch it on" not in shown.text()
                for _ in range(2):  # both questions; the second one stays without an answer
                    (await asyncio.to_thread(silent.accept))[0].close()
                words = "the connection ended before the answer"
                await shown.until(
                    lambda: f"✗ daemon unreachable at {url} — {words} (retrying every 0.5s)" in shown.text()
                )
                await shown.until(lambda: "switch it on" in shown.text())
                silent.close()
                await shown.until(lambda: f"at {url} — connection refused (retrying every 0.5s)" in shown.text())

    run(main)


@pytest.mark.inventory("N-314", "C-441")
def test_while_the_daemon_is_away_its_last_status_and_events_stay_and_it_is_found_again() -> None:
    async def main() -> None:
        with status_page() as page:
            page.told = {"worker_id": "first"}
            page.say("WARN", "before the end")
            async with screen(page.url) as shown:
                await shown.until(lambda: "worker    first" in shown.text() and "before the end" in shown.text())
                port = page.port
                gone = page.stop()
                await asyncio.to_thread(gone)
                await shown.until(lambda: "✗ daemon unreachable" in shown.text())
                assert "worker    first" in shown.text()
                assert "before the end" in shown.text()
                with status_page(port=port) as again:
                    again.told = {"worker_id": "second"}
                    await shown.until(lambda: "● connected" in shown.text() and "worker    second" in shown.text())
                    assert "before the end" not in shown.text()

    run(main)


@pytest.mark.inventory("N-313")
def test_what_is_no_status_page_is_told_as_such() -> None:
    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as other:

            async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                await reader.readuntil(b"\r\n\r\n")
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\nConnection: close\r\n\r\n<html/>")
                await writer.drain()
                writer.close()

            server = await asyncio.start_server(answer, sock=other)
            async with server, screen(f"http://127.0.0.1:{other.getsockname()[1]}") as shown:
                await shown.until(lambda: "it answers something else than JSON" in shown.text())

    run(main)


@pytest.mark.inventory("N-315", "N-322", "C-442")
@pytest.mark.inventory("C-443", "C-451")
def test_a_row_says_when_how_grave_where_and_what_and_enter_opens_its_fields() -> None:
    async def main() -> None:
        with status_page() as page:
            page.say("INFO", "plain", target="nymph.shell", ts=1.0)
            page.say("WARN", "poll failed", ts=2.0, reason="connection timeout", tries=3)
            async with screen(page.url) as shown:
                await shown.until(lambda: "poll failed" in shown.text())
                clock = time.strftime("%H:%M:%S", time.localtime(2.0))
                assert shown.rows()[1] == f"{clock}  WARN   nymph::drain  poll failed  [+2 fields — enter]"
                assert "fields" not in shown.rows()[0]
                await shown.press("enter")
                assert [row.strip() for row in shown.rows()[1:4]] == [
                    f"{clock}  WARN   nymph::drain  poll failed",
                    "reason = connection timeout",
                    "tries = 3",
                ]
                page.say("INFO", "one more")
                await shown.until(lambda: "one more" in shown.text())
                assert "tries = 3" in shown.text()  # it stays open
                await shown.press("up", "enter")
                assert "tries = 3" not in shown.text()
                await shown.press("up")
                assert shown.rows()[0].endswith("plain")

    run(main)


@pytest.mark.inventory("N-317", "N-319", "C-445")
@pytest.mark.inventory("C-444", "C-447")
def test_each_level_key_shows_that_level_and_graver_ones_at_once_without_asking_again() -> None:
    async def main() -> None:
        levels = ["ERROR", "WARN", "INFO", "DEBUG", "TRACE"]
        with status_page(capacity=64) as page:
            said(page, *levels)
            async with screen(page.url, interval=NEVER_S) as shown:
                await shown.until(lambda: "● connected" in shown.text())
                assert shown.title() == "events  info+  3/64  ⏵follow"
                asked = page.asked
                for count, key in enumerate("ewidt", 1):
                    await shown.press(key)
                    assert [row.split()[1] for row in shown.rows() if row] == levels[:count]
                    assert f" {count}/64 " in shown.title()
                assert page.asked == asked == 1
                await shown.press("e")
                page.ring.flush()
                assert shown.title().startswith("events  error  1/64")

    run(main)


def test_where_the_filter_hides_everything_it_is_said() -> None:
    async def main() -> None:
        with status_page() as page:
            said(page, "DEBUG", "TRACE")
            async with screen(page.url, interval=NEVER_S) as shown:
                await shown.until(lambda: "● connected" in shown.text())
                assert shown.rows()[0] == "nothing of this level: 2 below it; [d]ebug or [t]race shows them"

    run(main)


@pytest.mark.inventory("N-316", "N-320", "N-321")
@pytest.mark.inventory("C-448", "C-450")
@pytest.mark.parametrize(("up", "down"), [("up", "down"), ("k", "j")])
def test_moving_by_hand_ends_following_and_the_last_row_begins_it_again(up: str, down: str) -> None:
    async def main() -> None:
        with status_page() as page:
            said(page, *["INFO"] * 60)
            async with screen(page.url, (80, 24)) as shown:
                await shown.until(lambda: "event 59" in shown.text())
                assert "⏵follow" in shown.title()
                page.say("INFO", "newer")
                await shown.until(lambda: "newer" in shown.text())
                await shown.press(up)
                assert "⏸manual" in shown.title()
                page.say("INFO", "newest")
                await shown.until(lambda: "62/" in shown.title())
                assert "newest" not in shown.text()
                await shown.press(down, down)
                assert "⏵follow" in shown.title()
                assert "newest" in shown.text()
                await shown.press("f")
                assert "⏸manual" in shown.title()
                await shown.press("home")
                assert shown.rows()[0].endswith("event 0")
                await shown.press("f")
                assert "⏵follow" in shown.title()
                assert "newest" in shown.text()

    run(main)


def test_who_reads_older_events_keeps_them_where_they_are_while_the_ring_goes_on() -> None:
    async def main() -> None:
        with status_page(capacity=50) as page:
            said(page, *["INFO"] * 50)
            async with screen(page.url, (80, 24)) as shown:
                await shown.until(lambda: "event 49" in shown.text())
                await shown.press(*["up"] * 8)
                before = shown.rows()
                for number in range(10):
                    page.say("INFO", f"later {number}")
                await shown.until(lambda: page.asked and shown.app.query_one("#events")._shown[-1][0].message[0] == "l")
                assert shown.rows() == before

    run(main)


@pytest.mark.inventory("N-316", "N-320", "C-449")
def test_a_pause_stops_asking_and_keeps_the_view_until_it_ends() -> None:
    async def main() -> None:
        with status_page() as page:
            said(page, "INFO")
            async with screen(page.url) as shown:
                await shown.until(lambda: "event 0" in shown.text())
                await shown.press("space")
                assert "⏸ PAUSED" in shown.title()
                await shown.pilot.pause(5 * OFTEN_S)
                asked, text = page.asked, shown.text()
                page.say("INFO", "during the pause")
                await shown.pilot.pause(5 * OFTEN_S)
                assert (page.asked, shown.text()) == (asked, text)
                await shown.press("space")
                assert "PAUSED" not in shown.title()
                await shown.until(lambda: "during the pause" in shown.text())

    run(main)


@pytest.mark.inventory("N-310", "C-432")
def test_each_look_asks_for_the_status_and_the_events_and_comes_after_the_interval() -> None:
    async def main() -> None:
        with status_page() as page:
            async with screen(page.url, interval=0.3) as shown:
                await shown.until(lambda: page.asked >= 1)
                begun = time.monotonic()
                for number in range(3):
                    page.say("INFO", f"look {number}")
                    page.told["queue"] = f"q{number}"
                    await shown.until(lambda number=number: f"look {number}" in shown.text())
                    assert f"queue     q{number}" in shown.text()
                assert page.asked <= 2 + (time.monotonic() - begun) / 0.3

    run(main)


@pytest.mark.inventory("N-322", "C-452")
@pytest.mark.parametrize("key", ["q", "escape", "ctrl+c"])
def test_every_quit_key_ends_it_even_while_nobody_answers(key: str) -> None:
    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            async with screen(f"http://127.0.0.1:{silent.getsockname()[1]}") as shown:
                with (await asyncio.to_thread(silent.accept))[0]:
                    await shown.pilot.press(key)
                    await shown.pilot._wait_for_screen()
                    assert not shown.app.is_running
                assert (shown.app.return_code or 0) == 0

    run(main)


def test_what_others_wrote_does_not_steer_the_terminal() -> None:
    async def main() -> None:
        with status_page() as page:
            evil = "a\x1b[2Jb\x07c\rd\u202ee[red]f"
            page.told = {"queue": evil, "worker_id": evil}
            page.say("ERROR", evil, more=f"{evil}\nline 2")
            async with screen(page.url) as shown:
                await shown.until(lambda: "line 2" in shown.text() or "fields" in shown.text())
                await shown.press("enter")
                text = shown.text()
                assert not set(text) & set("\x1b\x07\r\u202e")
                assert text.count(r"a\x1b[2Jb\x07c\x0dd\u202ee[red]f") == 4
                assert "line 2" in text

    run(main)


def test_from_40_to_200_columns_everything_fits_and_the_log_has_room() -> None:
    async def main() -> None:
        with status_page() as page:
            page.told = {"worker_id": "a-long-host-name-01JG8Z3QK5W9X2V7RT4N6M8PBC", "queue": "q" * 64}
            for number in range(40):
                page.say("INFO", f"日本 {number} " + "word " * 14, target="nymph.performing.jobs", reason="why " * 9)
            async with screen(page.url, (40, 24), interval=0.5) as shown:
                await shown.until(lambda: "日本 39" in shown.text())
                for width in (40, 59, 60, 99, 120, 200):
                    await shown.pilot.resize_terminal(width, 24)
                    await shown.press("enter")
                    assert {strip.cell_length for strip in shown.app.screen._compositor.render_strips()} == {width}
                    text = " ".join(" ".join(shown.lines()[-3:]).split())
                    assert " ".join(LEGEND.split()) in text, width
                    assert len(shown.rows()) >= 6
                    assert re.search(r"\d\d:\d\d:\d\d  INFO   .*日本", shown.text())
                    assert "reason = " in shown.text()
                    await shown.press("enter")

    run(main)


def test_an_open_row_longer_than_the_screen_is_read_line_by_line() -> None:
    async def main() -> None:
        with status_page() as page:
            page.say("INFO", "first")
            page.say("ERROR", "failed", traceback="\n".join(f"line {number}" for number in range(20)))
            async with screen(page.url, (80, 24)) as shown:
                await shown.until(lambda: "failed" in shown.text() and "in-flight" in shown.text())
                await shown.press("enter")
                assert "line 0" in shown.text()
                assert "line 19" not in shown.text()
                await shown.press(*["down"] * 12)
                assert "line 19" in shown.text()
                assert "⏵follow" in shown.title()
                await shown.press("up")
                assert "line 19" not in shown.text()
                assert "⏸manual" in shown.title()
                await shown.press("home")
                assert shown.rows()[0].endswith("first")
                await shown.press("end")
                assert "⏵follow" in shown.title()

    run(main)


# --- the command: where the page is


@pytest.mark.inventory("N-308", "N-309", "C-430")
@pytest.mark.inventory("C-431", "C-433")
@pytest.mark.parametrize(
    ("text", "url", "hint"),
    [
        (None, "http://127.0.0.1:9876", "switches the status page on"),
        ("[introspect]\nenabled = true\nport = 4711\n", "http://127.0.0.1:4711", None),
        ('[introspect]\nenabled = true\nbind = "::1"\n', "http://[::1]:9876", None),
        ('[introspect]\nbind = "localhost"\n', "http://localhost:9876", "switches the status page on"),
        ('[introspect]\nenabled = true\nbind = "0.0.0.0"\n', "http://0.0.0.0:9876", "no loopback address"),
        ("[introspect]\nenabled = true\nport = 0\n", "http://127.0.0.1:9876", "for --url"),
        ("this is [no TOML", "http://127.0.0.1:9876", "so this is the usual address"),
        ("[unknown]\n", "http://127.0.0.1:9876", "so this is the usual address"),
    ],
)
def test_the_address_is_that_of_the_configuration_and_a_broken_one_is_not_fatal(
    text: str | None, url: str, hint: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    if text is None:
        assert nymph_tui.derived(None) == (url, f"[introspect] enabled = true in udf-daemon.toml {hint}")
        return
    path = tmp_path / "its.toml"
    path.write_text(text)
    by_flag = nymph_tui.derived(str(path))
    monkeypatch.setenv("LAKESHORED_CONFIG", str(path))
    assert nymph_tui.derived(None) == by_flag
    assert by_flag[0] == url
    assert (by_flag[1] is None) if hint is None else (hint in (by_flag[1] or ""))


@pytest.mark.inventory("C-1354", "C-1355")
def test_without_a_terminal_it_says_what_to_use_instead(run: Callable[..., tuple[int, str, str]]) -> None:
    for line in (["nymph", "tui"], ["nymph", "tui", "--url", "http://127.0.0.1:9876", "--interval", "1"]):
        code, out, err = run(*line)
        assert (code, out) == (2, "")
        assert "this needs a terminal" in err
        assert "`curl http://127.0.0.1:9876/status`" in err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--url", "127.0.0.1:9876"], "--url: "),
        (["--url", "https://127.0.0.1:9876"], "a status page speaks plain HTTP"),
        (["--interval", "soon"], "soon is not a number of seconds"),
        (["--interval", "nan"], "nan is not a number of seconds"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    run: Callable[..., tuple[int, str, str]], arguments: list[str], words: str
) -> None:
    code, _, err = run("nymph", "tui", *arguments)
    assert code == 2
    assert words in err


# --- a terminal


BROKEN = (
    "from lakeshore.tui.nymph_app import NymphApp\n"
    "class Broken(NymphApp):\n"
    "    def action_follow(self) -> None:\n"
    "        raise RuntimeError('a defect')\n"
    "app = Broken('http://127.0.0.1:9', interval=2)\n"
    "app.run()\n"
    "raise SystemExit(app.return_code)\n"
)
COMMAND = [sys.executable, "-m", "lakeshore", "nymph", "tui", "--url", "http://127.0.0.1:9", "--interval", "0"]
LEAVES = b"\x1b[?1049l"


@pytest.mark.inventory("N-323", "C-453")
@pytest.mark.parametrize("how", ["q", "SIGTERM", "a defect"])
def test_however_it_ends_the_terminal_is_as_it_was(how: str) -> None:
    command, columns = ([sys.executable, "-c", BROKEN], "120") if how == "a defect" else (COMMAND, "60")
    terminal = Terminal(command, NO_COLOR="1", COLUMNS=columns)  # a shell's own word, which the command does not take
    terminal.until(b"connection refused")
    raw = termios.tcgetattr(terminal.fd)
    assert not raw[3] & (termios.ICANON | termios.ECHO)
    if how == "SIGTERM":
        os.kill(terminal.pid, signal.SIGTERM)
    else:
        os.write(terminal.fd, b"q" if how == "q" else b"f")
    code = terminal.end()
    assert code == {"q": 0, "SIGTERM": 128 + signal.SIGTERM, "a defect": 1}[how]
    assert terminal.after == terminal.before
    for switched_off in (LEAVES, b"\x1b[?25h", b"\x1b[?1000l", b"\x1b[?2004l"):
        assert switched_off in terminal.screen
    if how == "a defect":
        assert terminal.screen.index(LEAVES) < terminal.screen.index(b"a defect")
    else:
        assert b"retrying every 0.1s" in terminal.screen  # an interval below the least is the least
        coloured = re.findall(rb"\x1b\[(?:\d+;)*(?:3[0-8]|4[0-8]|9[0-7])[;m]", terminal.screen)
        assert coloured == []  # NO_COLOR


def test_when_one_question_of_a_look_fails_the_other_is_ended_before_that_is_told() -> None:
    ended = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = await reader.readline()
        if b"/events" in line:
            asked.set()
            while await reader.read(1024):
                pass
            ended.set()
        else:
            await asked.wait()
            writer.write(b"HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\n\r\n")
            await writer.drain()
        writer.close()
        await writer.wait_closed()

    asked = asyncio.Event()

    async def main() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            before = asyncio.all_tasks()
            with pytest.raises(Unreachable, match="it answers 500"):
                await Introspection(f"http://127.0.0.1:{port}", patience_s=60.0).look()
            left = [task for task in asyncio.all_tasks() - before if "_get" in repr(task)]
            assert left == []
            await asyncio.wait_for(ended.wait(), 30)

    run(main)
