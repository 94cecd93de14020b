"""What can be wrong with a configuration file."""

from __future__ import annotations


class ConfigError(Exception):
    """A file cannot be used. The message names the file, the key, and what to do."""
