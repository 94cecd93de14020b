"""What goes wrong on other hosts, told as every other failure."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from .failures import Failure


@contextmanager
def told() -> Iterator[None]:
    """RemoteFailure becomes Failure (exit 1), with what to do."""
    from lakeshore.remote.errors import RemoteFailure  # wall: only these commands load what reaches hosts

    try:
        yield
    except RemoteFailure as error:
        raise Failure(str(error), hint=error.hint) from error
