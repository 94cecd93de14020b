"""`python -m dreamlake.lakeshore` is `python -m dreamlake.lakeshore.daemon`: it runs a worker."""

from __future__ import annotations

from lakeshore.sdk.entry.process import leave
from lakeshore.sdk.entry.worker import main

if __name__ == "__main__":
    leave(main())
