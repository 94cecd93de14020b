"""`lakeshore daemon launch`: daemons on machines that a provider makes, or that it leads to.

Rules: what a flag does not say is taken from `.lakeshore`, then from the server; scripts are read here, their text is
sent. Each daemon is a request of its own, so many at once as `--concurrency` says; one that the provider throttles is
sent again, one whose answer was lost is not: it may have made a machine. After a refusal that all would get no more are
sent. What was launched is told in every case, also after a Ctrl-C.
Reference: nymph/daemon-lifecycle.md, "Launch through a provider"; cli/examples/daemons-and-exec.md; C-199…C-209.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from lakeshore.client.api import ApiClient
from lakeshore.client.errors import ApiError
from lakeshore.client.launches import Launches, is_throttled
from lakeshore.config.project import ProjectDefaults, project_defaults
from lakeshore.net.backoff import chance, full_jitter
from lakeshore.net.errors import NetError

from ..exits import ExitCode
from ..failures import Failure
from ..listing import json_option
from ..named import Named
from ..numbers import Seconds, Whole
from ..output import plain, print_json, say
from ..progress import progress
from ..server import chosen, connect, server_options
from .coming import Coming, registered
from .install import RUNNERS

Row = dict[str, Any]
MOST = 1000
AT_ONCE = 5
"""What EC2's RunInstances takes."""
_TRIES = 8
_FIRST_WAIT_S, _LONGEST_WAIT_S = 1.0, 30.0
_SCRIPT = click.Path(exists=True, dir_okay=False, path_type=Path)
_FOR_ALL = frozenset({400, 401, 403, 404, 409, 413, 422, 501})
"""Statuses that the next one would get, too."""


@click.command("launch")
@click.option("--provider", type=Named("providers"), metavar="<name>", help="Who makes the machine.")
@click.option("--name", metavar="<text>", help="The daemon's label, and the machine's name; a prefix with --count.")
@click.option("--label", metavar="<text>", help="The worker's label, where it is to be another one.")
@click.option(
    "--count", type=Whole(1, MOST), default=1, metavar="<n>", help="So many daemons, each on its own machine."
)
@click.option(
    "--concurrency", type=Whole(1, 100), default=AT_ONCE, show_default=True, metavar="<n>", help="Launches at once."
)
@click.option("--capacity", metavar="<json>", help='What the machine is to have: \'{"instance_type": "g5.2xlarge"}\'.')
@click.option("--tag", "tags", multiple=True, metavar="<key:value>", help="A tag of the worker. Repeatable.")
@click.option(
    "--queue", "queues", multiple=True, type=Named("queues"), metavar="<name>", help="A queue to drain. Repeatable."
)
@click.option(
    "--runner",
    "runners",
    multiple=True,
    type=click.Choice(RUNNERS),
    help="What runs jobs there (default: process); the first is the default one. Repeatable.",
)
@click.option(
    "--keep-alive",
    "--keep-alive-s",
    "keep_alive",
    type=Whole(min=-1),
    metavar="<s>",
    help="Seconds without work until it leaves; 0: after one job, -1 (default): it stays.",
)
@click.option("--bootstrap-script", type=_SCRIPT, metavar="<path>", help="Run this as root before the daemon starts.")
@click.option(
    "--setup-script",
    "setup_scripts",
    multiple=True,
    type=_SCRIPT,
    metavar="<path>",
    help="Let the daemon run this once it is there, after those of .lakeshore. Repeatable.",
)
@click.option("--no-config", is_flag=True, help="Do not look for .lakeshore.")
@click.option("--no-setup", is_flag=True, help="Send no script, neither of .lakeshore nor of flags.")
@click.option("--wait/--no-wait", "waits", default=False, help="Wait until every daemon is registered.")
@click.option("--wait-s", type=Seconds(min=1), default=600.0, show_default=True, metavar="<s>", help="How long.")
@click.option("--dry-run", is_flag=True, help="Print what a new machine would run, and launch nothing.")
@json_option
@server_options
@click.pass_context
def launch(ctx: click.Context, /, **given: Any) -> int:
    """Start daemons on machines that a provider makes."""
    asked = _asked(given)
    as_json, waits = bool(given["as_json"]), bool(given["waits"])
    with connect(ctx) as server:
        if given["dry_run"]:
            told = Launches(server).rendered(next(asked.bodies()))
            print_json(told) if as_json else click.echo(str(told.get("bootstrap") or ""), nl=False)
            return ExitCode.OK
        launching = _Launching(asked, int(given["concurrency"]), server, lambda: _another(ctx), as_json=as_json)
        launching.run()
        missing: list[str] = []
        if waits and launching.made:
            missing = registered(server, launching.coming(), wait_s=float(given["wait_s"]))
    if as_json:
        print_json([{**row, "registered": row["id"] not in missing} if waits else row for row in launching.made])
    failed = bool(launching.failed or missing)
    if not failed and not waits and not as_json:
        say("`lakeshore daemon list` shows when they are there" if len(launching.made) > 1 else _TO_SEE)
    return ExitCode.FAILED if failed else ExitCode.OK


