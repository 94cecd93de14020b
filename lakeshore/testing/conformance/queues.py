"""The row of a queue: its kind decides the claim, its state and its limits decide who comes in and goes out."""

from __future__ import annotations

import threading
import time
from typing import Any

from ...sdk.errors import DispatchError
from .base import Harness, Verbs, case, column, must_claim, refused, state
from .delays import wait_to_claim

PATIENCE_S = 20.0
SHORT_S = 0.3


def drained(plane: Verbs, **how: Any) -> list[str]:
    """The ids of `q` in the order in which they are handed out."""
    order = list[str]()
    while (job := plane.claim("q", "w1", **how)) is not None:
        order.append(job.id)
    return order


def filled(plane: Verbs, count: int = 3) -> None:
    """Some jobs of equal priority, `j0` the oldest."""
    for n in range(count):
        plane.submit("q", b"", id=f"j{n}")


# --- kinds


@case("K-3", "S-744", "S-497")
def the_kind_of_a_queue_decides_whatever_the_worker_asks_for(h: Harness) -> None:
    dp = h.plane()
    h.set_queue("q", kind="filo")
    filled(dp)
    assert drained(dp, kind="fifo") == ["j2", "j1", "j0"]
    h.set_queue("q", kind="fifo")
    for n in range(3):
        dp.submit("q", b"", id=f"k{n}")
    assert drained(dp, kind="filo") == ["k0", "k1", "k2"]


@case("K-3", "S-744")
def a_cold_boltzmann_queue_is_one_of_priorities(h: Harness) -> None:
    dp = h.plane()
    h.set_queue("q", kind="boltzmann", kind_params={"temperature": 0.001})
    for n, priority in enumerate((0, 2, 1, 2)):
        dp.submit("q", b"", id=f"j{n}", priority=priority)
    assert drained(dp, kind="filo") == ["j1", "j3", "j2", "j0"]


@case("S-745")
def a_priority_queue_may_take_its_priority_from_a_field(h: Harness) -> None:
    dp = h.plane()
    h.set_queue("q", kind="priority", kind_params={"priority_field": "p"})
    dp.submit("q", b"", id="low", run_config={"p": 1}, priority=9)
    dp.submit("q", b"", id="high", run_config={"p": 3.5})
    dp.submit("q", b"", id="none", run_config={"p": "much"}, priority=2)
    assert drained(dp) == ["high", "none", "low"]


# --- states


@case("S-747")
def a_paused_queue_takes_submits_and_hands_nothing_out(h: Harness) -> None:
    dp = h.plane()
    filled(dp, 1)
    h.set_queue("q", state="paused")
    filled(dp, 2)
    assert dp.claim("q", "w1") is None
    assert dp.claim("q*", "w1") is None, "nor by a prefix"
    assert dp.count("q") == 2
    h.set_queue("q", state="active")
    assert drained(dp) == ["j0", "j1"]


@case("S-747")
def what_a_worker_holds_ends_though_its_queue_was_paused(h: Harness) -> None:
    dp = h.plane()
    filled(dp, 2)
    done, failed = must_claim(dp), must_claim(dp)
    h.set_queue("q", state="paused")
    dp.ack(done.id, "w1", result=b"r", claim=done.claim)
    assert state(dp, done.id) == "succeeded"
    dp.nack(failed.id, "w1", error="no", claim=failed.claim)
    assert state(dp, failed.id) == "queued"
    assert dp.claim("q", "w1") is None
    h.set_queue("q", state="active")
    assert must_claim(dp).id == failed.id


@case("S-811", "S-278")
def a_draining_queue_takes_no_submits_and_hands_out_what_it_has(h: Harness) -> None:
    dp = h.plane()
    filled(dp, 2)
    h.set_queue("q", state="draining")
    with refused(DispatchError, says="takes no new submits" if h.seeded else "not active"):
        dp.submit("q", b"", id="late")
    assert dp.submit("q", b"", id="j0") == "j0", "the same submit is no new one"
    assert dp.get("late") is None
    assert drained(dp) == ["j0", "j1"]


@case("S-811", "S-276")
def an_archived_queue_does_neither_until_it_is_active_again(h: Harness) -> None:
    dp = h.plane()
    filled(dp, 1)
    h.set_queue("q", state="archived")
    with refused(DispatchError, says="takes no new submits" if h.seeded else "not active"):
        dp.submit("q", b"", id="late")
    assert dp.claim("q", "w1") is None
    h.set_queue("q", state="active")
    dp.submit("q", b"", id="late")
    assert drained(dp) == ["j0", "late"]


@case("S-747")
def one_queue_that_is_paused_is_in_no_others_way(h: Harness) -> None:
    dp = h.plane()
    h.set_queue("qa", state="paused")
    dp.submit("qa", b"", id="waits", priority=9)
    dp.submit("qb", b"", id="goes")
    assert must_claim(dp, "q*").id == "goes"
    assert dp.claim("q*", "w1") is None


