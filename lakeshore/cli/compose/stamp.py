"""What a daemon was launched with, as a tag of it: that is how a later look knows that the file says otherwise now.

The tag is `compose:` and four hexadecimal digits a field, in the order of `FIELDS`: nothing of the file can be read
from it. A field that is added goes to the end; a stamp that is shorter says nothing of it. Queues are not in it: a
daemon's row says which it serves.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict
from typing import Final

from lakeshore.config.compose import Group

FIELDS: Final = (
    *("provider", "instance_type", "image_id", "runner", "keep_alive_s", "setup", "startup", "python", "mounts"),
)
_PREFIX: Final = "compose:"
_DIGITS: Final = 4


def stamp_of(group: Group) -> str:
    """The tag of a daemon that is launched for it now."""
    return _PREFIX + "".join(_digests(group))


def is_stamp(tag: object) -> bool:
    """Whether a tag is such a one, and nothing that people have put there."""
    return isinstance(tag, str) and tag.startswith(_PREFIX)


def changed_since(tags: Iterable[object], group: Group) -> list[str]:
    """The fields of the group that are not as the daemon with these tags was launched; none where no tag says so."""
    for tag in tags:
        if isinstance(tag, str) and is_stamp(tag):
            text = tag.removeprefix(_PREFIX)
            then = [text[at : at + _DIGITS] for at in range(0, len(text), _DIGITS)]
            pairs = zip(FIELDS, then, _digests(group), strict=False)
            return [name for name, before, now in pairs if before != now]
    return []


def _digests(group: Group) -> list[str]:
    said = asdict(group)
    return [hashlib.sha256(json.dumps(said[name]).encode()).hexdigest()[:_DIGITS] for name in FIELDS]
