"""`lakeshore completion` in the real shells, and what its scripts ask `__suggest`."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from exec_peer import Peer
from served import ADMIN, Served
from shells import ROOT, Shell, shell

from lakeshore import HttpDispatch, SyncQueue
from lakeshore.cli.completing import suggest
from lakeshore.cli.completing.kinds import KINDS
from lakeshore.cli.main import main

SHELLS = ("bash", "zsh", "fish")
# A group that a later version adds: it is in the table of commands, and nothing else is told of it.
LATER = """
import types, click
from lakeshore.cli import table
from lakeshore.cli.groups import Group
from lakeshore.cli.named import Named

@click.group(cls=Group, aliases={"rm": "remove"})
def providers(): "Providers."

@providers.command()
@click.argument("name", type=Named("aws-profiles"))
@click.argument("others", type=Named("ssh-aliases"), nargs=-1)
@click.option("--from-aws-profile", type=Named("aws-profiles"), help="It's $HOME `date`: [a-z]*.")
@click.option("--dir", type=click.Path(file_okay=False))
@click.option("--file", "-f", type=click.Path())
@click.option("--tag", multiple=True)
def remove(**_): "Remove one."

@providers.command(hidden=True)
def ota(): "Old."

module = sys.modules["later"] = types.ModuleType("later")
module.providers = providers
table.COMMANDS["providers"] = table.Entry("Providers", "later", "providers")
table.NOT_BUILT.pop("providers", None)
"""


HOSTILE = "or \"$(touch pwned)\" '`touch pwned`' \\end"


@pytest.fixture(scope="module", params=SHELLS)
def tab(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, server: Served) -> Iterator[Shell]:
    name = request.param
    if shutil.which(name) is None:
        pytest.skip(f"no {name} on this machine (Debian: apt install {name})")
    home = tmp_path_factory.mktemp(f"home-{name}")
    (home / ".aws").mkdir()
    (home / ".ssh").mkdir()
    (home / ".aws" / "config").write_text(
        "[default]\n[profile my team:eu]\n[profile $(touch pwned)]\n[profile `touch pwned`]\n[sso-session x]\n"
        f"[profile {HOSTILE}]\n"
    )
    (home / ".ssh" / "config").write_text("Host gpu1 gpu2 *.lan\n")
    (home / "some dir").mkdir()
    (home / "some file").write_text("")
    with shell(name, home, LATER, LAKESHORE_URL=server.url) as started:
        yield started


@pytest.fixture(scope="module")
def queue(server: Served) -> Iterator[SyncQueue]:
    plane = HttpDispatch(server.url)
    yield SyncQueue(f"tab-{secrets.token_hex(6)}", dispatch=plane)
    plane.close()


# --- in the shells


@pytest.mark.inventory("C-1315", "C-303", "C-1417")
def test_the_line_of_the_page_installs_it_and_the_commands_are_those_of_the_program(tab: Shell) -> None:
    from lakeshore.cli.table import COMMANDS  # wall: as it is now, whoever adds to it

    assert tab.offered("lakeshore ") == sorted({*COMMANDS, "providers"})


@pytest.mark.inventory("C-1419", "C-281", "C-287")
@pytest.mark.parametrize(
    ("line", "some"),
    [
        ("lakeshore jobs ", {"list", "show", "kill", "bulk-cancel", "prune", "retry"}),
        ("lakeshore worker ", {"start", "once"}),
        ("lakeshore completion ", {"bash", "zsh", "fish"}),
        ("lakeshore jobs l", {"list"}),
        pytest.param(
            "lakeshore daemon ",
            {
                "stop",
                "status",
                "list",
                "show",
                "install",
                "kill",
                "cleanup",
                "hibernate",
                "target-version",
                "set-target-version",
            }
            | {"setup", "exec", "reset", "update"},
            marks=pytest.mark.inventory("C-280", "C-1463"),
        ),
        pytest.param("lakeshore ssh ", {"discover", "probe", "status"}, marks=pytest.mark.inventory("C-285")),
        pytest.param("lakeshore daemon install ", {"gpu1", "gpu2"}, marks=pytest.mark.inventory("C-295")),
        ("lakeshore ssh probe g", {"gpu1", "gpu2"}),
    ],
)
def test_verbs_complete(tab: Shell, line: str, some: set[str]) -> None:
    assert some <= set(tab.offered(line))
    assert tab.offered("lakeshore nosuch ") == []


@pytest.mark.inventory("C-299")
@pytest.mark.parametrize("line", ["lakeshore jobs list --state ", "lakeshore --namespace x jobs ls --json --state "])
def test_states_complete_after_an_alias_and_other_options_too(tab: Shell, line: str) -> None:
    assert tab.offered(line) == sorted(("queued", "running", "succeeded", "failed", "killed", "timeout"))


@pytest.mark.inventory("C-272")
def test_long_options_complete_each_once_unless_it_is_repeatable(tab: Shell) -> None:
    found = tab.offered("lakeshore providers rm --")
    assert found == ["--dir", "--file", "--from-aws-profile", "--help", "--tag"]
    assert tab.offered("lakeshore providers rm --tag a --dir=b --t") == ["--tag"]
    assert "--dir" not in tab.offered("lakeshore providers rm --tag a --dir=b --")
    assert tab.offered("lakeshore providers ") == ["remove"]


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ("lakeshore jo\tli\t--state fa\t", ["jobs", "list", "--state", "failed"]),
        ("lakeshore jobs list --state=fa\t", ["jobs", "list", "--state=failed"]),
        ('lakeshore jobs list --state "fa\t', ["jobs", "list", "--state", "failed"]),
        ("./bin/lakeshore jobs bu\t", ["jobs", "bulk-cancel"]),
        (
            "~/bin/lakeshore providers rm --from-aws-profile my\t",
            ["providers", "rm", "--from-aws-profile", "my team:eu"],
        ),
        ("lakeshore providers rm my\\ team:\t", ["providers", "rm", "my team:eu"]),
        ("lakeshore providers rm --from-aws-profile=my\t", ["providers", "rm", "--from-aws-profile=my team:eu"]),
        ("lakeshore providers rm -f x def\t", ["providers", "rm", "-f", "x", "default"]),
        ("lakeshore providers rm -- def\t", ["providers", "rm", "--", "default"]),
        ("lakeshore providers rm a gpu1 gpu2 gp\t1\t", ["providers", "rm", "a", "gpu1", "gpu2", "gpu1"]),
        ("lakeshore providers rm --file some\\ f\t", ["providers", "rm", "--file", "some file"]),
        ("lakeshore providers rm --file=some\\ f\t", ["providers", "rm", "--file=some file"]),
        ("lakeshore providers rm --dir some\t", ["providers", "rm", "--dir", "some dir"]),
        ("lakeshore jobs list --token so\t", ["jobs", "list", "--token", "so"]),
    ],
)
def test_what_is_on_the_line_after_tab_is_what_was_meant(tab: Shell, keys: str, words: list[str]) -> None:
    assert [word.removesuffix("/") for word in tab.typed(keys)] == words  # zsh takes a last slash away


def test_a_name_is_never_run(tab: Shell) -> None:
    found = tab.offered("lakeshore providers rm ")
    assert len([name for name in found if "touch" in name]) == 3
    assert tab.typed("lakeshore providers rm \\$\t") == ["providers", "rm", "$(touch pwned)"]
    assert tab.typed("lakeshore providers rm \\`\t") == ["providers", "rm", "`touch pwned`"]
    for quote in ("", "'", '"'):
        assert tab.typed(f"lakeshore providers rm {quote}or\t") == ["providers", "rm", HOSTILE]
    assert not (tab.home / "pwned").exists()


def until_there(look: Callable[[], list[str]]) -> list[str]:
    """What is suggested, on a machine that may be too busy for the first question's time limit."""
    deadline = time.monotonic() + 60
    while not (found := look()) and time.monotonic() < deadline:
        continue
    return found


