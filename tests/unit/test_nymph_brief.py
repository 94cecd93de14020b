"""Small files are read and written without a thread while the disk is quick, in threads after it was slow."""

from __future__ import annotations

import threading
import time

import pytest
import trio

from lakeshore.nymph.brief import LOOKS_AGAIN, Brief


def test_a_slow_disk_moves_the_next_calls_into_threads_and_is_looked_at_again() -> None:
    async def main() -> None:
        brief = Brief()
        here = threading.get_ident()
        assert await brief.run(threading.get_ident) == here
        await brief.run(time.sleep, 0.05)
        where = [await brief.run(threading.get_ident) for _ in range(LOOKS_AGAIN + 1)]
        assert here not in where[:-1]
        assert where[-1] == here

    trio.run(main)


def test_an_error_is_the_callers() -> None:
    async def main() -> None:
        with pytest.raises(ZeroDivisionError):
            await Brief().run(divmod, 1, 0)

    trio.run(main)
