"""Makes what only screens need importable: Textual. A no-op in an installed package and in a checkout.

In the one file that is a tree of its own beside the program's, by the same rules (`_start.py`, `_bootstrap.py`),
unpacked when a screen is first opened: no other command pays for it.
"""

from __future__ import annotations

import os
import sys

from lakeshore import _self, _start

BESIDE = "_screens"
_lock: int | None = None


def extend_path() -> None:
    """Put it behind the program's own third-party code, before whatever the host has."""
    global _lock  # noqa: PLW0603  (the lock lives as long as the process)
    archive = _self.started_path()
    if archive is None or _lock is not None:
        return
    root, lock = _start.unpacked(BESIDE)
    if lock < 0:
        from types import SimpleNamespace  # wall: the first time alone

        from lakeshore import _bootstrap  # wall: as above

        start = SimpleNamespace(**{**vars(_start), "SCREENS": True})
        root, _lock = _bootstrap.prepare(archive, root, _start.CONTENT, _start.platform(), start)
    else:
        _lock = lock
    ours = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_vendor")
    sys.path.insert(sys.path.index(ours) + 1 if ours in sys.path else 1, os.path.join(root, "lakeshore", "_vendor"))
