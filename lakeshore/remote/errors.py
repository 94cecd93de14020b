"""Why something on another host did not come about.

RemoteFailure            one sentence and what to do
└── SshFailure           ssh itself ended with an error: `code` is its own
"""

from __future__ import annotations


class RemoteFailure(Exception):
    """`str()` is the sentence; `hint` says what to do, or None."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


class SshFailure(RemoteFailure):
    """ssh, or what it started, ended with `code`."""

    def __init__(self, message: str, *, hint: str | None = None, code: int) -> None:
        super().__init__(message, hint=hint)
        self.code = code
