"""What the server knows besides invocations: namespaces, tokens, the workers that said hello, identities of daemons."""

from __future__ import annotations

from .enroll_tokens import EnrollTokenRow
from .file import RecordsError
from .releases import ReleaseRow
from .schedules import ScheduleRow
from .store import NamespaceRow, Records, Scope, Taken, TokenRow
from .workers import WorkerRow

__all__ = [
    "EnrollTokenRow",
    "NamespaceRow",
    "Records",
    "RecordsError",
    "ReleaseRow",
    "ScheduleRow",
    "Scope",
    "Taken",
    "TokenRow",
    "WorkerRow",
]
