"""What a call asks of a worker: how it is written, who has it, what lies over what."""

from __future__ import annotations

import random
from typing import Any

import pytest

from lakeshore.config import modes
from lakeshore.nymph.runners import registry
from lakeshore.plane import claims, submits
from lakeshore.plane.contract import KINDS, Submission, Wish
from lakeshore.plane.plane import Plane
from lakeshore.plane.statements import SQL
from lakeshore.wire.run_configs import ALIASES, RUNNERS, BadAsk, Offer, lacking, meets, needs, needs_of, offer_of, over

GPU = ["gpu:h100", "zone=a"]
LIST = "must be an array of at most 100 strings"
ITEM = "must be a string of 1 to 200 printable characters"
TABLE: list[Any] = [
    ({}, [], None, None),
    ({}, [], ["docker"], None),
    pytest.param({"tags": ["gpu:h100"]}, GPU, ["process"], None, marks=pytest.mark.inventory("C-782", "S-505")),
    ({"tags": ["gpu:h100"]}, [], ["process"], "lacks the tag gpu:h100"),
    ({"tags": ["gpu:h100"]}, [], None, "lacks the tag gpu:h100"),
    ({"tags": ["zone=b", "fast"]}, GPU, ["process"], "lacks the tags fast, zone=b"),
    ({"tags": ["gpu"]}, GPU, None, "lacks the tag gpu"),
    ({"tags": []}, [], None, None),
    ({"runner": "docker"}, [], ["process"], "has process"),
    ({"runner": "docker"}, [], ["process", "docker"], None),
    ({"runner": "docker"}, [], None, None),
    pytest.param({"runner": "subprocess"}, [], ["process"], None, marks=pytest.mark.inventory("C-783", "P-392")),
    ({"runner": "process"}, [], ["subprocess"], None),
    pytest.param({"runner": "moon"}, [], ["process"], None, marks=pytest.mark.inventory("N-190")),
    ({"match": {"tags": ["zone=a"], "runners": ["kube"]}}, GPU, ["kube"], None),
    ({"match": {"runners": ["subprocess"]}}, GPU, ["process"], None),
    ({"match": {"runners": ["moon"]}}, GPU, ["kube"], "has kube"),
    ({"match": {"runners": ["moon"]}}, GPU, ["process", "kube"], "has kube, process"),
    ({"runner": "kube", "match": {"runners": ["docker"]}}, GPU, ["kube"], "has kube"),
    ({"runner": "kube", "match": {"runners": ["docker"]}}, GPU, ["docker"], "has docker"),
    ({"tags": ["a"], "match": {"tags": ["b"]}}, ["a"], None, "lacks the tag b"),
    ({"tags": ["a"], "runner": "kube"}, [], ["process"], "lacks the tag a; has process"),
    ({"resources": {"gpu": 8}, "provider": "aws"}, [], ["process"], None),
]


@pytest.mark.parametrize(("config", "tags", "runners", "why"), TABLE)
def test_a_worker_has_what_a_call_asks_or_lacks_it_by_name(
    config: dict[str, Any], tags: list[str], runners: list[str] | None, why: str | None
) -> None:
    asked, offer = needs_of(config), offer_of(tags, runners)
    if asked is None:
        assert why is None
        return
    assert (meets(offer, asked), lacking(offer, asked)) == (why is None, why)


def test_equal_needs_are_one_text() -> None:
    one = needs_of({"tags": ["b", "a", "b"], "runner": "subprocess"})
    assert one == needs_of({"match": {"tags": ["a"], "runners": ["process"]}, "tags": ["b"]}) is not None
    assert needs_of({"timeout_s": 3, "tags": None, "match": {}, "runner": None}) is None


@pytest.mark.parametrize(
    ("config", "field", "problem"),
    [
        ({"tags": "gpu"}, "run_config.tags", LIST),
        ({"tags": [1]}, "run_config.tags[0]", ITEM),
        ({"tags": ["a", "x\n"]}, "run_config.tags[1]", ITEM),
        ({"tags": ["a", "x" * 201]}, "run_config.tags[1]", ITEM),
        ({"tags": ["a"] * 101}, "run_config.tags", LIST),
        ({"match": ["a"]}, "run_config.match", "must be a map of tags and runners"),
        ({"match": {"tag": ["a"]}}, "run_config.match.tag", "is none of tags and runners"),
        ({"match": {"runners": "docker"}}, "run_config.match.runners", LIST),
        ({"match": {"tags": [""]}}, "run_config.match.tags[0]", ITEM),
    ],
)
def test_what_makes_no_sense_is_refused_by_its_field(config: dict[str, Any], field: str, problem: str) -> None:
    with pytest.raises(BadAsk) as refused:
        needs_of(config)
    assert (refused.value.field, refused.value.problem) == (field, problem)
    assert str(refused.value) == f"{field} {problem}"


def test_a_hundred_tags_of_two_hundred_characters_are_taken() -> None:
    tags = [f"{k:0200}" for k in range(100)]
    asked = needs_of({"tags": tags, "match": {"tags": tags}})
    assert asked is not None and needs(asked).tags == tuple(tags)


def test_what_is_asked_is_kept_as_the_same_text_by_every_version() -> None:
    """Rows hold it, and are grouped by it."""
    asked = needs_of({"tags": ["zürich", "a b"], "runner": "subprocess", "match": {"runners": ["kube"]}})
    assert asked == '{"runners":["kube","process"],"tags":["a b","zürich"]}'


