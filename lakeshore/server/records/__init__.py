"""What the server knows besides invocations: namespaces, tokens, workers, daemons' keys, secrets, providers."""

from __future__ import annotations

from .enroll_tokens import EnrollTokenRow
from .file import RecordsError
from .modes import ModeRow
from .providers import ProviderRow
from .releases import ReleaseRow
from .schedules import ScheduleRow
from .secrets import SecretRow
from .store import NamespaceRow, Records, Scope, Taken, TokenRow
from .workers import WorkerRow

__all__ = [
    "EnrollTokenRow",
    "ModeRow",
    "NamespaceRow",
    "ProviderRow",
    "Records",
    "RecordsError",
    "ReleaseRow",
    "ScheduleRow",
    "Scope",
    "SecretRow",
    "Taken",
    "TokenRow",
    "WorkerRow",
]
