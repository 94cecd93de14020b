"""Which server is watched."""

from __future__ import annotations

from dataclasses import dataclass

from lakeshore.net.target import parse_target


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """Where it is and who is asking. The token is not part of its text. ValueError for a malformed `url`."""

    url: str
    namespace: str
    token: str | None = None

    def __post_init__(self) -> None:
        parse_target(self.url)

    def __repr__(self) -> str:
        return f"Server(url={self.url!r}, namespace={self.namespace!r})"
