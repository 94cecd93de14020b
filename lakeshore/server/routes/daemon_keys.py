"""Keys of daemons: a daemon rotates its own, an operator looks at them and revokes. S-306, S-307, S-453…S-456."""

from __future__ import annotations

from typing import TypedDict

from ...wire.daemon_keys import DaemonKey
from ..app import App
from ..auth import Caller
from ..http import HttpError, Request, Response
from ..render import answer, iso
from ..shapes import Time
from .daemon import check_binding
from .stated import route


class DaemonKeyChange(TypedDict):
    """The new key: 32 bytes of Ed25519, in base64."""

    worker_id: str
    public_key: str


class DaemonKeyRotated(TypedDict):
    """Both keys are good for `overlap_s` seconds."""

    key_id: str
    status: str
    expires_at: float | None
    overlap_s: float
    server_time_epoch_s: float


class DaemonKeyShown(TypedDict):
    """A key of a worker; only its public half is known."""

    keyId: str
    status: str
    createdAt: Time
    retiringAt: Time | None
    revokedAt: Time | None
    expiresAt: Time | None
    publicKey: str


class DaemonKeyList(TypedDict):
    """Oldest first, revoked ones too."""

    keys: list[DaemonKeyShown]


class DaemonKeyRevoked(DaemonKeyShown):
    """Whether it was so before."""

    alreadyRevoked: bool


@route(DaemonKeyRotated, body=DaemonKeyChange, refuses=(409,))
async def rotate(app: App, request: Request, caller: Caller, *, body: DaemonKeyChange) -> Response:
    """POST /v1/daemon/keys {worker_id, public_key}, signed by the key that it replaces."""
    check_binding(caller, body["worker_id"])
    return answer(request, await app.identity.rotate(caller, body["public_key"]))


@route(DaemonKeyList, refuses=(404,))
async def listing(app: App, request: Request, caller: Caller) -> Response:
    """GET /v1/namespaces/:ns/workers/:id/keys: oldest first, revoked ones too."""
    id_ = request.params["id"]
    keys = app.identity.listed(caller.ns, id_)
    if not keys and app.records.worker(caller.ns, id_) is None:
        raise HttpError(404, f"unknown worker {id_!r:.80}", field="id")
    return answer(request, {"keys": [_shown(key) for key in keys or ()]})


@route(DaemonKeyRevoked, refuses=(404, 409))
async def revoke(app: App, request: Request, caller: Caller) -> Response:
    """POST /v1/namespaces/:ns/workers/:id/keys/:key_id/revoke: at once, and for good."""
    done = await app.identity.revoke(caller, request.params["id"], request.params["key_id"])
    if done is None:
        raise HttpError(404, "no such key of this worker", field="key_id")
    key, already = done
    app.dispatcher.end_polls(caller.ns)
    return answer(request, {**_shown(key), "alreadyRevoked": already})


def _shown(key: DaemonKey) -> DaemonKeyShown:
    said = key.public()
    return {
        "keyId": said["keyId"],
        "status": said["status"],
        "createdAt": iso(key.created_at),
        "retiringAt": iso(key.retiring_at),
        "revokedAt": iso(key.revoked_at),
        "expiresAt": iso(key.expires_at),
        "publicKey": said["publicKey"],
    }
