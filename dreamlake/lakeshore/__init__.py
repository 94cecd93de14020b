"""The documented import path of Lakeshore's SDK: the same objects as `lakeshore`, resolved at first use. No logic
lives here.
"""

from __future__ import annotations

import lakeshore

TYPE_CHECKING = False  # `typing` itself would be most of what this import costs
if TYPE_CHECKING:
    from typing import Any

    from lakeshore import *  # noqa: F403  # what a type checker sees; at run time __getattr__ answers

__all__ = list(lakeshore.__all__)  # pinned by a test


def __getattr__(name: str) -> Any:
    if name in lakeshore.__all__ or name == "__version__":
        return getattr(lakeshore, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "__version__"})
