"""Namespaces do not see each other (K-16, K-21)."""

from __future__ import annotations

from ...sdk.errors import DispatchError
from .base import Harness, case, must_claim, refused, state, value


@case("K-16", "K-21", "P-220")
def a_namespace_sees_nothing_of_another(h: Harness) -> None:
    ours, theirs = h.plane("ours"), h.plane("theirs")
    ours.submit("q", b"secret", id="a")
    assert theirs.get("a") is None
    assert theirs.count("q") == 0
    assert theirs.claim("q", "w1") is None
    with refused(DispatchError, says="unknown"):
        theirs.result("a", timeout=0.5)
    with refused(DispatchError):
        theirs.cancel("a")
    with refused(DispatchError):
        theirs.retry("a")
    with refused(DispatchError):
        list(theirs.journal_read("a", timeout=0.5))
    with refused(DispatchError):
        theirs.journal_trim("a")
    job = must_claim(ours)
    with refused(DispatchError):
        theirs.ack("a", "w1", result=b"stolen", claim=job.claim)
    with refused(DispatchError):
        theirs.journal_append("a", 0, value(0, "stolen"), claim=job.claim)
    assert state(ours, "a") == "running"


@case("K-16")
def an_id_of_another_namespace_is_a_plain_conflict(h: Harness) -> None:
    h.plane("ours").submit("q", b"args", id="a")
    with refused(DispatchError, says="taken") as caught:
        h.plane("theirs").submit("q", b"args", id="a")
    assert "ours" not in str(caught[0])
    assert h.plane("theirs").count("q") == 0


@case("K-25")
def topics_of_namespaces_are_apart(h: Harness) -> None:
    h.plane("ours").topic_post("q", "t", b"\x01", final=False)
    with refused(TimeoutError):
        list(h.plane("theirs").topic_read("q", "t", timeout=0.05))