def test_a_worker_that_says_nonsense_of_itself_offers_nothing_by_it() -> None:
    assert offer_of("gpu", {"runners": 1}) == Offer()
    assert offer_of(["a", 1, None], []) == Offer(tags=frozenset("a"))


def test_every_part_knows_the_same_runners() -> None:
    assert set(modes.RUNNERS) == RUNNERS
    assert set(registry.KINDS) == {*RUNNERS, *ALIASES}


@pytest.mark.inventory("C-784", "C-786")
def test_a_call_lies_over_what_is_below_it_and_tables_key_by_key() -> None:
    below = {"tags": ["a"], "env": {"A": "1", "B": "1"}, "resources": {"gpu": 1}, "image": "i"}
    call = {"tags": ["b"], "env": {"B": "2"}, "resources": None}
    assert over(below, call) == {"tags": ["b"], "env": {"A": "1", "B": "2"}, "resources": None, "image": "i"}


# --- claims


ASKS = [None, needs_of({"tags": ["a"]}), needs_of({"tags": ["a", "b"]}), needs_of({"runner": "docker"})]
OFFERS = [
    None,
    Offer(),
    Offer(tags=frozenset("a"), runners=frozenset(["process"])),
    Offer(tags=frozenset("ab"), runners=frozenset(["docker"])),
]


def filled(rng: random.Random, n: int) -> tuple[Plane, list[Submission]]:
    plane = Plane(":memory:", durability="none")
    rows = [
        Submission(
            ns="n",
            queue="q",
            id=f"i{k:03}",
            args=b"",
            hash=b"",
            priority=float(rng.randrange(3)),
            needs=rng.choice(ASKS),
        )
        for k in range(n)
    ]
    plane.write(lambda tx: submits.submit_many(tx, rows, 1.0))
    return plane, rows


@pytest.mark.inventory("S-505", "K-3")
@pytest.mark.parametrize("pattern", ["q", "q*"])
@pytest.mark.parametrize("kind", KINDS)
def test_each_worker_gets_what_it_is_fit_for_in_the_order_of_the_queue(kind: str, pattern: str) -> None:
    rng = random.Random(f"{kind}{pattern}")
    for offer in OFFERS:
        plane, rows = filled(rng, 40)
        fit = [row for row in rows if row.needs is None or offer is None or meets(offer, row.needs)]
        assert plane.write(lambda tx, of=offer: claims.has_for(tx.all, "n", "q", of))
        got: list[str] = []
        for n in (1, 3, 64):
            wish = Wish(
                ns="n", queues=(pattern,), worker="w", n=n, capacity=n, kind=kind, draw=rng.random(), offer=offer
            )
            runs = plane.write(lambda tx, wish=wish: claims.claim(tx, wish, 2.0))
            assert len(runs) == min(n, len(fit) - len(got))
            got += [run.id for run in runs]
        assert sorted(got) == [row.id for row in fit]
        if kind != "boltzmann":
            newest = -1 if kind == "filo" else 1
            assert got == [row.id for row in sorted(fit, key=lambda row: (-row.priority, newest * int(row.id[1:])))]
        assert plane.write(lambda tx, of=offer: claims.has_for(tx.all, "n", "q", of)) is False
        plane.conn.close()


@pytest.mark.inventory("K-3")
@pytest.mark.parametrize("name", ["next_oldest", "next_priority", "newest_at", "oldest_at", "next_needs", "any_queued"])
@pytest.mark.parametrize("needs", [None, ASKS[1]])
def test_what_a_worker_is_fit_for_is_sought_and_nothing_else_is_read(name: str, needs: str | None) -> None:
    plane, _rows = filled(random.Random(1), 3000)
    where = {"ns": "n", "queue": "q", "needs": needs, "below": 9.0, "priority": 1.0, "limit": 5, "after": ""}
    steps = 0

    def step() -> int:
        nonlocal steps
        steps += 1
        return 0

    plane.conn.set_progress_handler(step, 1)
    assert plane.rows(getattr(SQL, name), where)
    plane.conn.set_progress_handler(None, 0)
    plane.conn.close()
    assert steps < 1000, steps


@pytest.mark.inventory("K-3")
@pytest.mark.parametrize("asking", [0, 300])
def test_a_queue_that_asks_for_nothing_is_claimed_by_one_statement(asking: int) -> None:
    plane, _rows = filled(random.Random(1), 0)
    other = [Submission(ns="n", queue="other", id=f"o{k}", args=b"", hash=b"", needs=ASKS[1]) for k in range(asking)]
    own = [Submission(ns="n", queue="q", id=f"i{k}", args=b"", hash=b"") for k in range(20)]
    plane.write(lambda tx: submits.submit_many(tx, [*other, *own], 1.0))
    said: list[str] = []
    plane.conn.set_trace_callback(said.append)
    wish = Wish(ns="n", queues=("q",), worker="w", capacity=10, offer=OFFERS[1])
    assert len(plane.write(lambda tx: claims.claim(tx, wish, 2.0))) == 10
    plane.conn.set_trace_callback(None)
    plane.conn.close()
    assert [text.split()[0] for text in said if not text.startswith(("BEGIN", "COMMIT", "--", "INSERT"))] == ["UPDATE"]
