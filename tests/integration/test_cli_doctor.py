"""`lakeshore doctor` against real servers, real files and real trouble."""

from __future__ import annotations

import base64
import json
import os
import secrets
import shutil
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from net_certs import certificate
from served import ADMIN, Served, environment, running

from lakeshore import Dispatch, SyncQueue
from lakeshore._version import __version__
from lakeshore.cli.main import main
from lakeshore.plane.database import SCHEMA_VERSION

FIXTURES = Path(__file__).parents[1] / "fixtures"
Found = dict[str, list[dict[str, Any]]]


@dataclass
class Examined:
    code: int
    found: Found
    text: str

    def one(self, subject: str, status: str) -> dict[str, Any]:
        """The one finding of a subject that has this status."""
        matching = [finding for finding in self.found.get(subject, []) if finding["status"] == status]
        assert len(matching) == 1, self.text
        return matching[0]

    def has(self, subject: str, status: str, seen: str, advice: str = "") -> None:
        texts = [
            (finding["seen"], finding["advice"] or "")
            for finding in self.found.get(subject, [])
            if finding["status"] == status
        ]
        assert any(seen in one and advice in other for one, other in texts), self.text


Doctor = Callable[..., Examined]


def examined(code: int, out: str, err: str = "") -> Examined:
    told = json.loads(out)
    found: Found = {}
    for finding in told["findings"]:
        found.setdefault(finding["subject"], []).append(finding)
        assert bool(finding["advice"]) == (finding["status"] != "ok")
    statuses = [finding["status"] for finding in told["findings"]]
    assert (told["failures"], told["warnings"]) == (statuses.count("failure"), statuses.count("warning"))
    assert told["ok"] == (code == 0) == (told["failures"] == 0)
    return Examined(code, found, out + err)