# --- admission


@case("S-746", "K-18")
def a_full_queue_refuses_a_submit_until_there_is_room(h: Harness) -> None:
    dp = h.plane()
    h.set_queue("q", max_depth=2, on_full="reject")
    filled(dp, 1)
    dp.submit("q", b"", id="later", delay=300.0)
    with refused(DispatchError, says="full"):
        dp.submit("q", b"", id="third")
    dp.submit("q", b"", id="j0")
    assert dp.get("third") is None
    must_claim(dp)
    dp.submit("q", b"", id="third")
    assert must_claim(dp).id == "third", "what runs is no longer in the queue's depth"


@case("K-19", "S-746")
def a_full_queue_may_hold_a_submit_until_there_is_room(h: Harness) -> None:
    dp, other = h.plane(), h.another()
    h.set_queue("q", max_depth=1, on_full="block")
    filled(dp, 1)
    stored = threading.Event()

    def producer() -> None:
        other.submit("q", b"", id="held")
        stored.set()

    thread = threading.Thread(target=producer)
    thread.start()
    assert not stored.wait(SHORT_S)
    assert dp.get("held") is None
    must_claim(dp)
    assert stored.wait(PATIENCE_S), "there is room, and the submit is still held"
    thread.join()
    assert must_claim(dp).id == "held"


@case("K-19")
def a_held_submit_hears_that_its_queue_drains(h: Harness) -> None:
    dp, other = h.plane(), h.another()
    h.set_queue("q", max_depth=1, on_full="block")
    filled(dp, 1)
    said = list[str]()

    def producer() -> None:
        try:
            other.submit("q", b"", id="held")
        except DispatchError as exc:
            said.append(str(exc))

    thread = threading.Thread(target=producer)
    thread.start()
    thread.join(SHORT_S)
    h.set_queue("q", max_depth=1, on_full="block", state="draining")
    thread.join(PATIENCE_S)
    assert said and "draining" in said[0]
    assert dp.get("held") is None


@case("S-746")
def a_queue_that_is_behind_takes_no_more(h: Harness) -> None:
    dp = h.plane()
    h.set_queue("q", cutoff_s=SHORT_S, on_full="reject")
    filled(dp, 1)
    time.sleep(SHORT_S + 0.05)
    with refused(DispatchError, says="behind"):
        dp.submit("q", b"", id="late")
    must_claim(dp)
    dp.submit("q", b"", id="late")
    assert must_claim(dp).id == "late"


@case("S-746")
def a_queue_with_a_rate_hands_out_no_faster(h: Harness) -> None:
    dp = h.plane()
    h.set_queue("q", rate_limit=0.01)
    filled(dp, 4)
    assert must_claim(dp).id == "j0"
    assert dp.claim("q", "w1") is None, "its turn has not come"
    h.set_queue("q", rate_limit=4.0)
    assert wait_to_claim(dp).id == "j1"
    begun = time.monotonic()
    assert wait_to_claim(dp).id == "j2"
    assert time.monotonic() - begun >= 0.2
    h.set_queue("q")
    assert must_claim(dp).id == "j3"


# --- default run config


@case("K-16")
def a_call_gets_of_its_queue_what_it_does_not_say_itself(h: Harness) -> None:
    dp = h.plane()
    h.set_queue("q", run_config={"timeout_s": 7, "max_attempts": 5, "priority": 2, "colour": "red"})
    dp.submit("q", b"", id="plain")
    dp.submit("q", b"", id="own", run_config={"timeout_s": 1, "max_attempts": 1, "colour": "blue"}, priority=3)
    kept = {inv_id: column(dp, inv_id, "run_config") for inv_id in ("plain", "own")}
    assert kept["plain"]["timeout_s"] == 7 and kept["plain"]["colour"] == "red"  # type: ignore[index]
    assert kept["own"]["timeout_s"] == 1 and kept["own"]["colour"] == "blue"  # type: ignore[index]
    assert (column(dp, "plain", "max_attempts"), column(dp, "own", "max_attempts")) == (5, 1)
    assert (column(dp, "plain", "priority"), column(dp, "own", "priority")) == (2.0, 3.0)
    assert drained(dp) == ["own", "plain"]


@case("K-16")
def the_same_call_is_the_same_submit_though_its_queue_has_changed(h: Harness) -> None:
    dp = h.plane()
    h.set_queue("q", run_config={"timeout_s": 7})
    dp.submit("q", b"", id="a")
    h.set_queue("q", run_config={"timeout_s": 8})
    assert dp.submit("q", b"", id="a") == "a"
    assert column(dp, "a", "run_config")["timeout_s"] == 7  # type: ignore[index]
