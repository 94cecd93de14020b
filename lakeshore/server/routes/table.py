"""Every route of the server, and what it asks of its caller.

    tier    open    nobody in particular: /healthz, /readyz
            signed  the URL's own signature
            admin   the admin token, or open mode; 401 without a bearer, 403 with another
            named   a caller of the namespace in the path; an unknown one is a 404
            plain   a caller; the namespace is the credential's, or X-LS-Namespace's. Open mode creates it

A namespace that does not exist is a 404, but for the rows that create it: in open mode the plain ones, and for the
operator as well the first write of a resource that others refer to (secrets, providers, modes, mounts, …).

`scopes` are the token scopes that may call; admin and open mode have every scope. What an org's sibling may do: read
and submit; everything else on a sibling needs scope `full`. Where `daemon` may call, a daemon's signature may stand in
place of a bearer (`identity.py`).

What a handler takes, answers and refuses stands before it (`stated.py`). The HTTP reference and the OpenAPI document
are made of both: what is in no row does not exist.
"""

from __future__ import annotations

import functools
import sqlite3
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, Literal

import trio

from ...plane.contract import PlaneError
from ...wire.errors import NameError_
from ...wire.messages import JSON
from ..app import App
from ..auth import ADMIN_HINT, ANY, FULL, PRODUCE, WORK, Caller
from ..cors import Cors
from ..http import HttpError, Request, Response, Router, StreamResponse
from ..identity import says_identity
from ..openapi import document
from ..refusals import refusal_of
from ..render import as_json
from . import (
    blobs,
    changes,
    chunks,
    code_repos,
    daemon,
    daemon_keys,
    elasticity,
    enroll_tokens,
    events,
    exec_callbacks,
    exec_jobs,
    exec_results,
    health,
    invocations,
    launches,
    logs,
    modes,
    mounts,
    namespaces,
    payloads,
    producer,
    providers,
    queues,
    releases,
    schedules,
    secrets,
    storages,
    tunnels,
    workers,
)
from .stated import Media, route

