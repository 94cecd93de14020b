"""The worker protocol as cases over the poll verb (K-8, K-9, K-11, K-15, K-27, K-28)."""

from __future__ import annotations

from . import rules, traces
from .base import NS, SESSIONS

__all__ = ["NS", "SESSIONS", "rules", "traces"]
