"""What the fault tests share: the integration tests' server and client, and the bodies that workers run here."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "integration"))
