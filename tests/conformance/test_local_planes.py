"""Every case of the contract on the memory plane and on the file plane (P-449)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from local_harness import LocalHarness

from lakeshore.plane.blobs import Blobs
from lakeshore.testing.conformance import CASES
from lakeshore.testing.harness import Stepped

pytestmark = pytest.mark.inventory("P-449")  # beside what each case shows


@pytest.fixture(params=["memory", "file"])
def harness(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LocalHarness]:
    made = LocalHarness(None if request.param == "memory" else tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize("case", [pytest.param(c, id=c.name, marks=pytest.mark.inventory(*c.ids)) for c in CASES])
def test_the_local_planes_keep_the_contract(case, harness: LocalHarness) -> None:
    case(Stepped(harness))


@pytest.mark.inventory("K-20")
def test_the_file_plane_takes_any_text_as_an_id(tmp_path: Path) -> None:
    harness = LocalHarness(tmp_path)
    dp, args = harness.plane(), b"x" * 65536
    for inv_id in ("two words", "../../escape", "/etc/passwd", "ü", "x" * 400, "line\n", ".hidden"):
        dp.submit("q", args, id=inv_id)
        job = dp.claim("q", "w1")
        assert job is not None
        assert (job.id, job.envelope) == (inv_id, args)
        dp.ack(inv_id, "w1", result=args)
        assert dp.result(inv_id, timeout=5) == args
    assert {p.name for p in tmp_path.parent.iterdir() if p.name.startswith("escape")} == set()
    harness.close()


@pytest.mark.inventory("K-20")
@pytest.mark.parametrize("key", ["", "/a", "a/", "../a", "a/../b", "a//b", "a\n", ".a", "a/.b", "a\0b", "x" * 513])
def test_a_blob_key_cannot_leave_its_root(tmp_path: Path, key: str) -> None:
    with pytest.raises(ValueError, match="blob key"):
        Blobs(tmp_path / "blobs").path(key)
