"""How a command says that it cannot go on."""

from __future__ import annotations

from .exits import ExitCode


class Failure(Exception):
    """One sentence for the user. `hint` says what to do, where the sentence does not."""

    def __init__(self, message: str, *, hint: str | None = None, code: ExitCode = ExitCode.FAILED) -> None:
        super().__init__(message)
        self.hint = hint
        self.code = code
