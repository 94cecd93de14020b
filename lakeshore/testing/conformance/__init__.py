"""The dispatch contract as cases: `for case in CASES: case(harness)`, each on an empty plane (CONTRACT, P-449)."""

from __future__ import annotations

from . import (
    cancels,
    claims,
    counts,
    delays,
    journal,
    lifecycle,
    losses,
    namespaces,
    ordering,
    payloads,
    queues,
    retries,
    streams,
    submits,
    topics,
)
from .base import CASES

__all__ = [
    "CASES",
    "cancels",
    "claims",
    "counts",
    "delays",
    "journal",
    "lifecycle",
    "losses",
    "namespaces",
    "ordering",
    "payloads",
    "queues",
    "retries",
    "streams",
    "submits",
    "topics",
]
