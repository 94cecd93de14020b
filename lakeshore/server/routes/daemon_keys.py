"""Keys of daemons: a daemon rotates its own, an operator looks at them and revokes. S-306, S-307, S-453…S-456."""

from __future__ import annotations

from typing import Any

from ...wire.daemon_keys import DaemonKey
from ..app import App
from ..auth import Caller
from ..http import HttpError, Request, Response
from ..render import answer, iso
from ..structure import bad_field, read_map
from .daemon import check_binding


async def rotate(app: App, request: Request, caller: Caller) -> Response:
    """POST /v1/daemon/keys {worker_id, public_key}, signed by the key that it replaces."""
    body, _encoding = await read_map(request)
    for name in ("worker_id", "public_key"):
        if type(body.get(name)) is not str:
            raise bad_field(name, "must be a string" if name in body else "is required")
    check_binding(caller, body["worker_id"])
    return answer(request, await app.identity.rotate(caller, body["public_key"]))


async def listing(app: App, request: Request, caller: Caller) -> Response:
    """GET /v1/namespaces/:ns/workers/:id/keys: oldest first, revoked ones too."""
    id_ = request.params["id"]
    keys = app.identity.listed(caller.ns, id_)
    if not keys and app.records.worker(caller.ns, id_) is None:
        raise HttpError(404, f"unknown worker {id_!r:.80}", field="id")
    return answer(request, {"keys": [_shown(key) for key in keys or ()]})


async def revoke(app: App, request: Request, caller: Caller) -> Response:
    """POST /v1/namespaces/:ns/workers/:id/keys/:key_id/revoke: at once, and for good."""
    done = await app.identity.revoke(caller, request.params["id"], request.params["key_id"])
    if done is None:
        raise HttpError(404, "no such key of this worker", field="key_id")
    key, already = done
    app.dispatcher.end_polls(caller.ns)
    return answer(request, {**_shown(key), "alreadyRevoked": already})


def _shown(key: DaemonKey) -> dict[str, Any]:
    times = ("createdAt", "retiringAt", "revokedAt", "expiresAt")
    return {name: iso(said) if name in times else said for name, said in key.public().items()}
