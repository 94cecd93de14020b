"""`lakeshore daemon exec`, `exec`, `run`: real commands on a real daemon, as a user types them."""

from __future__ import annotations

import base64
import io
import json
import os
import pty
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import cli_shell
import pytest
from cli_shell import SOON_S, Box, Shell
from exec_peer import Peer
from served import JSON, Served, new_id

from lakeshore.cli.main import main

Typed = Callable[..., tuple[int, bytes, bytes]]
NS = f"ns-{new_id()}"


@pytest.fixture(scope="module")
def box(server: Served, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Box]:
    """The only live daemon of a namespace; it serves the queue `tools`."""
    assert server.post("/v1/admin/namespaces", {"name": NS}, encoding=JSON).status == 201
    with cli_shell.box(
        server, tmp_path_factory.mktemp("box"), label=f"box-{new_id()}", ns=NS, queue="tools"
    ) as started:
        yield started


@pytest.fixture
def sh(server: Served, box: Box, tmp_path: Path) -> Shell:
    return Shell(server.url, tmp_path, NS)


@pytest.fixture
def typed(
    server: Served,
    box: Box,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsysbinary: pytest.CaptureFixture[bytes],
) -> Typed:
    """The same in this process, where nothing of a process is looked at."""
    monkeypatch.setenv("LAKESHORE_URL", server.url)
    monkeypatch.setenv("LAKESHORE_NAMESPACE", NS)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))

    def run(*words: str, stdin: bytes | None = None) -> tuple[int, bytes, bytes]:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin or b"")))
        code = main(words)
        said = capsysbinary.readouterr()
        return code, said.out, said.err

    return run


# --- as if it ran here


COMMANDS: dict[str, tuple[list[str], bytes | None, tuple[int, bytes, bytes]]] = {
    "stdout": (["D", "echo", "hi"], None, (0, b"hi\n", b"")),
    "stderr apart": (["D", "echo out; echo err >&2"], None, (0, b"out\n", b"err\n")),
    "its status": (["D", "exit 7"], None, (7, b"", b"")),
    "its status 255": (["D", "exit 255"], None, (255, b"", b"")),
    "bytes as they are": (["D", r"printf '\377\000\033[1m'"], None, (0, b"\xff\x00\x1b[1m", b"")),
    "--env": (["--env", "A=1 2", "--env", "B=x=y", "D", 'echo "$A|$B"'], None, (0, b"1 2|x=y\n", b"")),
    "--workdir": (["--workdir", "/tmp", "D", "pwd"], None, (0, b"/tmp\n", b"")),
    "--stdin -": (["--stdin", "-", "D", "cat"], b"\x00piped", (0, b"\x00piped", b"")),
    "no stdin by itself": (["D", "cat"], b"not sent", (0, b"", b"")),
    "words stay words": (["D", sys.executable, "-c", "print('a;  b')"], None, (0, b"a;  b\n", b"")),
    "one word is a line": (["D", 'echo $((1+1)) "a  b"'], None, (0, b"2 a  b\n", b"")),
    "options of the command": (["D", "echo", "-n", "--timeout", "-h"], None, (0, b"--timeout -h", b"")),
    "a separator is not needed": (["D", "--", "echo", "x"], None, (0, b"x\n", b"")),
    "bash, no login": (["D", "shopt -q login_shell || echo $0"], None, (0, b"bash\n", b"")),
    "killed by a signal": (["D", "kill -9 $$"], None, (137, b"", b"")),
}
ROWS = {
    "stdout": ("C-239", "C-248"),
    "stderr apart": ("C-248",),
    "its status": ("C-248", "S-330"),
    "--env": ("C-242", "C-708", "C-1024"),
    "--workdir": ("C-709", "C-1027"),
    "--stdin -": ("C-243", "C-710", "C-1026"),
    "words stay words": ("C-249", "C-1022"),
    "one word is a line": ("C-249",),
    "options of the command": ("C-238",),
    "bash, no login": ("C-247",),
}


@pytest.mark.parametrize(
    "case", [pytest.param(name, marks=pytest.mark.inventory(*ROWS.get(name, ()))) for name in COMMANDS]
)
def test_a_command_runs_there_as_it_would_here(case: str, typed: Typed, box: Box) -> None:
    words, stdin, wanted = COMMANDS[case]
    code, out, err = typed("daemon", "exec", *(box.label if word == "D" else word for word in words), stdin=stdin)
    assert (code, out) == wanted[:2]
    if case != "killed by a signal":
        assert err == wanted[2]


