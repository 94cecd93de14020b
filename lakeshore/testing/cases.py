"""A case: a function whose name says what must be true, with the ids of the rules that it shows."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

H = TypeVar("H")


class Case(Generic[H]):
    """Call it with a harness; it returns, or raises AssertionError."""

    def __init__(self, run: Callable[[H], None], ids: tuple[str, ...]) -> None:
        self.run, self.ids = run, ids
        self.name = self.__name__ = run.__name__
        self.__doc__ = run.__doc__

    def __call__(self, h: H) -> None:
        self.run(h)

    def __repr__(self) -> str:
        return f"<case {self.name}>"


class Cases(list[Case[H]]):
    """Cases in the order in which they are defined; one name only once."""

    def case(self, *ids: str) -> Callable[[Callable[[H], None]], Case[H]]:
        """Decorator: `@case("P-450", "K-2")`."""
        if not 1 <= len(ids) <= 3 or not all(re.fullmatch(r"[KPSC]-\d+", i) for i in ids):
            raise ValueError(f"a case shows one to three rules, got {ids}")

        def add(run: Callable[[H], None]) -> Case[H]:
            if any(known.name == run.__name__ for known in self):
                raise ValueError(f"there is a case {run.__name__} already")
            found = Case(run, ids)
            self.append(found)
            return found

        return add


@contextlib.contextmanager
def refused(*kinds: type[BaseException], says: str = "") -> Iterator[list[Any]]:
    """The block must raise one of `kinds`, with `says` in its text. The exception is put into the list."""
    caught: list[Any] = []
    try:
        yield caught
    except kinds as exc:
        assert says.lower() in str(exc).lower(), f"{exc!r} does not say {says!r}"
        caught.append(exc)
    else:
        raise AssertionError(f"nothing was raised, where {' or '.join(k.__name__ for k in kinds)} must be")
