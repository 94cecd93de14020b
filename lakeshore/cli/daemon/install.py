"""`lakeshore daemon install`: this very program onto a host that has OpenSSH, bash and python3, and its daemon started.

Rules: nothing is left behind by an install that was interrupted, or failed before the daemon was started: its token is
revoked, its directory and its tunnel go. One that only was not seen in time stays, for it may still come up. The token
is in this process's memory and in the host's file, nowhere else.
Reference: nymph/install-remote-daemon.md; nymph/daemon-lifecycle.md, "SSH bootstrap"; N-324…N-366.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lakeshore.client.api import ApiClient
from lakeshore.client.errors import ApiError
from lakeshore.client.workers import Workers
from lakeshore.net.errors import NetError
from lakeshore.net.target import parse_target
from lakeshore.wire.names import MAX_NAME, Ulids

from ..choice import NO_ADMIN, Choice, choose_admin
from ..exits import ExitCode
from ..failures import Failure
from ..interrupts import held, ignored, unwinding
from ..named import Named
from ..numbers import Seconds, Whole
from ..output import plain, print_json, say
from ..remote_failures import told
from ..server import client_of, namespace_option, url_option

if TYPE_CHECKING:
    from lakeshore.remote.installs import Install, Installs
    from lakeshore.remote.launch import Host, How, Started
    from lakeshore.remote.packing import Packed
    from lakeshore.remote.program import Program
    from lakeshore.remote.ssh import Connection, Place

RUNNERS = ("process", "docker", "gvisor", "slurm", "kube")
POLL_S = 2.0
_LOOKS_EVERY = 3  # polls of the server between two looks at the host
_LOG_LINES = 20
_ALIAS_CHARACTERS = 30  # of a token's name, whose limit is 64
_RELEASES = ("{base}/dreamlake/nymph/latest/nymph-{triple}", "{base}/latest/lakeshore")
FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
DIRECTORY = click.Path(exists=True, file_okay=False, path_type=Path)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The flags, checked."""

    place: Place
    prefix: str
    tags: tuple[str, ...]
    runners: tuple[str, ...]
    queues: tuple[str, ...]
    keep_alive_s: int
    base_url: str | None
    python: str
    how: How
    partition: str
    requeue: bool
    server_url: str | None
    tunnel: bool | None
    docker_group: bool
    wait_s: float
    code: Path | None
    allow_pickled: bool


@click.command("install")
@click.argument("alias", metavar="<ssh-alias>", type=Named("ssh-aliases"))
@click.option("--label", metavar="<name>", help="Prefix of the worker's label (default: the alias).")
@click.option("--tag", "tags", multiple=True, metavar="<key:value>", help="A tag of the worker. Repeatable.")
@click.option(
    "--runner",
    "runners",
    multiple=True,
    type=click.Choice(RUNNERS),
    help="What runs jobs there (default: process); the first is the default one. Repeatable.",
)
@click.option(
    "--queue", "queues", multiple=True, type=Named("queues"), metavar="<name>", help="A queue to drain. Repeatable."
)
@click.option(
    "--keep-alive-s",
    "--keep-alive",
    type=Whole(min=-1),
    default=-1,
    show_default=True,
    metavar="<n>",
    help="Seconds without work until it leaves; 0: after one job, -1: it stays.",
)
@click.option("--binary", type=FILE, metavar="<path>", help="Send this file of Lakeshore instead of the running one.")
@click.option("--nymph-base-url", metavar="<url>", help="Let the host download a release from there instead.")
@click.option(
    "--code", type=DIRECTORY, metavar="<dir>", help="Copy this directory of modules; functions are imported from it."
)
@click.option(
    "--allow-pickled", is_flag=True, help="Let it run functions that were sent by value (of scripts, notebooks)."
)
@click.option("--python", default="", metavar="<path>", help="The host's Python (default: any from 3.11 on).")
@click.option("--admin-token", metavar="<token>", help="The server's admin token (LAKESHORE_ADMIN_TOKEN).")
@click.option("--wait/--no-wait", default=True, show_default=True, help="Wait until the daemon is registered.")
@click.option("--wait-s", type=Seconds(min=1), default=60.0, show_default=True, metavar="<s>", help="How long.")
@click.option("--slurm", is_flag=True, help="Run it as a SLURM job: the host is a login node.")
@click.option("--slurm-partition", metavar="<name>", help="The job's partition.")
@click.option("--slurm-requeue", is_flag=True, help="Queue the job again shortly before its time is up.")
@click.option("--service", is_flag=True, help="Run it as a systemd service of the user.")
@click.option("--server-url", metavar="<url>", help="The address under which the host reaches the server.")
@click.option(
    "--reverse-tunnel/--no-reverse-tunnel",
    "tunnel",
    default=None,
    help="Keep a tunnel open (ssh -R) through which the host reaches the server on this machine.",
)
@click.option("--no-docker-group", is_flag=True, help="Do not try to put the user into the host's docker group.")
@click.option("--ssh-config", type=FILE, metavar="<path>", help="The configuration for ssh -F.")
@click.option("--json", "as_json", is_flag=True, help="Print what was installed as JSON; progress goes to stderr.")
@namespace_option
@url_option
@click.pass_context
def install(ctx: click.Context, /, **given: Any) -> int:
    """Put a daemon onto a host that you can ssh to, and wait until it is registered."""
    from lakeshore.remote.installs import Installs  # wall: only these commands load what reaches hosts
    from lakeshore.remote.program import chosen  # wall: as above
    from lakeshore.remote.ssh import Connection  # wall: as above
    from lakeshore.server.here import default_directory  # wall: only who installs needs it

    with told():
        asked = _checked(given)
        choice = _choice(given["url"], given["namespace"] or ctx.find_object(str), given["admin_token"])
        program = chosen(given["binary"]) if asked.base_url is None else None
        if program is not None and program.stale:
            say(f"note: {program.path} is older than this checkout: build it again with python3 build_pyz.py")
        installs = Installs(default_directory(os.environ))
        with (
            unwinding(),
            packed(asked.code, None if program is None else program.path) as code,
            client_of(choice) as client,
            Connection(asked.place) as connection,
        ):
            return _Installing(asked, client, connection, installs, program, code, as_json=given["as_json"]).run()


