"""When a commit counts as slow, and leaves the loop."""

from __future__ import annotations

import pytest

from lakeshore.server.writer import SLOW_COMMIT_S, STALL_S, slow_from_s


@pytest.mark.inventory("K-30")
@pytest.mark.parametrize(
    ("hop_s", "slow_s"), [(0.00001, SLOW_COMMIT_S), (0.0002, 0.0008), (0.002, STALL_S), (0.5, STALL_S)]
)
def test_a_commit_of_milliseconds_leaves_the_loop_however_busy_the_start_was(hop_s: float, slow_s: float) -> None:
    assert slow_from_s(hop_s) == pytest.approx(slow_s)