@pytest.mark.inventory("C-244", "S-334", "C-707")
def test_a_command_whose_time_is_over_is_254_as_a_shell_has_it(typed: Typed, box: Box) -> None:
    code, out, err = typed("daemon", "exec", "--timeout", "0.5", box.label, "echo begun; sleep 60")
    assert (code, out) == (254, b"begun\n")
    assert err.startswith(b"error: timed out")


@pytest.mark.inventory("C-246", "C-478", "C-712")
def test_json_is_the_record_with_both_streams_in_base64(typed: Typed, box: Box) -> None:
    code, out, err = typed("daemon", "exec", "--json", box.label, "echo out; echo err >&2; exit 3")
    row = json.loads(out)
    assert (code, row["exit_code"], row["status"], err) == (3, 3, "done", b"")
    assert (base64.b64decode(row["stdout_b64"]), base64.b64decode(row["stderr_b64"])) == (b"out\n", b"err\n")
    assert {"exec_id", "worker_id", "duration_ms", "error", "created_at", "started_at", "finished_at"} <= row.keys()


@pytest.mark.inventory("C-250", "C-744", "S-322")
@pytest.mark.inventory("C-879")
def test_a_queue_routes_to_a_member(typed: Typed) -> None:
    assert typed("exec", "--queue", "tools", "echo routed")[:2] == (0, b"routed\n")
    code, out, err = typed("exec", "--queue", f"nobody-{new_id()}", "true")
    assert (code, out) == (1, b"")
    assert err.startswith(b"error: ")


@pytest.mark.inventory("C-1372", "C-745")
def test_exec_takes_what_daemon_exec_takes_but_no_id(typed: Typed, box: Box) -> None:
    words = ("--on", box.label, "--env", "A=1", "--workdir", "/tmp", "--timeout", "30", "--wait", "60", "echo $A; pwd")
    assert typed("exec", *words)[:2] == (0, b"1\n/tmp\n")
    code, _out, err = typed("exec", "--id", box.id, "true")
    assert code == 2
    assert err.startswith(b"error: no such option")


@pytest.mark.inventory("C-252", "C-253", "C-1445")
@pytest.mark.inventory("C-879")
def test_a_script_of_this_machine_runs_there_from_stdin_with_its_arguments(
    typed: Typed, box: Box, tmp_path: Path
) -> None:
    script = tmp_path / "hello.py"
    script.write_text("import os, sys\nprint(sys.argv, os.environ['DEBUG'])\nsys.exit(4)\n")
    words = ("--daemon", box.label, "--env", "DEBUG=1", "--timeout", "60", "--python", sys.executable)
    code, out, err = typed("run", str(script), *words, "one", "--", "--two")
    assert typed("run", str(script), "--on", *words[1:])[0] == typed("exec", *words[:2], "exit 4")[0] == 4
    assert (code, out, err) == (4, b"['-', 'one', '--two'] 1\n", b"")
    there = [path for path in Path(box.env["HOME"]).rglob("*") if path.is_file()]
    assert there
    assert [path for path in there if b"os.environ['DEBUG']" in path.read_bytes()] == [], "nothing of it is on its disk"


@pytest.mark.inventory("C-254")
def test_a_script_of_another_name_is_run_all_the_same_and_said(typed: Typed, box: Box, tmp_path: Path) -> None:
    (tmp_path / "task.txt").write_text("print('ran')")
    code, out, err = typed("run", str(tmp_path / "task.txt"), "--daemon", box.label)
    assert (code, out) == (0, b"ran\n")
    assert b"does not end in .py" in err


# --- while it runs


def line_of(process: subprocess.Popen[bytes], stream: str = "stdout") -> bytes:
    """The next line, which must come soon."""
    pipe: Any = getattr(process, stream)
    assert select.select([pipe], [], [], SOON_S)[0], "nothing came"
    line: bytes = pipe.readline()
    return line


