"""Machines and their rows, whatever happens between the two: by a provider in memory, clocks alone, and records on disk
that a next server opens.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from machine_world import NS, SPEC, Cloud, World, opened

from lakeshore.server.hosts import BOOT_S, EVERY_S, GRACE_S, IDLE_S
from lakeshore.server.http import HttpError
from lakeshore.server.launchers.contract import (
    LaunchFailed,
    LaunchUnknown,
    Machine,
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


@pytest.mark.inventory("S-161", "S-170", "S-171")
def test_twenty_launches_are_twenty_rows_machines_and_tokens(play: Callable[..., None], cloud: Cloud) -> None:
    async def act(world: World) -> None:
        async with trio.open_nursery() as nursery:
            for place in range(4):
                spec = replace(SPEC, name=f"fleet-{place}", count=5)
                nursery.start_soon(partial(world.launching.launch, NS, spec))
        workers = {row.id for row in world.rows}
        assert len(workers) == len(cloud.machines) == 20 == len({machine.token for machine in cloud.launched})
        assert sorted(row.label for row in world.rows)[:2] == ["fleet-0-00", "fleet-0-01"]
        assert {row.state for row in world.rows} == {"pending"}
        assert set(world.tokens()) == workers == {machine.worker for machine in cloud.launched}
        assert all(machine.token in machine.userdata for machine in cloud.launched)

    play(act)


def test_those_that_a_provider_refuses_are_told_and_leave_neither_row_nor_token(
    play: Callable[..., None], cloud: Cloud
) -> None:
    async def act(world: World) -> None:
        cloud.answers = [None, LaunchFailed("no capacity", code="InsufficientInstanceCapacity"), None]
        told = await world.launching.launch_each(NS, replace(SPEC, count=3), actor="me")
        (failed,) = [one for one in told if one.error is not None]
        assert (len(told), failed.instance_id, str(failed.error)) == (3, None, "no capacity")
        assert {row.id for row in world.rows} == set(world.tokens()) == {one.worker for one in told} - {failed.worker}
        cloud.answers = [LaunchFailed("no rights", code="UnauthorizedOperation")]
        with pytest.raises(HttpError) as caught:
            await world.launching.launch(NS, SPEC)
        assert (caught.value.status, caught.value.extra) == (502, {"awsCode": "UnauthorizedOperation"})
        assert len(world.rows) == 2

    play(act)


@pytest.mark.parametrize("says_hello", [False, True])
@pytest.mark.parametrize("is_killed", [False, True], ids=["answer lost", "server killed"])
@pytest.mark.inventory("S-177")
def test_a_machine_whose_launch_was_not_answered_is_found_by_its_tag(
    tmp_path: Path, cloud: Cloud, *, is_killed: bool, says_hello: bool
) -> None:
    async def first() -> None:
        async with opened(tmp_path) as world:
            await world.ready()
            if is_killed:
                cloud.gate = trio.Event()
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(world.launching.launch, NS, SPEC)
                    await cloud.asked.wait()
                    nursery.cancel_scope.cancel()
                cloud.gate = None
                await cloud.launch(replace(machine_of(world), worker=world.row.id))  # it was under way
            else:
                cloud.answers = ["lost"]
                (told,) = await world.launching.launch(NS, SPEC)
                assert (told.instance_id, "found out" in str(told.note)) == (None, True)

    async def then() -> None:
        async with opened(tmp_path, 1_000_000.0 + 10) as world:
            assert (world.machine.state, world.row.host_status) == ("asked", "unknown")
            if says_hello:
                await world.hello(world.row.id)
            await world.after(0)
            assert (world.machine.state, world.machine.instance) == ("made", cloud.live()[0])
            assert world.row.host_status == "starting"

    for act in (first, then):
        trio.run(act, clock=trio.testing.MockClock(autojump_threshold=0))


def machine_of(world: World) -> Machine:
    machine = world.machine
    return Machine(ns=NS, worker=machine.worker, label="", url="", program=None, token="", userdata="")  # type: ignore[arg-type]  # nobody runs it


def test_a_launch_that_never_came_to_be_leaves_nothing_once_the_provider_had_its_time(
    play: Callable[..., None], cloud: Cloud
) -> None:
    async def act(world: World) -> None:
        cloud.answers = [LaunchUnknown("no answer")]
        (made,) = await world.launching.launch(NS, SPEC)
        await world.after(GRACE_S - 1)
        assert len(world.rows) == len(world.tokens()) == 1
        await world.after(2)
        assert (world.rows, world.tokens()) == ([], [])
        assert world.workers.is_removed(NS, made.worker) and world.records.machines.all() == []

    play(act)


@pytest.mark.inventory("S-177", "S-303")
def test_the_host_status_is_what_the_provider_says(play: Callable[..., None], cloud: Cloud) -> None:
    async def act(world: World) -> None:
        await world.launching.launch(NS, SPEC)
        for state in ("starting", "running", "stopping", "stopped", "running", "terminated"):
            cloud.become(state)
            await world.after(60)
            assert world.row.host_status == state
        asked = cloud.listed
        await world.after(60)
        assert (cloud.listed, world.machine.state) == (asked, "ended"), "nobody is asked when nothing lives"

    play(act)


def test_a_provider_that_cannot_be_reached_changes_nothing_and_is_said_once(
    play: Callable[..., None], cloud: Cloud, caplog: pytest.LogCaptureFixture
) -> None:
    async def act(world: World) -> None:
        await world.launching.launch(NS, SPEC)
        before = (world.machine, world.row)
        cloud.is_down = True
        for _ in range(30):
            await world.after(EVERY_S)
        assert (world.machine, world.row) == before
        assert [record.message for record in caplog.records].count(
            "provider cloud of default cannot be asked for its machines: the endpoint does not answer"
        ) == 1
        cloud.is_down = False
        await world.after(EVERY_S)
        cloud.is_down = True
        await world.after(EVERY_S)
        assert sum("cannot be asked" in record.message for record in caplog.records) == 2

    play(act)


def test_a_worker_that_is_killed_while_its_machine_is_made_takes_it_along(
    play: Callable[..., None], cloud: Cloud
) -> None:
    async def act(world: World) -> None:
        cloud.gate = trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(world.launching.launch, NS, SPEC)
            await cloud.asked.wait()
            assert await world.launching.end(NS, world.row.id)
            cloud.gate.set()
        assert (world.rows, cloud.live(), len(cloud.machines)) == ([], [], 1)
        await world.after(EVERY_S)
        assert world.machine.state == "ended"

    play(act)


def test_a_machine_that_cannot_be_ended_now_is_ended_later_whatever_is_killed_in_between(
    tmp_path: Path, cloud: Cloud
) -> None:
    async def first() -> None:
        async with opened(tmp_path) as world:
            await world.ready()
            (made,) = await world.launching.launch(NS, SPEC)
            cloud.is_down = True
            told = await world.launching.end_worker(NS, made.worker, actor="me")
            assert (told.had_machine, "tried again" in str(told.trouble), world.rows) == (True, True, [])

    async def then() -> None:
        async with opened(tmp_path, 1_000_000.0 + 10) as world:
            await world.after(EVERY_S)
            assert len(cloud.live()) == 1
            cloud.is_down = False
            await world.after(EVERY_S)
            assert cloud.live() == []
            await world.after(EVERY_S)
            assert world.machine.state == "ended"

    for act in (first, then):
        trio.run(act, clock=trio.testing.MockClock(autojump_threshold=0))


def test_a_killed_worker_whose_launch_was_not_answered_takes_its_machine_along_once_it_is_listed(
    play: Callable[..., None], cloud: Cloud
) -> None:
    async def act(world: World) -> None:
        cloud.answers = ["lost"]
        (made,) = await world.launching.launch(NS, SPEC)
        hidden, cloud.machines = cloud.machines, {}
        assert "not known yet" in str((await world.launching.end_worker(NS, made.worker, actor="me")).trouble)
        cloud.machines = hidden
        await world.after(EVERY_S)
        assert cloud.live() == []

    play(act)


@pytest.mark.inventory("C-222")
def test_a_machine_that_was_left_running_is_nobodys_business_any_more(play: Callable[..., None], cloud: Cloud) -> None:
    async def act(world: World) -> None:
        (made,) = await world.launching.launch(NS, SPEC)
        told = await world.launching.end_worker(NS, made.worker, actor="me", keep_instance=True)
        asked = cloud.listed
        await world.after(GRACE_S * 10)
        assert (told.had_machine, len(cloud.live()), cloud.listed, world.rows) == (False, 1, asked, [])

    play(act)


@pytest.mark.inventory("S-137")
def test_a_provider_that_was_removed_or_moved_elsewhere_still_ends_what_it_made(
    play: Callable[..., None], cloud: Cloud
) -> None:
    async def act(world: World) -> None:
        (made,) = await world.launching.launch(NS, SPEC)
        row = world.records.providers.get(NS, "cloud")
        assert row is not None
        note = world.records.note("me", NS, "provider.remove", "cloud")
        moved = await world.records.providers.change(row, note, kwargs={"region": "us-2"})
        await world.records.providers.change(moved, note, name="cloud [deleted x]", deleted_at=2.0)
        await world.after(EVERY_S)
        assert len(cloud.live()) == 1
        assert await world.launching.end(NS, made.worker)
        assert (cloud.live(), cloud.kwargs["region"]) == ([], "eu-1")

    play(act)


@pytest.mark.parametrize("keep_alive_s", [-1, 0, 1800])
def test_a_machine_whose_daemon_never_came_ends_if_it_was_to_end(
    play: Callable[..., None], cloud: Cloud, keep_alive_s: int
) -> None:
    async def act(world: World) -> None:
        await world.launching.launch(NS, replace(SPEC, keep_alive_s=keep_alive_s))
        cloud.become("running")
        await world.workers.sweep(trio.current_time())
        await world.workers.sweep(trio.current_time() + world.workers.gone_after_s + 1)
        assert world.row.state == "gone"
        await world.after(BOOT_S - 1)
        assert len(cloud.live()) == 1
        await world.after(2)
        assert len(cloud.live()) == (1 if keep_alive_s < 0 else 0)

    play(act)


@pytest.mark.parametrize("keep_alive_s", [-1, 0, 1800])
def test_the_machine_of_a_daemon_that_left_with_nothing_to_do_is_ended_unless_it_was_to_stay(
    play: Callable[..., None], cloud: Cloud, keep_alive_s: int
) -> None:
    async def act(world: World) -> None:
        (made,) = await world.launching.launch(NS, replace(SPEC, keep_alive_s=keep_alive_s))
        await world.hello(made.worker)
        await world.after(3600)
        assert len(cloud.live()) == 1, "silence is no goodbye"
        await world.hello(made.worker)
        world.workers.polled(NS, made.worker, capacity=0, draining=True, holds=False)
        assert world.row.state == "gone"
        await world.after(IDLE_S - 1)
        assert len(cloud.live()) == 1, "it may only be starting again"
        await world.after(2)
        assert len(cloud.live()) == (1 if keep_alive_s < 0 else 0)

    play(act)


def test_a_worker_that_speaks_keeps_its_machine_whatever_the_provider_lists(
    play: Callable[..., None], cloud: Cloud
) -> None:
    async def act(world: World) -> None:
        (made,) = await world.launching.launch(NS, SPEC)
        cloud.machines = {}  # another account's keys
        world.wall += GRACE_S * 2
        await world.hello(made.worker)
        await world.after(1)
        assert (world.machine.state, world.row.host_status) == ("made", "starting")
        await world.after(GRACE_S)
        assert (world.machine.state, world.row.host_status) == ("ended", "terminated")

    play(act)


@pytest.mark.inventory("S-156", "S-167", "S-170")
def test_setup_commands_wait_for_the_worker_in_their_order_and_its_state_says_so(
    play: Callable[..., None], cloud: Cloud
) -> None:
    async def act(world: World) -> None:
        scripts = tuple({"script": f"echo {place}", "refresh_capabilities": True} for place in range(3))
        (made,) = await world.launching.launch(NS, replace(SPEC, setup_commands=scripts))
        world.wall += 3600
        assert (world.row.state, world.workers.shown_state(world.row)) == ("setting_up", "setting_up")
        await world.hello(made.worker)
        for place in range(3):
            (order,) = await world.orders.take(NS, made.worker, n=place + 1, session="1", capacity=1)
            assert order.body == scripts[place]
            await world.orders.acknowledge(NS, made.worker, "1", place + 1)
        assert not world.orders.setting_up(NS, made.worker)

    play(act)


def test_a_launch_that_cannot_be_written_down_asks_nobody_and_leaves_no_token(
    play: Callable[..., None], cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def act(world: World) -> None:
        async def full(*_: Any, **__: Any) -> None:
            raise OSError("the disk is full")

        monkeypatch.setattr(world.records, "launch", full)
        with pytest.raises(OSError, match="full"):
            await world.launching.launch(NS, SPEC)
        assert (cloud.launched, world.tokens(), world.rows) == ([], [], [])
        assert world.hosts.under_way == set()

    play(act)


def test_scripts_of_many_machines_are_bounded_together(play: Callable[..., None], cloud: Cloud) -> None:
    async def act(world: World) -> None:
        scripts = tuple({"script": "x" * 60_000} for _ in range(100))
        with pytest.raises(HttpError) as caught:
            await world.launching.launch(NS, replace(SPEC, count=100, setup_commands=scripts))
        assert (caught.value.status, caught.value.field, world.rows) == (413, "setup_commands", [])

    play(act)


def test_a_provider_that_hangs_holds_up_no_other(play: Callable[..., None], cloud: Cloud) -> None:
    async def act(world: World) -> None:
        await world.launching.launch(NS, SPEC)
        await world.launching.launch(NS, replace(SPEC, name="far", capacity={"image_id": "a", "region": "far"}))
        cloud.become("running")
        cloud.hangs_for, ran = "far", trio.Event()
        world.records.workers.told = lambda _before, row: ran.set() if row.host_status == "running" else None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(world.hosts.sweep)
            await ran.wait()
            nursery.cancel_scope.cancel()
        assert {row.label: row.host_status for row in world.rows} == {"gpu": "running", "far": "starting"}

    play(act)


@pytest.mark.parametrize(
    ("asked", "labels", "names"),
    [
        ({"name": "gpu"}, ["gpu"], ["gpu"]),
        ({"label": "gpu", "name": None}, ["gpu"], ["gpu"]),
        ({"name": "gpu", "label": "row"}, ["row"], ["gpu"]),
        ({"name": "gpu", "label": "row", "count": 2}, ["row-00", "row-01"], ["gpu-00", "gpu-01"]),
    ],
)
@pytest.mark.inventory("S-171")
def test_a_name_is_the_clouds_and_the_label_unless_there_is_another(
    play: Callable[..., None], cloud: Cloud, asked: dict[str, Any], labels: list[str], names: list[str]
) -> None:
    async def act(world: World) -> None:
        told = await world.launching.launch(NS, replace(SPEC, **asked))
        assert [one.label for one in told] == labels
        assert sorted(str(machine.name) for machine in cloud.launched) == names

    play(act)


def test_tokens_of_a_launch_that_stops_halfway_are_revoked(
    play: Callable[..., None], cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def act(world: World) -> None:
        mint, minted = world.records.mint_token, []

        async def full_at_the_third(*asked: Any, **more: Any) -> Any:
            minted.append(asked)
            if len(minted) == 3:
                raise OSError("the disk is full")
            return await mint(*asked, **more)

        monkeypatch.setattr(world.records, "mint_token", full_at_the_third)
        with pytest.raises(OSError, match="full"):
            await world.launching.launch(NS, replace(SPEC, count=5))
        assert (cloud.launched, world.tokens(), world.rows) == ([], [], [])

    play(act)


def test_the_tokens_of_workers_that_were_removed_long_ago_are_forgotten_and_no_others(
    tmp_path: Path, cloud: Cloud
) -> None:
    async def main() -> None:
        async with opened(tmp_path) as world:
            await world.ready()
            first, second, third = await world.launching.launch(NS, replace(SPEC, count=3))
            for one in (first, second):
                await world.launching.end(NS, one.worker)
            await world.workers.sweep(trio.current_time())
            world.wall += 3600
            await world.workers.sweep(trio.current_time())
            assert world.tokens() == [third.worker] and len(world.records.tokens(NS)) == 3
            world.wall += 365 * 86_400
            await world.workers.sweep(trio.current_time())
            assert [token.worker for token in world.records.tokens(NS)] == [third.worker]
        async with opened(tmp_path) as world:
            assert [token.worker for token in world.records.tokens(NS)] == [third.worker]

    trio.run(main)
