"""`lakeshore aws|gcp|slurm|kube|docker discover`: what this machine's own files and tools know. Nothing is changed, no
server of ours and no cloud is asked.

Rules: `--json` is an array of rows; a tool that is missing, or does not answer in time, is a sentence and exit 1; none
of what was looked for is a sentence and exit 0. No secret key is shown.
Reference: cli/examples/providers-and-discover, "Discover helpers"; C-110…C-115.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import click

from .failures import Failure
from .groups import Group
from .listing import Listing, json_option
from .output import plain, say


@contextmanager
def tools_told() -> Iterator[None]:
    """ToolError becomes Failure (exit 1), with what to do."""
    from lakeshore.clouds.tools import ToolError  # wall: only these commands start tools

    try:
        yield
    except ToolError as error:
        raise Failure(plain(error), hint=error.hint) from error


def _group(name: str, says: str, discover: Callable[..., None]) -> click.Group:
    group = Group(name, help=says)
    group.add_command(json_option(click.command("discover")(discover)))
    return group


def _aws(as_json: bool) -> None:
    """List the profiles of ~/.aws/config and ~/.aws/credentials."""
    from lakeshore.clouds.aws import config_file, credentials_file, profiles  # wall: as above

    Listing(
        profiles(),
        columns=("profile", "region", "credentials", "key", "files"),
        cells=lambda one, _now: (one.name, one.region or "—", one.kind, one.key_shown or "—", ", ".join(one.files)),
        gives="files",
        empty=f"no AWS profiles in {config_file()} or {credentials_file()}",
        as_json=as_json,
        json_rows=lambda one: {
            "name": one.name,
            "region": one.region,
            "credentials": one.kind,
            "key": one.key_shown,
            "files": list(one.files),
        },
    ).print()


def _gcp(as_json: bool) -> None:
    """List the configurations of gcloud; without gcloud, those of its files."""
    from lakeshore.clouds.gcloud import configurations, home  # wall: as above

    found = configurations()
    if found.trouble is not None:
        say(f"note: gcloud was not of use, so its files were read: {found.trouble}")
    Listing(
        found.configurations,
        columns=("configuration", "active", "account", "project", "region", "zone", "key"),
        cells=lambda one, _now: (
            one.name,
            "✓" if one.is_active else "",
            *(said or "—" for said in (one.account, one.project, one.region, one.zone)),
            "service account" if one.key_file else "—",
        ),
        gives=("account", "project"),
        empty=f"no gcloud configurations in {home()}",
        as_json=as_json,
        json_rows=lambda one: {
            "name": one.name,
            "active": one.is_active,
            "account": one.account,
            "project": one.project,
            "region": one.region,
            "zone": one.zone,
            "keyFile": one.key_file,
            "source": found.source,
        },
    ).print()


def _slurm(as_json: bool) -> None:
    """List the partitions of this machine's cluster: slurm.conf and sinfo."""
    from lakeshore.clouds.slurm import cluster  # wall: as above

    with tools_told():
        found = cluster()
    if found.trouble is not None:
        say(f"note: states are not known: {found.trouble}")
    Listing(
        found.partitions,
        columns=("partition", "cluster", "state", "nodes", "cpus", "memory", "limit", "gres"),
        cells=lambda one, _now: (
            one.name + ("*" if one.is_default else ""),
            found.name or "—",
            one.state or "—",
            _nodes(one.nodes, one.states),
            one.cpus or "—",
            one.memory_mb or "—",
            one.time_limit or "—",
            one.gres or "—",
        ),
        right=("cpus", "memory"),
        gives=("gres", "nodes"),
        empty=f"no partitions in {found.conf or 'what sinfo says'}",
        as_json=as_json,
        json_rows=lambda one: {
            "name": one.name,
            "cluster": found.name,
            "controller": found.controller,
            "conf": found.conf,
            "default": one.is_default,
            "state": one.state,
            "nodes": one.nodes,
            "states": one.states,
            "cpus": one.cpus,
            "memoryMb": one.memory_mb,
            "timeLimit": one.time_limit,
            "gres": one.gres,
        },
    ).print()


def _nodes(count: int | None, states: dict[str, int]) -> str:
    told = ", ".join(f"{many} {state}" for state, many in states.items())
    return "—" if count is None else told or str(count)


def _kube(as_json: bool) -> None:
    """List the contexts of kubectl."""
    from lakeshore.clouds.kube import contexts  # wall: as above

    with tools_told():
        found = contexts()
    _contexts(found, ("cluster", "namespace", "user", "server"), "kubectl has no contexts", as_json)


def _docker(as_json: bool) -> None:
    """List the contexts of docker."""
    from lakeshore.clouds.docker import contexts  # wall: as above

    with tools_told():
        found = contexts()
    _contexts(found, ("endpoint", "description", "error"), "docker has no contexts", as_json)


def _contexts(rows: list[Any], names: tuple[str, ...], empty: str, as_json: bool) -> None:
    def told(one: Any) -> dict[str, Any]:
        found = asdict(one)
        return {"name": found.pop("name"), "current": found.pop("is_current"), **found}

    Listing(
        rows,
        columns=("context", "current", *names),
        cells=lambda one, _now: (
            one.name,
            "✓" if one.is_current else "",
            *(getattr(one, name) or "—" for name in names),
        ),
        gives=names,
        empty=empty,
        as_json=as_json,
        json_rows=told,
    ).print()


aws = _group("aws", "AWS profiles of this machine.", _aws)
gcp = _group("gcp", "gcloud configurations of this machine.", _gcp)
slurm = _group("slurm", "The SLURM cluster of this machine.", _slurm)
kube = _group("kube", "kubectl contexts of this machine.", _kube)
docker = _group("docker", "Docker contexts of this machine.", _docker)
