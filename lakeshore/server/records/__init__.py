"""What the server knows besides invocations: namespaces, tokens, workers, daemons' keys, secrets, providers,
machines, modes, tunnels, mounts, storages, archives of code."""

from __future__ import annotations

from .code_repos import CodeRepoRow
from .enroll_tokens import EnrollTokenRow
from .entries import EntryRow, EntryRows
from .file import RecordsError
from .machines import MachineRow
from .modes import ModeRow
from .orders import OrderRow
from .providers import ProviderRow
from .releases import ReleaseRow
from .schedules import ScheduleRow
from .secrets import SecretRow
from .storages import StorageRow
from .store import NamespaceRow, Records, Scope, Taken, TokenRow
from .workers import WorkerRow

__all__ = [
    "CodeRepoRow",
    "EnrollTokenRow",
    "EntryRow",
    "EntryRows",
    "MachineRow",
    "ModeRow",
    "NamespaceRow",
    "OrderRow",
    "ProviderRow",
    "Records",
    "RecordsError",
    "ReleaseRow",
    "ScheduleRow",
    "Scope",
    "SecretRow",
    "StorageRow",
    "Taken",
    "TokenRow",
    "WorkerRow",
]
