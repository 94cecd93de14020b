"""What the fault tests share: the integration tests' server and client, the one file, and bodies for workers."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path += [str(Path(__file__).parents[1] / name) for name in ("integration", "acceptance")]
