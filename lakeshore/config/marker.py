"""How a value that the server keeps sealed is named in a configuration: `{"$secret": "<name>"}`."""

from __future__ import annotations

from typing import Final

MARKER: Final = "$secret"
"""The one key of a map that refers to a secret of the server."""
