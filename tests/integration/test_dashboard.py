"""`lakeshore tui` before a real server: every key, every action, and a server that comes and goes."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterator
from typing import Any

import pytest
from dashboards import (
    NEVER_S,
    Shown,
    Told,
    dashboard,
    made,
    namespace,
    run,
    state_of,
    submitted,
    told_by_a_provider,
)
from ports import free_port
from served import Served, running, start
from worker_peer import Daemon

from lakeshore.client.watch import Change
from lakeshore.tui.dashboard.actions import hints, offered
from lakeshore.tui.dashboard.reading import Reader
from lakeshore.tui.dashboard.server import Server
from lakeshore.tui.dashboard.tabs import NAMES, TABS


class Fleet:
    """A namespace with workers of every kind, queues and calls. `backed` has a provider, `ended` was terminated."""

    def __init__(self, server: Served) -> None:
        self.server, self.ns = server, namespace(server)
        self.backed, self.ended = self.daemon("backed"), self.daemon("ended")

    def daemon(self, label: str) -> Daemon:
        return Told(self.server, self.ns, label, lanes=["gpu", "cpu-prep"])


@pytest.fixture(scope="module")
def fleets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Fleet]]:
    """Some, with what providers told of their workers; the tests take one each."""
    directory = tmp_path_factory.mktemp("dashboard")
    first = start(directory)
    made_ = [Fleet(first) for _ in range(2)]
    first.stop()
    for fleet in made_:
        told_by_a_provider(first.state_dir, fleet.backed.id, provider="my-ec2", host_status="running")
        told_by_a_provider(first.state_dir, fleet.ended.id, provider="my-ec2", host_status="terminated")
    with running(directory) as again:
        for fleet in made_:
            fleet.server = fleet.backed.server = fleet.ended.server = again
        yield made_


async def done(shown: Shown, sign: str = "✓") -> str:
    """How it ended, in a line."""
    await shown.until(lambda: shown.said().startswith(sign))
    return shown.said()


@pytest.mark.inventory("C-392", "C-393", "C-394")
@pytest.mark.inventory("C-396", "C-397", "C-398")
@pytest.mark.inventory("C-399", "C-403", "C-420")
@pytest.mark.inventory("C-421")
@pytest.mark.inventory("C-1390")
def test_workers_and_what_may_be_done_to_each(fleets: list[Fleet]) -> None:
    fleet = fleets[0]
    both = {"runners": ["process", "docker"]}
    nameless = Told(fleet.server, fleet.ns, "", lanes=[], capabilities=both)

    async def main() -> None:
        async with dashboard(fleet.server, fleet.ns) as shown:
            lines = shown.lines()
            assert f"lakeshore · {fleet.ns}" in lines[0]
            assert [word in lines[0] for word in ("1 Workers 3", "2 Queues", "3 Invocations 0", "4 Storage 0")] == [
                True
            ] * 4
            assert fleet.server.url in lines[1] and "(open)" in lines[1]
            assert re.search(r"queued 0 +running 0 +failed 0", lines[1])
            assert lines[2].split() == ["LABEL", "STATE", "RUNNERS", "QUEUES", "VER", "SEEN"]
            assert lines[-1].split()[-2:] == ["q", "quit"]
            row = shown.row("backed")
            assert row.endswith("[k]ill [t]erminate [h]ibernate r[e]set")
            assert re.search(r"backed +joining +process +gpu,cpu-prep +0\.1\.4 +\d+(\.\d)?s ", row)
            assert shown.row("ended").endswith("s  [r]emove") and " terminated " in shown.row("ended")
            row = shown.row(nameless.machine[:12])
            assert row.startswith(f"{nameless.machine[:12]} ") and nameless.machine[:13] not in row
            assert re.search(r"process,docker +— +0\.1\.4 +\d", row) and row.endswith("[k]ill [h]ibernate r[e]set")
            cells = [line.index("joining") for line in shown.lines() if "joining" in line]
            assert len(set(cells)) == 1 and lines[2].index("STATE") == cells[0]

    run(main)


@pytest.mark.inventory("C-400", "C-401", "C-402")
@pytest.mark.inventory("C-404", "C-405", "C-406")
def test_each_tab_has_its_columns_and_keys_lead_to_it(server: Served) -> None:
    ns = namespace(server)
    made(server, ns, "gpu", providerRef="my-ec2", elasticity={"kind": "max_count", "max": 2})
    submitted(server, ns, "gpu")
    titles = {
        "workers": "LABEL STATE RUNNERS QUEUES VER SEEN",
        "queues": "NAME KIND STATE MEMBERS PROVIDER ELASTICITY",
        "invocations": "ID STATE WORKER QUEUE ATT SUBMIT",
        "storage": "NAME KIND TARGET AGE",
    }

    async def main() -> None:
        async with dashboard(server, ns) as shown:

            async def opens(key: str, name: str) -> None:
                await shown.press(key)
                assert " ".join(shown.lines()[2].split()) == titles[name]

            names = list(titles)
            for name in (*names[1:], names[0]):
                await opens("tab", name)
            for name in names[:-3:-1]:
                await opens("shift+tab", name)
            for number in (1, 4, 3, 2):
                await opens(str(number), names[number - 1])
            assert re.search(
                r"gpu +fifo +active +0 +my-ec2 +max_count +\[d\]rain \[a\]rchive \[r\]emove", shown.row("gpu")
            )
            await shown.press("3")
            (row,) = [row for row in shown.rows() if row]
            assert re.search(r"^[0-9a-f]{24} +queued +— +gpu +0 +\d+(\.\d)?s +\[k\]ill \[c\]ancel-all-queued$", row)

    run(main)


@pytest.mark.inventory("C-395", "C-407", "C-408")
def test_the_tab_that_is_seen_is_read_again_and_no_other(server: Served) -> None:
    ns = namespace(server)
    made(server, ns, "q-1")

    async def main() -> None:
        async with dashboard(server, ns, interval=1.0, tab="queues") as shown:
            made(server, ns, "q-2")
            submitted(server, ns, "q-2")
            await shown.until(lambda: shown.row("q-2") and "queued 1" in shown.lines()[1])
            assert "3 Invocations 0" in shown.lines()[0]
            await shown.press("3")
            await shown.until(lambda: "3 Invocations 1" in shown.lines()[0])
        async with dashboard(server, ns, tab="queues") as shown:
            assert shown.selected() == f"{ns}/default"
            await shown.press("down")
            assert shown.selected() == f"{ns}/q-1"
            await shown.press("j", "k", "j")
            assert shown.selected() == f"{ns}/q-1"
            made(server, ns, "a-1")
            await shown.press("R")
            await shown.until(lambda: shown.row("a-1"))
            assert shown.selected() == f"{ns}/q-1"  # and is one line further down
            await shown.press("up", "up")
            assert shown.selected() == f"{ns}/a-1"

    run(main)


@pytest.mark.inventory("C-409", "C-411", "C-412")
@pytest.mark.inventory("C-414", "C-415", "C-429")
def test_a_question_swallows_every_other_key_until_it_is_answered(fleets: list[Fleet]) -> None:
    fleet = fleets[0]
    doomed = fleet.daemon("doomed")

    async def main() -> None:
        async with dashboard(fleet.server, fleet.ns) as shown:
            await shown.select("doomed")
            swallowed = "q ctrl+c tab shift+tab 1 2 3 4 up down pageup end R h e t r k c slash S Y"
            swallowed += " less_than_sign question_mark enter left space ctrl+p x"
            for answer, others in (("n", swallowed), ("escape", "q tab k")):
                await shown.press("k")
                assert shown.said().startswith("kill worker doomed?") and shown.said().endswith("… [y/n]")
                before = shown.lines()
                await shown.press(*others.split())
                assert [line for line in shown.lines() if "doomed" in line and "SEEN" not in line]
                assert shown.said() == before[-2].strip() and shown.lines()[0] == before[0]
                assert len(shown.app.screen_stack) == 1
                await shown.press(answer)
                assert "[y/n]" not in shown.text() and "doomed" in shown.row("doomed")
            assert state_of(fleet.server, fleet.ns, f"workers/{doomed.id}") == "joining"
            await shown.press("k", "y")
            assert "killed doomed" in await done(shown)
            await shown.until(lambda: not shown.row("doomed"))
            assert state_of(fleet.server, fleet.ns, f"workers/{doomed.id}") == "404"

    run(main)


@pytest.mark.inventory("C-413", "C-417", "C-418")
@pytest.mark.inventory("C-416", "C-419")
def test_workers_rest_are_reset_terminated_and_removed(fleets: list[Fleet]) -> None:
    fleet = fleets[1]
    goes = fleet.daemon("goes")

    async def main() -> None:
        async with dashboard(fleet.server, fleet.ns) as shown:
            await shown.select("backed")
            await shown.press("r")  # of ended ones alone
            assert "[y/n]" not in shown.text()
            await shown.press("e")
            assert "backed polls as usual" in await done(shown)
            await shown.press("R")
            await shown.press("h")
            assert "backed rests for 30 minutes" in await done(shown)
            orders = {one["kind"]: one["body"] for one in fleet.backed.row()["orders"]}
            assert set(orders) == {"reset_backoff", "hibernate"}
            assert abs(orders["hibernate"]["until_epoch_s"] - time.time() - 1800) < 60
            await shown.press("t")
            assert shown.said() == "terminate worker backed and its cloud instance? … [y/n]"
            await shown.press("y")
            assert "terminated backed" in await done(shown)
            await shown.select("ended")
            for key in "kthe":
                await shown.press(key)
                assert "[y/n]" not in shown.text() and not shown.said().startswith(("…", "✗"))
            await shown.press("r")
            assert shown.said() == "remove worker ended? … [y/n]"
            await shown.press("y")
            assert "removed ended" in await done(shown)
            await shown.select("goes")
            await shown.press("t")  # no provider is behind it
            assert "[y/n]" not in shown.text()
            goes.ask(draining=True)
            await shown.press("R")
            await shown.until(lambda: shown.row("goes").endswith("[r]emove"))
            await shown.press("r", "y")
            await shown.until(lambda: "removed goes" in shown.said())
            await shown.until(lambda: "no daemons" in shown.text())

    run(main)


@pytest.mark.inventory("C-422", "C-423", "C-424")
@pytest.mark.inventory("C-425")
def test_queues_are_drained_archived_made_active_and_removed_with_members_and_calls(server: Served) -> None:
    ns = namespace(server)
    made(server, ns, "gpu")
    call = submitted(server, ns, "gpu")
    Daemon(server, ns=ns, queue="gpu")

    async def main() -> None:
        async with dashboard(server, ns, tab="queues") as shown:
            await shown.select("gpu")

            async def becomes(state: str, hint: str, *keys: str) -> None:
                await shown.press(*keys)
                await done(shown)
                await shown.until(lambda: f" {state} " in shown.row("gpu") and shown.row("gpu").endswith(hint))
                assert state_of(server, ns, "queues/gpu") == state
                await shown.press("R")

            await becomes("draining", "[a]rchive [u]narchive [r]emove", "d")
            await shown.press("d")
            assert not shown.said().startswith(("…", "✓", "✗"))  # it drains already
            await becomes("active", "[d]rain [a]rchive [r]emove", "u")
            await becomes("archived", "[u]narchive [r]emove", "a", "y")
            await becomes("active", "[d]rain [a]rchive [r]emove", "u")
            await shown.press("r")
            assert shown.said() == "remove queue gpu? 1 member leaves it, 1 queued call is killed … [y/n]"
            await shown.press("y")
            assert "removed queue gpu" in await done(shown)
            await shown.until(lambda: not shown.row("gpu"))
            assert (state_of(server, ns, "queues/gpu"), state_of(server, ns, f"invocations/{call}")) == (
                "404",
                "killed",
            )
            assert shown.row("default").endswith("  [d]rain")  # it cannot be archived or deleted

    run(main)


@pytest.mark.inventory("C-426", "C-427")
@pytest.mark.inventory("C-1374")
def test_a_queued_call_is_killed_a_running_one_is_a_conflict_and_all_queued_ones_are_cancelled(server: Served) -> None:
    ns = namespace(server)
    silent = Daemon(server, ns=ns, queue="gpu", session=None)  # it knows no way to be told to stop
    runs = submitted(server, ns, "gpu")
    silent.ask()
    calls = [submitted(server, ns, "gpu") for _ in range(3)]

    async def main() -> None:
        async with dashboard(server, ns, tab="invocations") as shown:
            await shown.until(lambda: "running" in shown.row(runs))
            await shown.select(runs)
            await shown.press("k", "y")
            said = await done(shown, "✗")
            assert f"kill {runs}: invocation is running on worker {silent.id}" in said
            assert state_of(server, ns, f"invocations/{runs}") == "running"
            await shown.select(runs)
            await shown.press("home")
            assert shown.selected() == calls[2]
            await shown.press("k")
            assert shown.said() == f"kill invocation {calls[2]}? … [y/n]"
            await shown.press("y")
            assert f"killed {calls[2]}" in await done(shown)
            await shown.until(lambda: "killed" in shown.row(calls[2]))
            assert "[k]ill" not in shown.row(calls[2])
            await shown.press("k")  # it has ended
            assert "[y/n]" not in shown.text()
            await shown.press("end", "c")  # whatever is selected
            assert shown.said() == "cancel ALL queued invocations of the namespace? … [y/n]"
            await shown.press("y")
            assert "2 cancelled" in await done(shown)
            await shown.until(lambda: sum("killed" in row for row in shown.rows()) == 3)
            assert [state_of(server, ns, f"invocations/{id_}") for id_ in (*calls, runs)] == ["killed"] * 3 + [
                "running"
            ]

    run(main)


@pytest.mark.inventory("C-414")
def test_a_row_that_has_vanished_meanwhile_is_told_and_goes(server: Served) -> None:
    ns = namespace(server)
    one = Daemon(server, ns=ns)

    async def main() -> None:
        async with dashboard(server, ns) as shown:
            assert server.call("DELETE", one.at()).status == 200
            await shown.press("k", "y")
            assert f"no worker '{one.id}'" in await done(shown, "✗")
            await shown.until(lambda: "no daemons" in shown.text())
            await shown.press("k", "y")  # of nothing
            assert "[y/n]" not in shown.text()

    run(main)


def test_a_server_that_goes_leaves_what_was_read_under_a_banner_and_is_found_again(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    directory = tmp_path_factory.mktemp("restarted")
    port = str(free_port())
    first = start(directory, "--port", port)
    ns = namespace(first)
    Told(first, ns, "stays")

    async def main() -> None:
        async with dashboard(first, ns, interval=1.0) as shown:
            first.stop()
            await shown.until(lambda: "✗" in shown.lines()[2])
            assert first.url in shown.lines()[2] and "asking again every 1s" in shown.lines()[2]
            assert shown.row("stays")
            await shown.press("h")
            assert "hibernate" in await done(shown, "✗")
            with running(directory, "--port", port) as again:
                await shown.until(lambda: "✗" not in shown.lines()[2])
                made(again, ns, "later")
                await shown.press("2")
                await shown.until(lambda: shown.row("later"))

    run(main)


def test_rows_are_filtered_sorted_copied_and_clicked(server: Served) -> None:
    ns = namespace(server)
    for name, kind in (("alpha", "fifo"), ("beta", "priority"), ("gamma", "fifo")):
        made(server, ns, name, kind=kind)

    async def main() -> None:
        async with dashboard(server, ns, tab="queues") as shown:

            def names() -> list[str]:
                return [row.split()[0] for row in shown.rows() if row]

            assert names() == ["alpha", "beta", "default", "gamma"]
            await shown.press("slash", *"kind:fi a", "enter")
            assert names() == ["alpha", "default", "gamma"] and "3 of 4" in shown.said()
            await shown.press("slash", *"x")
            assert "nothing of 4 matches" in shown.text()
            await shown.press("escape")
            assert names() == ["alpha", "beta", "default", "gamma"] and "of 4" not in shown.said()
            await shown.press("greater_than_sign", "greater_than_sign")
            assert names() == ["alpha", "default", "gamma", "beta"] and "KIND▲" in shown.lines()[2]
            await shown.press("S")
            assert names()[0] == "beta" and "KIND▼" in shown.lines()[2]
            await shown.pilot.click("#head", offset=(2, 0))
            assert names() == ["alpha", "beta", "default", "gamma"]
            await shown.pilot.click("#list", offset=(3, 2))
            assert shown.selected() == f"{ns}/default"
            await shown.press("Y")
            assert shown.app.clipboard == f"{ns}/default" and "copied" in shown.said()
            await shown.pilot.click("#bar", offset=(shown.lines()[0].index("4 Storage") + 2, 0))
            assert "TARGET" in shown.lines()[2] and "no storages" in shown.text()

    run(main)


@pytest.mark.inventory("C-867")
def test_a_call_is_seen_to_come_to_run_and_to_end_without_a_key(server: Served) -> None:
    ns = namespace(server)
    worker = Told(server, ns, "box", lanes=["gpu"])
    worker.ask()

    async def main() -> None:
        async with dashboard(server, ns, tab="invocations", follows=True) as shown:
            call = submitted(server, ns, "gpu")
            await shown.until(lambda: " queued " in shown.row(call))
            (run,) = worker.ask()["commands"]
            await shown.until(lambda: " running " in shown.row(call))
            end = {"invocation_id": call, "claim": run["body"]["claim"], "state": "succeeded", "result_blob": b"\xa2ok"}
            assert worker.post("/v1/daemon/ack", end).status == 200
            await shown.until(lambda: " succeeded " in shown.row(call))

    run(main)


def test_what_changes_is_seen_without_a_question_and_a_selected_row_stays(server: Served) -> None:
    ns = namespace(server)
    first = submitted(server, ns, "gpu")

    async def main() -> None:
        async with dashboard(server, ns, tab="invocations", follows=True) as shown:
            second = submitted(server, ns, "gpu")
            await shown.until(lambda: shown.rows()[0].startswith(second) and shown.selected() == first)
            assert server.call("DELETE", f"/v1/namespaces/{ns}/invocations/{first}").status == 200
            await shown.until(lambda: " killed " in shown.row(first))
            await shown.press("1")
            worker = Told(server, ns, "comes")
            await shown.until(lambda: shown.row("comes"))
            assert server.call("DELETE", worker.at()).status == 200
            await shown.until(lambda: not shown.row("comes"))

    run(main)


@pytest.mark.parametrize("tab", ["workers", "invocations"])
def test_an_answer_takes_back_nothing_that_was_told_while_it_was_on_its_way(server: Served, tab: str) -> None:
    ns = namespace(server)
    seen = submitted(server, ns, "gpu") if tab == "invocations" else Told(server, ns, "seen").id

    def change(id_: str, row: dict[str, Any] | None) -> Change:
        return Change(kind=tab, namespace=ns, id=id_, gone=row is None, row=row)

    async def main() -> None:
        reader = Reader(Server(url=server.url, namespace=ns))
        (before,) = await reader.look(tab)
        looking = asyncio.ensure_future(reader.look(tab))
        await asyncio.sleep(0)  # it asks
        came = change("0" * 24, {**before.row, "id": "0" * 24})
        assert reader.changed(TABS[NAMES.index(tab)], [before], [change(seen, None), came]) is not None
        assert [item.id for item in await looking] == ["0" * 24]
        await reader.close()

    run(main)


@pytest.mark.inventory("C-402", "C-428")
def test_a_storage_is_listed_with_its_target_and_its_record_removed(server: Served) -> None:
    ns = namespace(server)
    name = f"s-{ns[3:11]}"
    body = {"name": name, "kind": "s3-prefix", "config": {"bucket": f"b-{ns[3:]}", "prefix": "runs/a"}}
    answer = server.post(f"/v1/namespaces/{ns}/storages", body, encoding="application/json")
    assert answer.status == 201, answer.body

    async def main() -> None:
        async with dashboard(server, ns, tab="storage") as shown:
            await shown.until(lambda: shown.row(name))
            assert re.search(rf"^{ns}/{name} .*s3-prefix +s3://b-{ns[3:]}/runs/a/? +\d.* +\[r\]emove$", shown.row(name))
            await shown.press("r")
            assert shown.said() == f"remove storage {ns}/{name}? its bucket stays … [y/n]"
            await shown.press("y")
            assert "its bucket stays" in await done(shown)
            await shown.until(lambda: "no storages" in shown.text())

    run(main)


@pytest.mark.inventory("C-429")
def test_help_and_palette_come_from_the_table_of_actions(server: Served) -> None:
    ns = namespace(server)
    made(server, ns, "gpu")

    async def main() -> None:
        async with dashboard(server, ns, tab="queues", size=(140, 60)) as shown:
            await shown.press("question_mark")
            text = shown.text()
            told = [words for tab in TABS for action in tab.actions for words in (action.hint, action.what)]
            assert [words for words in told if words not in text] == []
            await shown.press("escape")
            await shown.select("gpu")
            titles = [command.title for command in shown.app.get_system_commands(shown.app.screen)]
            may = offered(shown.app._active.tab.actions, shown.app._active.selected, ns)
            assert [f"{one.name} gpu" for one in may] == titles[: len(may)] and shown.row("gpu").endswith(hints(may))
            await shown.press("ctrl+p", *"drain")
            await shown.until(lambda: "drain gpu" in shown.text())
            await shown.press("enter")
            await shown.until(lambda: state_of(server, ns, "queues/gpu") == "draining")

    run(main)


@pytest.mark.parametrize("size", [(80, 24), (40, 12), (200, 50)])
def test_a_terminal_of_any_size_has_every_line_and_nothing_beyond(server: Served, size: tuple[int, int]) -> None:
    ns = namespace(server)
    made(server, ns, "q" * 60)
    submitted(server, ns, "q" * 60)
    Told(server, ns, "x" * 80, lanes=["q" * 60])

    async def main() -> None:
        async with dashboard(server, ns, size=size, interval=NEVER_S) as shown:
            for number in "1234":
                await shown.press(number)
                lines = shown.lines()
                assert len(lines) == size[1] and {len(line) for line in lines} == {size[0]}
                assert "lakeshore" in lines[0] and "select" in lines[-1]
                if number != "4" and size[0] >= 80:
                    assert re.search(r"\[[a-z]\]", shown.rows()[0])

    run(main)
