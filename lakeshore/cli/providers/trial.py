"""`lakeshore providers test`: a script on a provider.

    SSH          over ssh, with the key that the server gives for it
    SLURM        srun: over ssh on the host that it names, else on this machine
    Kube         a pod, made with this machine's kubectl
    EC2, GCE     asked of the server, which makes the machine

Reference: cli/examples/providers-and-discover, "providers test"; C-103, C-104, C-1448.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from lakeshore.client.providers import Providers

from ..clouds import tools_told
from ..exits import ExitCode
from ..failures import Failure
from ..named import Named
from ..numbers import Whole
from ..output import plain, say
from ..remote_failures import told
from ..server import connect, server_options

PATH = click.Path(exists=True, dir_okay=False, path_type=Path)
FROM_HERE = ("SSH", "SLURM", "Kube")


@click.command()
@click.argument("name", metavar="<name>", type=Named("providers"))
@click.option("--script", type=PATH, metavar="<path>", help="Run this one (default: a small Python script of ours).")
@click.option(
    "--timeout", type=Whole(min=1), default=600, show_default=True, metavar="<s>", help="How long it may take."
)
@click.option("--ssh-config", type=PATH, metavar="<path>", help="The configuration for ssh -F.")
@server_options
@click.pass_context
def test(ctx: click.Context, name: str, script: Path | None, timeout: int, ssh_config: Path | None) -> int:
    """Run a script on it, and show what it prints."""
    with connect(ctx) as server:
        ours = Providers(server)
        row = ours.show(name)
        launcher = str(row.get("launcher"))
        if launcher not in FROM_HERE:
            say(f"a machine of {name} is made for it, which takes a minute or two, and ended afterwards")
            done = ours.test(name, timeout_s=timeout, script=None if script is None else _text(script))
            return _shown(name, done)
        _check(row)
        if refers(row.get("kwargs")) and launcher != "Kube":
            row = ours.resolved(name)
    code = _run(launcher, name, row.get("kwargs") or {}, script, timeout, ssh_config)
    if code != 0:
        raise Failure(f"the script on {name} ended with exit code {code}")
    return ExitCode.OK


def _run(
    launcher: str, name: str, kwargs: dict[str, Any], script: Path | None, timeout: int, ssh_config: Path | None
) -> int:
    from lakeshore.remote import providers as remote  # wall: only these commands load what reaches hosts

    with told(), tools_told():
        if launcher == "Kube":
            from lakeshore.clouds import pods  # wall: as above

            return pods.run(kwargs, remote.script_of(script), limit_s=timeout)
        within = remote.srun(name, kwargs) if launcher == "SLURM" else ()
        if within and not leads_elsewhere(kwargs):
            say("note: the provider names no host, so this machine's srun is used")
            return remote.run_here(within, script, timeout_s=timeout)
        config = None if ssh_config is None else str(ssh_config.absolute())
        with remote.place_of(name, kwargs, config=config) as place:
            return remote.run(place, script, timeout_s=timeout, within=within)


def _shown(name: str, done: dict[str, Any]) -> int:
    """What the script printed, each on its own stream."""
    for text, err in ((done.get("stdout"), False), (done.get("stderr"), True)):
        if text:
            click.echo(plain(text).rstrip("\n"), err=err)
    if done.get("exitCode") != 0:
        why = f": {plain(done['error'])}" if done.get("error") else ""
        raise Failure(f"the script on {name} ended with exit code {plain(done.get('exitCode'))}{why}")
    return ExitCode.OK


def leads_elsewhere(kwargs: dict[str, Any]) -> bool:
    """Whether a provider names a host."""
    return bool(kwargs.get("ip") or kwargs.get("host"))


def refers(value: Any) -> bool:
    """Whether a secret of the server is in it."""
    if isinstance(value, dict):
        return "$secret" in value or any(map(refers, value.values()))
    return isinstance(value, list) and any(map(refers, value))


def _check(row: dict[str, Any]) -> None:
    name = plain(row.get("name"))
    if row.get("deletedAt"):
        raise Failure(f"{name} was removed", hint=f"lakeshore providers restore {name!r}")
    if row.get("dispatch") != "direct":
        hint = f"lakeshore providers update {name} --dispatch direct"
        raise Failure(f"{name} is not reached from here: its dispatch is {plain(row.get('dispatch'))}", hint=hint)


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Failure(f"cannot read {path}: {error}") from error
