"""What others chose never steers the terminal, however it is printed, and documents stay the same documents."""

from __future__ import annotations

import json
import types
import unicodedata
from collections.abc import Callable
from typing import Any

import pytest
import trio
import yaml

from lakeshore.cli.output import json_text, one_line, plain
from lakeshore.cli.values import as_yaml
from lakeshore.client.steering import in_a_line, in_json
from lakeshore.client.times import moment
from lakeshore.server.changes import ALIKE, Feed
from lakeshore.server.routes import changes

CONTROLS = "".join(map(chr, (*range(32), *range(127, 160))))
MARKS = (
    "\u061c\u200b\u200e\u200f\u2028\u2029\u202a\u202b\u202c\u202d\u202e\u2060\u2066\u2067\u2068\u2069\ufeff\U000e0041"
)
KEPT = 'añ日👩\u200d🚀e\u0301 \\ "'


@pytest.mark.parametrize("show", [plain, one_line, in_a_line, lambda text: json_text({text: [text]})])
def test_no_control_and_no_mark_of_direction_is_printed(show: Callable[[str], str]) -> None:
    for character in CONTROLS + MARKS + "\ud800":
        shown = show(f"a{character}b")
        assert character not in shown.removesuffix("\n") or character in "\n\t ", ascii(shown)
        assert not {unicodedata.category(one) for one in shown} & {"Cf", "Cs", "Zl", "Zp"}
    assert in_a_line(KEPT) == plain(KEPT) == KEPT


def test_json_and_yaml_with_escapes_are_the_same_documents() -> None:
    text = CONTROLS + MARKS + KEPT
    value = {"name": text, text: [text, {"x": text}]}
    assert json.loads(json_text(value)) == value
    assert json.loads(in_json(json.dumps(value, ensure_ascii=False))) == value
    shown = as_yaml(value)
    assert not (set(CONTROLS + MARKS) - {"\n"}) & set(shown)
    assert yaml.safe_load(shown) == value


@pytest.mark.parametrize("text", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"])
def test_a_time_that_other_zones_lack_is_none(text: str) -> None:
    assert moment(text) is None


async def _answers(feed: Feed, now: Any, since: range) -> None:
    async def make() -> Any:
        return object()

    for one in since:
        await changes._once(now, feed, (("queues",), one), make)


def test_answers_that_are_kept_for_others_are_few_and_of_now() -> None:
    feed = Feed(1, 0.0)
    app = types.SimpleNamespace(changes=types.SimpleNamespace(number=5))
    trio.run(_answers, feed, app, range(20 * ALIKE))
    assert 0 < len(feed.made) <= ALIKE
    app.changes.number += 1  # of another namespace: nothing wakes this feed
    trio.run(_answers, feed, app, range(1))
    assert len(feed.made) == 1
