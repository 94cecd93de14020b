"""Nymph releases, each namespace's target version, and updating one worker. S-316, S-317, S-682…S-687."""

from __future__ import annotations

import re
from typing import Any, Final

from ...wire.messages import OCTETS
from ...wire.names import check_label
from ..app import App
from ..auth import Caller
from ..http import HttpError, Request, Response, StreamResponse
from ..orders import Order
from ..records import ReleaseRow
from ..releases import ANY_TARGET, MAX_BYTES, PATH, valid_sha256
from ..render import answer, iso
from ..structure import bad_field, read_map
from .blobs import send_file

_VERSION: Final = re.compile(r"[0-9A-Za-z][0-9A-Za-z.+_-]{0,63}")
_URL: Final = re.compile(r"(?:https?:/)?/[!-~]{1,2000}")
_SIDECAR: Final = ".sha256"


async def push(app: App, request: Request, caller: Caller) -> Response:
    """POST /v1/admin/nymph-releases?label=&target=&version=&sha256=: the body is the file."""
    query = request.query
    label = check_label(query.get("label", "nymph"), "label")
    target = check_label(query.get("target", ANY_TARGET), "target")
    version, sha256 = query.get("version"), query.get("sha256")
    if version is not None:
        version = _version(version)
    if sha256 is not None and not valid_sha256(sha256):
        raise bad_field("sha256", "must be 64 hex digits, in lower case")
    announced = request.header("content-type")
    if announced is None or announced.split(";")[0].strip().lower() != OCTETS:
        raise HttpError(415, "unsupported content type", hint=f"send the file's bytes as {OCTETS}")
    row, is_new = await app.releases.receive(
        request.stream(MAX_BYTES), label=label, target=target, version=version, sha256=sha256, actor=caller.name
    )
    return answer(request, _shown(app, row), status=201 if is_new else 200)


async def listing(app: App, request: Request, caller: Caller) -> Response:
    """GET /v1/admin/nymph-releases: newest first."""
    return answer(request, {"releases": [_shown(app, row) for row in app.releases.all()]})


async def fetch(app: App, request: Request, caller: Caller) -> Response | StreamResponse:
    """GET /v1/admin/nymph-releases/:ref: the file of a sha256, a version or a label; `<ref>.sha256` is its digest."""
    ref = request.params["ref"]
    row = app.releases.find(ref)
    if row is not None:
        return await send_file(request, app.releases.path(row), "release", size=row.bytes, sha256=row.sha256)
    row = app.releases.find(ref.removesuffix(_SIDECAR)) if ref.endswith(_SIDECAR) else None
    if row is None:
        raise HttpError(404, f"no such release {ref!r:.80}", field="ref", hint="`lakeshore nymph list` shows them")
    text = f"{row.sha256}  {row.label}\n".encode()
    return Response(headers=(("content-type", "text/plain; charset=utf-8"),), body=text)


# --- what a namespace's daemons follow


async def target(app: App, request: Request, caller: Caller) -> Response:
    """GET /v1/namespaces/:ns/nymph-target"""
    return _target(app, request, caller)


async def set_target(app: App, request: Request, caller: Caller) -> Response:
    """PUT /v1/namespaces/:ns/nymph-target {version}"""
    body, _encoding = await read_map(request)
    await app.records.set_target_version(caller.ns, _version(body.get("version")), actor=caller.name)
    return _target(app, request, caller)


async def clear_target(app: App, request: Request, caller: Caller) -> Response:
    """DELETE /v1/namespaces/:ns/nymph-target"""
    await app.records.set_target_version(caller.ns, None, actor=caller.name)
    return _target(app, request, caller)


async def update(app: App, request: Request, caller: Caller) -> Response:
    """POST /v1/namespaces/:ns/workers/:id/update {version?, url?, sha256?}: an order that waits for its next poll.

    Without `url` it is the release of `version`, which is the namespace's target unless it is named.
    """
    body, _encoding = await read_map(request, optional=True)
    worker_id = request.params["id"]
    if app.records.worker(caller.ns, worker_id) is None:
        raise HttpError(404, f"unknown worker {worker_id!r:.80}", field="id")
    command = _from_url(app, body) if body.get("url") is not None else _from_release(app, caller, body)
    order = Order(id=f"cmd-ota_update-{app.ids.new()}", kind="ota_update", body=command)
    await app.orders.put(caller.ns, worker_id, order)
    return answer(request, {"worker_id": worker_id, "order": order.id, **command})


def _from_release(app: App, caller: Caller, body: dict[str, Any]) -> dict[str, Any]:
    namespace = app.records.namespace(caller.ns)
    version = body.get("version")
    if version is None and namespace is not None:
        version = namespace.target_version
    if version is None:
        raise bad_field("version", "is required: the namespace has no target version", hint="name one, or set a target")
    row = app.releases.find(_version(version))
    if row is None:
        raise bad_field("version", f"no release is {version}", hint="`lakeshore nymph push FILE` uploads one")
    if body.get("sha256") not in (None, row.sha256):
        raise bad_field("sha256", f"the release {version} has {row.sha256}")
    return {"version": version, "url": app.releases.full_url(row) or app.releases.url(row), "sha256": row.sha256}


def _from_url(app: App, body: dict[str, Any]) -> dict[str, Any]:
    """Any file. One of our own says its digest itself; this server fetches nothing from others to find out."""
    url, sha256 = body["url"], body.get("sha256")
    if type(url) is not str or not _URL.fullmatch(url):
        raise bad_field("url", "must be http(s)://…, or a path of this server")
    ours, _, ref = url.rpartition(f"{PATH}/")
    row = app.releases.find(ref) if ours or url.startswith(PATH) else None
    if sha256 is None and row is not None:
        sha256 = row.sha256
    if type(sha256) is not str or not valid_sha256(sha256):
        raise bad_field("sha256", "must be 64 hex digits, in lower case", hint="sha256sum prints it")
    version = body.get("version")
    if version is None:
        version = (row.version or row.label) if row is not None else sha256[:12]
    return {"version": _version(version), "url": url, "sha256": sha256}


def _target(app: App, request: Request, caller: Caller) -> Response:
    row = app.records.namespace(caller.ns)
    version = None if row is None else row.target_version
    release = None if version is None else app.releases.find(version)
    shown = None if release is None else _shown(app, release)
    return answer(request, {"namespace": caller.ns, "version": version, "release": shown})


def _version(said: object) -> str:
    if type(said) is not str or not _VERSION.fullmatch(said):
        raise bad_field("version", "must be 1 to 64 letters, digits, '.', '+', '_' and '-'")
    return said


def _shown(app: App, row: ReleaseRow) -> dict[str, Any]:
    return {
        "sha256": row.sha256,
        "label": row.label,
        "target": row.target,
        "version": row.version,
        "bytes": row.bytes,
        "url": app.releases.url(row),
        "full_url": app.releases.full_url(row),
        "createdAt": iso(row.created_at),
    }
