"""`lakeshore serve`: open the state directory, run the services in one nursery, drain, close.

Without LAKESHORE_ADMIN_TOKEN the server is in open mode, for loopback only. Another address needs the token, or
`--open`, which says so at every start. Production (LAKESHORE_ENV or NODE_ENV = production) needs LAKESHORE_ADMIN_TOKEN
and SECRETS_KEY. SIGTERM and SIGINT end it within five seconds: held polls are answered, what is under way is finished.
Reference: api/auth-and-secrets, "Server env config"; S-013, S-047…S-051.
"""

from __future__ import annotations

import argparse
import logging
import math
import os
import signal
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import trio

from .. import _version
from ..heap import keep_freed_memory
from ..plane.contract import INLINE_BYTES, PlaneError
from ..plane.database import Durability
from ..plane.plane import Plane, failure_of
from ..wire.messages import INLINE_THRESHOLD_BYTES, MAX_PAYLOAD_BYTES
from ..wire.verification import Policy, policy_of
from . import render
from .admission import Admission
from .app import App, PageReader
from .auth import TUNNEL, Gate, is_loopback_name
from .aws import Aws
from .blobs import URL_TTL_S, BlobStore, Sizes
from .bootstrap.program import Programs
from .changes import Changes
from .code_archives import CodeArchives
from .cors import Cors
from .dispatcher import Dispatcher
from .elasticity.controller import Controller
from .elasticity.settings import Settings, settings_from
from .execs import Execs, Output, Store, keeping
from .execs.telling import command_body
from .google import Google
from .hosts import EVERY_S, Hosts
from .http import (
    HttpError,
    HttpServer,
    Limits,
    Listener,
    ListenError,
    Request,
    Response,
    TlsError,
    allow_open_files,
    open_listeners,
    open_socket_file,
    server_context,
)
from .identity import Identity
from .janitor import Janitor
from .launchers.contract import Means
from .launching import Launching
from .orders import Orders
from .payload_io import INLINE_TOTAL
from .queues import Queues
from .records import Records, RecordsError
from .rekeying import Rekeying, keyring_of
from .releases import Releases
from .routes.table import handler_of
from .routes.workers import looks
from .scheduler import Scheduler
from .state import State, StateError, open_state
from .submissions import Submissions
from .workers import GONE_AFTER_S, Workers

log = logging.getLogger("lakeshore.server")

DEFAULT_PORT = 8080
DRAIN_S = 4.0
_WRITE_USES_S = 30.0
_SPARE_FILES = 256
_BLOB_URLS = "blob urls v1"