@contextlib.contextmanager
def packed(directory: Path | None, program: Path | None) -> Iterator[Packed | None]:
    """The code to send as one file, while the block lasts; None without any."""
    from lakeshore.remote.packing import pack  # wall: only these commands load what reaches hosts

    if directory is None:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="lakeshore-code-") as place:
        yield pack(directory, Path(place, "code.tar.gz"), program=program)


# --- what is asked


def _checked(given: dict[str, Any]) -> Asked:
    from lakeshore.remote.ssh import Place  # wall: as above

    if given["binary"] is not None and given["nymph_base_url"] is not None:
        raise click.UsageError("--binary and --nymph-base-url exclude each other")
    if given["slurm"] and given["service"]:
        raise click.UsageError("--slurm and --service exclude each other")
    for name in ("slurm_partition", "slurm_requeue"):
        if given[name] and not given["slurm"]:
            raise click.UsageError(f"--{name.replace('_', '-')} needs --slurm")
    if given["slurm_partition"] and not re.fullmatch(r"[\w.,-]+", given["slurm_partition"]):
        raise click.UsageError(f"{given['slurm_partition']!r} is no name of a partition")
    for url in (given["server_url"],):
        if url is not None:
            _check_url(url)
    if given["server_url"] is not None and given["tunnel"]:
        raise click.UsageError("--server-url and --reverse-tunnel exclude each other")
    prefix = given["label"] or given["alias"]
    if not prefix.isprintable() or len(prefix) > MAX_NAME - 27:
        raise click.UsageError(f"a label is one line of at most {MAX_NAME - 27} characters")
    how: How = "slurm" if given["slurm"] else "service" if given["service"] else "process"
    config = given["ssh_config"]
    return Asked(
        place=Place(alias=given["alias"], config=None if config is None else os.path.abspath(config)),
        prefix=prefix,
        tags=given["tags"],
        runners=tuple(dict.fromkeys(given["runners"])) or ("process",),
        queues=given["queues"],
        keep_alive_s=given["keep_alive_s"],
        base_url=given["nymph_base_url"] and given["nymph_base_url"].rstrip("/"),
        python=given["python"],
        how=how,
        partition=given["slurm_partition"] or "",
        requeue=given["slurm_requeue"],
        server_url=given["server_url"],
        tunnel=given["tunnel"],
        docker_group=not given["no_docker_group"],
        wait_s=given["wait_s"] if given["wait"] else 0.0,
        code=given["code"],
        allow_pickled=given["allow_pickled"],
    )


def _check_url(url: str) -> None:
    try:
        parse_target(url)
    except ValueError as error:
        raise click.UsageError(str(error)) from error


