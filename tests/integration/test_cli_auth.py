"""`lakeshore auth` and `lakeshore admin` against real servers, one with tokens and one in open mode."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pytest
from cli_typed import typed
from served import ADMIN, JSON, Served, environment, new_id, running

from lakeshore.cli.auth import login_url

Run = Callable[..., tuple[int, str, str]]
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def own_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No login, and no server's state, of anybody else."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("LAKESHORE_STATE_DIR", str(tmp_path / "no-state"))
    monkeypatch.setattr(sys, "stdin", io.StringIO())


@pytest.fixture
def login_file(tmp_path: Path) -> Path:
    return tmp_path / "config" / "lakeshore" / "auth.yml"


def minted(served: Served, ns: str, name: str | None = None, **more: str) -> str:
    body = {"name": name or f"t-{new_id()}", **more}
    return str(served.post(f"/v1/namespaces/{ns}/tokens", body, encoding=JSON).body["plaintext"])


def made(served: Served, org: str | None = None) -> str:
    name = f"ns-{new_id()}"
    assert served.post("/v1/admin/namespaces", {"name": name, "orgId": org}, encoding=JSON).status == 201
    return name


# --- login


@pytest.mark.inventory("C-060", "C-063", "C-070")
def test_login_checks_the_token_and_says_what_it_saved(secured_server: Served, run: Run, login_file: Path) -> None:
    ns = made(secured_server)
    token = minted(secured_server, ns)
    code, out, _err = run("auth", "login", "--server", secured_server.url + "/", "--namespace", ns, "--token", token)
    assert code == 0
    assert out == (
        f"Saved auth to {login_file}\n"
        f"  server:    {secured_server.url}\n"
        f"  namespace: {ns}\n"
        f"  token:     {token[:8]}...\n"
        "  authMode:  token\n"
    )
    assert stat.S_IMODE(login_file.stat().st_mode) == 0o600


@pytest.mark.inventory("C-071", "C-061", "C-936")
def test_status_asks_again_and_prints_the_documented_block(secured_server: Served, run: Run, login_file: Path) -> None:
    ns = made(secured_server)
    token = minted(secured_server, ns, "laptop-2026-01-02T03-04-05")
    run("auth", "login", "--server", secured_server.url, "--namespace", ns, "--token", token)
    code, out, err = run("auth", "status")
    assert (code, err) == (0, "")
    assert re.fullmatch(
        "Auth OK.\n"
        f"  config path: {re.escape(str(login_file))}\n"
        f"  server:      {re.escape(secured_server.url)}\n"
        f"  namespace:   {ns}\n"
        f"  token:       {re.escape(token[:8])}\\.\\.\\. \\(laptop-2026-01-02T03-04-05\\)\n"
        r"  lastUsedAt:  \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z" + "\n"
        "  authMode:    token\n",
        out,
    ), out
    code, out, _err = run("auth", "status", "--json")
    told = json.loads(out)
    assert (told["configPath"], told["server"], told["namespace"]) == (str(login_file), secured_server.url, ns)
    assert (told["tokenPrefix"], told["authMode"], told["scope"]) == (token[:8], "token", "full")
    assert token not in out


@pytest.mark.inventory("C-074", "C-837", "C-072")
def test_a_refused_token_is_not_saved(secured_server: Served, run: Run, login_file: Path) -> None:
    ns = made(secured_server)
    token = minted(secured_server, ns)
    arguments = ("auth", "login", "--server", secured_server.url)
    for refused, flags in (
        ("whoami failed (401): invalid token", ("--namespace", ns, "--token", "dlk_typo")),
        (f"whoami failed (403): this token is for namespace '{ns}', not for 'default'", ("--token", token)),
        ("whoami failed (403): ", ("--namespace", "nowhere", "--token", token)),
    ):
        code, out, err = run(*arguments, *flags)
        assert (code, out) == (1, "")
        assert err.startswith(f"error: {refused}")
        assert "hint: " in err
    assert not login_file.exists()
    code, out, err = run("auth", "status")
    assert (code, out) == (1, "")
    assert "No saved auth." in err


def test_a_login_that_fails_leaves_the_one_before(secured_server: Served, run: Run, login_file: Path) -> None:
    run("auth", "login", "--server", secured_server.url, "--token", minted(secured_server, "default"))
    before = login_file.read_text()
    assert run("auth", "login", "--server", secured_server.url, "--token", "dlk_typo")[0] == 1
    assert run("auth", "login", "--server", "http://127.0.0.1:1", "--token", "dlk_x")[0] == 1
    assert login_file.read_text() == before


@pytest.mark.inventory("C-066", "C-067", "C-957")
@pytest.mark.inventory("C-1406")
def test_the_admin_token_mints_a_token_of_the_namespace_and_is_not_saved(
    secured_server: Served, run: Run, login_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKESHORE_ADMIN_TOKEN", ADMIN)
    ns = f"ns-{new_id()}"
    for _ in range(3):  # also twice in a second
        code, out, err = run("auth", "login", "--server", secured_server.url, "--namespace", ns, "--name", "laptop")
        assert (code, ADMIN in out + err + login_file.read_text()) == (0, False)
    assert "authMode:  token" in out
    monkeypatch.delenv("LAKESHORE_ADMIN_TOKEN")
    told = json.loads(run("auth", "status", "--json")[1])
    assert re.match(r"laptop-\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d", told["tokenName"])
    assert (told["namespace"], told["authMode"]) == (ns, "token")


@pytest.mark.inventory("C-075", "S-045")
def test_an_admin_token_that_is_not_the_servers_mints_nothing(
    secured_server: Served, run: Run, login_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKESHORE_ADMIN_TOKEN", "of-another-server")
    code, _out, err = run("auth", "login", "--server", secured_server.url)
    assert code == 1
    assert err.startswith("error: mint failed (401): ")
    assert "of-another-server" not in err
    assert not login_file.exists()


@pytest.mark.inventory("C-065", "C-955", "C-384")
def test_on_a_terminal_the_token_is_asked_for_and_not_shown(
    secured_server: Served, tmp_path: Path, login_file: Path
) -> None:
    token = minted(secured_server, "default")
    code, screen = typed(token.encode() + b"\n", secured_server.url, tmp_path)
    assert code == 0, screen
    assert b"Saved auth to" in screen
    assert token.encode() not in screen
    assert token in login_file.read_text()


@pytest.mark.parametrize("key", [b"\x03", b"\x04"], ids=["Ctrl-C", "Ctrl-D"])
def test_leaving_the_question_exits_130_and_saves_nothing(
    secured_server: Served, tmp_path: Path, login_file: Path, key: bytes
) -> None:
    code, screen = typed(key, secured_server.url, tmp_path)
    assert code == 130, screen
    assert b"Traceback" not in screen
    assert not login_file.exists()


@pytest.mark.inventory("C-068")
def test_where_nobody_can_be_asked_it_exits_2(secured_server: Served, run: Run) -> None:
    code, out, err = run("auth", "login", "--server", secured_server.url)
    assert (code, out) == (2, "")
    assert "--token" in err


def test_a_token_may_come_by_stdin(secured_server: Served, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    token = minted(secured_server, "default")
    monkeypatch.setattr(sys, "stdin", io.StringIO(token + "\n"))
    assert run("auth", "login", "--server", secured_server.url, "--token", "-")[0] == 0
    assert run("auth", "status")[0] == 0


@pytest.mark.inventory("C-073", "C-869")
def test_the_mode_is_told_of_open_servers_and_of_the_admin_token(
    server: Served, secured_server: Served, run: Run, login_file: Path
) -> None:
    assert "token:     <open>\n  authMode:  open\n" in run("auth", "login", "--server", server.url, "--token", "")[1]
    assert "token:       <open>\n" in run("auth", "status")[1]
    code, out, err = run("auth", "login", "--server", secured_server.url, "--token", ADMIN)
    assert (code, "authMode:  admin" in out, ADMIN in out + err) == (0, True, False)
    assert "the admin token" in err
    assert "authMode:    admin" in run("auth", "status")[1]


@pytest.mark.inventory("C-046", "C-051", "C-1421")
def test_which_server_is_logged_in_to(
    server: Served, secured_server: Served, run: Run, login_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = minted(secured_server, "default")
    run("auth", "login", "--server", secured_server.url, "--token", token)
    login = ("auth", "login", "--token", token)
    assert f"server:    {secured_server.url}\n" in run(*login)[1], "the saved one"
    monkeypatch.setenv("LAKESHORE_URL", "http://127.0.0.1:1")
    assert run(*login)[0] == 1, "LAKESHORE_URL before the saved one"
    assert run("auth", "status")[0] == 0, "status is of the saved one"
    monkeypatch.setenv("LAKESHORE_SERVER", server.url)
    assert f"server:    {server.url}\n" in run(*login)[1], "LAKESHORE_SERVER before LAKESHORE_URL"
    flag = run(*login, "--server", secured_server.url)[1]
    assert f"server:    {secured_server.url}\n" in flag, "the flag before all"


@pytest.mark.inventory("C-046", "C-492")
def test_without_anything_the_documented_default_is_asked() -> None:
    assert login_url(None) == "http://localhost:8080"


@pytest.mark.inventory("C-050", "C-064")
@pytest.mark.parametrize("before", [True, False])
def test_the_namespace_may_stand_before_the_command_or_after_it(
    secured_server: Served, run: Run, login_file: Path, before: bool
) -> None:
    ns = made(secured_server)
    where = (("--namespace", ns), ()) if before else (("--namespace", "other"), ("--namespace", ns))
    token = minted(secured_server, ns)
    assert run(*where[0], "auth", "login", "--server", secured_server.url, "--token", token, *where[1])[0] == 0
    assert f"namespace:   {ns}\n" in run("auth", "status")[1]
    assert run("--namespace", "default", "auth", "status")[0] == 1
    assert run("auth", "status", "--namespace", "default")[0] == 1


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--namespace", "Not A Slug"), "'--namespace': 'Not A Slug' is not allowed: use 1 to 64 lower-case"),
        (("--name", "a b"), "'--name': 'a b' is not allowed: use 1 to 64 letters"),
        (("--server", "ftp://x"), "must start with http://"),
        (("--server", "http://user:hunter2@x"), "remove it and pass a token"),
    ],
)
def test_a_login_that_cannot_be_is_bad_usage(run: Run, flags: tuple[str, str], said: str) -> None:
    code, out, err = run("auth", "login", "--token", "t", *flags)
    assert (code, out) == (2, "")
    assert said in err
    assert "hunter2" not in err


# --- status and logout


@pytest.mark.inventory("C-072", "C-061", "C-958")
def test_status_sends_the_saved_token_to_no_other_server(
    secured_server: Served, server: Served, run: Run, login_file: Path
) -> None:
    run("auth", "login", "--server", secured_server.url, "--token", minted(secured_server, "default"))
    code, out, err = run("auth", "status", "--server", server.url, "--namespace", "other-ns")
    assert (code, out) == (1, "")
    assert f"no saved auth for {server.url}" in err
    assert f"lakeshore auth login --server {server.url}" in err


@pytest.mark.inventory("C-072", "C-080", "C-1311")
def test_a_token_that_was_revoked_since_is_told_by_status(secured_server: Served, run: Run, login_file: Path) -> None:
    row = secured_server.post("/v1/namespaces/default/tokens", {"name": f"t-{new_id()}"}, encoding=JSON).body
    run("auth", "login", "--server", secured_server.url, "--token", row["plaintext"])
    secured_server.call("DELETE", f"/v1/namespaces/default/tokens/{row['id']}")
    code, out, err = run("auth", "status")
    assert (code, out) == (1, "")
    assert err.startswith("error: whoami failed (403): token revoked\n")


@pytest.mark.inventory("C-062", "C-934")
def test_logout_forgets_the_login_and_once_more_is_no_error(secured_server: Served, run: Run, login_file: Path) -> None:
    run("auth", "login", "--server", secured_server.url, "--token", minted(secured_server, "default"))
    assert run("jobs", "list")[0] == 0
    assert run("auth", "logout") == (0, f"Removed {login_file}\n", "")
    assert not login_file.exists()
    assert run("auth", "logout") == (0, "", "No saved auth.\n")
    code, _out, err = run("jobs", "list")
    assert code == 2
    assert "server not configured — run `lakeshore auth login --server <url>` or set LAKESHORE_URL" in err


@pytest.mark.parametrize("variable", ["LAKESHORE_CLIENT_TOKEN", "LAKESHORE_TOKEN", None])
@pytest.mark.inventory("S-787")
@pytest.mark.inventory("C-1387", "C-1401")
def test_a_variables_token_goes_with_a_variables_server(
    secured_server: Served, run: Run, monkeypatch: pytest.MonkeyPatch, variable: str | None
) -> None:
    ns = made(secured_server)
    monkeypatch.setenv("LAKESHORE_URL", secured_server.url)
    if variable is not None:
        monkeypatch.setenv(variable, minted(secured_server, ns))
    code, _, err = run("--namespace", ns, "jobs", "list")
    assert (code, "token" in err) == ((1, True) if variable is None else (0, False)), err


@pytest.mark.inventory("C-047", "C-059", "C-1420")
def test_other_commands_use_the_login_and_its_token_only_for_its_own_server(
    secured_server: Served, server: Served, run: Run, login_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ns = made(secured_server)
    run("auth", "login", "--server", secured_server.url, "--namespace", ns, "--token", minted(secured_server, ns))
    code, out, err = run("jobs", "list")
    assert (code, out, err) == (0, "", f"no invocations in namespace '{ns}'\n")
    monkeypatch.setenv("LAKESHORE_URL", server.url)
    assert run("jobs", "list", "--json")[0] == 0
    assert f"other commands go to {server.url}" in run("auth", "status")[2]


def test_a_login_that_others_can_read_is_refused_unless_it_is_not_needed(
    secured_server: Served, server: Served, run: Run, login_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = minted(secured_server, "default")
    login = ("auth", "login", "--server", secured_server.url, "--token", token)
    run(*login)
    login_file.chmod(0o644)
    for command in (("jobs", "list"), ("auth", "status")):
        code, _out, err = run(*command)
        assert code == 2
        assert "chmod 600" in err
    code, _out, err = run("jobs", "list", "--url", server.url)
    assert code == 0
    assert "going on without the saved login" in err
    assert run("jobs", "list", "--url", secured_server.url, "--token", token)[2].count("note") == 0
    assert run(*login)[0] == 0
    assert stat.S_IMODE(login_file.stat().st_mode) == 0o600


# --- admin


@pytest.fixture
def operator(secured_server: Served, monkeypatch: pytest.MonkeyPatch) -> Served:
    """An operator's shell."""
    monkeypatch.setenv("LAKESHORE_URL", secured_server.url)
    monkeypatch.setenv("LAKESHORE_ADMIN_TOKEN", ADMIN)
    return secured_server