@pytest.mark.inventory("C-293", "C-1318")
def test_daemons_come_from_the_server(tab: Shell, server: Served) -> None:
    daemon = Peer(server)
    for path in (tab.home / ".cache" / "lakeshore").glob("completion-*"):
        path.unlink()
    for verb in ("show", "kill", "hibernate"):
        assert daemon.id in until_there(lambda verb=verb: tab.offered(f"lakeshore daemon {verb} "))


@pytest.mark.inventory("C-294")
def test_ids_and_queues_come_from_the_server_that_the_line_names(tab: Shell, server: Served, queue: SyncQueue) -> None:
    ids = [queue.submit(n) for n in range(3)]
    for path in (tab.home / ".cache" / "lakeshore").glob("completion-*"):
        path.unlink()
    for verb in ("show", "kill", "retry x"):
        assert set(ids) <= set(until_there(lambda verb=verb: tab.offered(f"lakeshore jobs {verb} ")))
    assert queue.name in until_there(lambda: tab.offered("lakeshore jobs list --queue "))
    assert tab.typed(f"lakeshore worker start --queue {queue.name[:-2]}\t")[-1] == queue.name
    assert tab.offered(f"lakeshore --namespace {queue.name} jobs show ") == []
    assert tab.offered("lakeshore jobs show --url http://127.0.0.1:9 ") == []


