"""Every case of the contract over HTTP: against a server that lives, and one killed with -9 at every step (P-449)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from http_harness import HttpHarness, Zygote

from lakeshore.testing.conformance import CASES
from lakeshore.testing.harness import Stepped

pytestmark = pytest.mark.inventory("P-449")  # beside what each case shows


@pytest.fixture(scope="session")
def zygote() -> Iterator[Zygote]:
    made = Zygote()
    yield made
    made.close()


@pytest.fixture(params=["lives", "killed-at-every-step"])
def harness(request: pytest.FixtureRequest, zygote: Zygote, tmp_path: Path) -> Iterator[HttpHarness]:
    made = HttpHarness(zygote, tmp_path / "state", restarts=request.param != "lives")
    yield made
    made.close()


@pytest.mark.parametrize("case", [pytest.param(c, id=c.name, marks=pytest.mark.inventory(*c.ids)) for c in CASES])
def test_the_http_plane_keeps_the_contract(case, harness: HttpHarness) -> None:
    case(Stepped(harness))
