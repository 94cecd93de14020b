"""Readers of what bodies print are woken, and leave nothing behind."""

from __future__ import annotations

import trio

from lakeshore.server.printed import Printed


def test_every_reader_is_rung_and_one_that_has_left_is_forgotten() -> None:
    printed = Printed()

    async def main() -> None:
        with printed.bell(7) as one, printed.bell(7) as other, printed.bell(8) as another:
            printed.ring(7)
            assert (one.is_set(), other.is_set(), another.is_set()) == (True, True, False)
            assert len(printed) == 2
        assert len(printed) == 0
        printed.ring(7)
        with printed.bell(7) as later, trio.move_on_after(0):
            await later.wait()
        assert not later.is_set()

    trio.run(main)
