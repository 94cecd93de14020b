"""`dreamlake.lakeshore.wire` is `lakeshore.wire`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from lakeshore._built import built

if TYPE_CHECKING:
    from lakeshore.wire import *  # noqa: F403  # what a type checker sees

sys.modules[__name__] = built("lakeshore.wire")
