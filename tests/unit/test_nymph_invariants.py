"""Whatever happens to a daemon, in whatever order, these hold: see `nymph_chaos` for what may happen."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from nymph_chaos import Chaos

from lakeshore.nymph.recording import replay

HARD = settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.mark.inventory("K-8", "K-9", "K-11")
@HARD
@given(data=st.data(), slots=st.sampled_from([0, 1, 2, 5]), steps=st.integers(1, 100))
def test_slots_claims_polls_and_leases_are_kept_whatever_happens(data: Any, slots: int, steps: int) -> None:
    def choose(options: list[Any]) -> Any:
        return options[data.draw(st.integers(0, len(options) - 1))]

    world = Chaos(choose, max_invocations=slots, grace_s=20.0, has_identity=True, auto_update=True, may_reenroll=True)
    for _ in range(steps):
        if world.over:
            break
        world.step()
    world.leave()
    assert not (world.owed and world.was_kind), "everything was told"
    for _ in replay(world.log):
        pass