@pytest.fixture
def doctor(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Doctor:
    """Run it with --json in a home of its own."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("LAKESHORE_STATE_DIR", str(tmp_path / "no state"))
    monkeypatch.setenv("LAKESHORE_HOME", str(tmp_path / "home"))

    def run(*arguments: str, **variables: str) -> Examined:
        with monkeypatch.context() as patched:
            for name, value in variables.items():
                patched.setenv(name, value)
            capsys.readouterr()
            code = main(["doctor", "--json", *arguments])
        said = capsys.readouterr()
        return examined(code, said.out, said.err)

    return run


# --- a server


def test_with_everything_in_order_each_line_is_ok(doctor: Doctor, tmp_path: Path) -> None:
    with running(tmp_path / "own") as server:  # others leave work on the common one
        done = doctor("--url", server.url, "--state-dir", str(server.state_dir))
    assert done.code == 0
    for subject in ("python", "tls", "sqlite", "variables", "login", "local queues", "ready", "clocks", "workers"):
        done.one(subject, "ok")
    done.has("server lock", "ok", f"held by pid {server.process.pid}")
    done.has("version", "ok", __version__)
    done.has("token", "ok", "namespace default, scope full; open mode")
    done.has("state schema", "ok", f"lakeshore.db: schema {SCHEMA_VERSION}")


def test_a_server_that_runs_here_and_is_not_named_is_found(server: Served, doctor: Doctor) -> None:
    done = doctor("--state-dir", str(server.state_dir))
    done.has("server", "warning", "one runs here, and nothing names it", f"export LAKESHORE_URL={server.url}")
    done.one("token", "ok")


def test_a_server_that_was_stopped_is_a_failure_with_what_to_do(tmp_path: Path, doctor: Doctor) -> None:
    with running(tmp_path / "server") as served:
        served.stop()
    done = doctor(LAKESHORE_URL=served.url)
    assert done.code == 1
    done.has("server", "failure", "cannot connect", "lakeshore serve")
    assert "token" not in done.found


def test_without_any_server_that_is_said_and_is_no_trouble(doctor: Doctor) -> None:
    done = doctor()
    assert done.code == 0
    done.has("server", "ok", "none is named")


@pytest.mark.parametrize("name", ["two..dots", "nowhere.invalid"])
def test_a_name_that_does_not_resolve_is_said(doctor: Doctor, name: str) -> None:
    done = doctor("--url", f"http://{name}:8080")
    assert done.code == 1
    said = done.one("server", "failure")["seen"]
    # without any network the resolver takes longer than a check may
    assert f"{name} does not resolve" in said or (name == "nowhere.invalid" and said == "no answer within 10 s")


@pytest.mark.parametrize("url", ["localhost:8080", "http://me:secret@there", "http://there?x=1"])
def test_a_url_that_is_none_is_said_without_its_password(doctor: Doctor, url: str) -> None:
    done = doctor("--url", url)
    done.has("server", "failure", "the server's URL")
    assert "secret" not in done.text


def test_a_server_that_accepts_and_never_answers_makes_a_line_and_not_a_hang(doctor: Doctor) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        began = time.monotonic()
        done = doctor("--url", f"http://127.0.0.1:{mute.getsockname()[1]}", "--timeout", "1")
    assert time.monotonic() - began < 20
    assert done.code == 1
    done.has("server", "failure", "", "the server hangs")
    done.one("python", "ok")


# --- something else that listens there


class Peer:
    """A tiny server that answers /healthz as it is told."""

    def __init__(self) -> None:
        self.date: str | None = formatdate(usegmt=True)
        self.version = __version__
        self.html = False
        peer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None:
                pass

            def do_GET(self) -> None:
                known = {"/healthz": {"ok": True, "version": peer.version}, "/readyz": {"ok": True}}
                found = known.get(self.path)
                body = b"<html>" if peer.html else json.dumps(found or {"error": "not here"}).encode()
                self.send_response_only(200 if found else 404)
                if peer.date is not None:
                    self.send_header("Date", peer.date)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Peer:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def peer() -> Iterator[Peer]:
    with Peer() as running_peer:
        yield running_peer


def test_another_program_on_that_port_is_not_taken_for_ours(peer: Peer, doctor: Doctor) -> None:
    peer.html = True
    doctor("--url", peer.url).has("server", "failure", "not as a control plane does", "check the address")


@pytest.mark.parametrize(
    ("off", "status", "seen"),
    [
        (0, "ok", "within a second"),
        (60, "warning", "ahead of ours"),
        (-60, "warning", "behind ours"),
        (3600, "failure", "ahead of ours"),
        (-3600, "failure", "behind ours"),
    ],
)
def test_clocks_that_differ_are_told_with_which_one_is_ahead(
    peer: Peer, doctor: Doctor, off: int, status: str, seen: str
) -> None:
    peer.date = formatdate(time.time() + off, usegmt=True)
    done = doctor("--url", peer.url)
    if off:
        done.has("clocks", status, seen, "time server")
    else:
        done.one("clocks", "ok")


@pytest.mark.parametrize("date", [None, "yesterday"])
def test_a_server_without_a_date_is_said(peer: Peer, doctor: Doctor, date: str | None) -> None:
    peer.date = date
    doctor("--url", peer.url).has("clocks", "warning", "no usable Date")


def test_another_version_is_a_warning(peer: Peer, doctor: Doctor) -> None:
    peer.version = "9.9.9\x1b[31m"
    doctor("--url", peer.url).has("version", "warning", f"this is {__version__}", "upgrade the older one")


# --- TLS


@pytest.fixture(scope="module")
def tls_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, Path]]:
    folder = tmp_path_factory.mktemp("tls")
    cert, _context = certificate(folder)
    with running(folder / "server", "--tls-cert", str(cert), "--tls-key", str(folder / "key.pem")) as served:
        yield served, cert


def test_a_certificate_that_ends_soon_is_a_warning_and_an_unknown_one_a_failure(
    tls_server: tuple[Served, Path], doctor: Doctor
) -> None:
    served, cert = tls_server
    done = doctor("--url", served.url, LAKESHORE_CA_FILE=str(cert))
    done.has("certificate", "warning", "(2 days)", "renew it")
    done.one("token", "ok")
    done = doctor("--url", served.url)
    assert done.code == 1
    done.has("server", "failure", "is not trusted", "LAKESHORE_CA_FILE")


# --- the token


def minted(server: Served, scope: str) -> tuple[str, str]:
    answer = server.post("/v1/namespaces/default/tokens", {"name": secrets.token_hex(6), "scope": scope})
    assert answer.status == 201
    return answer.body["id"], answer.body["plaintext"]


def test_who_the_token_makes_us_is_told(secured_server: Served, doctor: Doctor) -> None:
    _id, token = minted(secured_server, "submit")
    done = doctor(LAKESHORE_URL=secured_server.url, LAKESHORE_CLIENT_TOKEN=token)
    assert done.code == 0
    done.has("token", "ok", "namespace default, scope submit")
    assert token not in done.text
    assert "workers" not in done.found
    done = doctor(LAKESHORE_URL=secured_server.url, LAKESHORE_CLIENT_TOKEN=ADMIN)
    assert "workers" in done.found
    assert ADMIN not in done.text


def test_no_token_a_revoked_one_and_one_of_another_namespace_are_told_apart(
    secured_server: Served, doctor: Doctor
) -> None:
    url = secured_server.url
    done = doctor(LAKESHORE_URL=url)
    assert done.code == 1
    done.has("token", "failure", "missing bearer token", f"lakeshore auth login --server {url}")
    number, token = minted(secured_server, "full")
    done = doctor(LAKESHORE_URL=url, LAKESHORE_CLIENT_TOKEN=token, LAKESHORE_NAMESPACE="elsewhere")
    done.has("token", "failure", "", "for namespace elsewhere")
    assert secured_server.call("DELETE", f"/v1/namespaces/default/tokens/{number}").status < 300
    done = doctor(LAKESHORE_URL=url, LAKESHORE_CLIENT_TOKEN=token)
    done.has("token", "failure", "revoked", "ask for another token")
    assert token not in done.text


def test_a_token_that_was_copied_with_its_end_of_line_is_said(secured_server: Served, doctor: Doctor) -> None:
    done = doctor(LAKESHORE_URL=secured_server.url, LAKESHORE_CLIENT_TOKEN="dlk_copied\n")
    done.has("token", "failure", "no header can carry", "copy it again")
    assert "dlk_copied" not in done.text


def test_queued_work_that_nobody_takes_is_a_warning(tmp_path: Path, doctor: Doctor) -> None:
    with running(tmp_path / "server") as served:
        body = {"invocation_id": secrets.token_hex(12), "queue": "gpu", "args_blob": base64.b64encode(b"x").decode()}
        assert served.post("/v1/producer/submit", body, encoding="application/json").status < 300
        done = doctor("--url", served.url)
    done.has("workers", "warning", "1 are queued", "lakeshore worker start")


# --- the state directory


@pytest.fixture(scope="module")
def left_state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A state directory that a server has left."""
    with running(tmp_path_factory.mktemp("left")) as served:
        served.stop()
        return served.state_dir


@pytest.fixture
def state(left_state: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(left_state, tmp_path / "state"))


def wide_open(state: Path) -> None:
    state.chmod(0o777)


def readable(state: Path) -> None:
    state.chmod(0o755)


def loose_secret(state: Path) -> None:
    (state / "admin.token").chmod(0o644)


def newer(state: Path) -> None:
    with closing(sqlite3.connect(state / "lakeshore.db")) as conn, conn:
        conn.execute("PRAGMA user_version = 99")
    conn.close()


def garbage(state: Path) -> None:
    (state / "records.db").write_bytes(b"not a database" * 400)


def wal_without_database(state: Path) -> None:
    (state / "lakeshore.db").write_bytes(b"")
    (state / "lakeshore.db-wal").write_bytes(bytes(4096))


def strangers(state: Path) -> None:
    try:
        os.chown(state, 12345, -1)
    except PermissionError:
        pytest.skip("needs root")


STATE_TROUBLES = {
    wide_open: ("state", "failure", "mode 777", "chmod 700"),
    readable: ("state", "warning", "mode 755", "chmod 700"),
    loose_secret: ("secrets", "failure", "admin.token has mode 644", "chmod 600"),
    newer: ("state schema", "failure", "schema 99", "upgrade"),
    garbage: ("state schema", "failure", "cannot open", "backup"),
    wal_without_database: ("state schema", "failure", "is empty or gone", "copy"),
    strangers: ("state", "warning", "owned by uid 12345", "run the server as uid 12345"),
}


@pytest.mark.parametrize("spoil", STATE_TROUBLES, ids=lambda spoil: spoil.__name__)
def test_what_is_wrong_with_a_state_directory_is_said(
    state: Path, doctor: Doctor, spoil: Callable[[Path], None]
) -> None:
    spoil(state)
    doctor("--state-dir", str(state)).has(*STATE_TROUBLES[spoil])


def test_a_state_of_an_older_version_is_a_warning(tmp_path: Path, doctor: Doctor) -> None:
    older = tmp_path / "older"
    older.mkdir(mode=0o700)
    conn = sqlite3.connect(older / "lakeshore.db")
    conn.executescript((FIXTURES / "schema-1" / "lakeshore.sql").read_text())
    conn.execute("PRAGMA user_version = 1")
    conn.close()
    doctor("--state-dir", str(older)).has("state schema", "warning", "schema 1", "lakeshore backup")


def test_looking_leaves_no_trace_and_takes_no_lock(state: Path, doctor: Doctor) -> None:
    before = {path: path.stat().st_mtime_ns for path in state.rglob("*") if path.is_file()}
    done = doctor("--state-dir", str(state))
    done.has("server lock", "ok", "no server runs from it")
    assert "to sync a small write" in done.found["state sync"][0]["seen"]
    assert {path: path.stat().st_mtime_ns for path in state.rglob("*") if path.is_file()} == before


def test_a_file_in_its_place_is_said(tmp_path: Path, doctor: Doctor) -> None:
    (tmp_path / "file").touch()
    doctor("--state-dir", str(tmp_path / "file")).has("state", "failure", "is not a directory", "--state-dir")


@pytest.mark.parametrize(
    ("options", "subject", "status", "seen"),
    [
        ("size=64m,mode=700", "state space", "failure", "0.1 GiB free"),
        ("size=2g,mode=700", "state space", "warning", "2.0 GiB free"),
        ("size=8g,mode=700", "state disk", "warning", "tmpfs"),
        ("ro,mode=700", "state", "failure", "not writable"),
    ],
)
def test_a_disk_that_is_small_passing_or_read_only_is_said(
    tmp_path: Path, options: str, subject: str, status: str, seen: str
) -> None:
    place = tmp_path / "disk"
    place.mkdir()
    enter = ["unshare", "--mount"]
    if os.geteuid() != 0 or not shutil.which("unshare") or subprocess.run([*enter, "true"], check=False).returncode:
        pytest.skip("needs mount namespaces, as root")
    script = 'mount -t tmpfs -o "$1" none "$2" && exec "$3" -m lakeshore doctor --json --state-dir "$2"'
    done = subprocess.run(
        [*enter, "sh", "-c", script, "sh", options, place, sys.executable],
        check=False,
        capture_output=True,
        text=True,
        env=environment(LAKESHORE_HOME=str(tmp_path / "home"), XDG_CONFIG_HOME=str(tmp_path)),
    )
    examined(done.returncode, done.stdout, done.stderr).has(subject, status, seen)


# --- this machine's own queues


def test_queued_calls_that_no_process_looks_at_are_told_with_the_queue(tmp_path: Path, doctor: Doctor) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    plane = Dispatch(home / "dispatch.sqlite")
    SyncQueue("gpu", dispatch=plane).submit({"x": 1})
    done = doctor()
    done.has("local users", "ok", "1 processes have it open")
    done.has("local work", "ok", "1 queued, 0 running")
    plane.close()
    before = sorted(path.name for path in home.rglob("*"))
    done = doctor()
    done.has("local work", "warning", "1 queued, 0 running, and nobody takes them", "worker start --queue gpu")
    assert done.code == 0
    assert sorted(path.name for path in home.rglob("*")) == before


def test_the_command_that_would_help_can_be_copied_whatever_the_queue_is_called(tmp_path: Path, doctor: Doctor) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    plane = Dispatch(home / "dispatch.sqlite")
    SyncQueue("two words", dispatch=plane).submit({"x": 1})
    plane.close()
    doctor().has("local work", "warning", "1 queued", "worker start --queue 'two words'")


def test_what_a_killed_worker_left_is_counted_and_left_alone(tmp_path: Path, doctor: Doctor) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    program = (
        "import os, signal, sys\n"
        "from lakeshore import Dispatch, SyncQueue\n"
        "q = SyncQueue('cpu', dispatch=Dispatch(sys.argv[1]))\n"
        "q.submit({'x': 1}); q.claim()\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", program, home / "dispatch.sqlite"], check=False, env=environment())
    locks = list((home / "dispatch.sqlite.d" / "workers").iterdir())
    done = doctor()
    done.has("local users", "ok", "0 processes have it open; 1 locks")
    done.has("local work", "warning", "0 queued, 1 running; what 1 dead workers ran waits", "lakeshore worker start")
    assert list((home / "dispatch.sqlite.d" / "workers").iterdir()) == locks


