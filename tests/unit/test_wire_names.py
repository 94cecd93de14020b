"""Names and ids."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakeshore.wire import names
from lakeshore.wire.names import NameError_, Ulids, ulid_time

GOOD = [
    (names.check_slug, ["a", "gpu", "a-b-9", "9", "x" * 300]),
    (names.check_namespace, ["a", "x" * 64]),
    (names.check_label, ["A", "a_b-C", "9" * 64]),
    (
        names.check_queue,
        ["default", "gpu", "fan-out-demo", "Train_v2", "a.b", "gpu:a100", "größe", "two words", "a*b", "x" * 200],
    ),
    (names.check_subscription, ["gpu", "train-*", "*", "a.*"]),
    (names.check_invocation_id, ["01HX2K3M4N5P6Q7R8S9T0V1W2X", "my-id_1", "x" * 64]),
    (names.check_topic, ["progress", "a/b", "../../etc/passwd", "ß*"]),
]
BAD = [
    (names.check_slug, ["", "A", "-a", "a_b", "a b", "a\n", None, 3, b"a"]),
    (names.check_namespace, ["", "x" * 65, "A", "a/b"]),
    (names.check_label, ["", "-a", "_a", "x" * 65, "a.b", "a\n"]),
    (
        names.check_queue,
        ["", "x" * 201, "a/b", "a\n", "a\x00", "\ud800", "train-*", "*", " a", "a ", ".", "..", None, b"q"],
    ),
    (names.check_subscription, ["", "a/*", "a\n*", "a**", "**", None]),
    (names.check_invocation_id, ["", "x" * 65, "a/b", "a.b", "a\n", None]),
    (names.check_topic, ["", "x" * 201, "a\x1b", None]),
]


@pytest.mark.inventory("S-650", "S-651", "S-652")
@pytest.mark.parametrize(("check", "name"), [(check, name) for check, all_ in GOOD for name in all_])
def test_a_good_name_is_given_back(check: object, name: str) -> None:
    assert check(name) == name  # type: ignore[operator]


@pytest.mark.inventory("S-650", "S-651", "S-652")
@pytest.mark.parametrize(("check", "name"), [(check, name) for check, all_ in BAD for name in all_])
def test_a_bad_name_is_refused_and_the_message_says_which_field(check: object, name: object) -> None:
    with pytest.raises(NameError_, match=r"^here: .{10}") as raised:
        check(name, "here")  # type: ignore[operator]
    assert raised.value.field == "here"


def test_a_slash_in_a_queue_comes_with_the_way_out() -> None:
    with pytest.raises(NameError_, match='use "-" for "/"'):
        names.check_queue("train/big")


# ---- ULIDs


def real() -> Ulids:
    return Ulids(lambda: time.time_ns() // 1_000_000, os.urandom)


@pytest.mark.inventory("P-187")
def test_a_ulid_has_26_characters_and_its_time() -> None:
    ulid = Ulids(lambda: 1_750_000_000_123, os.urandom).new()
    assert re.fullmatch("[0-7][0-9A-HJKMNP-TV-Z]{25}", ulid)
    assert ulid_time(ulid) == ulid_time(ulid.lower()) == 1_750_000_000_123
    assert names.check_invocation_id(ulid) == ulid


def test_a_known_ulid_comes_out() -> None:
    assert Ulids(lambda: 1_469_918_176_385, lambda n: bytes(n)).new() == "01ARYZ6S410000000000000000"
    assert Ulids(lambda: 2**48 - 1, lambda n: b"\xff" * n).new() == "7ZZZZZZZZZZZZZZZZZZZZZZZZZ"


@settings(deadline=None)
@given(st.lists(st.integers(0, 50), min_size=2, max_size=30), st.binary(min_size=10, max_size=10))
def test_ids_rise_whatever_the_clock_does(times: list[int], chance: bytes) -> None:
    clock = iter(times)
    source = Ulids(lambda: next(clock), lambda n: chance[:n])
    made = [source.new() for _ in times]
    assert made == sorted(set(made))


def test_when_the_chance_overflows_the_time_moves_on() -> None:
    source = Ulids(lambda: 5, lambda n: b"\xff" * n)
    first, second = source.new(), source.new()
    assert first < second
    assert (ulid_time(first), ulid_time(second)) == (5, 6)


@pytest.mark.parametrize("ms", [-1, 2**48])
def test_a_clock_that_is_off_is_an_error(ms: int) -> None:
    with pytest.raises(OverflowError, match="check the clock"):
        Ulids(lambda: ms, os.urandom).new()


def test_ids_are_unique_and_rise_in_each_of_many_threads() -> None:
    source = real()
    made: list[list[str]] = [[] for _ in range(8)]

    def work(out: list[str]) -> None:
        out.extend(source.new() for _ in range(2000))

    threads = [threading.Thread(target=work, args=(out,)) for out in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(out == sorted(out) for out in made)
    assert len({ulid for out in made for ulid in out}) == 16_000


FORK = """
import os
from lakeshore.wire.names import Ulids
source = Ulids(lambda: 1000, os.urandom)
source.new()
source._lock.acquire()  # as another thread of the parent might hold it
read, write = os.pipe()
if os.fork() == 0:
    os.write(write, source.new().encode())
    os._exit(0)
source._lock.release()
print(os.read(read, 26).decode(), source.new())
os.wait()
"""


def test_a_forked_child_neither_repeats_its_parents_ids_nor_hangs_on_its_lock() -> None:
    # In a process of its own: this one has threads, and later Pythons warn about a fork beside them.
    out = subprocess.run([sys.executable, "-c", FORK], capture_output=True, text=True, check=True, timeout=60)
    child, parent = out.stdout.split()
    assert len(child) == len(parent) == 26
    assert child != parent


@pytest.mark.parametrize("bad", ["", "x" * 26, "8" + "0" * 25, "0" * 25, "0" * 27, "0" * 25 + "U", "0" * 25 + "é"])
def test_what_is_no_ulid_has_no_time(bad: str) -> None:
    with pytest.raises(NameError_):
        ulid_time(bad)
