"""Commands that people run on workers (exec jobs): kept, handed out at most once, ended once, with what they print."""

from __future__ import annotations

from .book import Execs, Seat
from .output import Output
from .store import Store

__all__ = ["Execs", "Output", "Seat", "Store"]
