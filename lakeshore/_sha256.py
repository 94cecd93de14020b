"""`sha256` without OpenSSL: as quick for a few kilobytes, and no large library is loaded and taken down for it.

A process that is forked for one short function pays for every page that its libraries touch as it ends.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hashlib import sha256
else:
    try:
        from _sha2 import sha256  # Python 3.12 and later
    except ImportError:
        try:
            from _sha256 import sha256
        except ImportError:  # a Python that is built without its own
            from hashlib import sha256

__all__ = ["sha256"]
