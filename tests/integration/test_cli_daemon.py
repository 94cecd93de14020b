"""`lakeshore daemon`: what is listed, shown, named, ordered and dropped, against a real server with daemons by hand."""

from __future__ import annotations

import hashlib
import io
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cli_shell import Shell, box
from exec_peer import Peer
from served import ADMIN, JSON, Served, new_id

from lakeshore.cli import confirming
from lakeshore.cli.exits import ExitCode

Run = Callable[..., tuple[int, str, str]]
NUMBERS = itertools.count(1)


class Named(Peer):
    """A daemon of that label."""

    label = ""

    def __init__(self, server: Served, label: str, **more: Any) -> None:
        self.label = label
        super().__init__(server, **more)

    def post(self, path: str, body: Any, **more: Any) -> Any:
        if path == "/v1/daemon/hello":
            body |= {"label": self.label, "tags": ["gpu:h100"], "versions": {"daemon": "0.1.4", "protocol": "1"}}
        return super().post(path, body, **more)


@pytest.fixture
def ns(server: Served, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    name = f"ns-{new_id()}"
    assert server.post("/v1/admin/namespaces", {"name": name}, encoding=JSON).status == 201
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("LAKESHORE_URL", server.url)
    monkeypatch.setenv("LAKESHORE_NAMESPACE", name)
    return name


@pytest.fixture
def at_a_terminal(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Somebody is there and answers so."""

    def answer(text: str) -> None:
        monkeypatch.setattr(confirming, "somebody_is_there", lambda: True)
        monkeypatch.setattr("lakeshore.cli.daemon.drop.somebody_is_there", lambda: True)
        monkeypatch.setattr(sys, "stdin", io.StringIO(text))

    return answer


def rows(run: Run) -> list[dict[str, Any]]:
    code, out, _err = run("daemon", "list", "--json")
    assert code == 0
    found: list[dict[str, Any]] = json.loads(out)
    return found


# --- seen


@pytest.mark.inventory("C-464", "C-222", "C-221")
def test_the_list_has_the_documented_block(server: Served, ns: str, run: Run) -> None:
    Named(server, "Datium.local", ns=ns, machine="Datium.local").poll()
    code, out, err = run("daemon", "list")
    assert (code, err) == (0, f"✓ 1 daemon in '{ns}':\n")
    head, line = out.splitlines()
    assert head.split() == ["label", "state", "runners", "queues", "tags", "version", "seen", "machine_id"]
    cells = line.split()
    assert cells[:6] == ["Datium.local", "active", "process", "—", "gpu:h100", "0.1.4"]
    assert cells[7] == "Datium.local"


@pytest.mark.inventory("C-471", "S-302", "C-694")
def test_json_is_the_array_of_rows_the_freshest_first(server: Served, ns: str, run: Run) -> None:
    made = [Named(server, f"d-{n}", ns=ns, queue="q" if n else None) for n in range(3)]
    made[0].poll()
    found = rows(run)
    assert {row["label"] for row in found} == {"d-0", "d-1", "d-2"}
    assert found[0]["label"] == "d-0"
    assert {"id", "label", "state", "lastSeenAt", "queues", "runners", "tags", "machineId"} <= found[0].keys()
    assert {row["label"]: row["queues"] for row in found} == {"d-0": [], "d-1": ["q"], "d-2": ["q"]}


def test_a_namespace_without_daemons_says_how_to_add_one(ns: str, run: Run) -> None:
    code, out, err = run("daemon", "list")
    assert (code, out) == (0, "")
    assert err.startswith(f"no daemons in '{ns}'; ")


@pytest.mark.inventory("C-223", "C-696", "C-1275")
def test_show_has_versions_runners_queues_keys_and_how_scripts_ended(server: Served, ns: str, run: Run) -> None:
    peer = Named(server, "box", ns=ns, queue="training")
    assert run("daemon", "setup", "box", "--script", __file__, "--name", "docker")[0] == 0
    (command,) = peer.poll()
    code, out, _err = run("daemon", "show", "box")
    assert code == 0
    assert "docker  delivered  " in out
    told = {"setup_id": command["id"], "exit_code": 3, "stdout": b"", "stderr": b"no such package\n", "duration_ms": 5}
    event = {"worker_id": peer.id, "kind": "invocation.event", "type": "setup", "payload": told}
    assert peer.post("/v1/daemon/event", event).status == 200
    out = run("daemon", "show", "box")[1]
    facts = dict(line.split(None, 1) for line in out.splitlines() if line and line[0] != " " and " " in line)
    assert (facts["label"], facts["queues"], facts["runners"], facts["version"]) == (
        "box",
        "training",
        "process",
        "0.1.4",
    )
    assert "docker  failed  exit 3" in out
    assert "no such package" in out
    assert json.loads(run("daemon", "show", peer.id, "--json")[1])["keys"] == []


@pytest.mark.inventory("C-874")
def test_watch_looks_again_until_ctrl_c_and_a_bare_one_means_two_seconds(
    server: Served, ns: str, tmp_path: Path
) -> None:
    Named(server, "one", ns=ns)
    with Shell(server.url, tmp_path, ns).start("daemon", "list", "--watch", "0.1") as process:
        assert process.stdout is not None
        seen = b""
        while seen.count(f"✓ 1 daemon in '{ns}':".encode()) < 3:
            seen += process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
        assert process.stderr is not None
        assert process.stderr.read() == b"\n"


# --- named


@pytest.mark.inventory("C-240", "S-319", "C-239")
def test_a_word_is_an_id_a_label_a_machine_or_the_only_beginning_of_one(server: Served, ns: str, run: Run) -> None:
    one, two = Named(server, "box-1", ns=ns, machine="m-one"), Named(server, "box-12", ns=ns, machine="m-two")

    def shown(word: str) -> tuple[int, str]:
        code, out, err = run("daemon", "show", word, "--json")
        return code, json.loads(out)["id"] if code == 0 else err

    for word, wanted in {"box-1": one, one.id: one, "m-one": one, "m-t": two, "box-12": two, two.id[:9]: two}.items():
        assert shown(word) == (0, wanted.id), word
    code, said = shown("box")
    assert code == ExitCode.USAGE
    assert said.startswith("error: 'box' names 2 daemons:\n")
    assert all(f"  {peer.id}  {peer.label}  joining  seen " in said for peer in (one, two))
    assert "hint: name one by its worker id" in said
    assert shown("nobody") == (1, "error: no daemon is called 'nobody'\nhint: `lakeshore daemon list` shows them\n")
    assert shown("0" * 24)[0] == 1


@pytest.mark.inventory("C-706", "C-1023")
def test_id_takes_the_word_for_an_id(server: Served, ns: str, run: Run) -> None:
    Named(server, "box", ns=ns)
    code, _out, err = run("daemon", "exec", "--id", "box", "true")
    assert code == 1
    assert err.startswith("error: no worker 'box'") or "unknown worker" in err


def test_two_of_one_label_are_told_apart_by_their_ids(server: Served, ns: str, run: Run) -> None:
    twins = [Named(server, "twin", ns=ns) for _ in range(2)]
    code, _out, err = run("daemon", "exec", "twin", "true")
    assert code == ExitCode.USAGE
    assert all(peer.id in err for peer in twins)


# --- ordered


@pytest.mark.inventory("C-226", "C-703", "S-314")
def test_setup_sends_the_text_of_a_script(server: Served, ns: str, run: Run, tmp_path: Path) -> None:
    peer = Named(server, "box", ns=ns)
    script = tmp_path / "docker.sh"
    script.write_text("echo installing\n")
    flags = ("--sudo", "--refresh-capabilities", "--name", "docker")
    code, out, err = run("daemon", "setup", "box", "--script", str(script), *flags)
    assert (code, out) == (0, "queued docker for box\n")
    assert "`lakeshore daemon show box`" in err
    assert json.loads(run("daemon", "setup", "box", "--script", str(script), "--json")[1])["position"] == 2
    (command,) = peer.poll()
    assert command["kind"] == "setup"
    assert command["body"] == {
        "script": "echo installing\n",
        "sudo": True,
        "refresh_capabilities": True,
        "name": "docker",
    } | {key: value for key, value in command["body"].items() if key == "setup_id"}


@pytest.mark.inventory("C-700", "C-722")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("setup", "x"), "missing option '--script'"),
        (("setup", "x", "--script", "/nowhere/x.sh"), "cannot read /nowhere/x.sh: No such file or directory"),
        (("hibernate", "x"), "missing option '--until'"),
        (("hibernate", "x", "--until", "soon"), "invalid value for '--until': 'soon' is no time"),
        (("kill",), "name one daemon, or several with --prefix"),
        (("kill", "x", "--prefix", "y"), "name one daemon, or several with --prefix"),
        (("kill", "--prefix", ""), "invalid value: an empty prefix is every daemon"),
        (("cleanup", "--older-than", "8d", "--yes"), "invalid value for '--older-than'"),
        (("cleanup", "--older-than", "0", "--yes"), "invalid value for '--older-than'"),
        (("update",), "name one daemon, or several with --prefix, or --all"),
        (("update", "x", "--all"), "name one daemon, or several"),
        (("update", "--add-queue", "q"), "--add-queue and --remove-queue are for one daemon"),
        (("update", "x", "--add-queue", "q", "--version", "1"), "--add-queue and --remove-queue do not go with --vers"),
        (("update", "x", "--sha256", "0" * 64), "--sha256 is that of the file behind --url"),
        (("ota", "x"), "missing option '--version'"),
        (("set-target-version",), "name a version, or --clear"),
        (("set-target-version", "1", "--clear"), "name a version, or --clear"),
        (("exec", "--env", "A", "x", "true"), "invalid value for '--env': 'A' is not K=V"),
        (("exec", "x", ""), "missing the command that is to run"),
        (("exec", "--stdin", "/nowhere/in", "x", "cat"), "cannot read /nowhere/in: No such file or directory"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_is_typed_wrong_is_refused_before_anything_is_asked(
    words: tuple[str, ...], said: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKESHORE_URL", "http://127.0.0.1:1")
    code, out, err = run("daemon", *words)
    assert (code, out) == (ExitCode.USAGE, "")
    assert err.startswith(f"error: {said}")


@pytest.mark.inventory("C-227", "S-313", "C-1284")
def test_hibernate_takes_a_length_or_an_instant_and_the_past_is_refused(server: Served, ns: str, run: Run) -> None:
    peer = Named(server, "box", ns=ns)
    peer.poll()
    before = datetime.now(UTC)
    for text, length in {"+30s": 30, "+5m": 300, "+1h": 3600, "+3d": 259_200}.items():
        told = json.loads(run("daemon", "hibernate", "box", "--until", text, "--json")[1])
        until = datetime.fromtimestamp(told["until_epoch_s"], UTC)
        assert timedelta(0) <= until - before - timedelta(seconds=length) < timedelta(seconds=20)
    code, out, _err = run("daemon", "hibernate", "box", "--until", "2999-06-01T00:00:00Z")
    assert code == 0
    assert out.startswith("box rests until 2999-06-01")
    code, _out, err = run("daemon", "hibernate", "box", "--until", "2001-06-01T00:00:00Z")
    assert code == 1
    assert "past" in err


@pytest.mark.inventory("C-228", "S-315")
def test_reset_ends_the_back_off_at_the_next_poll(server: Served, ns: str, run: Run) -> None:
    peer = Named(server, "box", ns=ns)
    assert run("daemon", "reset", "box")[:2] == (0, "queued for box: polling as usual\n")
    assert [command["kind"] for command in peer.poll()] == ["reset_backoff"]


def test_what_is_ordered_of_one_that_hibernates_says_when_it_hears_of_it(
    server: Served, ns: str, run: Run, tmp_path: Path
) -> None:
    peer = Named(server, "box", ns=ns)
    (tmp_path / "tools.sh").write_text("true\n")
    orders = (
        ("daemon", "reset", "box"),
        ("daemon", "setup", "box", "--script", str(tmp_path / "tools.sh")),
        ("daemon", "exec", "--wait", "0.01", "box", "true"),
    )
    assert all("rests until" not in run(*order)[2] for order in orders)
    assert run("daemon", "hibernate", "box", "--until", "2999-06-01T00:00:00Z")[0] == 0
    hears = [command["kind"] for command in peer.poll()]
    assert "hibernate" in hears
    peer.poll(capacity=0)
    for order in orders:
        assert "box rests until 2999-06-01 " in run(*order)[2], order


@pytest.mark.inventory("C-994", "C-995", "C-230")
def test_update_changes_the_queues_of_one_daemon_and_nothing_else(server: Served, ns: str, run: Run) -> None:
    peer = Named(server, "train-01", ns=ns, queue="scratch")
    for name in ("eval", "prep"):
        body = {"invocation_id": new_id(), "queue": name, "args_blob": b""}
        assert server.post("/v1/producer/submit", body, X_LS_Namespace=ns).status == 200
    words = ("--add-queue", "eval", "--add-queue", "prep", "--remove-queue", "scratch")
    assert run("daemon", "update", "train-01", *words)[:2] == (0, "train-01: queues eval, prep\n")
    assert [command["kind"] for command in peer.poll() if command["kind"] == "ota_update"] == []
    assert run("daemon", "update", peer.id, "--remove-queue", "eval")[:2] == (0, f"{peer.id}: queues prep\n")
    code, _out, err = run("daemon", "update", "train-01", "--add-queue", "none-such")
    assert code == 1
    assert "none-such" in err
    assert run("daemon", "update", "train-01", "--add-queue", "default")[0] == 1
    assert rows(run)[0]["queues"] == ["prep"]


# --- versions


@pytest.mark.inventory("C-232", "C-996", "S-317")
def test_the_target_version_is_set_shown_and_cleared(ns: str, run: Run) -> None:
    code, out, err = run("daemon", "target-version")
    assert (code, out) == (0, "")
    assert err.startswith(f"no target version in '{ns}'")
    assert run("daemon", "set-target-version", "0.1.4")[:2] == (0, f"target version in '{ns}': 0.1.4\n")
    assert run("daemon", "target-version")[:2] == (0, "0.1.4\n")
    assert json.loads(run("daemon", "target-version", "--json")[1])["version"] == "0.1.4"
    assert run("daemon", "set-target-version", "--clear")[0] == 0
    assert json.loads(run("daemon", "target-version", "--json")[1])["version"] is None


@pytest.fixture
def release(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A file to push, and its checksum."""
    file = tmp_path / "nymph"
    file.write_bytes(os.urandom(300_000))
    yield file, hashlib.sha256(file.read_bytes()).hexdigest()


@pytest.fixture
def operator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKESHORE_ADMIN_TOKEN", ADMIN)


@pytest.mark.usefixtures("operator")
@pytest.mark.inventory("C-265", "C-266", "C-469")
@pytest.mark.inventory("S-686", "C-477", "C-1444")
@pytest.mark.inventory("C-1406")
def test_push_prints_the_documented_block_and_json_has_the_path_and_the_whole_address(
    server: Served, ns: str, run: Run, release: tuple[Path, str]
) -> None:
    file, sha256 = release
    code, out, _err = run("nymph", "push", str(file))
    path = f"/v1/admin/nymph-releases/{sha256}"
    assert (code, out.splitlines()) == (
        0,
        [
            "✓ uploaded nymph (0.3 MB)",
            f"  sha256: {sha256}",
            "  label:  nymph",
            "  target: any",
            f"  url:    {path}",
            f"  full:   {server.url}{path}",
        ],
    )
    told = json.loads(run("nymph", "push", str(file), "--name", "canary", "--json")[1])
    assert (told["url"], told["sha256"], told["label"], told["full_url"]) == (path, sha256, "canary", server.url + path)
    listed = json.loads(run("nymph", "list", "--json")[1])
    assert [row["label"] for row in listed if row["sha256"] == sha256] == ["canary"]
    assert sha256 in run("nymph", "list")[1]
    code, _out, err = run("nymph", "push", "/nowhere/nymph")
    assert (code, err) == (ExitCode.USAGE, "error: cannot read /nowhere/nymph: No such file or directory\n")


@pytest.mark.usefixtures("operator")
@pytest.mark.inventory("C-229", "C-993", "C-1470")
@pytest.mark.inventory("C-268")
def test_update_rolls_a_pushed_file_out_to_one_to_a_prefix_and_to_all(
    server: Served, ns: str, run: Run, release: tuple[Path, str]
) -> None:
    file, sha256 = release
    peers = [Named(server, label, ns=ns) for label in ("fleet-00", "fleet-01", "other")]
    told = json.loads(run("nymph", "push", str(file), "--json")[1])
    custom = ("--url", server.url + told["url"], "--sha256", told["sha256"])

    def ordered() -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for peer in peers:
            found[peer.label] = [one["body"]["sha256"] for one in peer.poll() if one["kind"] == "ota_update"]
        return found

    assert run("daemon", "update", "other", *custom)[0] == 0
    assert ordered() == {"fleet-00": [], "fleet-01": [], "other": [sha256]}
    code, out, _err = run("daemon", "update", "--prefix", "fleet-", *custom, "--yes")
    assert (code, len(out.splitlines())) == (0, 2)
    assert ordered() == {"fleet-00": [sha256], "fleet-01": [sha256], "other": []}
    assert len(json.loads(run("daemon", "update", "--all", *custom, "--yes", "--json")[1])) == 3
    ordered()
    assert run("nymph", "push", str(file), "--update", "other")[0] == 0
    assert ordered()["other"] == [sha256]
    code, out, err = run("daemon", "update", "--all", *custom)
    assert (code, out, err) == (ExitCode.USAGE, "", "error: nobody can be asked here\nhint: add --yes\n")
    assert ordered() == {"fleet-00": [], "fleet-01": [], "other": []}


# --- dropped


@pytest.mark.inventory("C-233", "C-1000", "C-1342")
@pytest.mark.inventory("S-318")
def test_kill_drops_one_by_its_name_and_many_by_a_prefix(server: Served, ns: str, run: Run) -> None:
    peers = [Named(server, label, ns=ns) for label in ("fleet-0", "fleet-1", "keep", "box")]
    assert run("daemon", "kill", "box")[:2] == (0, f"killed box ({peers[3].id})\n")
    code, out, err = run("daemon", "kill", "--prefix", "fleet-")
    assert (code, out, err) == (ExitCode.USAGE, "", "error: nobody can be asked here\nhint: add --yes\n")
    assert len(rows(run)) == 3
    code, out, _err = run("daemon", "kill", "--prefix", "fleet-", "--yes", "--json")
    assert code == 0
    assert {row["label"] for row in json.loads(out)} == {"fleet-0", "fleet-1"}
    assert [row["label"] for row in rows(run)] == ["keep"]
    assert run("daemon", "kill", peers[2].id, "--no-terminate")[0] == 0
    assert run("daemon", "kill", "--prefix", "fleet-", "--yes")[::2] == (0, "no daemon's label begins with 'fleet-'\n")


@pytest.mark.inventory("C-379")
def test_a_terminal_is_asked_before_many_are_killed_or_one_whose_name_was_only_begun(
    server: Served, ns: str, run: Run, at_a_terminal: Callable[[str], None]
) -> None:
    Named(server, "fleet-0", ns=ns)
    for words in (("--prefix", "fleet"), ("fleet",)):
        at_a_terminal("n\n")
        code, out, err = run("daemon", "kill", *words)
        assert (code, out) == (1, "")
        assert "fleet-0" in err
        assert err.endswith("nothing was killed\n")
    at_a_terminal("y\n")
    assert run("daemon", "kill", "fleet")[0] == 0
    assert rows(run) == []
    Named(server, "whole", ns=ns)
    at_a_terminal("")
    assert run("daemon", "kill", "whole")[0] == 0


@pytest.mark.inventory("C-234", "C-479", "C-1347")
@pytest.mark.inventory("C-235", "C-380")
def test_cleanup_drops_who_was_not_seen_for_long_after_asking(
    server: Served, ns: str, run: Run, at_a_terminal: Callable[[str], None]
) -> None:
    Named(server, "old", ns=ns)
    time.sleep(0.4)
    brief = ("--older-than", "0.3s")
    told = json.loads(run("daemon", "cleanup", *brief, "--dry-run", "--json")[1])
    assert (told["count"], [row["label"] for row in told["deleted"]]) == (1, ["old"])
    assert run("daemon", "cleanup", *brief)[0] == ExitCode.USAGE
    at_a_terminal("n\n")
    assert run("daemon", "cleanup", *brief)[0] == 1
    assert len(rows(run)) == 1
    at_a_terminal("y\n")
    code, out, err = run("daemon", "cleanup", *brief)
    assert (code, out) == (0, "old\n")
    assert err.endswith(": dropped\n")
    assert run("daemon", "cleanup", "--older-than", "24h", "--yes", "--json")[0] == 0
    assert rows(run) == []


# --- this machine's own


@pytest.mark.inventory("C-236", "C-1006", "C-1482")
@pytest.mark.inventory("C-1007", "C-1008")
def test_status_and_stop_look_at_this_machines_own_daemon(
    server: Served, ns: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DREAMLAKE_STATE_DIR", str(tmp_path / "none"))
    assert run("daemon", "status")[0] == 1
    assert json.loads(run("daemon", "status", "--json")[1])["running"] is False
    assert run("daemon", "stop")[0] == 0
    with box(server, tmp_path / "host", label="here", ns=ns) as here:
        monkeypatch.delenv("DREAMLAKE_STATE_DIR")
        monkeypatch.setenv("HOME", here.env["HOME"])
        told = json.loads(run("daemon", "status", "--json")[1])
        assert told == {"running": True, "pid": here.process.pid, "worker_id": here.id, "server": server.url}
        assert f"process {here.process.pid}\n" in run("daemon", "status")[1]
        assert run("daemon", "stop", "--timeout", "30")[:2] == (0, f"stopped process {here.process.pid}\n")
        assert here.process.wait(60) == 0
        assert run("daemon", "status")[0] == 1


@pytest.mark.inventory("C-740", "C-741", "C-1009")
def test_stop_waits_as_long_as_it_is_told_and_force_kills(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DREAMLAKE_STATE_DIR", str(tmp_path))
    stubborn = "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
    with subprocess.Popen([sys.executable, "-c", stubborn], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        (tmp_path / "local.json").write_text(json.dumps({"pid": process.pid, "server": "x", "started_at": time.time()}))
        code, out, err = run("daemon", "stop", "--timeout", "0.2")
        assert (code, out) == (1, "")
        assert err.startswith(f"error: process {process.pid} has not ended within 0.2 s\nhint: ")
        assert run("daemon", "stop", "--force")[0] == 0
        assert process.wait(60) == -signal.SIGKILL


# --- what is not there


@pytest.mark.inventory("C-237", "C-1429")
def test_start_was_removed(run: Run) -> None:
    code, out, err = run("daemon", "start", "--local")
    assert (code, out) == (1, "")
    assert err.startswith("error: there is no `daemon start` any more\nhint: `lakeshore worker start`")


# --- tokens and keys


@pytest.mark.usefixtures("operator")
@pytest.mark.inventory("C-1471", "S-084", "S-085")
def test_enroll_tokens_are_made_listed_and_burned(ns: str, run: Run) -> None:
    code, out, err = run("admin", "enroll-tokens", "create", "rack-1", "--ttl", "30m")
    assert code == 0
    plaintext = out.strip()
    assert plaintext
    assert "shown this once" in err
    (row,) = json.loads(run("admin", "enroll-tokens", "list", "--json")[1])
    assert (row["label"], row["spent"], plaintext.startswith(row["prefix"])) == ("rack-1", False, True)
    assert plaintext not in run("admin", "enroll-tokens", "ls")[1]
    assert run("admin", "enroll-tokens", "revoke", row["id"])[:2] == (0, f"revoked rack-1 ({row['id']})\n")
    assert json.loads(run("admin", "enroll-tokens", "list", "--json")[1])[0]["spent"] is True
    assert run("admin", "enroll-tokens", "revoke", "none")[0] == 1


def test_a_daemon_that_does_not_sign_has_no_keys(server: Served, ns: str, run: Run) -> None:
    Named(server, "plain", ns=ns)
    code, out, err = run("daemon", "keys", "list", "plain")
    assert (code, out, err) == (0, "", "plain has no keys: it does not sign its requests\n")
    assert run("daemon", "keys", "list", "plain", "--json")[1] == "[]\n"
    assert run("daemon", "keys", "revoke", "plain", "none")[0] == 1
