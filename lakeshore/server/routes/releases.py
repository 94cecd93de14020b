"""Nymph releases, each namespace's target version, and updating one worker. S-316, S-317, S-682…S-687."""

from __future__ import annotations

from typing import Annotated, Any, Final, NotRequired, TypeAlias, TypedDict

from ...wire.messages import OCTETS
from ..app import App
from ..auth import Caller
from ..http import HttpError, Request, Response, StreamResponse
from ..orders import Order
from ..records import ReleaseRow
from ..releases import ANY_TARGET, MAX_BYTES, PATH
from ..render import answer, iso
from ..shapes import LABEL, Time, like
from ..structure import bad_field
from .answers import RAW
from .blobs import send_file
from .stated import route

_SIDECAR: Final = ".sha256"


_Version: TypeAlias = Annotated[
    str, like(r"[0-9A-Za-z][0-9A-Za-z.+_-]{0,63}", "must be 1 to 64 letters, digits, '.', '+', '_' and '-'")
]
_Sha256: TypeAlias = Annotated[str, like("[0-9a-f]{64}", "must be 64 hex digits, in lower case")]


class ReleaseAt(TypedDict, total=False):
    """What the file is called, for which machines it is, and what it must be."""

    label: Annotated[str, LABEL]
    target: Annotated[str, LABEL]
    version: _Version
    sha256: _Sha256


class ReleaseShown(TypedDict):
    """A file that daemons may run."""

    sha256: str
    label: str
    target: str
    version: str | None
    bytes: int
    url: str
    full_url: str | None
    createdAt: Time


class ReleaseList(TypedDict):
    """Newest first."""

    releases: list[ReleaseShown]


class NymphTarget(TypedDict):
    """The version that a namespace's daemons go to."""

    version: _Version


class NymphTargetShown(TypedDict):
    """`release` where there is one of that version."""

    namespace: str
    version: str | None
    release: ReleaseShown | None


class UpdateAsk(TypedDict):
    """A release by its version, or any file by `url` and `sha256`."""

    version: NotRequired[_Version]
    url: NotRequired[
        Annotated[str, like(r"(?:https?:/)?/[!-~]{1,2000}", "must be http(s)://…, or a path of this server")]
    ]
    sha256: NotRequired[_Sha256]


class UpdateOrdered(TypedDict):
    """What the worker is told at its next poll."""

    worker_id: str
    order: str
    version: str
    url: str
    sha256: str


@route({200: ReleaseShown, 201: ReleaseShown}, body=RAW, query=ReleaseAt, refuses=(409, 413, 415, 422))
async def push(app: App, request: Request, caller: Caller, *, query: ReleaseAt) -> Response:
    """POST /v1/admin/nymph-releases?label=&target=&version=&sha256=: the body is the file."""
    label, target = query.get("label", "nymph"), query.get("target", ANY_TARGET)
    version, sha256 = query.get("version"), query.get("sha256")
    announced = request.header("content-type")
    if announced is None or announced.split(";")[0].strip().lower() != OCTETS:
        raise HttpError(415, "unsupported content type", hint=f"send the file's bytes as {OCTETS}")
    row, is_new = await app.releases.receive(
        request.stream(MAX_BYTES), label=label, target=target, version=version, sha256=sha256, actor=caller.name
    )
    return answer(request, _shown(app, row), status=201 if is_new else 200)


@route(ReleaseList)
async def listing(app: App, request: Request, caller: Caller) -> Response:
    """GET /v1/admin/nymph-releases: newest first."""
    return answer(request, {"releases": [_shown(app, row) for row in app.releases.all()]})


@route({200: RAW, 206: RAW}, refuses=(404, 416))
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


@route(NymphTargetShown)
async def target(app: App, request: Request, caller: Caller) -> Response:
    """GET /v1/namespaces/:ns/nymph-target"""
    return _target(app, request, caller)


@route(NymphTargetShown, body=NymphTarget)
async def set_target(app: App, request: Request, caller: Caller, *, body: NymphTarget) -> Response:
    """PUT /v1/namespaces/:ns/nymph-target {version}"""
    await app.records.set_target_version(caller.ns, body["version"], actor=caller.name)
    return _target(app, request, caller)


@route(NymphTargetShown)
async def clear_target(app: App, request: Request, caller: Caller) -> Response:
    """DELETE /v1/namespaces/:ns/nymph-target"""
    await app.records.set_target_version(caller.ns, None, actor=caller.name)
    return _target(app, request, caller)


@route(UpdateOrdered, body=UpdateAsk, optional=True, refuses=(404,))
async def update(app: App, request: Request, caller: Caller, *, body: UpdateAsk) -> Response:
    """POST /v1/namespaces/:ns/workers/:id/update {version?, url?, sha256?}: an order that waits for its next poll.

    Without `url` it is the release of `version`, which is the namespace's target unless it is named.
    """
    worker_id = request.params["id"]
    if app.records.worker(caller.ns, worker_id) is None:
        raise HttpError(404, f"unknown worker {worker_id!r:.80}", field="id")
    command = _from_url(app, body["url"], body) if "url" in body else _from_release(app, caller, body)
    order = Order(id=f"cmd-ota_update-{app.ids.new()}", kind="ota_update", body=command)
    await app.orders.put(caller.ns, worker_id, order)
    return answer(request, {"worker_id": worker_id, "order": order.id, **command})


def _from_release(app: App, caller: Caller, body: UpdateAsk) -> dict[str, Any]:
    namespace = app.records.namespace(caller.ns)
    version = body.get("version")
    if version is None and namespace is not None:
        version = namespace.target_version
    if version is None:
        raise bad_field("version", "is required: the namespace has no target version", hint="name one, or set a target")
    row = app.releases.find(version)
    if row is None:
        raise bad_field("version", f"no release is {version}", hint="`lakeshore nymph push FILE` uploads one")
    if body.get("sha256") not in (None, row.sha256):
        raise bad_field("sha256", f"the release {version} has {row.sha256}")
    return {"version": version, "url": app.releases.full_url(row) or app.releases.url(row), "sha256": row.sha256}


def _from_url(app: App, url: str, body: UpdateAsk) -> dict[str, Any]:
    """Any file. One of our own says its digest itself; this server fetches nothing from others to find out."""
    sha256 = body.get("sha256")
    ours, _, ref = url.rpartition(f"{PATH}/")
    row = app.releases.find(ref) if ours or url.startswith(PATH) else None
    if sha256 is None and row is not None:
        sha256 = row.sha256
    if sha256 is None:
        raise bad_field("sha256", "is required: 64 hex digits, in lower case", hint="sha256sum prints it")
    version = body.get("version")
    if version is None:
        version = (row.version or row.label) if row is not None else sha256[:12]
    return {"version": version, "url": url, "sha256": sha256}


def _target(app: App, request: Request, caller: Caller) -> Response:
    row = app.records.namespace(caller.ns)
    version = None if row is None else row.target_version
    release = None if version is None else app.releases.find(version)
    shown = None if release is None else _shown(app, release)
    return answer(request, {"namespace": caller.ns, "version": version, "release": shown})


def _shown(app: App, row: ReleaseRow) -> ReleaseShown:
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