@pytest.mark.parametrize("name", SHELLS)
def test_the_script_works_as_a_file_of_the_shells_own_directory(name: str, tmp_path: Path) -> None:
    if shutil.which(name) is None:
        pytest.skip(f"no {name} on this machine (Debian: apt install {name})")
    text = subprocess.run(
        [sys.executable, "-m", "lakeshore", "completion", name.upper()],
        check=True,
        capture_output=True,
        text=True,
        cwd=ROOT,
    ).stdout
    if name == "fish":
        folder = tmp_path / "config" / "fish" / "completions"
        folder.mkdir(parents=True)
        (folder / "lakeshore.fish").write_text(text)
        (tmp_path / "lakeshore").write_text("#!/bin/sh\n")  # fish loads no completions of what is not there
        (tmp_path / "lakeshore").chmod(0o755)
        command = ["fish", "-c", "complete -C 'lakeshore worker o'"]
    elif name == "zsh":
        (tmp_path / "_lakeshore").write_text(text)
        setup = f"fpath=({tmp_path} $fpath); autoload -Uz compinit; compinit -D -u; print ${{_comps[lakeshore]}}"
        command = ["zsh", "-fc", setup]
    else:
        (tmp_path / "lakeshore").write_text(text)
        command = ["bash", "--norc", "-euc", f"source {tmp_path}/lakeshore; complete -p lakeshore"]
    environment = {**os.environ, "HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "config")}
    environment["PATH"] = f"{tmp_path}:{environment['PATH']}"
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment, timeout=60)
    assert done.stderr == ""
    expected = {"bash": "complete -F _lakeshore lakeshore", "zsh": "_lakeshore", "fish": "once\t"}[name]
    assert done.stdout.startswith(expected)


@pytest.mark.inventory("C-270", "C-883", "C-772")
def test_another_shell_is_a_usage_error(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "tcsh"]) == 2
    assert "'bash', 'zsh', 'fish'" in capfd.readouterr().err


# --- what the scripts ask