def _choice(url: str | None, namespace: str | None, token: str | None) -> Choice:
    try:
        return choose_admin(url=url, namespace=namespace, token=token)
    except Failure as error:
        if str(error) != NO_ADMIN:
            raise
        hint = f"export it, or pass --admin-token; {error.hint}"
        raise Failure("daemon install needs LAKESHORE_ADMIN_TOKEN", hint=hint, code=ExitCode.USAGE) from error


# --- the four steps


class _Installing:
    """One install, from the token to the registered worker."""

    def __init__(
        self,
        asked: Asked,
        client: ApiClient,
        connection: Connection,
        installs: Installs,
        program: Program | None,
        code: Packed | None,
        *,
        as_json: bool,
    ) -> None:
        self._asked, self._client, self._connection = asked, client, connection
        self._installs, self._program, self._code, self._as_json = installs, program, code, as_json
        self._launch_id = Ulids(lambda: time.time_ns() // 1_000_000, os.urandom).new()
        self._label = f"{asked.prefix}-{self._launch_id}"
        self._token_name = _token_name(asked.place.alias, self._launch_id)
        self._token_id: str | None = None
        self._copied_by: str | None = None
        self._wants_tunnel = False

    def run(self) -> int:
        from lakeshore.remote import launch  # wall: as above

        alias = self._asked.place.alias
        self._note_others()
        self._print(f"→ [1/4] minting per-daemon token from {self._client.url}…")
        worker = None
        with self._undone_after(KeyboardInterrupt, SystemExit):
            with self._undone_after(Exception):
                with held("\nwaiting for the server's answer: a token that it mints is to be revoked …"):
                    token = self._client.mint_token(self._token_name, scope="daemon")
                    self._token_id = str(token["id"])
                row = self._row(token)
                self._installs.save(row)
                self._print(f"  ✓ token minted (name '{token['name']}')")
                self._print(f"  launch ID: {self._launch_id}")
                self._print(f"  log: {launch.log_path(self._launch_id)}")
                self._print(f"→ [2/4] ssh {alias} — bootstrapping (binary + config + start)…")
                host, row = self._bootstrapped(row, str(token["plaintext"]))
            self._print(f"  ✓ [3/4] daemon process started on {alias} (label '{self._label}')")
            if self._asked.wait_s:
                worker = self._registered()
        if self._as_json:
            print_json(
                {
                    "launchId": self._launch_id,
                    "label": self._label,
                    "worker": worker,
                    "alias": alias,
                    "log": launch.log_path(self._launch_id),
                    "directory": host.directory(self._launch_id),
                    "python": host.python,
                    "how": self._asked.how,
                    "copiedBy": self._copied_by,
                    "tunnelPort": row.port,
                    "code": host.code(self._launch_id) if self._code is not None else None,
                }
            )
        return ExitCode.OK

    def _row(self, token: dict[str, Any]) -> Install:
        from lakeshore.remote.installs import Install  # wall: as above

        return Install(
            launch_id=self._launch_id,
            alias=self._asked.place.alias,
            ssh_config=self._asked.place.config,
            label=self._label,
            url=self._client.url,
            namespace=self._client.namespace,
            token_id=str(token["id"]),
            token_name=str(token["name"]),
            how=self._asked.how,
            created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        )

    def _bootstrapped(self, row: Install, token: str) -> tuple[Host, Install]:
        from lakeshore.remote import launch  # wall: as above

        asked, program, code = self._asked, self._program, self._code
        host = launch.prepare(
            self._connection,
            self._launch_id,
            python=asked.python,
            size=(program.size if program is not None else 32 << 20) + (2 * code.size if code is not None else 0),
            docker_group=asked.docker_group,
            server=None if asked.tunnel else asked.server_url or self._client.url,
        )
        if host.joined_docker:
            self._print(f"  {host.user} is in the group docker now")
        server, row = self._address(host, row)
        urls: tuple[str, ...] = ()
        if program is None:
            urls = tuple(one.format(base=asked.base_url, triple=host.triple) for one in _RELEASES)
        else:
            self._note_platform(host, program)
            show = sys.stderr.isatty() and not self._as_json
            self._copied_by = launch.send(self._connection, host, self._launch_id, program.path, show=show)
        if code is not None:
            launch.send_code(self._connection, host, self._launch_id, code.path)
            files = f"{code.files} file{'s' if code.files != 1 else ''}"
            self._print(f"  code: {files} ({code.size / 1024:.1f} KiB) of {asked.code}")
        started = launch.start(
            self._connection,
            host,
            self._launch_id,
            token=token,
            config=self._config(host, server),
            sha256=program.sha256 if program is not None else "",
            urls=urls,
            how=asked.how,
            partition=asked.partition,
            requeue=asked.requeue,
            code=code is not None,
        )
        self._tell_started(started)
        return host, row

    def _address(self, host: Host, row: Install) -> tuple[str, Install]:
        """The server's address in the daemon's configuration; the tunnel is up when there is to be one."""
        asked, url = self._asked, self._asked.server_url or self._client.url
        if not asked.tunnel:
            if not host.unreached:
                return url, row
            self._offer_tunnel(url, host.unreached)
            if not self._wants_tunnel:
                say(f"note: {asked.place.alias} does not reach {url} now: {host.unreached}")
                return url, row
        from lakeshore.remote import tunnel  # wall: as above
        from lakeshore.server.here import default_directory, tunnel_socket  # wall: as above

        socket = tunnel_socket(default_directory(os.environ))
        if not socket.exists():
            raise Failure(
                "a tunnel ends at the server of this machine, and none runs from its state directory",
                hint="run this where `lakeshore serve` runs, as its user (its --state-dir in LAKESHORE_STATE_DIR); "
                "or name an address that the host reaches with --server-url",
            )
        port = tunnel.start(self._installs, row, socket)
        row = replace(row, port=port)
        self._installs.save(row)
        self._print(f"  tunnel: port {port} of {asked.place.alias} leads to the server here, and is kept up")
        return f"http://127.0.0.1:{port}", row

    def _offer_tunnel(self, url: str, why: str) -> None:
        """Ask, where somebody can answer; else Failure, unless nobody waits for the daemon."""
        alias = self._asked.place.alias
        here = parse_target(url).is_loopback
        if self._asked.tunnel is None and here and sys.stdin.isatty() and sys.stderr.isatty():
            asked = f"{url} is this machine's own address, which {alias} does not reach. Keep a tunnel open (ssh -R)?"
            self._wants_tunnel = click.confirm(asked, default=True, err=True)
            if self._wants_tunnel:
                return
        if self._asked.wait_s or here:
            raise Failure(
                f"{alias} does not reach the server at {url}: {why}",
                hint="--reverse-tunnel keeps a tunnel open to the server on this machine; "
                f"--server-url names another address{'' if here else '; --no-wait installs all the same'}",
            )

    def _config(self, host: Host, server: str) -> str:
        from lakeshore.nymph import config  # wall: the daemon's file is the daemon's

        asked = self._asked
        keys = [*config.INSTALLED_KEYS, "runtime.workdir", *(["daemon.lanes"] if asked.queues else [])]
        keys += [
            *(["runtime.python_path"] if asked.code else []),
            *(["runtime.allow_pickled"] if asked.allow_pickled else []),
        ]
        whole = config.Config(
            server=config.ServerSection(url=server, token_file="token", namespace=self._client.namespace),  # noqa: S106
            daemon=config.DaemonSection(label=self._label, tags=asked.tags, lanes=asked.queues),
            runtime=config.RuntimeSection(
                workdir=f"{host.directory(self._launch_id)}/work",
                runners=asked.runners,
                default_runner=asked.runners[0],
                keep_alive_s=asked.keep_alive_s,
                python_path=(host.code(self._launch_id),) if asked.code is not None else (),
                allow_pickled=asked.allow_pickled,
            ),
        )
        text = config.render(whole, keys)
        config.parse(text, "udf-daemon.toml")  # what the daemon would refuse is refused here
        return text

    def _note_platform(self, host: Host, program: Program) -> None:
        machine, _, system = host.triple.partition("-")
        ours = f"darwin_{machine.replace('aarch64', 'arm64')}" if "darwin" in system else f"linux_{machine}"
        if program.platforms and ours not in program.platforms:
            has = ", ".join(sorted(program.platforms))
            say(f"note: this file has compiled modules for {has} alone; on {ours} it is slower and signs nothing")

    def _note_others(self) -> None:
        """Who installs again to replace a daemon hears that this adds one: both would serve the same queues."""
        place = self._asked.place
        for one in self._installs.all():
            if (one.alias, one.ssh_config, one.url) == (place.alias, place.config, self._client.url):
                say(f"note: {one.alias} has a daemon of yours already, and this is one more;")
                say(f"  `lakeshore daemon uninstall {one.launch_id}` removes the former")

    def _tell_started(self, started: Started) -> None:
        if started.note:
            say(f"note: {plain(started.note)}")
        if started.job:
            self._print(f"  SLURM job: {started.job} (lakeshore-nymph-{self._launch_id})")
        if started.unit:
            self._print(f"  service: {started.unit} (systemctl --user status {started.unit})")

    # --- the fourth

    def _registered(self) -> str:
        """The worker's id, once the server has it. Failure when it does not come."""
        self._print(f"→ [4/4] waiting (up to {self._asked.wait_s:g}s) for registration ", end="")
        deadline = time.monotonic() + self._asked.wait_s
        looks = 0
        trouble = ""
        try:
            while True:
                self._print("·", end="")
                try:
                    found = _worker_of(self._client, self._label)
                except NetError as error:
                    trouble, found = str(error), None
                if found is not None:
                    break
                looks += 1
                if looks % _LOOKS_EVERY == 0:
                    self._look_whether_it_runs()
                if time.monotonic() + POLL_S > deadline:
                    self._not_registered(trouble)
                time.sleep(POLL_S)
        finally:
            self._print("")
        self._print(f"  ✓ daemon registered (worker {plain(found)}, label '{self._label}')")
        return found

    def _look_whether_it_runs(self) -> None:
        from lakeshore.remote import launch  # wall: as above

        found = launch.condition(self._connection, self._launch_id, lines=_LOG_LINES)
        if found.is_over:
            self._print("")
            self._show(found.log)
            raise Failure(f"the daemon on {self._asked.place.alias} ended", hint=self._afterwards())

    def _not_registered(self, trouble: str) -> None:
        from lakeshore.remote import launch  # wall: as above

        self._print("")
        state = ""
        with contextlib.suppress(Exception):
            found = launch.condition(self._connection, self._launch_id, lines=_LOG_LINES)
            self._show(found.log)
            state = f"; it is {found.state}"
            if self._asked.how == "slurm" and found.state == "PENDING":
                state = "; its SLURM job is still pending, and it registers when that starts"
        raise Failure(
            f"the daemon did not register within {self._asked.wait_s:g} s{state}"
            + (f" (the server: {trouble})" if trouble else ""),
            hint=self._afterwards(),
        )

    def _afterwards(self) -> str:
        remove = f"lakeshore daemon uninstall {self._launch_id}"
        return f"`lakeshore daemon list` shows it if it comes up; `{remove}` removes it"

    def _show(self, log: tuple[str, ...]) -> None:
        from lakeshore.remote import launch  # wall: as above

        if log:
            say(f"the end of {launch.log_path(self._launch_id)} on {self._asked.place.alias}:")
            for line in log:
                say(f"    {line}")

    # --- what failed

    @contextlib.contextmanager
    def _undone_after(self, *kinds: type[BaseException]) -> Iterator[None]:
        """Take everything back after one of these. A second Ctrl-C does not stop that half way."""
        try:
            yield
        except kinds as error:
            with ignored():
                self._undo(error)
            raise

    def _undo(self, error: BaseException) -> None:
        from lakeshore.remote import launch, tunnel  # wall: as above

        interrupted = isinstance(error, KeyboardInterrupt | SystemExit)
        if self._token_id is not None:
            if interrupted:
                say(f"\ninterrupted: what was begun on {self._asked.place.alias} is removed …")
            launch.give_up(self._connection, self._launch_id, keep_log=not interrupted)
            tunnel.stop(self._installs, self._launch_id)
        elif isinstance(error, ApiError):
            return  # no token was minted
        try:
            revoked = self._revoked()
        except (ApiError, NetError) as failed:
            if self._token_id is not None:
                by_hand = f"lakeshore admin tokens revoke {self._token_id}"
                say(f"note: the token {self._token_name} was not revoked ({failed}): {by_hand}")
        else:
            if revoked:
                say(f"the token {self._token_name} is revoked; nothing was installed")
        self._installs.forget(self._launch_id)

    def _revoked(self) -> bool:
        """Revoke the token, also where its answer was lost; whether there was one."""
        found = self._token_id
        if found is None:
            rows = self._client.tokens()
            found = next((str(row["id"]) for row in rows if row.get("name") == self._token_name), None)
        if found is not None:
            self._client.revoke_token(found)
        return found is not None

    def _print(self, text: str, *, end: str = "\n") -> None:
        out = sys.stderr if self._as_json else sys.stdout
        out.write(text + end)
        out.flush()


def _token_name(alias: str, launch_id: str) -> str:
    """A token's name is letters, digits, `_` and `-`."""
    return f"daemon-{re.sub(r'[^A-Za-z0-9_-]+', '-', alias)[:_ALIAS_CHARACTERS]}-{launch_id}"


def _worker_of(client: ApiClient, label: str) -> str | None:
    """The id of the active worker of that label."""
    found = (row for row in Workers(client).all() if row.get("label") == label and row.get("state") == "active")
    return next((str(row.get("id")) for row in found), None)
