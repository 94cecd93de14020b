"""The click type of a parameter that names something which exists: what completion is to suggest for it."""

from __future__ import annotations

import click

from .completing.kinds import KINDS


class Named(click.types.StringParamType):
    """Any text; `kind` is one of `completing.kinds.KINDS`."""

    def __init__(self, kind: str) -> None:
        if kind not in KINDS:
            raise ValueError(f"no such kind of names: {kind!r}")
        self.kind = kind
