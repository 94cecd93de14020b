"""`--field` and `--kwarg`: what a value becomes, and how it goes into what there is."""

from __future__ import annotations

from typing import Any

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeshore.cli.values import fields_of, masked, merged


@pytest.mark.inventory("C-371", "C-372", "C-374")
@pytest.mark.parametrize(
    ("pair", "means"),
    [
        ("resources.gpu=1", {"resources": {"gpu": 1}}),
        ("a.b.c=x", {"a": {"b": {"c": "x"}}}),
        ("on=true", {"on": True}),
        ("on=false", {"on": False}),
        ("tags=null", {"tags": None}),
        ("n=-2.5", {"n": -2.5}),
        ("n=1e3", {"n": 1000.0}),
        ("image=ghcr.io/example/torch:2.4", {"image": "ghcr.io/example/torch:2.4"}),
        ("mem=64Gi", {"mem": "64Gi"}),
        ("time=02:00:00", {"time": "02:00:00"}),
        ("id=007", {"id": "007"}),
        ("id=99999999999999999999", {"id": "99999999999999999999"}),
        ("word=True", {"word": "True"}),
        ("n=nan", {"n": "nan"}),
        ("n=1_000", {"n": "1_000"}),
        ("n=٣", {"n": "٣"}),
        ("empty=", {"empty": ""}),
        ("expr=a=b", {"expr": "a=b"}),
        ('tags=["gpu:h100", 2]', {"tags": ["gpu:h100", 2]}),
        ('env={"A": "1"}', {"env": {"A": "1"}}),
        ('text="1"', {"text": "1"}),
        ("creds.$secret=aws-prod-keys", {"creds": {"$secret": "aws-prod-keys"}}),
        ("creds.$secret=123", {"creds": {"$secret": "123"}}),
    ],
)
def test_a_value_is_what_it_looks_like(pair: str, means: dict[str, Any]) -> None:
    assert fields_of([pair], "--field") == means


def test_dotted_keys_share_their_map_and_the_later_pair_wins() -> None:
    pairs = ["resources.cpus=2", "resources.memory_gb=8", "backend=local", "backend=fabric"]
    assert fields_of(pairs, "--field") == {"resources": {"cpus": 2, "memory_gb": 8}, "backend": "fabric"}


@pytest.mark.parametrize(
    ("pairs", "says"),
    [
        (["gpu"], "'gpu' is not key=value"),
        (["=1"], "'=1' is not key=value"),
        (["a..b=1"], "'a..b=1' is not key=value"),
        (["tags=[1"], "the value begins as JSON and is none"),
        pytest.param(['name="x'], "the value begins as JSON and is none", marks=pytest.mark.inventory("C-1377")),
        (["a=1", "a.b=2"], "a is given a value of its own, too"),
    ],
)
def test_what_is_no_pair_is_refused_with_its_flag(pairs: list[str], says: str) -> None:
    with pytest.raises(click.BadParameter) as caught:
        fields_of(pairs, "--field")
    assert says in caught.value.message
    assert caught.value.param_hint == "'--field'"


@pytest.mark.inventory("C-373")
def test_merging_goes_into_maps_replaces_lists_and_takes_away_what_is_null() -> None:
    there = {"tags": ["a"], "resources": {"gpu": 1, "cpu": {"n": 4}}, "image": "i"}
    change = {"tags": ["b"], "resources": {"gpu": None, "cpu": {"arch": "arm"}, "mem": "1Gi"}, "image": None}
    assert merged(there, change) == {"tags": ["b"], "resources": {"cpu": {"n": 4, "arch": "arm"}, "mem": "1Gi"}}
    assert there["resources"] == {"gpu": 1, "cpu": {"n": 4}}


def test_a_reference_is_replaced_whole() -> None:
    there = {"creds": {"$secret": "old"}, "plain": {"key": "x"}}
    assert merged(there, {"creds": {"$secret": "new"}})["creds"] == {"$secret": "new"}
    assert merged(there, {"creds": {"key": "x"}})["creds"] == {"key": "x"}
    assert merged(there, {"plain": {"$secret": "new"}})["plain"] == {"$secret": "new"}


def test_references_are_masked_for_people() -> None:
    value = {"creds": {"$secret": "keys"}, "list": [{"$secret": "more"}, "$secret:text"], "n": 1}
    assert masked(value) == {"creds": "<secret: keys>", "list": ["<secret: more>", "$secret:text"], "n": 1}


_TREES = st.recursive(
    st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)
_MAPS = st.dictionaries(st.sampled_from("abc"), _TREES, max_size=3)


@given(_MAPS, _MAPS)
def test_a_merge_done_twice_is_done_once_and_has_all_of_the_change(
    base: dict[str, Any], change: dict[str, Any]
) -> None:
    once = merged(base, change)
    assert merged(once, change) == once
    assert merged(base, {}) == base
    assert merged({}, change) == change
