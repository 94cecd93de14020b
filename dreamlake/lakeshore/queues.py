"""`dreamlake.lakeshore.queues` is `lakeshore.sdk.queues`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from lakeshore._built import built

if TYPE_CHECKING:
    from lakeshore.sdk.queues import *  # noqa: F403  # what a type checker sees

sys.modules[__name__] = built("lakeshore.sdk.queues")
