"""What goes wrong with an archive of code."""

from __future__ import annotations


class ArchiveError(Exception):
    """An archive cannot be made, had or used; the message says why and what to do."""


class NoTree(ArchiveError):
    """There is no git tree, or none that an archive can be made of."""
