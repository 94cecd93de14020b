"""Says what has ended while the body that was begun after it runs on.

An ending that waits for company may not wait for a body: that one may be long, or wait itself for what has ended.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

log = logging.getLogger(__name__)


class Teller:
    """Calls `say` every `pace_s`, in a thread that it starts when first needed, while there is something to say.

    `say` says it if a body has run for long, and returns whether it is still to be said.
    """

    def __init__(self, pace_s: float, say: Callable[[], bool]) -> None:
        self._pace_s, self._say = pace_s, say
        self._news = threading.Event()
        self._thread: threading.Thread | None = None
        self._closed = False

    def watch(self) -> None:
        """A body begins, and there is something to say."""
        if not self._news.is_set():  # else it is said already: setting takes a lock
            self._news.set()
        if self._thread is None and not self._closed:
            self._thread = threading.Thread(target=self._run, name="lakeshore-teller", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Returns when nothing is being said any more."""
        self._closed = True
        self._news.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while self._news.wait() and not self._closed:
            self._news.clear()
            time.sleep(self._pace_s)
            try:
                more = self._say()
            except Exception:  # the worker's own thread says it again, and hears why it cannot be said
                log.exception("what has ended was not said while a body runs")
                more = False
            if more:
                self._news.set()
