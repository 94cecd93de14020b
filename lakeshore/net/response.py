"""What an answer looks like to callers: status, headers, body."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


class Headers:
    """Header fields in the order they arrived; names are lower-case, values are latin-1. Several fields of one name
    are kept.
    """

    __slots__ = ("raw",)

    def __init__(self, raw: tuple[tuple[bytes, bytes], ...]) -> None:
        self.raw = raw

    def get(self, name: str, default: str | None = None) -> str | None:
        """The value of `name` (any case); several fields are joined by a comma, as HTTP allows."""
        wanted = name.lower().encode("latin-1")
        found = [value for key, value in self.raw if key == wanted]
        if not found:
            return default
        return b", ".join(found).decode("latin-1")

    def __getitem__(self, name: str) -> str:
        value = self.get(name)
        if value is None:
            raise KeyError(name)
        return value

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.get(name) is not None

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter([(key.decode("latin-1"), value.decode("latin-1")) for key, value in self.raw])

    def __len__(self) -> int:
        return len(self.raw)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Headers) and self.raw == other.raw

    __hash__ = None  # type: ignore[assignment]  # compares by content, in which order counts

    def __repr__(self) -> str:
        return f"Headers({[key.decode('latin-1') for key, _ in self.raw]})"  # names only: values may be secret


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """A whole answer. Any status is an answer: who calls decides what is an error."""

    status: int
    headers: Headers
    body: bytes
