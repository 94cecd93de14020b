"""A token as the value of an Authorization header. What cannot be one is refused before anything is sent, unquoted."""

from __future__ import annotations


def bearer(token: str) -> str:
    """`Bearer <token>`. ValueError, without the token in it, for one with line breaks, spaces or beyond ASCII."""
    if not token.isascii() or not token.isprintable() or " " in token:
        raise ValueError(
            "the token has characters that no token has (a line break, a space?): pass it as it was shown, alone"
        )
    return f"Bearer {token}"
