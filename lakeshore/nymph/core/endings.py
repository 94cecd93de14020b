"""How a job's end is told: the items of `acks` (nymph/protocol, "Ack"; CONTRACT K-27).

An error is never a bare string: one that has only a message is a `DaemonError`. What was stopped is `killed`, with the
reason; a success that was there first wins.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from .held import Job

GRACE_EXPIRED: Final = "daemon shutdown grace expired"
CANCELLED: Final = "cancelled"
_FIELDS: Final = ("result_blob", "result_ref", "error", "retry", "retries", "last_seq")


def ack_of(job: Job) -> dict[str, Any]:
    """The ack of an ended job."""
    ending = job.ending
    item: dict[str, Any] = {
        "invocation_id": job.id,
        "claim": job.claim,
        "state": str(ending.get("state") or "failed"),
        "error": None,
    }
    item.update({name: ending[name] for name in _FIELDS if ending.get(name) is not None})
    item["error"] = _structured(item["error"])
    if job.stop_why is not None and item["state"] != "succeeded":
        item["state"] = "killed"
        item["error"] = {"type": "Cancelled", "message": job.stop_why}
        item.pop("retry", None)
    if item["state"] != "succeeded":
        item.pop("result_ref", None)
        item["result_blob"] = b""
        item["error"] = item["error"] or {"type": "DaemonError", "message": f"the job ended: {item['state']}"}
    elif "result_ref" not in item:
        item.setdefault("result_blob", b"")
    return item


def last_status(job: Job, state: str) -> dict[str, Any]:
    """What `invocations` says once of a job whose ack was answered (N-393)."""
    return {
        "invocation_id": job.id,
        "state": state,
        "started_at": job.started_at,
        "exit_code": job.ending.get("exit_code"),
        "stdout_tail": job.tail.decode("utf-8", "replace"),
    }


def _structured(error: Any) -> dict[str, Any] | None:
    if error is None or error == "":
        return None
    if isinstance(error, Mapping):
        told = {"type": str(error.get("type") or "DaemonError"), "message": str(error.get("message") or "")}
        if error.get("traceback"):
            told["traceback"] = str(error["traceback"])
        return told
    return {"type": "DaemonError", "message": str(error)}
