"""New invocation ids: one ULID source a process. Loaded by the remote half only."""

from __future__ import annotations

import os
import time

from lakeshore.wire.names import Ulids


def _milliseconds() -> int:
    return time.time_ns() // 1_000_000


_source = Ulids(_milliseconds, os.urandom)


def new_id() -> str:
    """A ULID that sorts after every earlier one of this process."""
    return _source.new()
