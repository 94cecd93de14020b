"""The same submit twice is one submit; a key names one invocation; a purged id never runs again (K-16, K-17)."""

from __future__ import annotations

from ...sdk.errors import DispatchError
from .base import Harness, case, ended, must_claim, refused, state


@case("P-455", "K-17", "P-284")
def the_same_key_twice_is_one_job(h: Harness) -> None:
    dp, other = h.plane(), h.another()
    assert dp.submit("q", b"1", id="a", key="k") == "a"
    assert dp.submit("q", b"1", id="b", key="k") == "a"
    assert other.submit("q", b"something else", id="c", key="k") == "a"
    assert dp.count("q") == 1
    assert dp.get("b") is None
    assert must_claim(dp).id == "a"
    assert dp.claim("q", "w1") is None


@case("K-17", "P-220")
def a_key_is_scoped_by_queue_and_namespace(h: Harness) -> None:
    dp = h.plane()
    assert dp.submit("q1", b"", id="a", key="k") == "a"
    assert dp.submit("q2", b"", id="b", key="k") == "b"
    assert h.plane("other").submit("q1", b"", id="c", key="k") == "c"


@case("K-17", "P-221")
def a_key_is_taken_also_after_its_job_ended(h: Harness) -> None:
    dp = h.plane()
    dp.submit("q", b"", id="a", key="k")
    must_claim(dp)
    dp.ack("a", "w1", result=b"r")
    assert dp.submit("q", b"", id="b", key="k") == "a"
    assert dp.result("a", timeout=5) == b"r"
    assert dp.count("q") == 0


@case("K-16")
def the_same_id_with_the_same_content_is_the_same_submit(h: Harness) -> None:
    dp = h.plane()
    for _ in range(3):
        assert dp.submit("q", b"args", id="a", priority=2) == "a"
    assert dp.count("q") == 1
    must_claim(dp)
    assert h.another().submit("q", b"args", id="a", priority=2) == "a"
    assert state(dp, "a") == "running", "a resend changes nothing"


@case("K-16")
def the_same_id_with_other_content_is_a_conflict(h: Harness) -> None:
    dp = h.plane()
    dp.submit("q", b"args", id="a", priority=2)
    for queue, args, priority in (("q", b"other", 2), ("other", b"args", 2), ("q", b"args", 3)):
        with refused(DispatchError, says="taken"):
            dp.submit(queue, args, id="a", priority=priority)
    assert dp.count("q") == 1
    assert must_claim(dp).envelope == b"args"


@case("K-17")
def a_retry_nonce_revives_a_failed_job_once(h: Harness) -> None:
    dp = h.plane()
    dp.submit("q", b"", id="a", run_config={"max_attempts": 1}, retry_failed="n1")
    ended(dp, "a")
    again = {"id": "a", "run_config": {"max_attempts": 1}}
    dp.submit("q", b"", retry_failed="n1", **again)  # type: ignore[arg-type]
    assert state(dp, "a") == "failed", "the nonce of the submit that made the row revives nothing"
    dp.submit("q", b"", **again)  # type: ignore[arg-type]
    assert state(dp, "a") == "failed"
    dp.submit("q", b"", retry_failed="n2", **again)  # type: ignore[arg-type]
    assert state(dp, "a") == "queued"
    ended(dp, "a")
    dp.submit("q", b"", retry_failed="n2", **again)  # type: ignore[arg-type]
    assert state(dp, "a") == "failed", "a resent submit revives only once"


@case("K-17")
def a_retry_nonce_works_through_the_key(h: Harness) -> None:
    dp = h.plane()
    dp.submit("q", b"", id="a", key="k", run_config={"max_attempts": 1})
    ended(dp, "a")
    assert dp.submit("q", b"", id="b", key="k", run_config={"max_attempts": 1}, retry_failed="n") == "a"
    assert state(dp, "a") == "queued"


@case("K-17")
def a_retry_nonce_leaves_a_success_alone(h: Harness) -> None:
    dp = h.plane()
    dp.submit("q", b"", id="a")
    must_claim(dp)
    dp.ack("a", "w1", result=b"r")
    dp.submit("q", b"", id="a", retry_failed="n")
    assert state(dp, "a") == "succeeded"
    assert dp.result("a", timeout=5) == b"r"


@case("K-16", "K-22")
def a_purged_id_is_remembered_and_never_runs_again(h: Harness) -> None:
    if not h.purges:
        return
    dp = h.plane()
    dp.submit("q", b"", id="a", key="k")
    dp.submit("q", b"", id="alive")
    must_claim(dp)
    dp.ack("a", "w1", result=b"r")
    h.purge()
    assert dp.get("a") is None
    assert dp.count("q", "succeeded") == 0
    with refused(DispatchError, says="purged"):
        dp.result("a", timeout=5)
    with refused(DispatchError, says="purged"):
        dp.submit("q", b"", id="a")
    with refused(DispatchError, says="taken"):
        h.plane("other").submit("q", b"", id="a")
    assert dp.submit("q", b"", id="fresh", key="k") == "fresh", "a purged row gives its key back"
    assert state(dp, "alive") == "queued", "what has not ended is not purged"
