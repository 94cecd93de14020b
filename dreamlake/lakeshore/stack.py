"""`dreamlake.lakeshore.stack` is `lakeshore.stack`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from lakeshore._built import built

if TYPE_CHECKING:
    from lakeshore.stack import *  # noqa: F403  # what a type checker sees

sys.modules[__name__] = built("lakeshore.stack")
