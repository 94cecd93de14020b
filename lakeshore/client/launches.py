"""Daemons on machines that a provider makes, and what the console of such a machine says.

Reference: nymph/daemon-lifecycle.md, "Launch through a provider".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .answers import rows_in
from .api import ApiClient
from .errors import ApiError

Row = dict[str, Any]
LAUNCH_S = 900.0
"""How long one may take: over ssh the program is copied to its host first."""
_THROTTLED = frozenset(
    {"RequestLimitExceeded", "Throttling", "ThrottlingException", "RequestThrottled", "EC2ThrottledException"}
)


class Launches:
    """The launches of the namespace that `api` is for."""

    def __init__(self, api: ApiClient) -> None:
        self._api = api

    def launch(self, wanted: Mapping[str, Any]) -> Row:
        """Start what is wanted: `{workers: [{id, label, instanceId, state, note?}], failed: [{label, error, hint?}],
        warnings}`. Never sent twice: each is a machine. ApiError 502 when the provider refused all of them.
        """
        path = self._api.ours("daemons", "launch")
        answer = self._api.call("POST", path, body=wanted, timeout=LAUNCH_S)
        where = f"{self._api.url}{path}"
        rows = rows_in(answer if isinstance(answer, dict) else {}, "workers", where)
        return {"failed": [], "warnings": [], **answer, "workers": rows}

    def rendered(self, wanted: Mapping[str, Any]) -> Row:
        """What the first machine would be given to run: `{label, bootstrap}`. Nothing is made."""
        return self._api.map("POST", self._api.ours("daemons", "launch"), body={**wanted, "dry_run": True})

    def log(self, worker_id: str, *, tail: int | None, latest: bool) -> Row:
        """What the machine of a daemon printed as it started: `{instanceId, output}`. ApiError 422 where none does."""
        query: list[tuple[str, str | int | None]] = [("tail", tail), ("latest", None if latest else "false")]
        return self._api.map("GET", self._api.ours("workers", worker_id, "launch-log"), query)


def is_throttled(error: ApiError) -> bool:
    """Whether the provider wants to be asked less often: the same may go well a little later."""
    return error.status == 429 or error.body.get("awsCode") in _THROTTLED
