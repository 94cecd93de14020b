"""`lakeshore worker`: the command it runs. `--dry-run` prints exactly that."""

from __future__ import annotations

import json
import os
import shlex
import sys
from pathlib import Path

import pytest

from lakeshore._self import python_path
from lakeshore.cli.main import main
from lakeshore.cli.supervisor import LONGEST_PAUSE_S, pause
from lakeshore.cli.worker import environment, import_path
from lakeshore.sdk.default_plane import home
from lakeshore.sdk.entry.worker import read_settings

BARE = "python3 -u -m dreamlake.lakeshore.daemon"


def argv_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["worker", *arguments, "--dry-run"]) == 0
    return capsys.readouterr().out.strip()


@pytest.mark.inventory("C-258", "C-261", "C-260")
def test_flags_that_were_not_given_are_not_on_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert argv_of(capsys, "start") == BARE


@pytest.mark.inventory("C-261", "C-259")
def test_the_environments_values_are_left_to_the_module(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("QUEUE", "ROOT", "URL", "NAMESPACE", "CLIENT_TOKEN", "RUNTIME_POLICY"):
        monkeypatch.setenv(f"LAKESHORE_{name}", "x")
    assert argv_of(capsys, "start") == BARE


@pytest.mark.inventory("C-054")
def test_each_variable_of_the_group_is_read_by_who_needs_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    given = {"PYTHON": "/my/python", "QUEUE": "gpu", "ROOT": str(tmp_path), "RUNTIME_POLICY": "off"}
    for name, value in {**given, "HOME": str(tmp_path / "home")}.items():
        monkeypatch.setenv(f"LAKESHORE_{name}", value)
    assert shlex.split(argv_of(capsys, "start"))[0] == "/my/python"
    settings = read_settings([])
    assert (settings.queue, settings.root, settings.runtime_policy) == ("gpu", str(tmp_path), "off")
    assert (settings.url, home()) == (None, tmp_path / "home")


@pytest.mark.inventory("C-752", "C-754", "C-757")
@pytest.mark.parametrize("verb", ["start", "once"])
def test_flags_that_were_given_are_passed_on(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    given = "--queue gpu --root /data --url http://h:1 --namespace dev --runtime-policy off --allow-pickled"
    once = " --once" if verb == "once" else ""
    assert argv_of(capsys, verb, *given.split()) == f"{BARE} {given}{once}"


def test_the_command_line_is_quoted_for_a_shell(capsys: pytest.CaptureFixture[str]) -> None:
    printed = argv_of(capsys, "start", "--queue", "it's; rm -r /", "--python", "/my python")
    assert shlex.split(printed) == ["/my python", *BARE.split()[1:], "--queue", "it's; rm -r /"]


@pytest.mark.inventory("C-262", "C-756")
@pytest.mark.parametrize("extra", [[], ["--json"]])
def test_the_token_is_never_shown_and_never_an_argument(extra: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["worker", "start", "--token", "hunter2", "--env", "KEY=hunter2", "--dry-run", *extra]) == 0
    said = capsys.readouterr()
    assert "hunter2" not in said.out + said.err
    if extra:
        assert {"LAKESHORE_CLIENT_TOKEN", "KEY"} <= set(json.loads(said.out)["env"])


@pytest.mark.inventory("C-758")
def test_the_interpreter_comes_from_the_flag_then_the_environment(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKESHORE_PYTHON", "/from/environment")
    assert argv_of(capsys, "start").startswith("/from/environment -u -m ")
    assert argv_of(capsys, "start", "--python", "/from/flag").startswith("/from/flag -u -m ")


@pytest.mark.inventory("C-759")
def test_another_module_may_be_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert argv_of(capsys, "start", "--module", "my.worker") == "python3 -u -m my.worker"


def test_the_programs_namespace_reaches_the_worker(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--namespace", "dev", "worker", "start", "--dry-run"]) == 0
    assert capsys.readouterr().out.strip() == f"{BARE} --namespace dev"


@pytest.mark.inventory("C-760")
def test_pairs_and_token_go_into_the_childs_environment() -> None:
    given = {"pairs": ("A=1", "B=x=y", "C="), "token": "t"}
    added = environment(given, "python3", {})
    assert {name: added[name] for name in ("A", "B", "C")} == {"A": "1", "B": "x=y", "C": ""}
    assert added["LAKESHORE_CLIENT_TOKEN"] == "t"


def test_our_packages_lead_the_childs_path_once() -> None:
    (ours,) = python_path()
    assert import_path("python3", "") == ours
    assert import_path("python3", "/theirs") == f"{ours}{os.pathsep}/theirs"
    assert import_path("python3", f"/theirs{os.pathsep}{ours}") is None


def test_installed_packages_shadow_nothing_in_the_childs_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakeshore._self.python_path", lambda: ["/venv/site-packages"])
    assert import_path("/another/python", "/theirs") == f"/theirs{os.pathsep}/venv/site-packages"
    assert import_path(sys.executable, "/theirs") is None


def test_the_pause_after_a_death_doubles_up_to_a_limit() -> None:
    assert [pause(n) for n in (1, 2, 3, 4)] == [0.5, 1.0, 2.0, 4.0]
    assert pause(50) == LONGEST_PAUSE_S
