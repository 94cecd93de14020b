"""Our rows: a control plane, one daemon, commands and functions through it."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from pathlib import Path

from harness import procfs
from harness.processes import Children
from harness.stats import latencies_ms, must_be, percentile
from ours.stages import server_alone

from lakeshore.client.api import ApiClient
from lakeshore.client.execs import ENDS, Asked, Execs
from lakeshore.client.workers import Workers
from lakeshore.sdk.http_dispatch import HttpDispatch
from lakeshore.sdk.queues import SyncQueue

from .bodies import QUEUE, add

CONCURRENT = 200
START_S = 20.0
NO_OP = Asked(command=":", env={}, log=False)
Figures = dict[str, float]


class Stage:
    """A server and a daemon on this machine."""

    def __init__(self, children: Children, name: str = "state") -> None:
        self.url, self.server = server_alone(children, name)
        self.api = ApiClient(self.url, namespace="default")
        config = children.directory / f"{name}.toml"
        config.write_text(
            f'[server]\nurl = "{self.url}"\n[runtime]\nworkdir = "{children.directory}/{name}-udf"\n'
            f"max_invocations = {CONCURRENT}\nkeep_alive_s = -1\n"
        )
        command = [sys.executable, "-m", "lakeshore", "nymph", "--config", str(config), "--queue", QUEUE]
        begun = time.monotonic()
        # The interpreter of the functions is this one, which has what the SDK needs.
        path = f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}"
        env = {"PATH": path, "XDG_CONFIG_HOME": str(children.directory), "XDG_DATA_HOME": str(children.directory)}
        self.daemon = children.start(command, f"{name}-nymph", env=env)
        children.until(self._active, self.daemon, f"{name}-nymph", within_s=START_S)
        self.start_s = time.monotonic() - begun
        self.worker_id: str = Workers(self.api).all()[0]["id"]
        self.execs = Execs(self.api)
        self.plane = HttpDispatch(self.url)

    def _active(self) -> bool:
        return any(row["state"] == "active" for row in Workers(self.api).all())

    def close(self) -> None:
        """Its connections."""
        self.plane.close()
        self.api.close()

    def run(self, execs: Execs | None = None) -> None:
        """One command, from the request to its end."""
        execs = execs or self.execs
        found = execs.run(self.worker_id, NO_OP)
        while found.get("status") not in ENDS:
            found = execs.show(found["exec_id"], wait_s=20.0)
        must_be((found["status"], found["exit_code"]), ("done", 0))


def exec_round_trip(stage: Stage, count: int) -> Figures:
    """`exec_p50_ms`, `exec_p99_ms`: one no-op command after the other."""
    took = latencies_ms(lambda _i: stage.run(), count)
    return {"exec_p50_ms": percentile(took, 0.5), "exec_p99_ms": percentile(took, 0.99)}


def exec_rate(stage: Stage, count: int, threads: int = 16) -> Figures:
    """`execs_<threads>_s`: no-op commands a second, from so many threads with a connection each, awaited."""
    return {f"execs_{threads}_s": _rate(stage, count, threads=threads)}


def concurrent_execs(stage: Stage, count: int) -> Figures:
    """`execs_at_once_s`: seconds until `count` commands that were asked for at once have ended."""
    begun = time.perf_counter()
    rows = [stage.execs.start(stage.worker_id, NO_OP)["exec_id"] for _ in range(count)]
    for exec_id in rows:
        while stage.execs.show(exec_id, wait_s=20.0)["status"] in ("pending", "running"):
            pass
    return {"execs_at_once_s": time.perf_counter() - begun}


def _rate(stage: Stage, count: int, *, threads: int) -> float:
    failed: list[BaseException] = []

    def work(share: int) -> None:
        try:
            with ApiClient(stage.url, namespace="default") as api:
                execs = Execs(api)
                for _ in range(share):
                    stage.run(execs)
        except BaseException as error:
            failed.append(error)
            raise

    running = [threading.Thread(target=work, args=(count // threads,)) for _ in range(threads)]
    begun = time.perf_counter()
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    if failed:
        raise failed[0]
    return (count // threads) * threads / (time.perf_counter() - begun)


def udf_round_trip(stage: Stage, count: int, *, warm: bool) -> Figures:
    """`udf_warm_p50_ms`, `udf_cold_p50_ms`: `add.remote(i, i)`, one after the other. Cold is an environment of its own
    for each call, so that nothing can have been kept for it.
    """
    took: list[float] = []
    for i in range(-1, count):
        more = {} if warm else {"_run_config": {"env": {"CALL": str(i)}}}
        if warm:
            time.sleep(PAUSE_S)
        begun = time.perf_counter()
        must_be(add.remote(i, i, _dispatch=stage.plane, **more), 2 * i)
        took.append((time.perf_counter() - begun) * 1000)
    return {f"udf_{'warm' if warm else 'cold'}_p50_ms": percentile(took[1:], 0.5)}


PAUSE_S = 0.3
"""Between two calls that are to find a warm interpreter: it is made anew after each."""


def udf_rate(stage: Stage, count: int) -> Figures:
    """`udfs_s`: functions a second, submitted in a loop, then joined."""
    begun = time.perf_counter()
    ids = [add.submit(i, i, _dispatch=stage.plane) for i in range(count)]
    queue = SyncQueue(QUEUE, dispatch=stage.plane)
    for i, id_ in enumerate(ids):
        must_be(queue.result(id_, timeout=60), 2 * i)
    return {"udfs_s": count / (time.perf_counter() - begun)}


def idle(stage: Stage, for_s: float, kind: str = "idle") -> Figures:
    """`daemon_idle_pss_mib` and `daemon_idle_cpu_percent` of the daemon, its keeper and the keeper's guard; `kind`
    "warm": after functions, with the interpreters that are kept for the next one.
    """
    time.sleep(SETTLES_S)
    pids = _daemon_tree(stage)
    before, begun = procfs.cpu_s(pids), time.monotonic()
    time.sleep(for_s)
    share = 100 * (procfs.cpu_s(pids) - before) / (time.monotonic() - begun)
    return {
        f"daemon_{kind}_pss_mib": procfs.pss_mib(pids),
        f"daemon_{kind}_cpu_percent": share,
        f"daemon_{kind}_processes": float(len(pids)),
    }


SETTLES_S = 1.0
"""After the last of what was asked of it a daemon still tidies up, and a nest forks its spares."""


def _daemon_tree(stage: Stage) -> list[int]:
    """Keeper and guard leave their parent's session: they are known by what is in their environment, and what is warm
    by its parents.
    """
    mark = next(
        line
        for line in Path(f"/proc/{stage.daemon.pid}/environ").read_bytes().split(b"\0")
        if line.startswith(b"XDG_DATA_HOME=")
    )
    found = set(procfs.tree([stage.daemon.pid]))
    for entry in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if mark in Path(f"/proc/{entry}/environ").read_bytes().split(b"\0"):
                found.add(int(entry))
    return sorted(set(procfs.tree(found)) - {stage.server.pid, os.getpid()})
