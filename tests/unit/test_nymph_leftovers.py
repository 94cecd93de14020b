"""The directories of failed jobs: which stay, and whose are never touched."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakeshore.nymph import leftovers as module
from lakeshore.nymph.leftovers import Leftovers


class Host:
    def __init__(self, base: Path) -> None:
        self.root, self.own, self.now = base / "udf", base / "own", 1_000_000.0
        self.root.mkdir()
        self.own.mkdir()
        self.leftovers = Leftovers(self.root, self.own, now=lambda: self.now)

    def fail(self, name: str, size: int = 10) -> None:
        (self.root / name).mkdir(exist_ok=True)
        (self.root / name / "stderr.log").write_bytes(bytes(size))
        self.leftovers.add(name)

    def there(self) -> list[str]:
        return sorted(path.name for path in self.root.iterdir())


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


@pytest.mark.inventory("N-204")
def test_the_newest_fifty_stay(host: Host) -> None:
    for number in range(module.MOST + 3):
        host.fail(f"job-{number:03}")
    assert host.there() == [f"job-{number:03}" for number in range(3, module.MOST + 3)]


def test_a_week_is_long_enough_but_the_newest_stays(host: Host) -> None:
    host.fail("old")
    host.fail("newer")
    host.now += module.AGE_S + 1
    Leftovers(host.root, host.own, now=lambda: host.now).prune()
    assert host.there() == ["newer"]


def test_together_they_are_no_larger_than_the_limit(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BYTES", 100)
    for name in ("a", "b", "c"):
        host.fail(name, 45)
    assert host.there() == ["b", "c"]
    host.fail("huge", 1000)
    assert host.there() == ["huge"]


def test_what_somebody_has_touched_since_and_what_others_have_made_stays(host: Host) -> None:
    host.fail("tried-again")
    host.fail("failed")
    (host.root / "of-another-daemon").mkdir()
    (host.root / "tried-again" / "more").touch()
    host.now += module.AGE_S + 1
    host.fail("last")
    assert host.there() == ["last", "of-another-daemon", "tried-again"]


def test_notes_that_cannot_be_read_or_written_are_no_harm(host: Host) -> None:
    (host.own / module.NOTES).write_text('{"name": 1\n[]\n')
    host.fail("a")
    assert host.there() == ["a"]
    (host.own / module.NOTES).unlink()
    (host.own / module.NOTES).mkdir()
    host.fail("b")
    assert host.there() == ["a", "b"]
