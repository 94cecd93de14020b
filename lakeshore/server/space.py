"""The part of the disk that is kept for running work: below it, new work is refused (K-32)."""

from __future__ import annotations

import logging
import os
import shutil

from ..plane.contract import PlaneFull

CHECK_S = 1.0
log = logging.getLogger(__name__)


class DiskReserve:
    """Looks at the disk under `path` at most once a second."""

    def __init__(self, path: str, reserve_bytes: int) -> None:
        self._directory = os.path.dirname(path) or "."
        self._reserve = reserve_bytes
        self._enough_until = 0.0
        self._short = False

    def check(self, now: float) -> None:
        """Raise PlaneFull when less than the reserve is free."""
        if now < self._enough_until:
            return
        free = shutil.disk_usage(self._directory).free
        if free < self._reserve:
            why = f"only {free // 2**20} MiB of disk are free, {self._reserve // 2**20} MiB are kept for running work"
            if not self._short:  # once for each time that it runs short
                self._short = True
                log.warning("new calls are refused: %s (under %s)", why, self._directory)
            raise PlaneFull(f"{why}; free some space, then submit again")
        self._enough_until = now + CHECK_S
        if self._short:
            self._short = False
            log.warning("new calls are taken again: there is space")