_TO_SEE = "`lakeshore daemon list` shows when it is there"


# --- what is asked


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What is sent for each daemon, and the names that differ. None: the server finds one."""

    body: Row
    names: tuple[str | None, ...]
    labels: tuple[str | None, ...]

    def bodies(self) -> Iterator[Row]:
        """One a daemon."""
        for name, label in zip(self.names, self.labels, strict=True):
            own = {"name": name, "label": label}
            yield {**self.body, **{key: value for key, value in own.items() if value is not None}}


def _asked(given: dict[str, Any]) -> Asked:
    defaults = ProjectDefaults() if given["no_config"] else project_defaults()
    wanted = defaults.under(
        provider=given["provider"],
        name=given["name"],
        runners=tuple(dict.fromkeys(given["runners"])),
        tags=given["tags"],
        queues=given["queues"],
        keep_alive_s=given["keep_alive"],
        capacity=None if given["capacity"] is None else _capacity(given["capacity"]),
        bootstrap_script=given["bootstrap_script"],
        setup_scripts=given["setup_scripts"],
        no_setup=given["no_setup"],
    )
    if wanted.provider is None:
        hint = "`--provider <name>` does, or `provider:` below `daemon:` in .lakeshore; `lakeshore providers list`"
        raise Failure("nothing says which provider is to make the machine", hint=hint, code=ExitCode.USAGE)
    odd = next((one for one in wanted.runners if one not in RUNNERS), None)
    if odd is not None:
        raise Failure(
            f"{', '.join(map(str, wanted.files))}: daemon.runners: there is no runner {odd!r}",
            hint=f"one of {', '.join(RUNNERS)}",
            code=ExitCode.USAGE,
        )
    first, later = wanted.scripts()
    paths = wanted.setup_scripts
    body: Row = {
        "provider": wanted.provider,
        "tags": list(wanted.tags),
        "queues": list(wanted.queues),
        "runners": list(wanted.runners),
        "keep_alive_s": wanted.keep_alive_s,
        "capacity": wanted.capacity,
        "bootstrap_script": first,
        "setup_commands": [
            {"name": path.name, "script": text, "refresh_capabilities": True}
            for path, text in zip(paths, later, strict=True)
        ],
    }
    count = int(given["count"])
    return Asked(
        body={key: value for key, value in body.items() if value not in (None, [], {})},
        names=numbered(wanted.name, count),
        labels=numbered(given["label"], count),
    )


def numbered(name: str | None, count: int) -> tuple[str | None, ...]:
    """`fleet-00`, `fleet-01`, …; one alone is called as it is."""
    if count == 1 or name is None:
        return (name,) * count
    width = max(2, len(str(count - 1)))
    return tuple(f"{name}-{number:0{width}}" for number in range(count))


def _capacity(text: str) -> Row:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise click.BadParameter(f"is no JSON: {error}", param_hint="'--capacity'") from error
    if not isinstance(value, dict):
        hint = '{"instance_type": "g5.2xlarge"}'
        raise click.BadParameter(f"must be a JSON object, such as {hint}", param_hint="'--capacity'")
    return value


def _another(ctx: click.Context) -> ApiClient:
    """A client for a thread of its own, which draws nothing."""
    choice = chosen(ctx)
    return ApiClient(choice.url, namespace=choice.namespace, token=choice.token)


# --- the launches


class _Launching:
    """All of them. `made` are the rows of what was launched, `failed` how many were not."""

    def __init__(
        self, asked: Asked, at_once: int, server: ApiClient, another: Callable[[], ApiClient], *, as_json: bool
    ) -> None:
        self.made: list[Row] = []
        self.failed = 0
        self._bodies = list(asked.bodies())
        self._provider = plain(asked.body["provider"])
        self._at_once, self._server, self._another = at_once, server, another
        self._as_json = as_json
        self._warned: set[str] = set()
        self._left: dict[Future[Row], Row] = {}
        self._stop = threading.Event()
        """No other is to be sent."""

    def coming(self) -> list[Coming]:
        """Those to wait for."""
        return [Coming(id=str(row["id"]), label=plain(row.get("label"))) for row in self.made]

    def run(self) -> None:
        """Launch them. What all would be refused is raised, after those that were launched before are told."""
        if len(self._bodies) == 1:
            say(f"launching a daemon through {self._provider} …")
            self._tell(self._sent(Launches(self._server), self._bodies[0]))
            return
        refused: Exception | None = None
        with progress(f"launching through {self._provider}", len(self._bodies)) as advance:
            pool = ThreadPoolExecutor(min(self._at_once, len(self._bodies)))
            try:
                refused = self._all(pool, advance)
            except KeyboardInterrupt:
                self._stop.set()
                say("\ninterrupted: no other is launched; those under way are waited for …")
                pool.shutdown(cancel_futures=True)
                self._told_by_then()
                self._tell_left_running()
                raise
            finally:
                self._stop.set()
                pool.shutdown(cancel_futures=True)
        if refused is not None:
            self._tell_left_running()
            raise refused

    def _all(self, pool: ThreadPoolExecutor, advance: Callable[[], None]) -> Exception | None:
        """What all would be refused; None where each had its own answer."""

        def one(body: Row) -> Row:
            with self._another() as client:
                return self._sent(Launches(client), body)

        self._left = {pool.submit(one, body): body for body in self._bodies}
        refused: Exception | None = None
        while self._left:
            done, _ = wait(self._left, return_when=FIRST_COMPLETED)
            for future in done:
                body = self._left.pop(future)
                if future.cancelled():
                    continue
                try:
                    self._tell(future.result())
                    advance()
                except ApiError as error:
                    self.failed += 1
                    if error.status not in _FOR_ALL:
                        _say_failed(body.get("name") or body.get("label"), error, error.hint)
                        continue
                    refused = refused or error
                except (NetError, Failure) as error:
                    self.failed += 1
                    refused = refused or error
                if refused is not None and not self._stop.is_set():
                    self._stop.set()
                    for other in self._left:
                        other.cancel()
        return refused

    def _told_by_then(self) -> None:
        """Tell of those whose answers came after all."""
        for future in self._left:
            if not future.cancelled() and future.exception() is None:
                self._tell(future.result())

    def _sent(self, launches: Launches, body: Row) -> Row:
        """Launch one; again, and later each time, while the provider throttles. Failure when its answer was lost."""
        waits = full_jitter(chance, base=_FIRST_WAIT_S, cap=_LONGEST_WAIT_S)
        for left in reversed(range(_TRIES)):
            try:
                return launches.launch(body)
            except ApiError as error:
                if not left or not is_throttled(error) or self._stop.wait(next(waits)):
                    raise
            except NetError as error:
                if not error.sent_anything:
                    raise
                hint = "it may have made a machine all the same: look with `lakeshore daemon list` before you try again"
                raise Failure(str(error), hint=hint) from error
        raise AssertionError  # the last try returns or raises

    def _tell(self, told: Row) -> None:
        self.made += told["workers"]
        for text in told["warnings"]:
            if text not in self._warned:
                self._warned.add(text)
                say(f"warning: {text}")
        for row in told["failed"]:
            self.failed += 1
            _say_failed(row.get("label"), row.get("error"), row.get("hint"))
        for row in told["workers"]:
            instance, note = row.get("instanceId"), row.get("note")
            about = f"worker {plain(row['id'])}" + (f", instance {plain(instance)}" if instance else "")
            if not self._as_json:
                click.echo(f"launched {plain(row.get('label') or row['id'])} ({about})")
            if note:
                say(f"note: {row.get('label')}: {note}")

    def _tell_left_running(self) -> None:
        if self.made:
            count = len(self.made)
            say(f"{count} of {len(self._bodies)} {'was' if count == 1 else 'were'} launched, and stay: end them with")
            for row in self.made:
                say(f"  lakeshore daemon kill {row['id']}")


def _say_failed(label: Any, error: Any, hint: Any) -> None:
    say(f"error: {label or 'one'}: {error}")
    if hint:
        say(f"hint: {hint}")
