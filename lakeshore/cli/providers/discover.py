"""`lakeshore providers discover`: AWS profiles, gcloud configurations and SSH hosts of this machine that no provider is
made of yet, picked from one list and registered together.

Rules: nothing is asked of a cloud. A name that a provider of the org has is registered already, and so is a host that a
provider leads to. Without a terminal `--yes` takes all that is found.
Reference: cli/examples/providers-and-discover, "providers discover"; C-102, C-381, C-1376.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from lakeshore.client.api import ApiClient
from lakeshore.client.errors import ApiError
from lakeshore.client.providers import Providers

from ..confirming import confirmed, somebody_is_there
from ..exits import ExitCode
from ..failures import Failure
from ..listing import json_option
from ..numbers import Whole
from ..output import print_json, say
from ..server import connect, server_options
from ..ssh.group import config_option, target_of, targets_of
from ..ssh.upload import upload_host
from ..values import slug_of
from .registering import Found, of_aws, of_gcloud, registered

if TYPE_CHECKING:
    from lakeshore.remote.ssh_config import HostEntry

Row = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """What can be registered. `register(server)` does it, and says what the provider is called."""

    source: str
    name: str
    about: str
    register: Callable[[ApiClient], str]


@click.command()
@click.option("--filter", "words", default="", metavar="<substr>", help="Only what contains this.")
@click.option("--include-existing-ssh", is_flag=True, help="Also SSH hosts that a provider leads to already.")
@click.option("--page-size", type=Whole(1, 100), default=15, show_default=True, metavar="<n>", help="Lines at once.")
@click.option("--yes", is_flag=True, help="Do not ask; without a terminal, register all of them.")
@config_option
@json_option
@server_options
@click.pass_context
def discover(
    ctx: click.Context,
    words: str,
    include_existing_ssh: bool,
    page_size: int,
    yes: bool,
    ssh_config: str | None,
    as_json: bool,
) -> int:
    """Register what this machine knows: AWS profiles, gcloud configurations, SSH hosts."""
    with connect(ctx) as server:
        rows = Providers(server).all(hidden=True)
        found = [
            one
            for one in _candidates(rows, ssh_config, existing=include_existing_ssh)
            if words.lower() in f"{one.source} {one.name} {one.about}".lower()
        ]
        if found and not yes and not somebody_is_there():
            hint = "`--yes` registers all of them, `--filter <substr>` says which"
            raise Failure(f"nobody can pick here, of {len(found)}", hint=hint, code=ExitCode.USAGE)
        chosen = _picked(found, page_size) if found and somebody_is_there() else found
        if not chosen:
            return _told([], as_json)
        names = ", ".join(one.name for one in chosen)
        if not confirmed(f"register {len(chosen)} on {server.url}: {names}?", yes=yes):
            return ExitCode.FAILED
        return _told([_registered(server, one) for one in chosen], as_json)


def _candidates(rows: list[Row], ssh_config: str | None, *, existing: bool) -> Iterator[Candidate]:
    taken = {str(row.get("name")) for row in rows}
    yield from (one for one in (*_aws(), *_gcloud()) if slug_of(one.name) not in taken)
    yield from _ssh(set(targets_of(rows)), ssh_config, existing=existing)


def _aws() -> Iterator[Candidate]:
    from lakeshore.clouds.aws import profiles  # wall: only these commands read it

    for one in profiles():
        about = "  ".join(filter(None, (one.region, one.kind, one.key_shown)))
        yield Candidate(source="aws", name=one.name, about=about, register=_by(of_aws, one.name))


def _gcloud() -> Iterator[Candidate]:
    from lakeshore.clouds.gcloud import configurations  # wall: as above

    for one in configurations().configurations:
        if one.project is not None:  # a configuration of nothing makes no provider
            about = "  ".join(filter(None, (one.project, one.zone or one.region, one.account)))
            yield Candidate(source="gcp", name=one.name, about=about, register=_by(of_gcloud, one.name))


def _by(found_of: Callable[[str], Found], name: str) -> Callable[[ApiClient], str]:
    return lambda server: str(registered(server, slug_of(name), found_of(name), {})["name"])


def _ssh(known: set[tuple[str, str, int]], ssh_config: str | None, *, existing: bool) -> Iterator[Candidate]:
    from lakeshore.remote.ssh_config import entries  # wall: as above

    for one in entries(ssh_config):
        is_known = target_of(one) in known
        if existing or not is_known:
            about = one.target + ("  existing" if is_known else "")
            yield Candidate(source="ssh", name=one.alias, about=about, register=_by_ssh(one))


def _by_ssh(host: HostEntry) -> Callable[[ApiClient], str]:
    given = {"name": None, "with_key": False, "key_secret": None, "dispatch": None}
    return lambda server: upload_host(server, host, given).provider


def _picked(found: list[Candidate], page_size: int) -> list[Candidate]:
    from ..picker import pick_several  # wall: termios is for who is asked

    rows = [(one.source, one.name, one.about) for one in found]
    return [found[number] for number in pick_several("to register", rows, shown=page_size)]


def _registered(server: ApiClient, one: Candidate) -> Row:
    """What came of it; one that fails does not keep the others away."""
    from lakeshore.clouds.tools import ToolError  # wall: as above

    try:
        return {"source": one.source, "name": one.name, "provider": one.register(server), "error": None}
    except (ApiError, Failure, ToolError) as error:
        return {"source": one.source, "name": one.name, "provider": None, "error": str(error)}


def _told(done: list[Row], as_json: bool) -> int:
    if as_json:
        print_json(done)
    elif not done:
        say("nothing to register")
    for row in done:
        if row["error"] is not None:
            say(f"✗ {row['source']} {row['name']}: {row['error']}")
        elif not as_json:
            click.echo(f"✓ provider {row['provider']} registered  ({row['source']} {row['name']})")
    return ExitCode.FAILED if any(row["error"] for row in done) else ExitCode.OK
