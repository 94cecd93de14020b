"""What the server knows besides invocations: namespaces, tokens, the workers that said hello."""

from __future__ import annotations

from .file import RecordsError
from .schedules import ScheduleRow
from .store import NamespaceRow, Records, Scope, Taken, TokenRow, WorkerRow

__all__ = ["NamespaceRow", "Records", "RecordsError", "ScheduleRow", "Scope", "Taken", "TokenRow", "WorkerRow"]
