"""How a screen ends on a signal: as on a key, and in any case soon.

A terminal that is gone takes nothing more, and what Textual still wants to write to it would be waited for without end;
its last SIGCONT even makes Textual begin anew. Reference: nymph/status-tui.md.
"""

from __future__ import annotations

import os
import threading
from typing import Any, Final

from textual.app import App

LEAVING_S: Final = 3.0


def leave(app: App[Any], number: int) -> None:
    """End it with the exit code of that signal."""
    code = 128 + number
    last = threading.Timer(LEAVING_S, os._exit, (code,))
    last.daemon = True
    last.start()
    app.exit(return_code=code)
