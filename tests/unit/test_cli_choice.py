"""Which server a command talks to, and who gets which token."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lakeshore.cli.choice import choose
from lakeshore.cli.exits import ExitCode
from lakeshore.cli.failures import Failure
from lakeshore.config.auth import read_saved_login, same_server
from lakeshore.config.errors import ConfigError

HERE, THERE = "http://here:8080", "https://there.example"


def home(tmp_path: Path, text: str | None = None, **environ: str) -> dict[str, str]:
    if text is not None:
        (tmp_path / "lakeshore").mkdir()
        (tmp_path / "lakeshore" / "auth.yml").write_text(text)
        (tmp_path / "lakeshore" / "auth.yml").chmod(0o600)
    return {"XDG_CONFIG_HOME": str(tmp_path), "LAKESHORE_STATE_DIR": str(tmp_path / "none"), **environ}


def login(server: str = HERE, token: str = "saved") -> str:
    return f"server: {server}\nnamespace: dev\ntoken: {token}\n"


@pytest.mark.inventory("C-047", "C-048")
def test_nothing_configured_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(Failure) as caught:
        choose(environ=home(tmp_path))
    assert caught.value.code is ExitCode.USAGE
    assert "this machine's own queues, which commands do not show" in (caught.value.hint or "")


@pytest.mark.inventory("C-047", "C-050")
def test_the_flag_wins_then_the_environment_then_the_saved_login(tmp_path: Path) -> None:
    environ = home(tmp_path, login())
    assert (choose(environ=environ).url, choose(environ=environ).namespace) == (HERE, "dev")
    environ["LAKESHORE_URL"] = THERE
    assert (choose(environ=environ).url, choose(environ=environ).namespace) == (THERE, "default")
    environ["LAKESHORE_NAMESPACE"] = "env"
    found = choose(url="http://flag", environ=environ)
    assert (found.url, found.namespace) == ("http://flag", "env")
    assert choose(namespace="flag", environ=environ).namespace == "flag"


@pytest.mark.inventory("C-1420")
@pytest.mark.parametrize(
    ("url", "expected"),
    [(HERE, "saved"), (HERE + "/", "saved"), ("http://HERE:8080", "saved"), (THERE, None), ("http://here", None)],
)
def test_a_saved_token_goes_to_its_own_server_only(tmp_path: Path, url: str, expected: str | None) -> None:
    assert choose(environ=home(tmp_path, login(), LAKESHORE_URL=url)).token == expected


@pytest.mark.inventory("C-1420")
def test_the_environments_token_wins_over_the_saved_one(tmp_path: Path) -> None:
    environ = home(tmp_path, login(), LAKESHORE_URL=HERE, LAKESHORE_TOKEN="old")
    assert choose(environ=environ).token == "old"
    environ["LAKESHORE_CLIENT_TOKEN"] = "new"
    assert choose(environ=environ).token == "new"
    assert choose(token="flag", environ=environ).token == "flag"
    environ["LAKESHORE_ANON"] = "1"
    assert choose(environ=environ).token is None


def test_the_environments_token_is_held_back_from_another_server_than_the_environments(tmp_path: Path) -> None:
    environ = home(tmp_path, LAKESHORE_URL=HERE, LAKESHORE_CLIENT_TOKEN="t")
    assert choose(url=THERE, environ=environ).token is None
    assert choose(url=HERE, environ=environ).token == "t"


def test_a_token_is_not_part_of_any_text(tmp_path: Path) -> None:
    environ = home(tmp_path, login(token="hunter2"))
    assert "hunter2" not in repr(choose(environ=environ)) + repr(read_saved_login(environ))


def test_the_same_server_is_told_by_scheme_host_port_and_prefix() -> None:
    assert same_server("https://h", "https://H:443/")
    assert not same_server("https://h", "http://h")
    assert not same_server("https://h/a", "https://h/b")
    assert not same_server("https://h:x", "https://h:x")


@pytest.mark.inventory("C-069")
@pytest.mark.parametrize(
    "text",
    [
        *("- 1\n", "server: [hunter2\n", "namespace: x\n", "server: 5\n", "server: h\ntoken: {a: hunter2}\n"),
        *("token: 2026-02-31\n", "token: !!int ''\n", "token: !!bool hunter2\n", "[" * 5000),
    ],
)
def test_a_broken_login_names_the_file_and_never_its_token(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_saved_login(home(tmp_path, text))
    assert "auth.yml" in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_an_empty_or_missing_login_is_none(tmp_path: Path) -> None:
    assert read_saved_login(home(tmp_path)) is None
    assert read_saved_login(home(tmp_path, "")) is None


def serving(directory: Path, url: str = HERE) -> str:
    """A state directory as a server of this user's leaves it while it runs."""
    directory.mkdir()
    for name, text in (("server.url", url), ("server.lock", str(os.getpid())), ("admin.token", "the-admin-token")):
        (directory / name).write_text(f"{text}\n")
    return str(directory)


def test_where_nothing_names_a_server_the_one_that_runs_here_is_asked_with_its_own_token(tmp_path: Path) -> None:
    environ = home(tmp_path, LAKESHORE_STATE_DIR=serving(tmp_path / "state"))
    found = choose(environ=environ)
    assert (found.url, found.namespace, found.token) == (HERE, "default", "the-admin-token")
    assert choose(environ={**environ, "LAKESHORE_NAMESPACE": "dev"}).namespace == "dev"
    assert choose(environ={**environ, "LAKESHORE_ANON": "1"}).token is None
    assert choose(environ={**environ, "LAKESHORE_CLIENT_TOKEN": "mine"}).token == "mine"
    with pytest.raises(Failure):
        choose(environ=environ, look_here=False)


@pytest.mark.inventory("C-047")
def test_a_server_that_runs_here_takes_nothing_from_one_that_is_named(tmp_path: Path) -> None:
    state = serving(tmp_path / "state")
    assert choose(environ=home(tmp_path, LAKESHORE_STATE_DIR=state, LAKESHORE_URL=THERE)).token is None
    environ = home(tmp_path, login(THERE), LAKESHORE_STATE_DIR=state)
    assert (choose(environ=environ).url, choose(environ=environ).token) == (THERE, "saved")
    assert choose(url=HERE, environ=environ).token is None
