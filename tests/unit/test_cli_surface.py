"""The documented commands and their verbs, each group as its page lists it (cli.md, "Command surface")."""

from __future__ import annotations

import click
import pytest
from command_tree import TREE, parsed

from lakeshore.cli.main import main
from lakeshore.cli.program import program
from lakeshore.client.execs import LONGEST_WAIT_S
from lakeshore.server.routes.table import TABLE

SURFACE = [
    ("C-023", "providers", "add list show update remove edit discover test instances terminate"),
    ("C-024", "secrets", "add list show rotate remove"),
    ("C-025", "modes", "add list show update remove"),
    ("C-026", "tunnels", "add list show remove"),
    ("C-027", "mounts", "add list show update remove"),
    ("C-028", "storage", "add list show update remove presign credentials"),
    ("C-029", "code", "push list"),
    ("C-030", "queues", "add ls show patch archive unarchive drain rm events stats"),
    ("C-034", "worker", "start once"),
    ("C-035", "jobs", "list show kill bulk-cancel"),
    ("C-037", "ssh", "discover upload probe status"),
    *(("C-038", group, "discover") for group in ("aws", "gcp", "slurm", "kube", "docker")),
    ("C-039", "auth", "login status logout"),
    ("C-040", "config", "show refresh source"),
    ("C-041", "admin tokens", "create list revoke"),
    ("C-041", "admin namespace", "create list delete"),
    ("C-042", "nymph", "push list"),
]


@pytest.mark.parametrize(
    ("group", "verbs"),
    [pytest.param(group, verbs.split(), id=group, marks=pytest.mark.inventory(row)) for row, group, verbs in SURFACE],
)
def test_a_group_has_the_verbs_of_its_page(group: str, verbs: list[str]) -> None:
    command = TREE[group]
    assert isinstance(command, click.Group)
    with click.Context(command, **program.context_settings) as ctx:
        assert [verb for verb in verbs if command.get_command(ctx, verb) is None] == []


@pytest.mark.inventory("C-032", "C-033")
@pytest.mark.parametrize("name", ["exec", "run", "serve", "demo", "doctor"])
def test_what_is_no_group_is_a_command_of_its_own(name: str) -> None:
    assert not isinstance(TREE[name], click.Group)


RELEASED = [
    *(("C-894", name, "") for name in ("tui", "worker start", "worker once", "storage", "code", "admin", "up")),
    *(("C-896", name, "--json") for name in ("up", "down", "ps", "status", "queues ls")),
    ("C-896", "logs", "--follow"),
    ("C-896", "exec", "--queue"),
    ("C-897", "exec", "--daemon --queue"),
    ("C-897", "daemon install", "--binary"),
    ("C-897", "run", "--daemon"),
    ("C-897", "nymph push", ""),
    ("C-897", "nymph list", ""),
    ("C-899", "daemon list", "--watch"),
    ("C-899", "daemon hibernate", "--until"),
    ("C-899", "daemon target-version", ""),
    ("C-899", "daemon set-target-version", "--clear"),
    ("C-900", "daemon install", ""),
    ("C-900", "providers edit", ""),
    ("C-900", "aws discover", ""),
    ("C-900", "ssh upload", "--interactive"),
    ("C-900", "completion", ""),
    ("C-900", "tunnels add", ""),
]


@pytest.mark.parametrize(
    ("command", "options"),
    [
        pytest.param(name, options.split(), id=f"{row} {name}", marks=pytest.mark.inventory(row))
        for row, name, options in RELEASED
    ],
)
def test_what_the_release_notes_brought_is_there(command: str, options: list[str]) -> None:
    assert set(options) <= {spelt for param in TREE[command].params for spelt in param.opts}


@pytest.mark.inventory("C-897")
def test_a_wait_for_a_command_is_asked_for_in_windows_of_25_s_and_needs_no_separator() -> None:
    assert LONGEST_WAIT_S == 25.0
    for name in ("exec", "daemon exec"):
        words = ["--timeout", "5", "box", "echo", "-n", "--json"]
        with parsed(name, words) as ctx:
            said = [str(word) for value in ctx.params.values() if isinstance(value, tuple) for word in value]
            assert said[-3:] == ["echo", "-n", "--json"]
            assert ctx.params["as_json"] is False


@pytest.mark.inventory("C-1480")
def test_agents_are_not_modelled() -> None:
    assert not [name for name in TREE if "agent" in name]
    assert "/agents" not in "".join(str(row) for row in TABLE)


@pytest.mark.inventory("C-044")
@pytest.mark.parametrize("name", ["tui", "dashboard", "top"])
def test_the_dashboard_has_three_names(name: str) -> None:
    with click.Context(program, **program.context_settings) as ctx:
        assert program.get_command(ctx, name) is TREE["tui"]


def options(command: str) -> dict[str, click.Option]:
    """Each spelling of each option."""
    return {flag: found for found in TREE[command].params if isinstance(found, click.Option) for flag in found.opts}


@pytest.mark.inventory("C-191")
@pytest.mark.parametrize("command", sorted(name for name in TREE if name.startswith("jobs ")))
def test_every_verb_of_jobs_answers_in_json(command: str) -> None:
    assert options(command)["--json"].is_flag


@pytest.mark.inventory("C-197")
def test_a_job_is_in_one_of_six_states() -> None:
    states = options("jobs list")["--state"].type
    assert isinstance(states, click.Choice)
    assert list(states.choices) == ["queued", "running", "succeeded", "failed", "killed", "timeout"]


@pytest.mark.inventory("C-210")
@pytest.mark.parametrize(
    ("flag", "usual"),
    [
        ("--label", None),
        ("--tag", ()),
        ("--runner", ()),
        ("--keep-alive-s", -1),
        ("--nymph-base-url", None),
        ("--binary", None),
        ("--admin-token", None),
        ("--slurm", False),
        ("--slurm-partition", None),
        ("--wait", True),
    ],
)
def test_a_daemon_is_installed_with_the_flags_of_its_page(flag: str, usual: object) -> None:
    command, found = TREE["daemon install"], options("daemon install")[flag]
    with parsed("daemon install", ["box"]) as ctx:
        assert ctx.params[str(found.name)] == usual
    assert found.multiple is (usual == ())
    assert isinstance(command.params[0], click.Argument) and command.params[0].required
    assert "--no-wait" in options("daemon install")["--wait"].secondary_opts


def test_a_daemon_is_installed_from_a_file_or_from_a_place_not_both(capsys: pytest.CaptureFixture[str]) -> None:
    both = ("--binary", __file__, "--nymph-base-url", "http://h/", "--admin-token", "x")
    assert main(["daemon", "install", "box", *both]) == 2
    assert "--binary and --nymph-base-url exclude each other" in capsys.readouterr().err
