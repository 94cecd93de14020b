"""Memory that was let go of is kept for the next payload.

A page that the kernel takes back and gives again costs about 4 µs on a small virtual machine, so a megabyte a
millisecond, and a payload is copied a few times on its way. The C library gives back what is free at the end of its
heap above a threshold, which is twice the size of the largest block that was ever mapped and freed (mallopt(3),
M_MMAP_THRESHOLD). Rule: asked for by processes that are ours alone, and by a program of its user's once it sends
something large, which has brought the threshold near there.
"""

from __future__ import annotations

import functools
from typing import Final

BLOCK: Final = 4 * 1024 * 1024


@functools.cache
def keep_freed_memory() -> None:
    """From now on up to 8 MiB of free memory stay with this process. Costs nothing: the block is never touched."""
    bytes(BLOCK)
