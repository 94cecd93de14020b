"""What may be a name, and the ids that name things.

    slug           ^[a-z0-9][a-z0-9-]*$                  providers, secrets, modes, tunnels, mounts, storages, queues
    namespace      ^[a-z0-9][a-z0-9-]{0,63}$
    label          ^[a-zA-Z0-9][a-zA-Z0-9_-]{0,63}$      tokens, enroll tokens
    queue          1…200 printable characters, no "/", not ending in "*": what `@udf(queue=…)` and a submit may say
    subscription   a queue, or a prefix that ends in "*"
    invocation id  1…64 of [A-Za-z0-9_-]; a ULID by custom. Never used for order (K-3)
    topic          1…200 printable characters; never used as a path (K-25)

Each `check_*` returns its argument or raises NameError_, a ValueError whose message says what is allowed. A queue's
name is wider than a slug because a submit creates its queue, and old code must not fail over an underscore or a
capital; `queues add` takes slugs.

ULIDs: 48 bits of milliseconds, 80 of chance, 26 characters of Crockford's base 32. The clock and the chance are the
caller's.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable
from typing import Final
from weakref import WeakSet

from lakeshore.wire.errors import NameError_

MAX_NAME: Final = 200
_SLUG: Final = re.compile(r"[a-z0-9][a-z0-9-]*")
_NAMESPACE: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")
_LABEL: Final = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_-]{0,63}")
_INVOCATION: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")

_SLUG_SAYS: Final = "lower-case letters, digits and hyphens, starting with a letter or digit"
_LABEL_SAYS: Final = "1 to 64 letters, digits, _ and -, starting with a letter or digit"


def _match(pattern: re.Pattern[str], value: object, field: str, says: str) -> str:
    if type(value) is not str or not pattern.fullmatch(value):
        raise NameError_(f"{field}: {value!r:.80} is not allowed: use {says}", field=field)
    return value


def _printable(value: object, field: str) -> str:
    if type(value) is not str:
        raise NameError_(f"{field}: must be a string (got {type(value).__name__})", field=field)
    if not 0 < len(value) <= MAX_NAME:
        raise NameError_(f"{field}: must have 1 to {MAX_NAME} characters (got {len(value)})", field=field)
    if not value.isprintable() or value != value.strip():
        raise NameError_(
            f"{field}: {value!r:.80} is not allowed: use printable characters, without blanks at the ends", field=field
        )
    return value


def check_slug(value: object, field: str = "name") -> str:
    """A resource's name (S-650)."""
    return _match(_SLUG, value, field, _SLUG_SAYS)


def check_namespace(value: object, field: str = "namespace") -> str:
    """A namespace's slug (S-651)."""
    return _match(_NAMESPACE, value, field, f"1 to 64 {_SLUG_SAYS}")


def check_label(value: object, field: str = "label") -> str:
    """A token's name or an enroll token's label (S-652)."""
    return _match(_LABEL, value, field, _LABEL_SAYS)


def check_queue(value: object, field: str = "queue") -> str:
    """A queue to submit to or to count."""
    name = _printable(value, field)
    if "/" in name or name in (".", ".."):
        raise NameError_(
            f'{field}: {name!r:.80} is not allowed: a name is one word of a URL, use "-" for "/"', field=field
        )
    if name.endswith("*"):
        raise NameError_(
            f'{field}: {name!r:.80} is a prefix ("*" at its end), which only a worker may ask for', field=field
        )
    return name


def check_subscription(value: object, field: str = "queue") -> str:
    """What a worker polls: a queue, or every queue that starts with what is before a final "*" (S-414)."""
    if type(value) is str and value.endswith("*"):
        if len(value) > 1:
            check_queue(value[:-1].rstrip(" ") or "*", field)
        return value
    return check_queue(value, field)


def check_invocation_id(value: object, field: str = "invocation_id") -> str:
    """An invocation's id."""
    return _match(_INVOCATION, value, field, "1 to 64 letters, digits, _ and - (usually a ULID)")


def check_topic(value: object, field: str = "topic") -> str:
    """A topic's name."""
    return _printable(value, field)


ANY_SOURCE: Final = "any"
"""As the `src_hash` of a function by reference: whatever source the worker has. For calls that outlive a version."""

# ---- ULIDs

_ALPHABET: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_PAIRS: Final = tuple(a + b for a in _ALPHABET for b in _ALPHABET)
_DIGITS: Final = {letter: i for i, letter in enumerate(_ALPHABET)} | {
    letter.lower(): i for i, letter in enumerate(_ALPHABET)
}
_MAX_MS: Final = (1 << 48) - 1
_MAX_CHANCE: Final = (1 << 80) - 1
_living: WeakSet[Ulids] = WeakSet()


class Ulids:
    """A source of ULIDs, each above the one before within its process; any thread may ask.

    `clock_ms() -> int` is Unix time in milliseconds, `entropy(n) -> bytes` gives n random bytes (`os.urandom`). While
    the clock stands still or runs backwards the newest time is kept and the chance counts up; if that overflows, the
    time moves on by a millisecond. A forked child starts anew, so that it never repeats its parent's ids.
    """

    def __init__(self, clock_ms: Callable[[], int], entropy: Callable[[int], bytes]) -> None:
        self._clock_ms = clock_ms
        self._entropy = entropy
        self._after_fork()
        _living.add(self)

    def _after_fork(self) -> None:
        self._lock = threading.Lock()  # another thread of the parent may have held the old one
        self._ms = -1
        self._chance = 0
        self._head = ""

    def new(self) -> str:
        """The next id. Raises OverflowError if the clock is outside of 1970 … 10889."""
        now = self._clock_ms()
        with self._lock:
            if now > self._ms or not self._head:
                self._start(now)
            elif self._chance < _MAX_CHANCE:
                self._chance += 1
            else:
                self._start(self._ms + 1)
            chance = self._chance
            head = self._head
        return (
            head
            + _PAIRS[chance >> 70]
            + _PAIRS[chance >> 60 & 1023]
            + _PAIRS[chance >> 50 & 1023]
            + _PAIRS[chance >> 40 & 1023]
            + _PAIRS[chance >> 30 & 1023]
            + _PAIRS[chance >> 20 & 1023]
            + _PAIRS[chance >> 10 & 1023]
            + _PAIRS[chance & 1023]
        )

    def _start(self, ms: int) -> None:
        if not 0 <= ms <= _MAX_MS:
            raise OverflowError(f"a ULID's time is 0 to {_MAX_MS} ms after 1970 (got {ms}): check the clock")
        self._chance = int.from_bytes(self._entropy(10), "big")
        self._head = "".join(_PAIRS[ms >> shift & 1023] for shift in (40, 30, 20, 10, 0))
        self._ms = ms


def ulid_time(ulid: str) -> int:
    """The milliseconds since 1970 in a ULID, in either case. Raises NameError_."""
    if len(ulid) != 26 or ulid[0] not in "01234567" or any(letter not in _DIGITS for letter in ulid):
        raise NameError_(f"{ulid!r:.80} is no ULID: 26 characters of {_ALPHABET}, the first at most 7", field="ulid")
    ms = 0
    for letter in ulid[:10]:
        ms = ms << 5 | _DIGITS[letter]
    return ms


def _renew_after_fork() -> None:
    for source in list(_living):
        source._after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_after_fork)
