"""The part of the disk that is kept for running work: below it, new work is refused (K-32)."""

from __future__ import annotations

import os
import shutil

from ..plane.contract import PlaneFull

CHECK_S = 1.0


class DiskReserve:
    """Looks at the disk under `path` at most once a second."""

    def __init__(self, path: str, reserve_bytes: int) -> None:
        self._directory = os.path.dirname(path) or "."
        self._reserve = reserve_bytes
        self._enough_until = 0.0

    def check(self, now: float) -> None:
        """Raise PlaneFull when less than the reserve is free."""
        if now < self._enough_until:
            return
        free = shutil.disk_usage(self._directory).free
        if free < self._reserve:
            raise PlaneFull(
                f"only {free // 2**20} MiB of disk are free, {self._reserve // 2**20} MiB are kept for running work; "
                "free some space, then submit again"
            )
        self._enough_until = now + CHECK_S