@pytest.mark.inventory("C-077", "C-869")
@pytest.mark.parametrize(
    "command",
    ["tokens create x", "tokens list", "tokens ls", "tokens revoke x", "namespace create x", "ns ls", "ns rm x"],
)
def test_without_the_admin_token_every_admin_command_exits_1_with_the_documented_sentence(
    secured_server: Served, run: Run, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    for url in (None, secured_server.url):
        if url is not None:
            monkeypatch.setenv("LAKESHORE_URL", url)
        code, out, err = run("admin", *command.split())
        assert (code, out) == (1, "")
        assert err.startswith("error: LAKESHORE_ADMIN_TOKEN is required for admin commands.\n")


@pytest.mark.inventory("C-1370", "C-052")
@pytest.mark.inventory("C-1371", "C-1400")
def test_admin_takes_the_server_and_the_namespace_of_the_login_and_a_variable_before_it(
    secured_server: Served, run: Run, login_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ns, other = made(secured_server), made(secured_server)
    run("auth", "login", "--server", secured_server.url, "--namespace", ns, "--token", minted(secured_server, ns))
    monkeypatch.setenv("LAKESHORE_ADMIN_TOKEN", ADMIN)
    told = json.loads(run("admin", "tokens", "create", "of-login", "--json")[1])
    assert told["namespace"] == ns
    assert told["name"] in [row["name"] for row in json.loads(run("admin", "tokens", "ls", "--json")[1])]
    monkeypatch.setenv("LAKESHORE_NAMESPACE", other)
    assert json.loads(run("admin", "tokens", "create", "of-variable", "--json")[1])["namespace"] == other
    monkeypatch.setenv("LAKESHORE_SERVER", "http://127.0.0.1:1")
    assert run("admin", "tokens", "ls")[0] == 1, "LAKESHORE_SERVER before the login"
    monkeypatch.setenv("LAKESHORE_URL", secured_server.url)
    assert run("admin", "tokens", "ls")[0] == 0, "and LAKESHORE_URL before that"


@pytest.mark.inventory("C-1466", "C-1397")
def test_each_refusal_is_a_sentence_of_its_own_that_says_what_to_do(
    secured_server: Served, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    ns = made(secured_server)
    rows = [secured_server.post(f"/v1/namespaces/{ns}/tokens", {"name": f"t-{n}"}, encoding=JSON).body for n in (1, 2)]
    secured_server.call("DELETE", f"/v1/namespaces/{ns}/tokens/{rows[1]['id']}")
    good, revoked = (row["plaintext"] for row in rows)
    elsewhere, here = "http://127.0.0.1:1", secured_server.url
    said = []
    for url, token, namespace, code, sentence, hint in (
        (here, "dlk_typo", ns, 1, "invalid token", "mistyped"),
        (here, revoked, ns, 1, "token revoked", "admin tokens create"),
        (here, good, "default", 1, f"this token is for namespace '{ns}', not for 'default'", f"name {ns} instead"),
        (here, good, "none-such", 1, f"this token is for namespace '{ns}', not for 'none-such'", f"name {ns}"),
        (here, ADMIN, "none-such", 1, "unknown namespace 'none-such'", "admin namespace create none-such"),
        (elsewhere, good, ns, 1, "127.0.0.1:1", ""),
    ):
        told = run("queues", "ls", "--url", url, "--token", token, "--namespace", namespace)
        assert (told[0], told[1]) == (code, "")
        first, _, rest = told[2].partition("\n")
        assert sentence in first, told[2]
        assert hint in rest
        said.append(first)
    told = run("queues", "ls", "--url", here)
    assert "missing bearer token" in told[2] and "auth login" in told[2]
    told = run("queues", "ls")
    assert (told[0], "server not configured" in told[2]) == (2, True)
    assert len(set(said)) == len(said)
    assert run("auth", "status")[0] == 1, "as documented, not 2"


@pytest.mark.inventory("C-048")
def test_with_an_admin_token_and_no_server_it_exits_2(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKESHORE_ADMIN_TOKEN", ADMIN)
    code, _out, err = run("admin", "tokens", "list")
    assert code == 2
    assert "server not configured" in err


@pytest.mark.inventory("C-078", "C-882", "C-1190")
def test_create_prints_the_token_once_and_the_line_that_logs_in_with_it(
    operator: Served, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    ns = made(operator)
    code, out, err = run("admin", "tokens", "create", "cli-me", "--namespace", ns)
    plaintext, line = out.splitlines()
    assert (code, plaintext in err) == (0, False)
    assert re.fullmatch(r"dlk_[A-Za-z0-9_-]{43}", plaintext)
    assert line == f"lakeshore auth login --server {operator.url} --namespace {ns} --token {plaintext}"
    assert run(*line.split()[1:])[0] == 0
    assert "(cli-me)" in run("auth", "status")[1]
    for command in (("admin", "tokens", "ls", "--json"), ("admin", "tokens", "ls")):
        code, out, _err = run(*command, "--namespace", ns)
        assert ("cli-me" in out, plaintext in out) == (True, False)


@pytest.mark.inventory("C-078", "C-499")
def test_the_default_label_is_the_user_and_the_day(operator: Served, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    ns = made(operator)
    for name, kept in (("ada", "ada"), ("ada.lovelace@home", "ada-lovelace-home"), ("ä", "")):
        monkeypatch.setenv("LOGNAME", name)
        today = f"{datetime.now():%Y-%m-%d}"
        code, out, _err = run("--namespace", ns, "admin", "tokens", "create", "--json")
        told = json.loads(out)
        assert (code, told["namespace"], told["scope"]) == (0, ns, "full")
        assert told["name"] in (f"{kept}-{today}".lstrip("-"), f"{kept}-{datetime.now():%Y-%m-%d}".lstrip("-"))


def test_a_default_label_that_is_taken_gets_a_number(
    operator: Served, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    if f"{datetime.now():%H:%M}" == "23:59":
        pytest.skip("the day ends in the middle of this test")
    ns = made(operator)
    monkeypatch.setenv("LOGNAME", "ada")
    create = ("--namespace", ns, "admin", "tokens", "create")

    def made_now(*words: str) -> str:
        code, out, _err = run(*create, *words, "--json")
        assert code == 0
        return str(json.loads(out)["name"])

    first = made_now()
    made_now(f"{first}-3")
    assert [made_now(), made_now()] == [f"{first}-2", f"{first}-4"]
    assert run("--namespace", ns, "admin", "tokens", "revoke", token_id(run, ns, f"{first}-2"))[0] == 0
    assert made_now() == f"{first}-5"
    code, _out, err = run(*create, first)
    assert (code, "already" in err) == (1, True), "a label that was chosen is not changed"


def token_id(run: Run, ns: str, name: str) -> str:
    rows = json.loads(run("--namespace", ns, "admin", "tokens", "list", "--json")[1])
    (found,) = (row["id"] for row in rows if row["name"] == name)
    return str(found)


@pytest.mark.parametrize("scope", ["full", "submit", "worker", "daemon"])
def test_a_scope_is_minted_listed_and_kept_to(operator: Served, run: Run, scope: str) -> None:
    ns = made(operator)
    code, out, _err = run("admin", "tokens", "create", "it", "--scope", scope, "--namespace", ns)
    assert code == 0
    token = out.split()[0]
    assert json.loads(run("admin", "tokens", "list", "--json", "--namespace", ns)[1])[0]["scope"] == scope
    assert scope in run("admin", "tokens", "list", "--namespace", ns)[1]
    code, _out, err = run("jobs", "list", "--namespace", ns, "--token", token)
    assert code == (0 if scope == "full" else 1)
    assert scope == "full" or f"a token of scope '{scope}' may not do this" in err


def test_a_token_with_an_end_is_listed_with_it_and_its_holder_is_told(
    operator: Served, run: Run, login_file: Path
) -> None:
    ns = made(operator)
    code, out, err = run("admin", "tokens", "create", "guest", "--ttl", "2d", "--namespace", ns)
    assert (code, "(in 47h)" in err) == (0, True)
    assert re.search(r"^\S+ +guest +active +full +— +in 47h ", run("admin", "tokens", "ls", "--namespace", ns)[1], re.M)
    code, _out, err = run(*out.splitlines()[1].split()[1:])
    assert (code, "this token expires 20" in err) == (0, True)
    assert "this token expires 20" in run("auth", "status")[2]
    ended = run("admin", "tokens", "create", "gone", "--ttl", "1s", "--namespace", ns)[1].split()[0]
    deadline = time.monotonic() + 60
    while (told := run("jobs", "list", "--namespace", ns, "--token", ended))[0] == 0 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert told[2].splitlines()[0] == "error: token expired"
    assert re.search(r"^\S+ +gone +expired ", run("admin", "tokens", "ls", "--namespace", ns)[1], re.M)
    assert run("admin", "tokens", "create", "it", "--ttl", "soon")[0] == 2


@pytest.mark.inventory("S-538", "S-539", "C-1471")
def test_an_org_is_set_shown_and_left(operator: Served, run: Run) -> None:
    org, one, other, alone = f"org {new_id()}", *(f"ns-{new_id()}" for _ in range(3))
    assert run("admin", "ns", "create", one, "--org", org)[1] == f"created namespace {one} in org {org}\n"
    for name in (other, alone):
        run("admin", "ns", "create", name)
    assert run("admin", "ns", "set-org", other, org) == (0, f"namespace {other} is in org {org}\n", "")
    token = minted(operator, one)
    for name, code in ((other, 0), (alone, 1)):
        assert run("queues", "ls", "--namespace", name, "--token", token)[0] == code
    shown = run("admin", "ns", "show", one)[1]
    assert re.search(rf"^org: +{org}$", shown, re.M)
    assert re.search(rf"^siblings: +{other}$", shown, re.M)
    assert json.loads(run("admin", "ns", "show", alone, "--json")[1])["siblings"] == [], "null is no org to share"
    row = json.loads(run("admin", "ns", "unset-org", other, "--json")[1])
    assert (row["name"], row["orgId"]) == (other, None)
    assert run("queues", "ls", "--namespace", other, "--token", token)[0] == 1
    for words in (("set-org", "none-such", "x"), ("unset-org", "none-such"), ("show", "none-such")):
        code, out, err = run("admin", "ns", *words)
        assert (code, out, "unknown namespace 'none-such'" in err) == (1, "", True)
    code, _out, err = run("admin", "ns", "set-org", one, "")
    assert (code, "orgId: must be 1 to 200" in err) == (1, True)


def test_a_scope_that_does_not_exist_is_bad_usage(operator: Served, run: Run) -> None:
    code, _out, err = run("admin", "tokens", "create", "it", "--scope", "root")
    assert code == 2
    assert "Usage: lakeshore admin tokens create" in err


@pytest.mark.inventory("C-079", "C-500")
def test_a_list_of_tokens_fits_a_narrow_terminal_and_is_whole_in_a_pipe(
    operator: Served, run: Run, tmp_path: Path
) -> None:
    ns, name = made(operator), "a-name-that-is-as-long-as-names-may-be-" + "x" * 20
    assert run("admin", "tokens", "create", name, "--namespace", ns, "--ttl", "30d")[0] == 0
    out = run("admin", "tokens", "ls", "--namespace", ns)[1]
    heading, row = out.splitlines()
    assert heading.split() == ["ID", "NAME", "STATE", "SCOPE", "USED", "EXPIRES", "PREFIX", "CREATED"]
    assert name in row and "in 29d" in row
    pid, terminal = pty.fork()
    if pid == 0:
        env = environment(
            LAKESHORE_URL=operator.url,
            LAKESHORE_ADMIN_TOKEN=ADMIN,
            XDG_CONFIG_HOME=str(tmp_path),
            TERM="xterm",
            COLUMNS="60",
            NO_COLOR="1",
        )
        os.chdir(ROOT)
        os.execve(sys.executable, [sys.executable, "-m", "lakeshore", "admin", "tokens", "ls", "--namespace", ns], env)
    screen = b""
    try:
        while data := os.read(terminal, 4096):
            screen += data
    except OSError:  # it has ended
        pass
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, screen
    lines = screen.decode().splitlines()
    assert max(map(len, lines)) <= 60, lines
    assert any("active" in line for line in lines), lines


@pytest.mark.inventory("C-080", "C-961", "C-1311")
def test_revoke_ends_a_token_at_once_and_keeps_it_listed(operator: Served, run: Run) -> None:
    ns = made(operator)
    token = run("admin", "tokens", "create", "ci-runner", "--namespace", ns)[1].split()[0]
    (row,) = json.loads(run("admin", "tokens", "ls", "--json", "--namespace", ns)[1])
    assert run("admin", "tokens", "revoke", row["id"], "--namespace", ns) == (
        0,
        f"revoked ci-runner ({row['id']})\n",
        "",
    )
    code, _out, err = run("jobs", "list", "--namespace", ns, "--token", token)
    assert (code, err.splitlines()[0]) == (1, "error: token revoked")
    assert run("admin", "tokens", "revoke", row["id"], "--namespace", ns)[0] == 0, "again is no error"
    (row,) = json.loads(run("admin", "tokens", "ls", "--json", "--namespace", ns)[1])
    assert row["revokedAt"]
    assert "revoked" in run("admin", "tokens", "ls", "--namespace", ns)[1]
    code, _out, err = run("admin", "tokens", "revoke", "no-such-id", "--namespace", ns)
    assert code == 1
    assert f"hint: `lakeshore admin tokens list --namespace {ns}`" in err
    assert run("admin", "tokens", "revoke", row["id"])[0] == 1, "an id of another namespace is none"


@pytest.mark.inventory("C-081", "C-082", "C-083")
@pytest.mark.parametrize("words", [("namespace", "list", "delete"), ("ns", "ls", "rm")])
def test_namespaces_are_made_listed_and_deleted(operator: Served, run: Run, words: tuple[str, str, str]) -> None:
    group, list_, delete = words
    name = f"ns-{new_id()}"
    assert run("admin", group, "create", name) == (0, f"created namespace {name}\n", "")
    code, _out, err = run("admin", group, "create", name)
    assert (code, "exists already" in err) == (1, True)
    assert name in run("admin", group, list_)[1]
    assert name in [row["name"] for row in json.loads(run("admin", group, list_, "--json")[1])]
    assert run("admin", group, delete, name) == (0, f"deleted namespace {name}\n", "")
    assert name not in run("admin", group, list_)[1]
    code, _out, err = run("admin", group, delete, name)
    assert (code, "unknown namespace" in err) == (1, True)


def test_a_namespace_with_work_is_not_deleted_and_one_with_results_takes_them_along(operator: Served, run: Run) -> None:
    ns = made(operator)
    body = {"invocation_id": new_id(), "queue": "q", "args_blob": b"a"}
    assert operator.post("/v1/producer/submit", body, X_LS_Namespace=ns).status == 200
    code, _out, err = run("admin", "ns", "rm", ns)
    assert (code, "1 queued or running" in err) == (1, True)
    assert f"lakeshore jobs bulk-cancel --namespace {ns}" in err
    assert run("jobs", "bulk-cancel", "--namespace", ns, "--token", ADMIN)[0] == 0
    assert run("admin", "ns", "rm", ns)[1] == f"deleted namespace {ns} and 1 invocations that had ended\n"


def test_on_the_machine_that_serves_neither_a_token_nor_a_url_is_needed(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(tmp_path / "here", env={"LAKESHORE_ADMIN_TOKEN": ADMIN}) as served:
        monkeypatch.setenv("LAKESHORE_STATE_DIR", str(served.state_dir))
        code, out, _err = run("admin", "ns", "ls", "--json")
        assert (code, json.loads(out)[0]["name"]) == (0, "default")
        for url in (served.url, served.url.replace("127.0.0.1", "localhost")):
            assert run("admin", "ns", "ls", "--url", url)[0] == 0
        assert (served.state_dir / "server.url").read_text().strip() == served.url
        assert served.stop() == 0
    assert not (served.state_dir / "server.url").exists()
    code, _out, err = run("admin", "ns", "ls")
    assert (code, "LAKESHORE_ADMIN_TOKEN is required" in err) == (1, True)


def test_the_state_directorys_token_goes_to_its_own_running_server_only(
    tmp_path: Path, run: Run, secured_server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(tmp_path / "here") as served:
        monkeypatch.setenv("LAKESHORE_STATE_DIR", str(served.state_dir))
        code, _out, err = run("admin", "ns", "ls", "--url", secured_server.url)
        assert (code, f"add --url {served.url}" in err) == (1, True)
        served.process.kill()
        served.process.wait()
    assert (served.state_dir / "server.url").exists(), "it was killed"
    code, _out, err = run("admin", "ns", "ls", "--url", served.url)
    assert (code, "LAKESHORE_ADMIN_TOKEN is required" in err) == (1, True), "who listens there now is not known"


def test_an_admin_token_beside_a_url_is_held_back_from_another(operator: Served, server: Served, run: Run) -> None:
    code, _out, err = run("admin", "ns", "ls", "--url", server.url)
    assert code == 1
    assert f"not sent to {server.url}" in err


@pytest.mark.parametrize("width", [30, 40, 80])
def test_the_tables_fit_a_narrow_terminal_and_keep_the_ids(operator: Served, width: int) -> None:
    ns = made(operator)
    minted(operator, ns, "a-rather-long-label-of-a-token-that-does-not-fit")
    command = [sys.executable, "-m", "lakeshore", "admin", "tokens", "ls", "--namespace", ns]
    env = environment(LAKESHORE_URL=operator.url, LAKESHORE_ADMIN_TOKEN=ADMIN, COLUMNS=str(width), TERM="xterm")
    master, slave = pty.openpty()
    done = subprocess.Popen(command, stdout=slave, stderr=subprocess.PIPE, env={**env, "NO_COLOR": "1"}, cwd=ROOT)
    os.close(slave)
    shown = b""
    while True:
        try:
            data = os.read(master, 4096)
        except OSError:
            break
        if not data:
            break
        shown += data
    os.close(master)
    _out, err = done.communicate(timeout=60)
    assert done.returncode == 0, err
    header, row = shown.decode().split("\r\n")[:2]
    assert max(len(header), len(row)) <= width
    assert re.match(r"[0-9A-Z]{26}\b", row)
    assert "\x1b" not in shown.decode()


# --- every documented line

LINES = {
    "C-949 C-1176 C-932": "auth login --server {url} --namespace {ns} --token {token}",
    "C-956 C-494 C-493": "auth login --server {url} --namespace {ns} --token {token}",
    "C-1242 C-955": "auth login --server {url} --namespace {ns}",
    "C-935 C-495": "auth login --server {url} --namespace {ns} --name cli-ada",
    "C-1191": "auth login --server {url} --namespace {ns} --token {token}",
    "C-933 C-496 C-497": "auth status --server {url} --namespace {ns}",
    "C-498": "auth logout",
    "C-959": "admin tokens create alice",
    "C-1309": "admin tokens create ci-runner",
    "C-960 C-500": "admin tokens list",
    "C-1310": "admin tokens ls",
    "C-501": "admin tokens revoke {id}",
    "C-962 C-502": "admin namespace create {new}",
    "C-1312": "admin ns create {new}",
    "C-963 C-503": "admin namespace list",
    "C-1313": "admin ns ls",
    "C-964 C-504": "admin namespace delete {empty}",
    "C-1314": "admin ns rm {empty}",
}


@pytest.mark.parametrize(
    "line", [pytest.param(line, marks=pytest.mark.inventory(*ids.split())) for ids, line in LINES.items()]
)
def test_every_documented_line_is_accepted_as_it_is_written(
    operator: Served, run: Run, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ns, empty = made(operator), made(operator)
    row = operator.post(f"/v1/namespaces/{ns}/tokens", {"name": "first"}, encoding=JSON).body
    assert run("auth", "login", "--server", operator.url, "--namespace", ns, "--token", row["plaintext"])[0] == 0
    monkeypatch.setenv("LAKESHORE_NAMESPACE", ns)
    blanks = {"url": operator.url, "ns": ns, "token": row["plaintext"], "id": row["id"], "new": f"ns-{new_id()}"}
    code, out, err = run(*line.format(**blanks, empty=empty).split())
    assert code == 0, err
    assert out


@pytest.mark.parametrize("variable", ["LAKESHORE_CLIENT_TOKEN", "LAKESHORE_ADMIN_TOKEN"])
@pytest.mark.parametrize(
    "token", ["dlk_secret\nmore", "dlk_secret more", "dlk_secret\x1b[2J", "dlk_secret\x00", "dlk_sécret"]
)
def test_what_cannot_be_a_token_is_refused_before_it_is_sent_and_not_shown(
    variable: str, token: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "\x00" in token:  # no variable can hold it
        monkeypatch.setattr(sys, "stdin", io.StringIO(token))
        code, out, err = run("auth", "login", "--server", "http://127.0.0.1:9", "--token", "-")
    else:
        monkeypatch.setenv("LAKESHORE_URL", "http://127.0.0.1:9")
        monkeypatch.setenv(variable, token)
        code, out, err = run(*("jobs list" if "CLIENT" in variable else "admin namespace list").split())
    assert (code, out) == (2, "")
    assert "the token has characters that no token has" in err
    assert "cret" not in err


def test_what_cannot_be_a_namespace_is_refused_before_it_is_sent(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKESHORE_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("LAKESHORE_NAMESPACE", "one\nX-Forged: 1")
    code, _out, err = run("jobs", "list")
    assert code == 2
    assert "is no namespace" in err
