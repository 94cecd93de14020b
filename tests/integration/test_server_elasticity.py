"""The elasticity controller of a real server: machines of an emulated EC2 that run, and daemons spoken by hand."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import entry_bodies
import pytest
from daemons import until
from elastic import Cloud, Fleet, settings
from machines import Ec2, emulated_ec2
from served import Served, running


@pytest.fixture(scope="module")
def ec2() -> Iterator[Ec2]:
    with emulated_ec2() as url:
        yield Ec2(url)


@pytest.fixture(scope="module")
def served(ec2: Ec2, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    env = settings(AWS_ENDPOINT_URL_EC2=ec2.client.meta.endpoint_url)
    with running(tmp_path_factory.mktemp("elastic"), env=env, token=env["LAKESHORE_ADMIN_TOKEN"]) as server:
        yield server


@pytest.fixture
def fleet(served: Served, ec2: Ec2) -> Fleet:
    return Fleet(served, ec2)


@pytest.mark.inventory("S-511", "S-513", "S-790")
@pytest.mark.inventory("S-519", "S-531")
def test_calls_get_machines_that_run_them_and_the_machines_go_when_nothing_waits(
    fleet: Fleet, ec2: Ec2, tmp_path: Path
) -> None:
    before = set(ec2.states())
    queue = fleet.queue("burst", "fully_elastic", max=2)
    with Cloud(ec2, tmp_path) as cloud:
        calls = [fleet.submit(queue, entry_bodies.pair, n, n) for n in range(3)]
        assert [fleet.ended(id_) for id_ in calls] == ["succeeded"] * 3, cloud.said()
        until(lambda: not fleet.workers(), lambda: str(fleet.decisions(queue, noops=True)))
    made = {id_: state for id_, state in ec2.states().items() if id_ not in before}
    assert len(made) <= 2
    assert set(made.values()) <= {"shutting-down", "terminated"}
    ups = [row for row in fleet.decisions(queue) if row["action"] == "scale_up"]
    downs = [row for row in fleet.decisions(queue) if row["action"] == "scale_down"]
    assert len(ups) == len(downs) == len(made)
    first = min(
        ups, key=lambda row: int(row["before"]["in_flight"])
    )  # two that are launched side by side come as they can
    assert (first["before"]["daemon_count"], first["before"]["in_flight"], first["after"]["in_flight"]) == (0, 0, 1)
    assert first["before"]["pending"] in (1, 2, 3)
    assert {row["after"]["worker"] for row in ups} == {row["after"]["worker"] for row in downs}
    assert all(row["after"]["terminated"] for row in downs)
