"""The daemons of a namespace: their rows, and the orders that ride on their next poll.

A verb that is safe to repeat is sent again when its answer was lost; `setup` is not: it runs a script.
Reference: nymph/daemon-lifecycle.md; nymph/key-rotation.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lakeshore.net.errors import NetError

from .api import ApiClient
from .errors import ApiError

Row = dict[str, Any]


class Workers:
    """The workers of the namespace that `api` is for. Every verb raises ApiError 404 for one that is not there."""

    def __init__(self, api: ApiClient) -> None:
        self._api = api

    def all(self, *, project: str | None = None) -> list[Row]:
        """Every row, or those of a compose project: `{id, label, state, lastSeenAt, queues, runners, tags, …}`."""
        return self._api.rows(self._api.ours("workers"), "workers", [("compose_project", project)])

    def show(self, worker_id: str) -> Row:
        """One row with all that is known of it."""
        return self._api.map("GET", self._path(worker_id))

    def kill(self, worker_id: str, *, keep_instance: bool = False) -> Row:
        """Delete the row; its daemon drains and exits. The cloud instance goes too, unless it is to be kept."""
        query = [("keep_instance", "true" if keep_instance else None)]
        lost: list[NetError] = []
        try:
            return self._api.insist(lambda: self._api.map("DELETE", self._path(worker_id), query), lost)
        except ApiError as error:
            if not (lost and error.status == 404):
                raise
            return {"id": worker_id}  # by the request whose answer was lost

    def drain(self, worker_id: str, *, off: bool = False) -> Row:
        """Let it get no more work and end what it has, or (`off`) get work again: `{id, state, inFlight}`."""
        return self._again(worker_id, "drain", {"off": off})

    def cleanup(self, *, older_than_hours: float, dry_run: bool) -> Row:
        """Delete the rows that were last seen longer ago than that: `{count, deleted: […]}`."""
        body = {"olderThanHours": older_than_hours, "dryRun": dry_run}
        return self._api.map("POST", self._api.ours("workers", "cleanup"), body=body)

    def setup(self, worker_id: str, script: str, *, sudo: bool, refresh_capabilities: bool, name: str | None) -> Row:
        """Queue a script, to be run after those before it: `{setup_id, worker_id, name, position}`."""
        body: Row = {"script": script, "sudo": sudo, "refresh_capabilities": refresh_capabilities}
        return self._api.map("POST", self._path(worker_id, "setup"), body=body | ({"name": name} if name else {}))

    def hibernate(self, worker_id: str, until: str) -> Row:
        """Let it rest until that ISO instant. ApiError 400 for one that has passed."""
        return self._again(worker_id, "hibernate", {"until": until})

    def reset(self, worker_id: str) -> Row:
        """End its back-off."""
        return self._again(worker_id, "reset", {})

    def update(
        self, worker_id: str, *, version: str | None = None, url: str | None = None, sha256: str | None = None
    ) -> Row:
        """Let it install a version (default: the namespace's target), or the file behind `url`."""
        given = {"version": version, "url": url, "sha256": sha256}
        return self._again(worker_id, "update", {name: value for name, value in given.items() if value is not None})

    def queues(self, worker_id: str, *, add: Sequence[str], remove: Sequence[str]) -> Row:
        """Let it join and leave queues; the queues that it is in then."""
        return self._again(worker_id, "queues", {"add": list(add), "remove": list(remove)})

    def keys(self, worker_id: str) -> list[Row]:
        """Its keys: `{keyId, status, createdAt, retiringAt, revokedAt, expiresAt, publicKey}`."""
        return self._api.rows(self._path(worker_id, "keys"), "keys")

    def revoke_key(self, worker_id: str, key_id: str) -> Row:
        """Revoke one for good; `alreadyRevoked` is true when it was."""
        return self._again(worker_id, "keys", {}, key_id, "revoke")

    def target(self) -> Row:
        """The version that the namespace's daemons are to have."""
        return self._api.map("GET", self._api.ours("nymph-target"))

    def set_target(self, version: str | None) -> Row:
        """Name that version; None for none."""
        path = self._api.ours("nymph-target")
        if version is None:
            return self._api.insist(lambda: self._api.map("DELETE", path), [])
        return self._api.insist(lambda: self._api.map("PUT", path, body={"version": version}), [])

    def _again(self, worker_id: str, verb: str, body: Row, *more: str) -> Row:
        """POST what may be done twice."""
        path = self._path(worker_id, verb, *more)
        return self._api.insist(lambda: self._api.map("POST", path, body=body), [])

    def _path(self, worker_id: str, *more: str) -> str:
        return self._api.ours("workers", worker_id, *more)
