"""References to secrets in what is stored for others to use: the map `{"$secret": "<name>"}`, anywhere in the tree.

Rules: a string that looks like one is a string. A marker is a leaf: what stands beside it is not looked at. At most
`DEEPEST` levels. What is referenced must exist when it is written down; the value is put in its place when it is used.
Reference: api/auth-and-secrets, "$secret references"; S-111…S-121.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from ..wire.errors import NameError_
from ..wire.names import check_slug
from .http import HttpError
from .primitives import Wrong, size_as_json

MARKER: Final = "$secret"
DEEPEST: Final = 20
_LARGEST: Final = 64 * 1024


def storable(value: Mapping[str, Any], at: str, *, knows: Callable[[str], bool]) -> None:
    """A map may be written down: its references are known, and it is JSON, and not too much. HttpError 400, 413, 422.

    `at` is its field, empty for a whole body.
    """
    trees = {at: value} if at else value
    for field, tree in trees.items():
        for name in sorted(names_in(tree, field)):
            if not knows(name):
                raise HttpError(422, "unknown secret", field, "`lakeshore secrets list` shows them", secret=name)
    for field, tree in trees.items():
        try:
            size_as_json(tree)
        except Wrong as error:
            raise HttpError(400, f"{field}: {error}", field=field) from error
    if size_as_json(value) > _LARGEST:
        raise HttpError(413, f"{at or 'all of it'}: has at most {_LARGEST // 1024} KiB", field=at or None)


def names_in(value: Any, at: str) -> set[str]:
    """The names of the secrets that a tree refers to; `at` is its field. HttpError 400 for a malformed marker."""
    found: set[str] = set()

    def note(name: str) -> str:
        found.add(name)
        return name

    replaced(value, note, at)
    return found


def replaced(value: Any, by: Callable[[str], Any], at: str, depth: int = 0) -> Any:
    """The tree with `by(name)` in the place of each marker."""
    if depth > DEEPEST:
        raise HttpError(400, f"{at}: nests more than {DEEPEST} levels", field=at)
    if isinstance(value, dict):
        if MARKER in value:
            try:
                return by(check_slug(value[MARKER], f"{at}.{MARKER}"))
            except NameError_ as error:
                raise HttpError(400, str(error), field=f"{at}.{MARKER}") from error
        return {key: replaced(inner, by, f"{at}.{key}", depth + 1) for key, inner in value.items()}
    if isinstance(value, list):
        return [replaced(inner, by, f"{at}[{index}]", depth + 1) for index, inner in enumerate(value)]
    return value
