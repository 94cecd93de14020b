"""The worker's entry with little patience for bodies that do not end."""

from __future__ import annotations

from lakeshore.sdk.entry import worker

worker.GRACE_S = 0.3

if __name__ == "__main__":
    raise SystemExit(worker.main())
