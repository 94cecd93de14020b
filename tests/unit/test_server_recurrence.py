"""The instants of a periodic job, through both changes of the clock."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from lakeshore.server.recurrence import BadRecurrence, Recurrence, recurrence

OSLO = "Europe/Oslo"
BOUNDS = "must be from 1 to 316224000 seconds"
NO_CRON = "write minute hour day month weekday, as in */5 * * * *"


def at(text: str) -> float:
    return datetime.fromisoformat(text).astimezone(UTC).timestamp()


def instants(rule: Recurrence, since: str, n: int) -> list[str]:
    found, now = [], at(since)
    for _ in range(n):
        following = rule.next_after(now)
        assert following is not None
        now = following
        found.append(datetime.fromtimestamp(now, UTC).isoformat())
    return found


def test_every_so_often_counts_from_its_anchor_and_does_not_drift() -> None:
    rule = recurrence(every=90, anchor=1000.25)
    assert rule.next_after(1000.25) == 1090.25
    assert rule.next_after(1090.25) == 1180.25, "an instant is not its own next one"
    assert rule.next_after(1090.24) == 1090.25
    assert rule.next_after(0) == 1090.25, "the anchor itself is no run"
    now = 1000.25
    for _ in range(10_000):
        following = rule.next_after(now)
        assert following is not None
        now = following
    assert now == 1000.25 + 90 * 10_000


@pytest.mark.parametrize("every", [1.0, 0.1 + 0.9, 7.3, 3600.0, 86400.0 / 7])
def test_no_instant_of_a_period_is_left_out_or_repeated(every: float) -> None:
    anchor = 1764450000.123
    rule = recurrence(every=every, anchor=anchor)
    now, walked = anchor, []
    for _ in range(500):
        following = rule.next_after(now)
        assert following is not None and following > now
        now = following
        walked.append(now)
    assert walked == rule.newest(anchor, now, 1000) == [anchor + k * every for k in range(1, 501)]


def test_a_time_in_the_gap_of_spring_comes_right_after_it() -> None:
    rule = recurrence(cron="30 2 * * *", tz=OSLO)
    assert instants(rule, "2026-03-27T12:00:00Z", 3) == [
        "2026-03-28T01:30:00+00:00",  # 02:30 in winter
        "2026-03-29T01:00:00+00:00",  # there is no 02:30: 03:00 in summer
        "2026-03-30T00:30:00+00:00",  # 02:30 in summer
    ]


def test_a_time_that_autumn_has_twice_comes_once() -> None:
    rule = recurrence(cron="30 2 * * *", tz=OSLO)
    wanted = ["2026-10-25T00:30:00+00:00", "2026-10-26T01:30:00+00:00"]
    assert instants(rule, "2026-10-24T12:00:00Z", 2) == wanted
    assert instants(rule, "2026-10-25T00:45:00Z", 1) == wanted[1:], "also for who looks in the second of both hours"
    assert instants(rule, "2026-10-25T01:10:00Z", 1) == wanted[1:]


def test_every_few_minutes_come_in_both_hours_of_autumn_and_skip_the_gap_of_spring() -> None:
    rule = recurrence(cron="*/30 * * * *", tz=OSLO)
    for since in ("2026-10-25T00:00:00+00:00", "2026-03-29T00:00:00+00:00"):
        start = datetime.fromisoformat(since)
        wanted = [(start + timedelta(minutes=30 * k)).isoformat() for k in range(1, 8)]
        assert instants(rule, since, 7) == wanted


def test_a_zone_without_a_name_is_utc_and_zones_differ() -> None:
    assert instants(recurrence(cron="0 9 * * *"), "2026-07-01T00:00:00Z", 1) == ["2026-07-01T09:00:00+00:00"]
    new_york = recurrence(cron="0 9 * * MON-FRI", tz="America/New_York")
    assert instants(new_york, "2026-07-03T14:00:00Z", 1) == ["2026-07-06T13:00:00+00:00"]


@pytest.mark.parametrize("cron", ["*/5 * * * *", "0 */6 * * *", "30 2 * * *", "0 0 1 * *", "0 0 29 2 *"])
@pytest.mark.parametrize("days", [0.2, 3, 40, 800, 3000])
def test_the_end_of_a_long_outage_is_found_without_walking_through_it(cron: str, days: float) -> None:
    rule = recurrence(cron=cron, tz=OSLO)
    until = datetime(2026, 11, 7, 3, 17, tzinfo=ZoneInfo(OSLO)).timestamp()
    after = until - days * 86400
    found = rule.newest(after, until, 3)
    assert all(after < instant <= until for instant in found)
    if found:
        following = rule.next_after(found[-1])
        assert following is not None and following > until, "nothing newer has passed"
        assert [rule.next_after(one) for one in found[:-1]] == found[1:], "nothing between them was left out"
    else:
        following = rule.next_after(after)
        assert following is None or following > until


@pytest.mark.parametrize(
    ("asked", "field", "said"),
    [
        ({}, "every", "give either every (seconds) or cron"),
        ({"every": 5.0, "cron": "* * * * *"}, "every", "give either every (seconds) or cron"),
        ({"every": 0.5}, "every", BOUNDS),
        ({"every": 3660 * 86400.0 + 1}, "every", BOUNDS),
        ({"every": float("nan")}, "every", BOUNDS),
        ({"every": float("inf")}, "every", BOUNDS),
        ({"every": 5.0, "tz": OSLO}, "tz", "a time zone is for cron"),
        ({"cron": "* * * *"}, "cron", NO_CRON),
        ({"cron": "61 * * * *"}, "cron", NO_CRON),
        ({"cron": "every day"}, "cron", NO_CRON),
        ({"cron": "0 0 31 2 *"}, "cron", NO_CRON),
        ({"cron": "0 0 */15 2 MON#5"}, "cron", "'0 0 */15 2 MON#5' names no instant that will ever come"),
        ({"cron": ""}, "cron", NO_CRON),
        ({"cron": "* * * * *", "tz": "Atlantis/Capital"}, "tz", "write one as Europe/Oslo, or install tzdata there"),
        ({"cron": "* * * * *", "tz": "../../etc/passwd"}, "tz", "is no time zone: write one as Europe/Oslo"),
        ({"cron": "* * * * *", "tz": ""}, "tz", "write one as Europe/Oslo"),
    ],
)
def test_what_names_no_instants_is_refused_by_its_field(asked: dict[str, float | str], field: str, said: str) -> None:
    with pytest.raises(BadRecurrence) as refused:
        recurrence(**asked)  # type: ignore[arg-type]  # wrong on purpose
    assert refused.value.field == field
    assert str(refused.value).endswith(said)


def test_what_is_told_of_a_wrong_recurrence_is_a_sentence() -> None:
    for asked, said in (
        ({}, "give either every (seconds) or cron"),
        ({"every": 5.0, "tz": OSLO}, "a time zone is for cron"),
    ):
        with pytest.raises(BadRecurrence) as refused:
            recurrence(**asked)  # type: ignore[arg-type]  # wrong on purpose
        assert str(refused.value) == said


def test_a_second_and_ten_years_are_still_taken() -> None:
    assert [recurrence(every=every).every for every in (1.0, 3660 * 86400.0)] == [1.0, 3660 * 86400.0]


@pytest.mark.parametrize("asked", [{"every": 60.0}, {"cron": "* * * * *"}], ids=["every", "cron"])
def test_the_newest_come_after_the_one_bound_up_to_the_other_and_are_no_more_than_asked_for(
    asked: dict[str, Any],
) -> None:
    rule = recurrence(**asked)
    assert rule.newest(60.0, 180.0, 5) == [120.0, 180.0], "what comes at the first bound was had before"
    assert rule.newest(60.0, 179.0, 5) == [120.0]
    assert rule.newest(0.0, 6000.0, 2) == [5940.0, 6000.0]
    assert rule.newest(60.0, 60.0, 5) == []
