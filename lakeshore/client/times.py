"""Times of the API, and how long ago or ahead they are, in a few letters for people. One unit, rounded down."""

from __future__ import annotations

from datetime import UTC, datetime


def moment(text: object) -> datetime | None:
    """An ISO time of the API, aware; None for null and for what is no time."""
    if not isinstance(text, str):
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    if not 1 < found.year < 9999:  # in another zone it may be none
        return None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def age(text: object, now: datetime) -> str:
    """How long ago: `4s`, `12m`, `3h`, `5d`; `—` for never."""
    found = moment(text)
    return "—" if found is None else duration((now - found).total_seconds())


def ahead(text: object, now: datetime) -> str:
    """How long until then: `in 4s`, `in 12m`; `now` when it has passed, `—` for never."""
    found = moment(text)
    if found is None:
        return "—"
    left = (found - now).total_seconds()
    return f"in {duration(left)}" if left > 0 else "now"


def duration(seconds: float) -> str:
    """A length of time in one unit, rounded down; below ten seconds with a decimal."""
    seconds = max(seconds, 0.0)
    if seconds < 10:
        return f"{seconds:.1f}s"
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= 2 * size:
            return f"{int(seconds // size)}{unit}"
    return f"{int(seconds)}s"
