"""What a daemon is told to run: the stored body, with where its output goes, and a payload as a signed reference."""

from __future__ import annotations

from typing import Any, Final

from ..app import App
from ..payload_io import Outgoing

FLUSH_MS: Final = 100
FLUSH_BYTES: Final = 64 * 1024


def command_body(app: App, raw: dict[str, Any]) -> dict[str, Any]:
    """The body of an `exec` command (S-431, S-432)."""
    body = dict(raw)
    if body.pop("log", False):
        chunk = f"/v1/daemon/exec/{raw['exec_id']}/chunk"
        body["log"] = {
            "stdout_url": chunk,
            "stderr_url": f"{chunk}?stream=stderr",  # who does not know it sends both as stdout
            "flush_ms": FLUSH_MS,
            "flush_bytes": FLUSH_BYTES,
        }
    if "payload_ref" in body:
        body["payload_ref"] = Outgoing(app).reference(body["payload_ref"])
    return body
