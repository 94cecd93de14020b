"""`dreamlake.lakeshore.functions` is `lakeshore.sdk.functions`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from lakeshore._built import built

if TYPE_CHECKING:
    from lakeshore.sdk.functions import *  # noqa: F403  # what a type checker sees

sys.modules[__name__] = built("lakeshore.sdk.functions")
