"""`python -m dreamlake.lakeshore.daemon` runs a worker. Reference: python-sdk/dispatch.md, "The worker entrypoint"."""

from __future__ import annotations

from lakeshore.sdk.entry.process import leave
from lakeshore.sdk.entry.worker import main

if __name__ == "__main__":
    leave(main())