Suggest = Callable[..., list[str]]


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Suggest:
    for name in ("CONFIG", "CACHE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE", "CLOUDSDK_CONFIG", "KUBECONFIG", "DOCKER_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))

    def ask(*arguments: str) -> list[str]:
        assert main(["completion", "__suggest", *arguments]) == 0
        said = capfd.readouterr()
        assert said.err == ""
        return said.out.splitlines()

    return ask


def cached(tmp_path: Path, kind: str) -> Path:
    return tmp_path / "cache" / "lakeshore" / f"completion-{kind}.txt"


@pytest.mark.inventory("C-300", "C-367", "C-948")
def test_a_servers_names_are_kept_for_thirty_seconds_one_a_line_for_this_user_alone(
    ask: Suggest, server: Served, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("LAKESHORE_URL", server.url)
    monkeypatch.setenv("LAKESHORE_NAMESPACE", f"n-{secrets.token_hex(4)}")
    plane = HttpDispatch(server.url, namespace=os.environ["LAKESHORE_NAMESPACE"])
    q = SyncQueue("a", dispatch=plane)
    ids = [q.submit(n) for n in range(51)]
    first = until_there(lambda: ask("invocations"))
    assert first == ids[:0:-1]  # the newest 50
    file = cached(tmp_path, "invocations")
    assert file.read_text().splitlines() == first
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700
    newer = q.submit(1)
    plane.close()
    assert ask("invocations") == first
    when = time.time() - suggest.FRESH_S - 1
    os.utime(file, (when, when))
    assert until_there(lambda: ask("invocations"))[0] == newer
    file.unlink()
    assert until_there(lambda: ask("invocations"))[0] == newer
    assert sorted(path.name for path in file.parent.iterdir()) == ["completion-invocations.key", file.name]


def test_two_namespaces_and_two_servers_do_not_mix(
    ask: Suggest, server: Served, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    names = [f"n-{secrets.token_hex(4)}" for _ in range(2)]
    for name in names:
        plane = HttpDispatch(server.url, namespace=name)
        SyncQueue(f"of-{name}", dispatch=plane).submit(1)
        plane.close()
    monkeypatch.setenv("LAKESHORE_URL", server.url)
    for name in (*names, *names):
        assert until_there(lambda name=name: ask("queues", "--namespace", name)) == ["default", f"of-{name}"]
    monkeypatch.setenv("LAKESHORE_NAMESPACE", names[0])
    assert until_there(lambda: ask("queues")) == ["default", f"of-{names[0]}"]
    assert ask("queues", "--url", "http://127.0.0.1:9") == []
    cached(tmp_path, "queues").write_text("planted\n")  # not the file that was written for the key
    assert until_there(lambda: ask("queues")) == ["default", f"of-{names[0]}"]


@pytest.mark.inventory("C-302")
def test_nothing_is_suggested_without_a_server_without_a_right_and_for_what_the_server_does_not_have(
    ask: Suggest, secured_server: Served, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert ask("invocations") == []  # none is configured
    monkeypatch.setenv("LAKESHORE_URL", secured_server.url)
    assert ask("queues") == ask("namespaces") == []
    monkeypatch.setenv("LAKESHORE_CLIENT_TOKEN", ADMIN)
    for kind in ("queues", "namespaces"):
        assert "default" in until_there(lambda kind=kind: ask(kind))
    assert ask("mounts") == []
    monkeypatch.setenv("LAKESHORE_URL", "no url at all")
    assert ask("queues") == ask() == ask("nonsense") == []
    (tmp_path / "config" / "lakeshore").mkdir(parents=True)
    (tmp_path / "config" / "lakeshore" / "auth.yml").write_text(": : not [ yaml")
    monkeypatch.delenv("LAKESHORE_URL")
    assert ask("queues") == []


def test_a_server_that_accepts_and_never_answers_holds_a_tab_for_less_than_a_second(
    ask: Suggest, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        monkeypatch.setenv("LAKESHORE_URL", f"http://127.0.0.1:{deaf.getsockname()[1]}")
        began = time.monotonic()
        assert ask("queues") == []
        assert time.monotonic() - began < 30  # LIMIT_S, on a busy machine; without it for ever


def test_a_cache_that_cannot_be_written_costs_a_request_and_nothing_else(
    ask: Suggest, server: Served, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("LAKESHORE_URL", server.url)
    (tmp_path / "cache").write_text("in the way")
    assert "default" in until_there(lambda: ask("queues"))


@pytest.mark.inventory("C-271", "C-301")
@pytest.mark.parametrize(
    ("kind", "files", "names"),
    [
        ("job-states", {}, ["queued", "running", "succeeded", "failed", "killed", "timeout"]),
        (
            "ssh-aliases",
            {
                ".ssh/config": 'Include conf.d/*\nHost a "b c"\n  HostName x\nhost=d\nHost *.x !y z?\n'
                "Match host m\nHost a\n",
                ".ssh/conf.d/one": "Host inner\nInclude ~/.ssh/conf.d/one\n",
            },
            ["inner", "a", "b c", "d"],
        ),
        (
            "aws-profiles",
            {
                ".aws/config": "[default]\n[profile a b]\n[sso-session s]\nregion = x\n",
                ".aws/credentials": "[default]\n[c]\n",
            },
            ["default", "a b", "c"],
        ),
        (
            "gcloud-configs",
            {".config/gcloud/configurations/config_default": "", ".config/gcloud/configurations/config_b": ""},
            ["b", "default"],
        ),
        (
            "kube-contexts",
            {
                ".kube/config": "apiVersion: v1\nclusters:\n- name: no\ncontexts:\n- context:\n    cluster: c\n\n"
                "  name: arn:aws:eks:eu:1:cluster/x\n# a remark\n- {name: 'k@k'}\ncurrent-context: k@k\n"
                "users:\n- name: no\n"
            },
            ["arn:aws:eks:eu:1:cluster/x", "k@k"],
        ),
        ("kube-contexts", {".kube/config": '{"contexts": [{"name": "j"}]}'}, ["j"]),
        ("kube-contexts", {".kube/config": "contexts: [\n"}, []),
        (
            "docker-contexts",
            {".docker/contexts/meta/0a/meta.json": '{"Name": "far"}', ".docker/contexts/meta/0b/meta.json": "{"},
            ["default", "far"],
        ),
    ],
)
def test_local_kinds_are_read_from_files(
    ask: Suggest, tmp_path: Path, kind: str, files: dict[str, str], names: list[str]
) -> None:
    if kind in ("ssh-aliases", "aws-profiles", "gcloud-configs", "docker-contexts"):
        assert ask(kind) == []  # nobody has such files
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert ask(kind) == names
    assert not (tmp_path / "cache").exists()


def test_the_kinds_of_the_page_are_there() -> None:
    page = "providers secrets modes tunnels mounts daemons invocations ssh-aliases aws-profiles gcloud-configs"
    assert set(f"{page} kube-contexts docker-contexts job-states".split()) <= set(KINDS)
