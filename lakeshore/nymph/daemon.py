"""One daemon, from its configuration to its exit code."""

from __future__ import annotations

from pathlib import Path

from .lookup import Flags, boot


def run(flags: Flags, *, record: Path | None = None) -> int:
    """Run the daemon until it leaves; its exit code. Raises ConfigError."""
    boot(flags)
    return 1
