"""What a wait ends in: the packed result, or the error that says how the invocation ended. One wording everywhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lakeshore.wire.errors import RemoteFailure
from lakeshore.wire.messages import MAX_PAYLOAD_BYTES

from .context import current
from .errors import DispatchError, InvocationFailed, Timeout
from .limits import OutOfTime

_VERB = {"killed": "was cancelled", "timeout": "timed out", "failed": "failed"}
_ADVICE = {
    "queued": "no worker has taken it: does one run for its queue (`lakeshore worker start --queue <name>`), with the "
    "same LAKESHORE_URL and namespace? The id stays valid",
    "running": "it goes on: wait again with the same id, for longer",
}
_IN_A_BODY = (
    "no worker has taken it, and the body that waits for it keeps its own one: their queue needs more of them "
    "(`lakeshore worker start --procs`), or the two a queue each. The id stays valid"
)


def failure(invocation_id: str, state: str, error: Mapping[str, Any] | None) -> InvocationFailed:
    """The exception for a terminal state that is not success: `invocation … failed: ValueError: bad input`."""
    what = f"invocation {invocation_id} {_VERB.get(state, state)}"
    detail = describe(error)
    if detail and state != "killed":
        what += f": {detail}"
    return InvocationFailed(what, invocation_id=invocation_id, state=state, error=error)


def of_stream(invocation_id: str, error: RemoteFailure) -> InvocationFailed:
    """The exception for an ERROR frame."""
    return failure(invocation_id, "failed", {"type": error.type, "message": error.message})


def describe(error: Mapping[str, Any] | None) -> str:
    """`Type: message` of a worker's error map."""
    if not error:
        return ""
    kind, message = str(error.get("type") or "Error"), str(error.get("message") or "")
    return f"{kind}: {message}" if message else kind


def not_there(invocation_id: str, state: str) -> DispatchError:
    """The exception for an id that has no row: never seen here, or purged after it ended (K-22)."""
    if state == "purged":
        return DispatchError(f"invocation {invocation_id} ended and was purged; its result is gone")
    return DispatchError(
        f"invocation {invocation_id} is unknown here; check the id, the namespace and which plane it was submitted to"
    )


def still(invocation_id: str, row_state: str, waited_s: float | None, hint: str | None = None) -> Timeout:
    """The exception for a wait that ended first: `invocation … still 'queued' after 30.0s; no worker …`."""
    said = f"invocation {invocation_id} still {row_state!r} after {float(waited_s or 0.0)}s"
    if hint is None:
        hint = _IN_A_BODY if row_state == "queued" and current().invocation_id is not None else _ADVICE.get(row_state)
    return Timeout(said, hint=hint)


def not_submitted(invocation_id: str, waited_s: float, late: OutOfTime) -> Timeout:
    """The exception for a wait that ended before the server had answered the submit."""
    within = f"within {waited_s:.1f}s"
    if late.sent:
        return Timeout(f"the server did not answer {within}, and may have taken invocation {invocation_id}: {late}")
    return Timeout(f"the server was not reached {within}, so invocation {invocation_id} was not submitted: {late}")


def goes_on(queue: str, invocation_id: str, seq: int | None = None) -> str:
    """What to tell who presses Ctrl-C in a wait, perhaps without an id; in a stream after `seq`."""
    again = f"result({invocation_id!r}) waits again"
    if seq is not None:
        again = f"stream({invocation_id!r}, since={seq}) reads on"
    return f"The wait ended, the call may go on: dls.SyncQueue({queue!r}).{again}, .cancel({invocation_id!r}) ends it."


def silent(what: str, waited_s: float | None) -> Timeout:
    """The exception for a stream that said nothing for too long."""
    return Timeout(f"no frame of {what} for {float(waited_s or 0.0)}s; resume with since= the last seq seen")


def as_error(error: object) -> dict[str, Any]:
    """A worker's error in its wire shape `{type, message, traceback?}`; a bare string becomes a message."""
    if isinstance(error, Mapping):
        return {"type": str(error.get("type") or "Error"), **{k: v for k, v in error.items() if k != "type"}}
    if isinstance(error, BaseException):
        return {"type": type(error).__name__, "message": str(error)}
    return {"type": "Error", "message": str(error)}


def too_large(size: int, what: str) -> DispatchError | None:
    """The error for a payload that no plane takes, before a byte is sent or stored (K-20)."""
    if size <= MAX_PAYLOAD_BYTES:
        return None
    return DispatchError(
        f"{what}: {size / 2**20:.1f} MiB, the limit is {MAX_PAYLOAD_BYTES // 2**20} MiB; "
        "pass a key or a path to the data instead of the data itself"
    )
