"""A call of an async generator on a queue: awaited it is the list of its yields, in `async for` they come live.

Rule: nothing is sent before the first of the two, and each call is for one of them.
Reference: python-sdk/udf.md, "`@udf(queue=...)`"; get-started/functions.md.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Generator
from typing import Any


class StreamingCall(Coroutine[Any, Any, Any]):
    """`whole` waits for the value; `parts` makes the iterator of the yields. A coroutine for every loop."""

    def __init__(self, whole: Coroutine[Any, Any, Any], parts: Callable[[], AsyncIterator[Any]]) -> None:
        self._whole = whole
        self._parts = parts

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._whole.__await__()

    def __aiter__(self) -> AsyncIterator[Any]:
        self._whole.close()  # it is not awaited any more, and Python is not to warn of that
        return self._parts()

    def send(self, value: Any) -> Any:
        """As of the coroutine."""
        return self._whole.send(value)

    def throw(self, *error: Any) -> Any:
        """As of the coroutine."""
        return self._whole.throw(*error)

    def close(self) -> None:
        """As of the coroutine."""
        self._whole.close()
