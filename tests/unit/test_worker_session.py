"""A worker's session on an HTTP plane, without a server: what its polls ask."""

from __future__ import annotations

import pytest

from lakeshore.sdk.session import Session


@pytest.mark.inventory("K-12")
def test_where_leases_are_short_a_poll_is_over_while_its_answer_may_still_be_read() -> None:
    session = Session("w")
    assert session.request(capacity=1, timeout_s=20.0)["timeout_s"] == 20.0
    assert session.read({"lease_s": 3.0, "acks": [], "lost": [], "commands": []})
    assert session.request(capacity=1, timeout_s=20.0)["timeout_s"] == 1.5
    assert session.request(capacity=0, timeout_s=0.0)["timeout_s"] == 0.0