class ServeError(Exception):
    """The server cannot run as asked; the message says why and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """How to serve. `lease_s` in seconds; `reserve_bytes` of disk are kept free of new work.

    Invocations that ended more than `keep_days` ago are forgotten; and the oldest of those that ended a week ago or
    longer, while the state is larger than `keep_bytes`. `open` lets every local user in, or opens an address
    that is not loopback, without a token. `ready_file` gets the chosen URL once the server answers.
    """

    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    state_dir: Path | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    open: bool = False
    cors_origins: tuple[str, ...] = ()
    lease_s: float = 60.0
    durability: Durability = "power"
    reserve_bytes: int = 1024**3
    keep_days: float = 30.0
    keep_bytes: int | None = None
    ready_file: Path | None = None


async def serve(
    options: ServeOptions,
    *,
    environ: Mapping[str, str] = os.environ,
    ready: Callable[[str], None] | None = None,
    started: Callable[[Dispatcher], None] | None = None,
    handle_signals: bool = True,
) -> None:
    """Serve until a signal or cancellation. `started(dispatcher)` is called before it listens, for who embeds it;
    `ready(url)` once it answers. Raises ServeError.
    """
    with ExitStack() as stack, _explained():
        admin = _admin_from(environ)
        _check(options, admin, environ)
        _say_what_is_not_built(environ)
        elasticity = _elasticity_from(environ)
        policy = _policy_from(environ)
        state = open_state(options.state_dir, environ)
        stack.callback(state.close)
        listeners = _listen(options)
        for listener in listeners:
            stack.callback(listener.sock.close)
        records = Records(state.records)
        stack.callback(records.close)
        plane = Plane(str(state.database), files=state.root, durability=options.durability)
        stack.callback(plane.close)
        dispatcher = Dispatcher(plane, lease_s=options.lease_s, reserve_bytes=options.reserve_bytes)
        stack.callback(dispatcher.close)
        janitor = Janitor(dispatcher, keep_s=options.keep_days * 86400, keep_bytes=options.keep_bytes)
        stack.callback(janitor.close)
        pages = PageReader(plane.path)
        stack.callback(pages.close)
        commands = Store(state.execs)
        stack.callback(commands.close)
        execs = Execs(commands, Output(state.root / "exec-logs"))
        janitor.also(partial(keeping.sweep, execs))
        janitor.also(records.events.forget_old)
        janitor.also(records.elasticity.forget_old)
        gate = Gate(
            records,
            [state.admin_token, *([admin] if admin else [])],
            is_open=admin is None,
            any_user=options.open,
            any_address=options.open and not is_loopback_name(_bracketed(options.host)),
            origins=frozenset(options.cors_origins),
        )
        stack.callback(gate.close)
        app = _app(
            options, environ, state, gate, policy, records, plane, dispatcher, pages, execs, listeners[0], elasticity
        )
        janitor.with_code(app.code)
        cors = Cors(frozenset(options.cors_origins))
        http = HttpServer(handler_of(app, cors), limits=Limits(), render_error=partial(_render, cors))
        app.http.append(http)
        allow_open_files(http.limits.max_connections + _SPARE_FILES)
        async with trio.open_nursery() as nursery:
            await nursery.start(dispatcher.run)
            await nursery.start(execs.run)
            if started is not None:
                started(dispatcher)
            nursery.start_soon(_write_uses, records)
            nursery.start_soon(janitor.run)
            nursery.start_soon(app.scheduler.run)
            nursery.start_soon(app.workers.run)
            nursery.start_soon(app.launching.run)
            if app.elasticity is not None:
                nursery.start_soon(app.elasticity.run)
            nursery.start_soon(app.changes.run)
            await nursery.start(http.serve, [*listeners, *_tunnel_end(state)])
            _announce(options, state, admin, listeners, elasticity)
            try:
                state.announce(_reached_here(listeners[0]))
            except StateError as error:  # `lakeshore admin` here then needs a URL and a token; that is all
                log.warning("%s", error)
            if options.ready_file is not None:
                _write_ready(options.ready_file, listeners[0].url)
            if ready is not None:
                ready(listeners[0].url)
            if handle_signals:
                await _until_signal(app, http)
            else:
                await _until_cancelled(app, http)
            nursery.cancel_scope.cancel()


def _app(
    options: ServeOptions,
    environ: Mapping[str, str],
    state: State,
    gate: Gate,
    policy: Policy,
    records: Records,
    plane: Plane,
    dispatcher: Dispatcher,
    pages: PageReader,
    execs: Execs,
    listener: Listener,
    elasticity: Settings | None,
) -> App:
    blobs = BlobStore(plane.blobs, state.key_for(_BLOB_URLS), sizes=_sizes_from(environ))
    submissions = Submissions(blobs)
    orders = Orders(records.orders, dispatcher)
    orders.add_source(execs)
    gone_after_s = _seconds_from(environ, "LAKESHORE_WORKER_GONE_S", GONE_AFTER_S)
    workers = Workers(records, orders, gone_after_s=gone_after_s)
    keyring = keyring_of(state)
    releases = Releases(records, state.root / "releases", public_url=environ.get("LAKESHORE_PUBLIC_URL"))
    aws = Aws(environ)
    means = Means(aws=aws, google=Google(environ))
    every_s = _seconds_from(environ, "LAKESHORE_MACHINES_LOOK_S", EVERY_S)
    hosts = Hosts(records, workers, keyring, means, every_s=every_s)
    launching = Launching(
        records, workers, hosts, Programs(records, releases), url=_url_for_machines(environ, listener)
    )
    app = App(
        dispatcher=dispatcher,
        records=records,
        gate=gate,
        identity=Identity(records, policy),
        releases=releases,
        blobs=blobs,
        code=CodeArchives(records, state.root),
        submissions=submissions,
        scheduler=Scheduler(dispatcher, records, submissions),
        orders=orders,
        workers=workers,
        launching=launching,
        queues=Queues(dispatcher, records, workers),
        admission=Admission(dispatcher),
        execs=execs,
        sealer=keyring,
        rekeying=Rekeying(state, records, keyring),
        pages=pages,
        aws=aws,
        changes=Changes(dispatcher, records, execs),
        elasticity=None
        if elasticity is None
        else Controller(elasticity, launching, records, dispatcher, workers, execs),
        lease_s=options.lease_s,
        started_at=time.time(),
        version=_version.__version__,
    )
    app.changes.looks = partial(looks, app)
    execs.rouse, execs.body = orders.rouse, partial(command_body, app)
    return app


# --- life


async def _until_signal(app: App, http: HttpServer) -> None:
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for number in signals:
            _say(f"{signal.Signals(number).name}: going down")
            break
        async with trio.open_nursery() as nursery:

            async def hurry() -> None:
                async for _ in signals:
                    nursery.cancel_scope.cancel()  # asked twice: do not wait for anybody

            nursery.start_soon(hurry)
            await _drain(app, http)
            nursery.cancel_scope.cancel()
    _say("stopped")


async def _until_cancelled(app: App, http: HttpServer) -> None:
    try:
        await trio.sleep_forever()
    finally:
        with trio.CancelScope(shield=True):
            await _drain(app, http)


async def _drain(app: App, http: HttpServer) -> None:
    app.dispatcher.feeds.break_off()
    app.execs.output.break_off()
    await http.drain(DRAIN_S)


async def _write_uses(records: Records) -> None:
    while True:
        await trio.sleep(_WRITE_USES_S)
        try:
            await records.write_uses()
            await records.nonces.sweep()
        except PlaneError as error:  # it is tried again
            log.warning("when tokens were last used could not be written down: %s", error)


def _render(cors: Cors, request: Request | None, error: HttpError) -> Response:
    answer = render.refusal(request, error)
    if request is None or b"origin" not in request.headers:
        return answer
    extended = cors.extend(request, answer)
    assert isinstance(extended, Response)
    return extended


# --- what is asked


def _admin_from(environ: Mapping[str, str]) -> str | None:
    token = environ.get("LAKESHORE_ADMIN_TOKEN", "").strip()
    if token:
        return token
    old = environ.get("ADMIN_TOKEN", "").strip()
    if old:
        _say("ADMIN_TOKEN is deprecated: set LAKESHORE_ADMIN_TOKEN instead")
    return old or None


def _seconds_from(environ: Mapping[str, str], name: str, default: float) -> float:
    text = environ.get(name, "").strip()
    try:
        found = float(text) if text else default
    except ValueError:
        found = 0.0
    if not 0 < found < math.inf:
        raise ServeError(f"{name}={text!r} is no number of seconds above 0")
    return found


def _sizes_from(environ: Mapping[str, str]) -> Sizes:
    """Rows keep what is below INLINE_BYTES themselves; peers refuse what is over MAX_PAYLOAD_BYTES before they send."""
    most = _bytes_from(environ, "MAX_PAYLOAD_BYTES", MAX_PAYLOAD_BYTES, INLINE_BYTES, MAX_PAYLOAD_BYTES)
    return Sizes(
        inline_bytes=_bytes_from(environ, "INLINE_THRESHOLD_BYTES", INLINE_THRESHOLD_BYTES, INLINE_BYTES, INLINE_TOTAL),
        most_bytes=most,
        url_ttl_s=_seconds_from(environ, "PAYLOAD_PRESIGN_TTL_S", URL_TTL_S),
    )


def _bytes_from(environ: Mapping[str, str], name: str, default: int, least: int, most: int) -> int:
    text = environ.get(name, "").strip()
    found = int(text) if text.isdecimal() else default if not text else -1
    if not least <= found <= most:
        raise ServeError(f"{name}={text!r} is no number of bytes from {least} to {most}")
    return found


def _elasticity_from(environ: Mapping[str, str]) -> Settings | None:
    try:
        return settings_from(environ)
    except ValueError as error:
        raise ServeError(str(error)) from error


def _policy_from(environ: Mapping[str, str]) -> Policy:
    try:
        return policy_of(environ)
    except ValueError as error:
        raise ServeError(str(error)) from error


def _check(options: ServeOptions, admin: str | None, environ: Mapping[str, str]) -> None:
    if "production" in (environ.get("LAKESHORE_ENV"), environ.get("NODE_ENV")):
        for name, value in (("LAKESHORE_ADMIN_TOKEN", admin), ("SECRETS_KEY", environ.get("SECRETS_KEY"))):
            if not value:
                how = "openssl rand -base64 32" if name == "SECRETS_KEY" else "openssl rand -hex 24"
                raise ServeError(f"{name} is required in production; make one with: {how}")
    if environ.get("DATABASE_URL", "").strip().lower().startswith("mongodb"):
        raise ServeError(
            "not built yet: MongoDB as the store (DATABASE_URL); unset it: rows are kept in the state directory"
        )
    if admin is None and not options.open and not is_loopback_name(_bracketed(options.host)):
        raise ServeError(
            f"{options.host or 'every address'} can be reached by others, and there is no admin token: "
            "set LAKESHORE_ADMIN_TOKEN, or start with --open to let anybody in"
        )
    if (options.tls_key is not None) and options.tls_cert is None:
        raise ServeError("--tls-key needs --tls-cert")
    if options.lease_s <= 0:
        raise ServeError("the lease must be longer than 0 seconds")
    if options.keep_days < 7:
        raise ServeError("ended invocations are kept for at least 7 days: --keep-days 7 or more")
    if options.keep_bytes is not None and options.keep_bytes < 1:
        raise ServeError("--keep-bytes must be more than 0; leave it out to keep everything that is young enough")
    for origin in options.cors_origins:
        if "://" not in origin or origin.endswith("/"):
            raise ServeError(f"--cors-origin {origin!r} is no origin: write scheme://host[:port], without a path")


def _listen(options: ServeOptions) -> list[Listener]:
    tls = None if options.tls_cert is None else server_context(options.tls_cert, options.tls_key)
    return open_listeners(options.host, options.port, tls=tls)


def _tunnel_end(state: State) -> list[Listener]:
    """The listener on which tunnels end; none where the path of the state directory is too long for a socket."""
    try:
        return [open_socket_file(state.tunnel_socket, name=TUNNEL)]
    except ListenError as error:  # everything but `daemon install --reverse-tunnel` works without
        log.info("no tunnel can end here: %s", error)
        return []


def _reached_here(listener: Listener) -> str:
    """How a client on this machine reaches the server."""
    everywhere = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}  # noqa: S104  (looked up, not listened on)
    address, port = listener.address
    if address in everywhere:
        return f"{listener.url.partition('://')[0]}://{everywhere[address]}:{port}"
    return listener.url


def _url_for_machines(environ: Mapping[str, str], listener: Listener) -> str:
    """How machines that are launched reach the server; where nobody says, only this one does (S-168)."""
    for name in ("LAKESHORE_PUBLIC_URL", "LAKESHORE_SERVER_URL", "LAKESHORE_URL"):
        if said := environ.get(name, "").strip():
            return said.rstrip("/")
    return f"{listener.url.partition('://')[0]}://localhost:{listener.address[1]}"


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


@contextmanager
def _explained() -> Iterator[None]:
    """The causes that a person can mend, as ServeError."""
    try:
        yield
    except (StateError, RecordsError, ListenError, TlsError, PlaneError) as error:
        raise ServeError(str(error)) from error
    except sqlite3.Error as error:
        raise ServeError(str(failure_of(error))) from error
    except BaseExceptionGroup as group:
        failed, rest = group.split((PlaneError, OSError, sqlite3.Error))
        if failed is None or rest is not None:
            raise
        cause = _first(failed)
        raise ServeError(f"stopped: {failure_of(cause) if isinstance(cause, sqlite3.Error) else cause}") from group


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


# --- what is said


def _say_what_is_not_built(environ: Mapping[str, str]) -> None:
    """Documented variables that ask for what this version does not have."""
    if environ.get("LAKESHORE_BLOBS_BUCKET", "").strip():
        _say("not built yet: payloads in a bucket (LAKESHORE_BLOBS_BUCKET); they are kept in the state directory")


def _announce(
    options: ServeOptions,
    state: State,
    admin: str | None,
    listeners: Sequence[Listener],
    elasticity: Settings | None,
) -> None:
    for listener in listeners:
        _say(f"listening on {listener.url}")
    _say(f"state in {state.root}")
    if elasticity is not None:
        of = "every namespace" if elasticity.namespaces is None else ", ".join(sorted(elasticity.namespaces))
        _say(f"elasticity: a look every {elasticity.tick_s:g} s, at the queues of {of}")
    if state.next_key is not None:
        _say("secrets are on their way to another key: `lakeshore admin secrets rekey` goes on")
    if admin is not None:
        _say("auth: tokens; the admin token is LAKESHORE_ADMIN_TOKEN")
        if options.open:
            _say("--open has no effect while LAKESHORE_ADMIN_TOKEN is set")
        return
    if options.open and not is_loopback_name(_bracketed(options.host)):
        _say(
            f"WARNING: auth: --open: ANYBODY who can reach {options.host or 'this machine'} may run code on the workers"
        )
    elif options.open:
        _say("WARNING: auth: --open: every user of this machine may run code on the workers")
    else:
        _say("WARNING: auth: open mode, loopback only, no token needed; set LAKESHORE_ADMIN_TOKEN to require tokens")
    _say(f"admin token in {state.admin_token_file}")


def _say(text: str) -> None:
    sys.stderr.write(f"lakeshore serve: {text}\n")
    sys.stderr.flush()


def _write_ready(path: Path, url: str) -> None:
    partial = path.with_name(f".{path.name}.part")
    try:
        partial.write_text(url + "\n", "utf-8")
        partial.replace(path)
    except OSError as error:
        raise ServeError(f"cannot write {path}: {error.strerror}") from error


# --- as a program


def run(options: ServeOptions) -> int:
    """Serve in this process; the exit code (0, or 1 with the reason on stderr)."""
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    keep_freed_memory()
    try:
        trio.run(partial(serve, options))
    except ServeError as error:
        _say(str(error))
        return 1
    return 0


def port_from(environ: Mapping[str, str]) -> int:
    """PORT, else 8080. Raises ServeError."""
    text = environ.get("PORT", "").strip()
    if not text:
        return DEFAULT_PORT
    if not text.isdecimal() or int(text) > 65535:
        raise ServeError(f"PORT={text!r} is no port number from 0 to 65535")
    return int(text)


def main(arguments: Sequence[str] | None = None) -> int:
    """`python -m lakeshore.server.serve`: what `lakeshore serve` does, without the CLI."""
    parser = argparse.ArgumentParser(prog="lakeshore serve", description="Run the control plane.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=None)
    parser.add_argument("--state-dir", type=Path, default=None)
    parser.add_argument("--tls-cert", type=Path, default=None)
    parser.add_argument("--tls-key", type=Path, default=None)
    parser.add_argument("--open", action="store_true")
    parser.add_argument("--cors-origin", action="append", default=[])
    parser.add_argument("--lease-s", type=float, default=60.0)
    parser.add_argument("--durability", choices=("power", "process"), default="power")
    parser.add_argument("--reserve-bytes", type=int, default=1024**3)
    parser.add_argument("--keep-days", type=float, default=30.0)
    parser.add_argument("--keep-bytes", type=int, default=None)
    parser.add_argument("--ready-file", type=Path, default=None)
    given = parser.parse_args(arguments)
    try:
        port = port_from(os.environ) if given.port is None else given.port
    except ServeError as error:
        _say(str(error))
        return 2
    return run(
        ServeOptions(
            host=given.host,
            port=port,
            state_dir=given.state_dir,
            tls_cert=given.tls_cert,
            tls_key=given.tls_key,
            open=given.open,
            cors_origins=tuple(given.cors_origin),
            lease_s=given.lease_s,
            durability=given.durability,
            reserve_bytes=given.reserve_bytes,
            keep_days=given.keep_days,
            keep_bytes=given.keep_bytes,
            ready_file=given.ready_file,
        )
    )


if __name__ == "__main__":
    sys.exit(main())
