"""What every command keeps to, walked over the tree of commands, so that one that is added is held to it as well."""

from __future__ import annotations

import contextlib
import http.server
import json
import sys
import threading
from collections.abc import Callable, Iterator

import hostile_rows
import pytest
from command_tree import LEAVES, TALKS, TREE, as_typed

from lakeshore.cli.exits import ExitCode
from lakeshore.cli.main import main

READS = {"list", "show", "status", "doctor"}


@pytest.fixture(autouse=True)
def nothing_is_configured(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", f"{tmp_path}/config")
    monkeypatch.setenv("LAKESHORE_STATE_DIR", f"{tmp_path}/state")


@pytest.mark.inventory("C-012", "C-009")
@pytest.mark.parametrize("command", TREE)
def test_every_command_and_every_verb_answers_help_on_stdout(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    for flag in ("--help", "-h"):
        assert main([*command.split(), flag]) == 0
        said = capsys.readouterr()
        assert said.out.startswith(f"Usage: lakeshore {command} ")
        assert said.err == ""


@pytest.mark.parametrize("command", TREE)
def test_help_is_80_columns_wide_at_most_and_cuts_no_sentence(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command.split(), "--help"]) == 0
    said = capsys.readouterr().out
    assert max(map(len, said.splitlines())) <= 80
    assert "...\n" not in said.partition("\n")[2]


@pytest.mark.inventory("C-013", "C-014")
@pytest.mark.parametrize("command", LEAVES)
def test_a_usage_mistake_prints_the_help_of_the_command_that_was_got_wrong(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command.split(), "--no-such-flag"]) == ExitCode.USAGE
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("error: no such option")
    assert f"Usage: lakeshore {command} " in said.err


@pytest.mark.inventory("C-013")
@pytest.mark.parametrize("words", ["", "jobs list", "daemon install", "admin tokens create"])
def test_on_a_terminal_the_mistake_stands_below_its_help_where_it_is_seen(
    words: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert main([*words.split(), "--no-such-flag"]) == ExitCode.USAGE
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith(f"Usage: lakeshore {words}".rstrip())
    assert "\n\nerror: no such option" in said.err
    assert len(said.err.partition("\n\nerror: ")[2].splitlines()) <= 2


@pytest.mark.inventory("C-015")
@pytest.mark.parametrize("command", [name for name in LEAVES if name.split()[-1] in READS])
def test_every_command_that_reads_can_answer_in_json(command: str) -> None:
    assert "--json" in {option for param in TREE[command].params for option in param.opts}


@pytest.mark.inventory("C-048", "C-014", "C-077")
@pytest.mark.parametrize("command", TALKS)
def test_without_a_server_a_command_that_needs_one_says_so_and_how_to_name_one(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKESHORE_ADMIN_TOKEN", "an-admin-token")
    assert main(as_typed(command)) == ExitCode.USAGE
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith(
        "error: server not configured — run `lakeshore auth login --server <url>` or set LAKESHORE_URL\nhint: "
    )


@pytest.fixture(scope="module")
def hostile() -> Iterator[str]:
    """The URL of a server that answers everything with an error that would steer a terminal."""
    steer = "\x1b]0;title\x07\x1b[2J\x9b5m"
    words = json.dumps({"error": f"no {steer}", "message": f"no {steer}", "hint": steer, "field": steer}).encode()
    with served(lambda _method, _path: (400, words)) as url:
        yield url


@pytest.fixture(scope="module")
def telling() -> Iterator[str]:
    """The same of one whose rows would."""
    with served(hostile_rows.answer) as url:
        yield url


@contextlib.contextmanager
def served(answer: Callable[[str, str], tuple[int, bytes]]) -> Iterator[str]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, words = answer(self.command, self.path.partition("?")[0])
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(words)))
            self.end_headers()
            self.wfile.write(words)

        do_POST = do_PATCH = do_DELETE = do_PUT = do_GET

        def log_message(self, *_: object) -> None:
            """Nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("command", TALKS)
def test_what_a_server_says_does_not_steer_the_terminal(
    command: str, hostile: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKESHORE_ADMIN_TOKEN", "an-admin-token")
    monkeypatch.setenv("LAKESHORE_URL", hostile)
    assert main(as_typed(command)) == ExitCode.FAILED
    said = capsys.readouterr()
    assert "error: " in said.err
    assert not {"\x1b", "\x07", "\x9b"} & set(said.out + said.err)


@pytest.mark.parametrize(
    "command", [name for name in TALKS if name.split()[-1] in ("list", "show")] + ["providers list", "providers show"]
)
def test_what_rows_hold_does_not_steer_the_terminal(
    command: str, telling: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKESHORE_ADMIN_TOKEN", "an-admin-token")
    monkeypatch.setenv("LAKESHORE_URL", telling)
    for more in ([], ["--json"]):
        main([*as_typed(command), *more])
        said = capsys.readouterr()
        assert said.out + said.err
        assert not hostile_rows.OBEYED & set(said.out + said.err)


@pytest.mark.inventory("C-016", "C-083")
@pytest.mark.parametrize(
    ("spelling", "meant"),
    [
        ("jobs ls", "jobs list"),
        ("admin tokens ls", "admin tokens list"),
        ("admin ns ls", "admin namespace list"),
        ("daemon ls", "daemon list"),
        ("admin ns rm", "admin namespace delete"),
        ("modes ls", "modes list"),
        ("modes rm", "modes remove"),
        ("tunnels ls", "tunnels list"),
        ("mounts rm", "mounts remove"),
        ("storage ls", "storage list"),
        ("code ls", "code list"),
        pytest.param("queues list", "queues ls", marks=pytest.mark.inventory("C-1425")),
        pytest.param("queues remove", "queues rm", marks=pytest.mark.inventory("C-1425")),
    ],
)
def test_documented_aliases_lead_to_their_command(
    spelling: str, meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*spelling.split(), "--help"]) == 0
    aliased = capsys.readouterr().out.split("\n", 1)[1]
    assert main([*meant.split(), "--help"]) == 0
    assert capsys.readouterr().out.split("\n", 1)[1] == aliased
