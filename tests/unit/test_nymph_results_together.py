"""How commands ended is told together where several wait, and one by one to a server that takes no several."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import trio

from lakeshore.nymph.core import events, instructions
from lakeshore.nymph.core.tasks import EXEC
from lakeshore.nymph.performing.contact import RESULTS, Contact
from lakeshore.nymph.transport import TransportError

Map = Mapping[str, Any]


class Line:
    """Stands for a server: `refuses` those ids, knows several at once unless it is `old`, answers after a moment."""

    namespace = "default"

    def __init__(self, *, old: bool = False, refuses: tuple[str, ...] = ()) -> None:
        self.old, self.refuses = old, refuses
        self.paths: list[str] = []

    async def post(self, path: str, body: Map, **_more: Any) -> Map:
        self.paths.append(path)
        await trio.sleep(0.01)
        if path != RESULTS:
            return {"ok": True}
        if self.old:
            raise TransportError(404, "no such route")
        refused = {"refused": {"status": 404, "error": "unknown"}}
        return {
            "results": [
                {"exec_id": one["exec_id"], **(refused if one["exec_id"] in self.refuses else {"ok": True})}
                for one in body["results"]
            ]
        }


def told_of(line: Line, count: int) -> list[Any]:
    """What the core hears when so many commands end in the same moment."""
    heard: list[Any] = []

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            contact = Contact(
                heard.append,
                nursery,
                line,  # type: ignore[arg-type]  # the part of a transport that is used
                hello_body=dict,
                session="s",
                worker_id="w",
                identity=None,
                named=lambda _name: None,
                vouched=lambda _lease, _took: None,
            )
            for i in range(count):
                contact.result(instructions.SendResult(kind=EXEC, id=f"e{i}", body={"exit_code": 0, "stdout": b"x"}))

    trio.run(main)
    return heard


def taken(heard: list[Any]) -> list[str]:
    """The commands whose results have arrived, as the core was told, sorted."""
    alone = [event.id for event in heard if isinstance(event, events.ResultAnswered)]
    return sorted(alone + [id_ for event in heard if isinstance(event, events.ResultsAnswered) for id_ in event.ids])


def test_those_that_wait_for_their_turn_go_together() -> None:
    line = Line()
    heard = told_of(line, 40)
    assert taken(heard) == sorted(f"e{i}" for i in range(40))
    assert len(heard) == len(line.paths) <= 4, "the core hears of each request once"


def test_one_alone_goes_the_documented_way() -> None:
    line = Line()
    told_of(line, 1)
    assert line.paths == ["/v1/daemon/exec/e0/result"]


def test_one_that_is_refused_touches_no_other() -> None:
    heard = told_of(Line(refuses=("e7",)), 20)
    (failed,) = [event for event in heard if isinstance(event, events.ResultFailed)]
    assert (failed.id, failed.status) == ("e7", 404)
    assert taken(heard) == sorted({f"e{i}" for i in range(20)} - {"e7"})


@pytest.mark.parametrize("count", [2, 30])
def test_a_server_that_takes_no_several_is_told_one_by_one(count: int) -> None:
    line = Line(old=True)
    heard = told_of(line, count)
    assert sorted(event.id for event in heard if isinstance(event, events.ResultAnswered)) == sorted(
        f"e{i}" for i in range(count)
    )
