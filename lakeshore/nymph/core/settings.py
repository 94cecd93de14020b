"""What the daemon's core is told once, at its birth. Defaults are those of `udf-daemon.toml` (api/configuration)."""

from __future__ import annotations

from typing import Final

from lakeshore.wire.messages import DEFAULT_QUEUE, LEASE_S, POLL_TIMEOUT_S
from lakeshore.wire.values import value

POOL: Final = -1


@value
class Settings:
    """Times in seconds.

    `worker_id` is the provisional one, `session` the id that this process chose (a ULID: sessions are ordered, K-15).
    `max_invocations` 0 is no bound. `keep_alive_s` -1 never leaves, 0 leaves at the first idle answer. `has_identity`
    says whether there is a key to rotate, `may_reenroll` whether an enroll token is there that was not spent.
    """

    worker_id: str
    session: str
    version: str
    queue: str = DEFAULT_QUEUE
    max_invocations: int = 100
    wait_max_s: float = POLL_TIMEOUT_S
    retry_min_s: float = 1.0
    retry_max_s: float = 60.0
    grace_s: float = 60.0
    keep_alive_s: float = 300.0
    auto_update: bool = False
    auto_update_check_interval_s: float = 300.0
    has_identity: bool = False
    may_reenroll: bool = False
    lease_s: float = LEASE_S
