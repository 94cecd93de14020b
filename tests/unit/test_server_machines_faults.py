"""Providers that answer nonsense, hang, or have nothing to say, and records that cannot be written meanwhile."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import trio
import trio.testing
from machine_world import NS, SPEC, Cloud, World, opened

from lakeshore.plane.contract import PlaneError
from lakeshore.server.hosts import EVERY_S, GRACE_S
from lakeshore.server.http import HttpError
from lakeshore.server.launchers.contract import (
    LaunchFailed,
)
from lakeshore.server.launchers.makers import MAKERS


@pytest.fixture
def cloud(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cloud]:
    made = Cloud()
    monkeypatch.setitem(MAKERS, "EC2", made.make)
    yield made


@pytest.fixture
def play(tmp_path: Path) -> Callable[[Callable[[World], Awaitable[object]]], None]:
    def play(act: Callable[[World], Awaitable[object]]) -> None:
        async def main() -> None:
            async with opened(tmp_path) as world:
                await act(await world.ready())

        trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))

    return play


# --- providers that make no sense, and ones that are slow


@pytest.mark.parametrize("error", [KeyError("x"), ValueError("x"), TypeError("x"), RecursionError(), OSError(5, "x")])
def test_a_provider_that_answers_nonsense_is_told_as_one_and_takes_nobody_along(
    play: Callable[..., None], cloud: Cloud, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    async def stumble(*_: object) -> Any:
        raise error

    async def act(world: World) -> None:
        await world.launching.launch(NS, SPEC)
        with monkeypatch.context() as broken:
            broken.setattr(cloud, "instances", stumble)
            await world.after(EVERY_S)
            assert world.machine.state == "made"
            broken.setattr(cloud, "terminate", stumble)
            ended = await world.launching.end_worker(NS, world.row.id, actor="me")
            assert "makes no sense" in str(ended.trouble)
        await world.after(EVERY_S)
        assert (world.machine.state, cloud.live()) == ("ending", [])
        cloud.answers = [error]
        (told,) = await world.launching.launch(NS, replace(SPEC, name="other"))
        assert (told.instance_id, "makes no sense" in str(told.note)) == (None, True)  # there may be one
        with monkeypatch.context() as broken:
            broken.setitem(MAKERS, "EC2", Mock(side_effect=error))
            with pytest.raises(HttpError) as caught:
                await world.launching.launch(NS, replace(SPEC, name="third"))
        assert caught.value.status == 502

    play(act)


@pytest.mark.parametrize("answer", [None, "lost", LaunchFailed("no capacity")])
def test_what_a_full_disk_does_not_let_be_written_of_a_launch_is_found_out_by_the_next_look(
    play: Callable[..., None], cloud: Cloud, monkeypatch: pytest.MonkeyPatch, answer: Any
) -> None:
    async def full(*_: object, **__: object) -> Any:
        raise PlaneError("the disk is full")

    async def act(world: World) -> None:
        cloud.answers = [answer, None]
        with monkeypatch.context() as broken:
            broken.setattr(world.records.machines, "change", full)
            broken.setattr(world.workers, "revoke_token", full)
            told = await world.launching.launch_each(NS, replace(SPEC, count=2), actor="me")
        assert len(told) == 2 and any("disk is full" in str(one.note) for one in told)
        assert not world.hosts.under_way
        await world.after(GRACE_S + 1)
        came = [row for row in world.records.machines.of(NS) if row.state == "made"]
        assert {row.instance for row in came} == set(cloud.live()) and {row.id for row in world.rows} == {
            row.worker for row in came
        }

    play(act)


def test_a_look_that_hangs_is_waited_for_by_no_other_and_is_not_begun_twice(
    play: Callable[..., None], cloud: Cloud
) -> None:
    async def act(world: World) -> None:
        cloud.hangs_for = "eu-1"
        await world.launching.launch(NS, SPEC)
        await world.launching.launch(NS, replace(SPEC, name="us", capacity={**SPEC.capacity, "region": "us-1"}))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(world.hosts.run)
            await trio.sleep(5 * EVERY_S + 1)
            assert (cloud.asked_in["eu-1"], cloud.asked_in["us-1"]) == (1, 5)
            nursery.cancel_scope.cancel()

    play(act)


def test_nothing_wakes_where_no_machine_lives(play: Callable[..., None], cloud: Cloud) -> None:
    async def act(world: World) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(world.hosts.run)
            await trio.testing.wait_all_tasks_blocked()
            assert trio.lowlevel.current_statistics().seconds_to_next_deadline == math.inf
            await world.launching.launch(NS, SPEC)
            await trio.sleep(EVERY_S + 1)
            assert cloud.listed  # the clock may jump while the launch is written down
            await world.launching.end_worker(NS, world.row.id, actor="me")
            while world.machine.state != "ended":  # noqa: ASYNC110  (this is the clock that jumps)
                await trio.sleep(EVERY_S)
            await trio.sleep(2 * EVERY_S)
            await trio.testing.wait_all_tasks_blocked()
            assert trio.lowlevel.current_statistics().seconds_to_next_deadline == math.inf
            nursery.cancel_scope.cancel()

    play(act)


def test_launches_that_are_refused_again_and_again_leave_nothing_that_grows(
    play: Callable[..., None], cloud: Cloud
) -> None:
    async def act(world: World) -> None:
        for _ in range(20):
            cloud.answers = [LaunchFailed("no capacity")] * 5
            with pytest.raises(HttpError):
                await world.launching.launch(NS, replace(SPEC, count=5))
        assert (world.rows, world.records.machines.all(), world.tokens()) == ([], [], [])

    play(act)