Answer = Response | StreamResponse
Tier = Literal["open", "signed", "admin", "named", "plain"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One route. `handler(app, request)` for open and signed ones, else `handler(app, request, caller)`."""

    method: str
    pattern: str
    tier: Tier
    handler: Callable[..., Awaitable[Any]]
    scopes: frozenset[str] = FULL
    max_body: int | None = None
    creates: bool = False
    """It makes its namespace: in open mode, as every `plain` one does, and for the admin token."""

    @property
    def is_admin(self) -> bool:
        """Whether the admin token is what it asks for."""
        return self.tier == "admin" or self.handler in _ADMIN_ONLY


def _row(
    method: str,
    pattern: str,
    tier: Tier,
    handler: Callable[..., Awaitable[Any]],
    scopes: frozenset[str] = FULL,
    *,
    creates: bool = False,
) -> Row:
    return Row(
        method=method, pattern=pattern, tier=tier, handler=handler, scopes=scopes, creates=creates or tier == "plain"
    )


@functools.cache
def _document(version: str) -> bytes:
    return as_json(document(TABLE, version))


@route(Media(type=JSON, says="an OpenAPI 3.1 document"))
async def openapi(app: App, request: Request) -> Response:
    """GET /v1/openapi.json: this API as an OpenAPI document."""
    body = await trio.to_thread.run_sync(_document, app.version)  # the first one takes a while
    return Response(headers=(("content-type", JSON), ("cache-control", "no-cache")), body=body)


_NS: Final = "/v1/namespaces/{ns}"
_WORKER: Final = f"{_NS}/workers/{{id}}"
_PROVIDER: Final = f"{_NS}/providers/{{name}}"
_MODE: Final = f"{_NS}/modes/{{name}}"
_TUNNEL: Final = f"{_NS}/tunnels/{{name}}"
_MOUNT: Final = f"{_NS}/mounts/{{name}}"
_STORAGE: Final = f"{_NS}/storages/{{name}}"
_QUEUE: Final = f"{_NS}/queues/{{name}}"
_RELEASES: Final = "/v1/admin/nymph-releases"
_QUEUES: Final = "/v1/producer/queues"
_CALL: Final = "/v1/producer/invocations/{id}"

TABLE: Final = (
    _row("GET", "/healthz", "open", health.healthz),
    _row("GET", "/readyz", "open", health.readyz),
    _row("GET", "/metrics", "admin", health.metrics),
    _row("GET", "/v1/openapi.json", "open", openapi),
    # producers
    _row("POST", "/v1/producer/submit", "plain", producer.submit, PRODUCE),
    _row("POST", "/v1/producer/submit/delayed", "plain", producer.submit, PRODUCE),
    _row("POST", "/v1/producer/await", "plain", producer.wait, PRODUCE),
    _row("GET", f"{_CALL}/result/stream", "plain", producer.stream, PRODUCE),
    _row("POST", f"{_CALL}/cancel", "plain", producer.cancel, PRODUCE),
    _row("POST", f"{_CALL}/trim", "plain", producer.trim, PRODUCE),
    _row("GET", _QUEUES, "plain", producer.queues, PRODUCE),
    _row("GET", f"{_QUEUES}/{{name}}/count", "plain", producer.count, PRODUCE),
    _row("POST", f"{_QUEUES}/{{queue}}/topics/{{name}}", "plain", producer.topic_post, PRODUCE),
    _row("GET", f"{_QUEUES}/{{queue}}/topics/{{name}}/stream", "plain", producer.topic_stream, PRODUCE),
    # workers
    _row("POST", "/v1/daemon/hello", "plain", daemon.hello, WORK),
    _row("POST", "/v1/daemon/poll", "plain", daemon.poll, WORK),
    _row("POST", "/v1/daemon/ack", "plain", daemon.ack, WORK),
    _row("POST", "/v1/daemon/result-chunk", "plain", chunks.result_chunk, WORK),
    _row("POST", "/v1/daemon/log-chunk", "plain", logs.log_chunk, WORK),
    _row("POST", "/v1/daemon/event", "plain", events.tell, WORK),
    _row("POST", "/v1/daemon/keys", "plain", daemon_keys.rotate, WORK),
    _row("POST", "/v1/daemon/exec/results", "plain", exec_callbacks.results, WORK),
    _row("POST", "/v1/daemon/exec/{id}/result", "plain", exec_callbacks.result, WORK),
    _row("POST", "/v1/daemon/exec/{id}/chunk", "plain", exec_callbacks.chunk, WORK),
    _row("POST", f"{_NS}/workers/{{worker}}/exec/{{id}}/result", "named", exec_callbacks.result_of, WORK),
    # commands on workers
    _row("POST", f"{_NS}/exec", "named", exec_jobs.submit),
    _row("GET", f"{_NS}/exec", "named", exec_jobs.listing),
    _row("GET", f"{_NS}/exec/{{id}}", "named", exec_jobs.show),
    _row("POST", f"{_NS}/exec/{{id}}/cancel", "named", exec_jobs.cancel),
    _row("GET", f"{_NS}/exec/{{id}}/log", "named", exec_jobs.log),
    _row("GET", f"{_NS}/exec/{{id}}/log/stream", "named", exec_jobs.log_stream),
    _row("POST", f"{_NS}/workers/{{id}}/exec", "named", exec_jobs.submit_to),
    _row("GET", f"{_NS}/jobs/{{id}}/result", "named", exec_results.result),
    _row("POST", f"{_NS}/jobs/{{id}}/result", "named", exec_results.publish, WORK),
    # payloads
    _row("POST", f"{_NS}/payloads/presign", "named", payloads.presign, ANY),
    _row("POST", f"{_NS}/payloads", "named", payloads.store, ANY),
    _row("PUT", "/v1/blobs/{key...}", "signed", blobs.put),
    _row("GET", "/v1/blobs/{key...}", "signed", blobs.get),
    # operators
    _row("GET", f"{_NS}/whoami", "named", namespaces.whoami, ANY),
    _row("GET", f"{_NS}/changes", "named", changes.of_namespace),
    _row("GET", f"{_NS}/invocations", "named", invocations.listing),
    _row("POST", f"{_NS}/invocations/bulk-cancel", "named", invocations.bulk_cancel),
    _row("POST", f"{_NS}/invocations/prune", "named", invocations.prune),
    _row("GET", f"{_NS}/invocations/counts", "named", invocations.counts),
    _row("GET", f"{_NS}/invocations/{{id}}", "named", invocations.show),
    _row("GET", f"{_NS}/invocations/{{id}}/logs", "named", logs.read),
    _row("DELETE", f"{_NS}/invocations/{{id}}", "named", invocations.cancel),
    _row("POST", f"{_NS}/invocations/{{id}}/retry", "named", invocations.retry),
    _row("GET", f"{_NS}/tokens", "named", namespaces.tokens),
    _row("POST", f"{_NS}/tokens", "named", namespaces.mint),
    _row("DELETE", f"{_NS}/tokens/{{id}}", "named", namespaces.revoke),
    _row("GET", f"{_NS}/schedules", "named", schedules.listing),
    _row("POST", f"{_NS}/schedules", "named", schedules.add),
    _row("GET", f"{_NS}/schedules/{{name}}", "named", schedules.show),
    _row("PATCH", f"{_NS}/schedules/{{name}}", "named", schedules.patch),
    _row("DELETE", f"{_NS}/schedules/{{name}}", "named", schedules.remove),
    _row("GET", f"{_NS}/secrets", "named", secrets.listing),
    _row("POST", f"{_NS}/secrets", "named", secrets.add, creates=True),
    _row("GET", f"{_NS}/secrets/{{name}}", "named", secrets.show),
    _row("PUT", f"{_NS}/secrets/{{name}}", "named", secrets.rotate),
    _row("DELETE", f"{_NS}/secrets/{{name}}", "named", secrets.remove),
    _row("GET", f"{_NS}/providers", "named", providers.listing),
    _row("POST", f"{_NS}/providers", "named", providers.add, creates=True),
    _row("GET", _PROVIDER, "named", providers.show),
    _row("PATCH", _PROVIDER, "named", providers.patch),
    _row("DELETE", _PROVIDER, "named", providers.remove),
    _row("POST", f"{_PROVIDER}/restore", "named", providers.restore),
    _row("POST", f"{_PROVIDER}/resolve", "named", providers.resolve),
    _row("POST", f"{_PROVIDER}/test", "named", launches.test),
    _row("GET", f"{_PROVIDER}/instances", "named", launches.instances),
    _row("DELETE", f"{_PROVIDER}/instances/{{id}}", "named", launches.terminate),
    _row("POST", f"{_NS}/daemons/launch", "named", launches.launch),
    _row("GET", f"{_NS}/modes", "named", modes.listing, PRODUCE),
    _row("POST", f"{_NS}/modes", "named", modes.add, creates=True),
    _row("GET", _MODE, "named", modes.show, PRODUCE),
    _row("PATCH", _MODE, "named", modes.patch),
    _row("DELETE", _MODE, "named", modes.remove),
    _row("GET", f"{_NS}/tunnels", "named", tunnels.listing),
    _row("POST", f"{_NS}/tunnels", "named", tunnels.add, creates=True),
    _row("GET", _TUNNEL, "named", tunnels.show),
    _row("PATCH", _TUNNEL, "named", tunnels.patch),
    _row("DELETE", _TUNNEL, "named", tunnels.remove),
    _row("GET", f"{_NS}/mounts", "named", mounts.listing),
    _row("POST", f"{_NS}/mounts", "named", mounts.add, creates=True),
    _row("GET", _MOUNT, "named", mounts.show),
    _row("PATCH", _MOUNT, "named", mounts.patch),
    _row("DELETE", _MOUNT, "named", mounts.remove),
    _row("GET", f"{_NS}/storages", "named", storages.listing),
    _row("POST", f"{_NS}/storages", "named", storages.add, creates=True),
    _row("GET", _STORAGE, "named", storages.show),
    _row("PATCH", _STORAGE, "named", storages.patch),
    _row("DELETE", _STORAGE, "named", storages.remove),
    _row("POST", f"{_STORAGE}/presign", "named", storages.presign, ANY),
    _row("POST", f"{_STORAGE}/credentials", "named", storages.credentials),
    _row("GET", f"{_NS}/code-repos", "named", code_repos.listing, PRODUCE),
    _row("POST", f"{_NS}/code-repos", "named", code_repos.register, PRODUCE, creates=True),
    _row("DELETE", f"{_NS}/code-repos/{{id}}", "named", code_repos.remove),
    _row("POST", f"{_NS}/code-archives", "named", code_repos.keep, PRODUCE, creates=True),
    _row("GET", f"{_NS}/code-archives/{{key...}}", "named", code_repos.fetch, WORK),
    # queues
    _row("GET", f"{_NS}/queues", "named", queues.listing),
    _row("POST", f"{_NS}/queues", "named", queues.create),
    _row("GET", _QUEUE, "named", queues.show),
    _row("PATCH", _QUEUE, "named", queues.patch),
    _row("DELETE", _QUEUE, "named", queues.remove),
    _row("POST", f"{_QUEUE}/archive", "named", queues.archive),
    _row("POST", f"{_QUEUE}/unarchive", "named", queues.unarchive),
    _row("POST", f"{_QUEUE}/drain", "named", queues.drain),
    _row("GET", f"{_QUEUE}/stats", "named", queues.stats),
    _row("GET", f"{_QUEUE}/events", "named", queues.events),
    _row("GET", f"{_NS}/elasticity-events", "named", elasticity.listing),
    # daemons
    _row("GET", f"{_NS}/workers", "named", workers.listing),
    _row("POST", f"{_NS}/workers/cleanup", "named", workers.cleanup),
    _row("GET", _WORKER, "named", workers.show),
    _row("DELETE", _WORKER, "named", workers.kill),
    _row("GET", f"{_WORKER}/launch-log", "named", launches.launch_log),
    _row("POST", f"{_WORKER}/setup", "named", workers.setup),
    _row("POST", f"{_WORKER}/hibernate", "named", workers.hibernate),
    _row("POST", f"{_WORKER}/reset", "named", workers.reset),
    _row("POST", f"{_WORKER}/queues", "named", workers.queues),
    _row("POST", f"{_WORKER}/drain", "named", workers.drain),
    _row("GET", f"{_NS}/events", "named", events.listing),
    _row("GET", f"{_NS}/enroll-tokens", "named", enroll_tokens.listing),
    _row("POST", f"{_NS}/enroll-tokens", "named", enroll_tokens.mint),
    _row("DELETE", f"{_NS}/enroll-tokens/{{id}}", "named", enroll_tokens.burn),
    _row("GET", f"{_WORKER}/keys", "named", daemon_keys.listing),
    _row("POST", f"{_WORKER}/keys/{{key_id}}/revoke", "named", daemon_keys.revoke),
    _row("POST", f"{_WORKER}/update", "named", releases.update),
    _row("GET", f"{_NS}/nymph-target", "named", releases.target),
    _row("PUT", f"{_NS}/nymph-target", "named", releases.set_target),
    _row("DELETE", f"{_NS}/nymph-target", "named", releases.clear_target),
    _row("GET", f"{_RELEASES}/{{ref}}", "plain", releases.fetch, ANY),
    # the admin tier
    _row("GET", _RELEASES, "admin", releases.listing),
    _row("POST", _RELEASES, "admin", releases.push),
    _row("POST", "/v1/admin/secrets/rekey", "admin", secrets.rekey),
    _row("GET", "/v1/admin/namespaces", "admin", namespaces.listing),
    _row("POST", "/v1/admin/namespaces", "admin", namespaces.create),
    _row("GET", "/v1/admin/namespaces/{slug}", "admin", namespaces.show),
    _row("PATCH", "/v1/admin/namespaces/{slug}", "admin", namespaces.patch),
    _row("DELETE", "/v1/admin/namespaces/{slug}", "admin", namespaces.remove),
    _row("GET", "/v1/admin/changes", "admin", changes.of_all),
    _row("GET", "/v1/admin/invocations", "admin", changes.invocations_of),
    _row("GET", "/v1/admin/invocations/{id}", "admin", invocations.admin_show),
)

_ADMIN_ONLY: Final = frozenset({namespaces.mint, enroll_tokens.mint, enroll_tokens.burn})
_FOR_SIBLINGS: Final = PRODUCE


def handler_of(app: App, cors: Cors) -> Callable[[Request], Awaitable[Answer]]:
    """The server's one handler: the router over `TABLE`, with refusals and CORS around it."""
    router = Router()
    for row in TABLE:
        router.add(row.method, row.pattern, _guarded(app, row), max_body=row.max_body)

    def handle(request: Request) -> Awaitable[Answer]:
        return router(request) if b"origin" not in request.headers else for_a_page(request)

    async def for_a_page(request: Request) -> Answer:
        answered = cors.preflight(request)
        return answered if answered is not None else cors.extend(request, await router(request))

    return handle


def _who(app: App, row: Row) -> Callable[[Request], Caller]:
    """How a row finds out who calls. Under /v1/admin a bearer that is not the admin token is forbidden in any case."""

    def named(request: Request) -> Caller:
        return app.gate.caller(request, request.params["ns"])

    def admin(request: Request) -> Caller:
        try:
            return app.gate.caller(request)
        except HttpError as error:
            if error.status == 401 and row.pattern.startswith("/v1/admin/") and b"authorization" in request.headers:
                raise HttpError(403, "this needs the admin token", hint=ADMIN_HINT) from error
            raise

    return named if row.tier == "named" else admin if row.tier == "admin" else app.gate.caller


def _guarded(app: App, row: Row) -> Callable[[Request], Awaitable[Answer]]:
    handler, tier, scopes = row.handler, row.tier, row.scopes
    admin_only = handler in _ADMIN_ONLY
    who = _who(app, row)
    signs, required = "daemon" in scopes, app.identity.policy.enforced

    async def unauthenticated(request: Request) -> Answer:
        try:
            return await handler(app, request)  # type: ignore[no-any-return]  # every handler answers
        except (PlaneError, NameError_, sqlite3.Error) as error:
            raise refusal_of(error) from error

    async def authenticated(request: Request) -> Answer:
        try:
            if signs and (required or row.handler is daemon_keys.rotate or says_identity(request)):
                caller = await app.identity.caller(request, who, request.params.get("ns"))
            else:
                caller = who(request)
            if tier == "admin" or admin_only:
                caller.need_admin()
            elif caller.scope not in scopes or (caller.sibling and caller.scope not in _FOR_SIBLINGS):
                caller.need(scopes & _FOR_SIBLINGS if caller.sibling else scopes)
            if tier != "admin" and app.records.namespace(caller.ns) is None:
                await app.need_namespace(caller, creates=row.creates and (caller.mode == "open" or tier == "named"))
            return await handler(app, request, caller)  # type: ignore[no-any-return]  # every handler answers
        except (PlaneError, NameError_, sqlite3.Error) as error:
            raise refusal_of(error) from error

    return unauthenticated if tier in ("open", "signed") else authenticated