def test_a_home_that_others_may_write_and_one_that_cannot_be_made_are_failures(tmp_path: Path, doctor: Doctor) -> None:
    home = tmp_path / "home"
    home.mkdir()
    Dispatch(home / "dispatch.sqlite").close()
    home.chmod(0o777)
    doctor().has("local queues", "failure", "mode 777", "chmod 700")
    (tmp_path / "file").touch()
    done = doctor(LAKESHORE_HOME=str(tmp_path / "file" / "below"))
    done.has("local queues", "failure", "cannot be made", "LAKESHORE_HOME")


# --- variables and the login


@pytest.mark.parametrize(
    ("variables", "status", "seen", "advice"),
    [
        ({"LAKESHORE_ULR": "x"}, "warning", "LAKESHORE_ULR is set, and nothing reads it", "was LAKESHORE_URL meant"),
        ({"LAKSHORE_CLIENT_TOKEN": "tell-nobody"}, "warning", "nothing reads it", "LAKESHORE_CLIENT_TOKEN"),
        ({"LAKESHORE_URL": "somewhere"}, "failure", "LAKESHORE_URL: ", "http://host:port"),
        ({"LAKESHORE_NAMESPACE": "No Such"}, "failure", "LAKESHORE_NAMESPACE: ", "namespace"),
        ({"LAKESHORE_RUNTIME_POLICY": "lax"}, "failure", "'lax'", "strict, minor, off"),
        ({"LAKESHORE_CA_FILE": "/no/such.pem"}, "failure", "/no/such.pem cannot be read", "PEM"),
        ({"LAKESHORE_ROOT": "/no/such/root"}, "warning", "no directory", "mount"),
        ({"LAKESHORE_STATE_DIR": "state"}, "warning", "is relative", "full path"),
        ({"LAKESHORE_CLIENT_TOKEN": "tell-nobody"}, "warning", "no LAKESHORE_URL", "export LAKESHORE_URL"),
        (
            {"LAKESHORE_CLIENT_TOKEN": "tell-nobody", "LAKESHORE_TOKEN": "tell-nobody-else"},
            "warning",
            "LAKESHORE_CLIENT_TOKEN and LAKESHORE_TOKEN differ",
            "unset one",
        ),
        ({"LAKESHORE_TOKEN": "tell-nobody", "LAKESHORE_ANON": "1"}, "warning", "LAKESHORE_ANON=1", "unset one"),
        (
            {"LAKESHORE_URL": "http://127.0.0.1:1", "LAKESHORE_SERVER": "http://127.0.0.1:2"},
            "warning",
            "different servers",
            "unset one",
        ),
        ({"LAKESHORE_ENV": "production"}, "warning", "SECRETS_KEY is not set", "refuses to start"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_variables_that_are_unknown_unusable_or_contradict_each_other_are_told(
    doctor: Doctor, variables: dict[str, str], status: str, seen: str, advice: str
) -> None:
    done = doctor(**variables)
    done.has("variables", status, seen, advice)
    assert "tell-nobody" not in done.text


def test_a_login_that_others_can_read_is_a_failure_that_does_not_show_it(tmp_path: Path, doctor: Doctor) -> None:
    saved = tmp_path / "config" / "lakeshore" / "auth.yml"
    saved.parent.mkdir(parents=True)
    saved.write_text("server: http://127.0.0.1:1\nnamespace: ours\ntoken: tell-nobody\n")
    saved.chmod(0o600)
    done = doctor("--timeout", "3")
    done.has("login", "ok", "your programs' calls want LAKESHORE_URL")
    done.has("login", "ok", "http://127.0.0.1:1, namespace ours, with a token")
    done = doctor("--timeout", "3", LAKESHORE_URL="http://127.0.0.1:1")
    assert "LAKESHORE_URL" not in done.one("login", "ok")["seen"]
    saved.chmod(0o644)
    done = doctor("--timeout", "3")
    done.has("login", "failure", "can be read by others", "log in")
    saved.write_text("token: [tell-nobody\n")
    done.text += doctor("--timeout", "3").text
    assert "tell-nobody" not in done.text


# --- what it looks like


def shown(tmp_path: Path, *, terminal: bool, **variables: str) -> str:
    command = [sys.executable, "-m", "lakeshore", "doctor"]
    env = environment(
        LAKESHORE_HOME=str(tmp_path / "home"),
        LAKESHORE_STATE_DIR=str(tmp_path / "state"),
        XDG_CONFIG_HOME=str(tmp_path),
        LAKESHORE_RUNTIME_POLICY="lax",
        COLUMNS="60",
        TERM="xterm",
        **variables,
    )
    if "NO_COLOR" not in variables:
        env.pop("NO_COLOR", None)
    if not terminal:
        return subprocess.run(command, check=False, capture_output=True, env=env).stdout.decode()
    ours, theirs = os.openpty()
    with subprocess.Popen(command, stdout=theirs, stderr=subprocess.DEVNULL, env=env) as process:
        os.close(theirs)
        pieces = []
        while True:
            try:
                piece = os.read(ours, 65536)
            except OSError:  # how a terminal ends
                break
            if not piece:
                break
            pieces.append(piece)
        os.close(ours)
        process.wait(60)
    return b"".join(pieces).decode().replace("\r\n", "\n")


def test_colour_and_wrapping_are_for_terminals(tmp_path: Path) -> None:
    piped = shown(tmp_path, terminal=False)
    assert "\x1b" not in piped
    assert "✗ variables     LAKESHORE_RUNTIME_POLICY='lax'\n                → one of strict, minor, off\n" in piped
    on_terminal = shown(tmp_path, terminal=True)
    assert "\x1b[31m✗ variables" in on_terminal
    assert max(len(line) for line in on_terminal.replace("\x1b[32m", "").splitlines() if "/" not in line) <= 70
    assert "\x1b" not in shown(tmp_path, terminal=True, NO_COLOR="1")
    assert "x variables" in shown(tmp_path, terminal=False, PYTHONIOENCODING="ascii")