def test_output_comes_while_the_command_runs_and_both_streams_do(sh: Shell, box: Box, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    command = f"echo one; echo two >&2; until [ -e {gate} ]; do sleep 0.02; done; echo three"
    with sh.start("daemon", "exec", box.label, command) as process:
        assert line_of(process) == b"one\n"
        assert line_of(process, "stderr") == b"two\n"
        assert process.poll() is None
        gate.touch()
        assert line_of(process) == b"three\n"
        assert process.wait(SOON_S) == 0


def test_much_output_comes_whole_and_in_order(typed: Typed, box: Box) -> None:
    code, out, err = typed("daemon", "exec", box.label, "seq 1 400000")
    assert (code, err) == (0, b"")
    assert out == b"".join(b"%d\n" % n for n in range(1, 400001))  # 2.7 MB: more than a result holds


def test_ctrl_c_leaves_it_running_says_how_to_go_on_and_exits_130(
    sh: Shell, typed: Typed, box: Box, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    command = f"echo begun; until [ -e {gate} ]; do sleep 0.02; done; echo ended; exit 5"
    with sh.start("daemon", "exec", box.label, command) as process:
        assert line_of(process) == b"begun\n"
        process.send_signal(signal.SIGINT)
        _out, err = process.communicate(timeout=SOON_S)
        assert process.returncode == 130
    said = err.decode().splitlines()
    follow, cancel = (next(line for line in said if f" daemon {verb} " in line) for verb in ("follow", "cancel"))
    assert "goes on" in err.decode()
    exec_id = follow.split()[-1]
    assert cancel.split()[-1] == exec_id
    gate.touch()
    assert typed("daemon", "follow", exec_id) == (5, b"begun\nended\n", b"")
    listed = json.loads(typed("daemon", "execs", "--json")[1])
    assert next(row for row in listed if row["exec_id"] == exec_id)["exit_code"] == 5


def test_cancel_ends_it_and_who_follows_gets_255(sh: Shell, typed: Typed, box: Box) -> None:
    with sh.start("daemon", "exec", box.label, "echo begun; sleep 600") as process:
        assert line_of(process) == b"begun\n"
        (exec_id,) = (r["exec_id"] for r in json.loads(typed("daemon", "execs", "--json")[1]) if not r["finished_at"])
        assert typed("daemon", "cancel", exec_id)[0] == 0
        _out, err = process.communicate(timeout=SOON_S)
        assert process.returncode == 255
        assert err.startswith(b"error: ")


def test_a_reader_that_has_seen_enough_ends_the_command(sh: Shell, typed: Typed, box: Box) -> None:
    with sh.start("daemon", "exec", box.label, "while :; do seq 1 1000; sleep 0.1; done") as process:
        assert line_of(process) == b"1\n"
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(SOON_S) == 0
    deadline = time.monotonic() + SOON_S
    while any(not row["finished_at"] for row in json.loads(typed("daemon", "execs", "--json")[1])):
        assert time.monotonic() < deadline


@pytest.mark.inventory("C-245", "C-711")
@pytest.mark.inventory("C-1373")
def test_the_patience_of_the_command_line_is_its_own(typed: Typed, box: Box) -> None:
    code, _out, err = typed("daemon", "exec", "--wait", "0.5", box.label, "sleep 600")
    assert code == 1
    assert b"goes on" in err
    exec_id = err.decode().split()[-1]
    assert typed("daemon", "cancel", exec_id)[0] == 0
    assert typed("daemon", "follow", exec_id)[0] == 255  # it is over: others look for what is not


@pytest.mark.inventory("C-250", "C-383", "C-251")
def test_on_a_terminal_a_daemon_is_picked_and_its_output_is_still_all_of_stdout(
    server: Served, sh: Shell, box: Box
) -> None:
    Peer(server, ns=NS)  # it was heard of last, so it comes first
    here, there = pty.openpty()
    with sh.start("exec", "echo", "picked", stdin=there, stderr=there) as process:
        os.close(there)
        drawn = b""
        while not drawn.endswith(b"esc leaves"):
            assert select.select([here], [], [], SOON_S)[0], drawn
            drawn += os.read(here, 4096)
        os.write(here, box.label.encode())
        while b"1 of " not in drawn:
            assert select.select([here], [], [], SOON_S)[0], drawn
            drawn += os.read(here, 4096)
        os.write(here, b"\r")
        assert process.stdout is not None
        assert process.stdout.read() == b"picked\n"
        assert process.wait(SOON_S) == 0
    os.close(here)


def test_a_start_whose_answer_is_lost_is_not_sent_twice_and_says_where_to_look(
    typed: Typed, box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        arrived: list[bytes] = []

        def hang_up() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    arrived.append(connection.recv(65536))
                    connection.close()

        thread = threading.Thread(target=hang_up, daemon=True)
        thread.start()
        monkeypatch.setenv("LAKESHORE_URL", f"http://127.0.0.1:{listener.getsockname()[1]}")
        code, out, err = typed("daemon", "exec", box.id, "true")
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(60)
    assert (code, out, len(arrived)) == (1, b"", 1)
    assert b"hint: whether the command was started is not known" in err
