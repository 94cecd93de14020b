"""Every exception that the SDK raises on purpose, split by whose fault it is.

    LakeshoreError
    ├── KeyError_ (ValueError)       the function broke the key contract: a bad key, or a written key not returned
    ├── TransportError               the caller's function cannot travel, or this worker refuses it
    ├── WorkerError                  the worker cannot run it: not importable here, or other source than was submitted
    ├── DispatchError                the plane says no: unknown, purged, not yours, full, unreachable
    │   └── InvocationFailed         the function ran and failed, or was killed or timed out; carries state and error
    └── Timeout (TimeoutError)       nobody's fault: the wait ended, the invocation goes on

Python's own TypeError is raised for a call that is written wrongly (no queue, a misspelt option, a value the codec
does not know). Reference: python-sdk/udf.md, python-sdk/queue.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = [
    "DispatchError",
    "InvocationFailed",
    "KeyError_",
    "LakeshoreError",
    "Timeout",
    "TransportError",
    "WorkerError",
]


class LakeshoreError(Exception):
    """The root of the tree."""


class KeyError_(LakeshoreError, ValueError):  # noqa: N801  # the documented spelling
    """A key is malformed, missing or escapes the run root; or a call wrote a key that it did not return."""


class TransportError(LakeshoreError):
    """A function cannot cross to another process, or the process it reached refuses it."""


class WorkerError(LakeshoreError):
    """The worker could not find or trust the code that an invocation names."""


class DispatchError(LakeshoreError):
    """The plane refused or could not do what was asked: unknown or purged ids, a claim that is not current, a full
    queue or disk, a server that cannot be reached. An InvocationFailed is one, too.
    """


class InvocationFailed(DispatchError):  # what happened, in the words of the invocation's state
    """An invocation ended in `failed`, `killed` (shown as `cancelled` by the local plane) or `timeout`.

    Attributes: `invocation_id`, `state`, and `error`, the worker's `{"type", "message", "traceback"?}` or None. The
    worker's traceback is a note, which Python prints below its own.
    """

    def __init__(
        self, message: str, *, invocation_id: str = "", state: str = "failed", error: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(message)
        self.invocation_id = invocation_id
        self.state = state
        self.error = dict(error) if error is not None else None
        trace = self.error.get("traceback") if self.error else None
        if isinstance(trace, str) and trace:
            self.add_note(f"\nOn the worker:\n{trace.rstrip()}")

    def __reduce__(self) -> tuple[Any, ...]:
        return (_failed, (str(self), self.invocation_id, self.state, self.error))


def _failed(message: str, invocation_id: str, state: str, error: Mapping[str, Any] | None) -> InvocationFailed:
    return InvocationFailed(message, invocation_id=invocation_id, state=state, error=error)


class Timeout(LakeshoreError, TimeoutError):  # a TimeoutError by inheritance; the short name is the field's
    """A wait ended before the invocation did. The id stays valid: wait again, for longer if need be.

    `hint`, when given, follows the sentence and says why the wait may be in vain (no worker drains the queue, no URL
    is set).
    """

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(f"{message}; {hint}" if hint else message)
        self.hint = hint
