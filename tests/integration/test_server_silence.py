"""Whose lease ended is judged by when it was last heard of, also while the server is at work on that (K-11)."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
from dispatching import NS, claimed, running

from lakeshore.server.leases import Due, Lease, Leases


@pytest.mark.inventory("K-11", "K-13")
def test_who_speaks_while_others_are_taken_back_keeps_its_claim(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Taking back costs a commit each: with a hundred silent ones, the last is judged long after the look."""
    a, b, c = ids = [letter * 26 for letter in "ABC"]

    async def main() -> None:
        async with running(tmp_path, lease_s=4.0) as dispatcher:
            claims = await claimed(dispatcher, *ids)
            leases = dispatcher.leases
            found: list[Lease] = []

            def all_of_them(_self: Leases, now: float, _wall: float) -> Due:
                due = tuple(lease for id_ in ids if (lease := leases.holder(id_)) is not None) if not found else ()
                found.extend(due)
                for lease in due:
                    lease.until = now - 1.0
                if due:
                    assert leases.renew(NS, b, claims[b], now)
                    leases.rehome(c, claims[c], "s2", now)
                return Due(expired=due, overdue=())

            monkeypatch.setattr(Leases, "sweep", all_of_them)
            with trio.fail_after(30):
                while leases.holder(a) is not None or len(leases) > 2:  # noqa: ASYNC110  # nothing tells when a claim was taken back
                    await trio.sleep(0.01)
                await dispatcher.writer.write(lambda _tx: None)  # behind what the sweep has asked for
                await dispatcher.writer.write(lambda _tx: None)
            assert [lease.id for lease in found] == ids
            assert leases.holder(a) is None
            assert [leases.holds(NS, id_) for id_ in (b, c)] == [True, True]

    trio.run(main)
