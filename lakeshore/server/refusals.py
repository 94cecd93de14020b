"""What a plane refuses, as statuses. Every refusal a caller can meet is in this table."""

from __future__ import annotations

import sqlite3
from typing import Any

from ..plane.contract import (
    Conflict,
    Gap,
    IllegalTransition,
    NotHeld,
    PlaneError,
    PlaneFull,
    Purged,
    QueueBehind,
    QueueBusy,
    QueueFull,
    QueueNotActive,
    Refused,
    Superseded,
    UnknownInvocation,
)
from ..plane.plane import failure_of
from ..wire.errors import NameError_
from .http import HttpError

RETRY_AFTER_S = 1.0
FULL_HINT = "nothing was lost: once the server's disk has space, send the same request again"


def refusal_of(error: Exception) -> HttpError:
    """The answer to an exception of the plane, or of a name's check. What is neither is raised again."""
    match error:
        case HttpError():
            return error
        case NameError_():
            return HttpError(422, str(error), field=error.field)
        case Purged():
            return HttpError(409, "purged", hint=str(error))
        case Conflict():
            return HttpError(409, "conflict", field="invocation_id", hint=str(error))
        case UnknownInvocation():
            return HttpError(404, str(error))
        case NotHeld():
            return HttpError(409, "stale", hint=str(error))
        case Gap():
            return HttpError(409, "gap", hint=str(error), expected=error.expected)
        case Superseded():
            return HttpError(409, "superseded", hint=str(error))
        case QueueNotActive():
            return HttpError(409, "queue not active", hint=str(error), queue=error.queue, state=error.state)
        case QueueBehind():
            return _no_room(error, "queue behind", deadline_cutoff_s=error.cutoff_s)
        case QueueFull():
            return _no_room(error, "queue full", max_depth=error.max_depth)
        case QueueBusy():
            hint = "cancel what is queued (`lakeshore jobs bulk-cancel --queue <name>`), and let what runs end"
            return HttpError(409, str(error), hint=hint, queued=error.queued, running=error.running)
        case IllegalTransition() | Refused():
            return HttpError(409, str(error))
        case PlaneFull():
            return HttpError(507, str(error), hint=FULL_HINT)
        case sqlite3.Error():
            return refusal_of(failure_of(error))
        case PlaneError():
            return HttpError(503, str(error), hint="the server's log has the details; the request may be tried again")
    raise error


def _no_room(error: QueueFull, says: str, **limit: Any) -> HttpError:
    return HttpError(
        429,
        says,
        hint=str(error),
        headers=(("retry-after", str(int(RETRY_AFTER_S))),),
        queue=error.queue,
        on_full="block" if error.blocks else "reject",
        retry_after_s=RETRY_AFTER_S,
        **limit,
    )


def as_result(error: Exception) -> dict[str, object]:
    """The same for one item of a batch."""
    refused = refusal_of(error)
    return {"status": refused.status, **refused.as_body()}
