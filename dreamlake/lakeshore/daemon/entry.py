"""`python -m dreamlake.lakeshore.daemon.entry` runs one invocation. Reference: api/function-protocol.md, "The workdir
contract".
"""

from __future__ import annotations

from lakeshore.sdk.entry.job import main
from lakeshore.sdk.entry.process import leave

if __name__ == "__main__":
    leave(main())
