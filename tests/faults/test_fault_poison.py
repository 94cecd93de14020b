"""Bodies that do to their worker what they can: it survives or is replaced, and who waits behind them pays nothing.

Each is submitted in one batch with its neighbours to a fresh worker, which so has all of them at once. Inside a
coroutine, by default, what may be another thing there; with POISON=all everything.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import poison_bodies as bodies
import pytest
import served
from crew import HERE, Crew, crew, end_children, until

from lakeshore import wire
from lakeshore.sdk.ids import new_id
from lakeshore.sdk.transport import describe

ATTEMPTS = 2
TERMINAL = ("succeeded", "failed", "killed", "timeout")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[served.Served]:
    with served.running(tmp_path_factory.mktemp("poisoned"), "--lease-s", "3600") as running:
        yield running  # with a lease so long, nothing of what follows waits for one to end


@dataclass(slots=True)
class Table:
    """One poison and its neighbours, on a queue of their own."""

    server: served.Served
    directory: Path
    queue: str
    crew: Crew

    def submit(self, *calls: tuple[Any, tuple[Any, ...]], **run_config: Any) -> list[str]:
        """All in one batch, so that a worker that is free gets all of them at once."""
        items = []
        for function, args in calls:
            id_ = new_id()
            envelope = wire.Envelope(
                id=id_,
                fn=describe(function),
                args=wire.pack(list(args)),
                kwargs=wire.pack({}),
                prefix="",
                key=None,
                cfg={},
                parent=None,
            )
            config = {"max_attempts": ATTEMPTS, **run_config}
            items.append(
                {"invocation_id": id_, "queue": self.queue, "args_blob": envelope.to_bytes(), "run_config": config}
            )
        answer = self.server.post("/v1/producer/submit", {"invocations": items}).body
        assert [one["status"] for one in answer["results"]] == [200] * len(items)
        return [one["invocation_id"] for one in items]

    def row(self, id_: str) -> dict[str, Any]:
        answer = self.server.post("/v1/producer/await", {"invocation_id": id_, "timeout_s": 0, "get": True}).body
        return dict(answer["invocation"])

    def ended(self, id_: str, timeout_s: float) -> dict[str, Any]:
        """The answer to a wait."""
        return dict(self.server.post("/v1/producer/await", {"invocation_id": id_, "timeout_s": timeout_s}).body)

    def outcome(self, id_: str) -> dict[str, Any]:
        """How it ended, whoever of the crew had to be replaced for that."""

        def ended() -> dict[str, Any] | None:
            self.crew.replace_the_dead()
            answer = self.ended(id_, 0.2)
            return answer if answer["state"] in TERMINAL else None

        return dict(until(ended, lambda: f"{self.row(id_)}\n{self.crew.log()}"))

    def value(self, id_: str) -> Any:
        outcome = self.outcome(id_)
        assert outcome["state"] == "succeeded", (outcome, self.crew.log())
        return wire.unpack(outcome["result_blob"])


@pytest.fixture
def table(server: served.Served, tmp_path: Path) -> Iterator[Table]:
    queue = new_id()
    with crew(tmp_path, "--queue", queue, "--url", server.url) as made:
        yield Table(server, tmp_path, queue, made)
    end_children(tmp_path / "own")


@pytest.fixture(scope="module")
def unspoiled(server: served.Served, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a body sees where none ran before it."""
    directory = tmp_path_factory.mktemp("unspoiled")
    queue = new_id()
    with crew(directory, "--queue", queue, "--url", server.url) as made:
        alone = Table(server, directory, queue, made)
        (id_,) = alone.submit((bodies.sees, ()))
        made.start()
        return dict(alone.value(id_))


@dataclass(frozen=True, slots=True)
class Expected:
    """`error` is the type, `says` a part of the message, `told` more of the error; no error: it succeeds."""

    error: str | None = None
    says: str = ""
    told: dict[str, Any] | None = None
    attempts: int = ATTEMPTS


def lost(says: str, **told: Any) -> Expected:
    return Expected("WorkerLost", says, told)


DEADLY = {
    "segfaults": lost("killed by SIGSEGV", code=None, signal="SIGSEGV", oom=False),
    "aborts": lost("killed by SIGABRT", code=None, signal="SIGABRT", oom=False),
    "exits_0": lost("exited with code 0", code=0, signal=None, oom=False),
    "exits_3": lost("exited with code 3", code=3, signal=None, oom=False),
    "kills_itself": lost("killed by SIGKILL", code=None, signal="SIGKILL"),
    "leaves_a_child_and_dies": lost("exited with code 4", code=4, signal=None),
    "closes_everything": lost("a body closed them", code=None, signal=None, oom=None),
}
once = {"attempts": 1}
SURVIVED = {
    "forks": Expected(),
    "forks_and_both_return": Expected(),
    "closes_standard_files": Expected(),
    "loses_stdout": Expected(),
    "floods_stdout": Expected(),
    "recurses": Expected("RecursionError", "maximum recursion depth"),
    "lifts_the_recursion_limit": Expected(),
    "returns_an_object": Expected("TypeError", "does not travel", **once),
    "returns_spite": Expected("TypeError", "does not travel", **once),
    "returns_itself_within_itself": Expected("TransportError", "does not travel", **once),
    "raises_spite": Expected("SpitefulError", "__str__ raised ValueError"),
    "raises_what_has_no_name": Expected("NamelessError", "anonymous"),
    "raises_what_exits_when_shown": Expected("ExitingError", "__str__ raised SystemExit"),
    "raises_base_exception": Expected("BaseException", "of no kind"),
    "raises_keyboard_interrupt": Expected("KeyboardInterrupt"),
    "raises_generator_exit": Expected("GeneratorExit"),
    "raises_stop_iteration": Expected("StopIteration", "7"),
    "raises_a_group": Expected("BaseExceptionGroup", "several"),
    "exits_politely": Expected("SystemExit", "sys.exit(3)"),
    "interrupts_itself": Expected(),
    "removes_its_directory": Expected(),
    "changes_umask": Expected(),
    "ignores_signals": Expected(),
    "blocks_signals": Expected(),
    "takes_the_wakeup_fd": Expected(),
    "leaves_a_timer": Expected(),
    "leaves_a_handler_and_a_timer": Expected(),
    "takes_the_loop_policy": Expected(),
    "empties_the_import_path": Expected(),
    "empties_the_environment": Expected(),
    "takes_the_hooks": Expected(),
    "starts_a_thread_that_never_ends": Expected(),
    "removes_modules": Expected(),
    "breaks_time": Expected(),
    "shortens_every_socket": Expected(),
    "speaks_another_language": Expected(),
    "asks_for_more_than_there_is": Expected("MemoryError"),
}
KINDS = {"plain": bodies.poison, "async": bodies.apoison}
IN_A_COROUTINE = {
    "raises_stop_iteration": Expected("RuntimeError", "StopIteration"),
    "breaks_time": Expected("RuntimeError", "time is frozen"),  # its own loop can no longer be closed
}
"""What is another thing there."""
IN_A_COROUTINE_TOO = ("segfaults", "closes_everything", "takes_the_loop_policy", "forks_and_both_return", "recurses")


def cases(names: Iterable[str]) -> list[tuple[str, str]]:
    everything = os.environ.get("POISON") == "all"
    too = [
        name
        for name in names
        if everything or name.startswith(("raises", "exits")) or name in (*IN_A_COROUTINE, *IN_A_COROUTINE_TOO)
    ]
    return [*((name, "plain") for name in names), *((name, "async") for name in too)]


def run(table: Table, body: Any, name: str, expected: Expected, unspoiled: dict[str, Any]) -> None:
    import fault_bodies  # its module is first needed by a neighbour

    own = table.directory / "own"
    own.mkdir()
    ids = table.submit(
        (body, (name, str(own))),
        (bodies.sees, ()),
        (bodies.asees, ()),
        (fault_bodies.plus_one, (1,)),
        (bodies.sees, ()),
    )
    table.crew.start()
    told = table.outcome(ids[0])
    if expected.error is None:
        assert told["state"] == "succeeded", (told, table.crew.log())
        assert told["attempt"] == 1
    else:
        assert told["state"] == "failed", (told, table.crew.log())
        assert told["error"]["type"] == expected.error, told
        assert expected.says in told["error"]["message"], told
        assert told["attempt"] == expected.attempts, told
        for key, value in (expected.told or {}).items():
            assert told["error"][key] == value, told["error"]
    assert [table.value(id_) for id_ in ids[1:]] == [unspoiled, True, 2, unspoiled]
    assert [table.row(id_)["attempt"] for id_ in ids[1:]] == [1] * 4, "a neighbour was charged"


@pytest.mark.inventory("K-12", "K-6", "K-7")
@pytest.mark.parametrize(("name", "kind"), cases(DEADLY))
def test_a_body_that_ends_its_worker_is_told_by_how_and_costs_its_neighbours_nothing(
    table: Table, unspoiled: dict[str, Any], name: str, kind: str
) -> None:
    run(table, KINDS[kind], name, DEADLY[name], unspoiled)
    afresh = name == "closes_everything"  # the same process, in a new image
    [later] = table.submit((bodies.sees, ()))  # neighbours may have run before the death: whoever is told to go is up
    assert table.value(later) == unspoiled
    assert len(table.crew.workers) == (1 if afresh else 1 + ATTEMPTS)
    assert table.crew.dismiss()[-1] == 0


@pytest.mark.inventory("K-6", "P-346")
@pytest.mark.parametrize(("name", "kind"), cases(SURVIVED))
def test_a_worker_outlives_what_its_bodies_do(table: Table, unspoiled: dict[str, Any], name: str, kind: str) -> None:
    expected = SURVIVED[name]
    if kind == "async":
        expected = IN_A_COROUTINE.get(name, expected)
    run(table, KINDS[kind], name, expected, unspoiled)
    assert len(table.crew.workers) == 1, "it was replaced"
    assert table.crew.dismiss() == [0]
    assert "Traceback" not in table.crew.log()


def test_every_poison_is_in_the_table() -> None:
    assert set(bodies.POISONS) == {*DEADLY, *SURVIVED}


@pytest.mark.inventory("K-12", "C-257")
def test_under_the_command_a_death_is_told_by_how_and_the_next_worker_goes_on(table: Table) -> None:
    """`lakeshore worker start` is the parent that reaps the dead; their guardians read how they ended before that."""
    ids = table.submit((bodies.poison, ("kills_itself", str(table.directory))), (bodies.poison, ("exits_3", "")))
    command = [sys.executable, "-m", "lakeshore", "worker", "start", "--python", sys.executable]
    with (table.directory / "crew.log").open("ab") as log:
        parent = subprocess.Popen(
            [*command, "--queue", table.queue, "--url", table.server.url],
            cwd=HERE,
            env=served.environment(),
            stdout=log,
            stderr=log,
        )
    table.crew.workers.append(parent)
    errors = [table.outcome(id_)["error"] for id_ in ids]
    assert [(error["type"], error["code"], error["signal"]) for error in errors] == [
        ("WorkerLost", None, "SIGKILL"),
        ("WorkerLost", 3, None),
    ]
    (after,) = table.submit((bodies.asees, ()))
    assert table.value(after) is True
    assert table.crew.dismiss() == [0]


@contextlib.contextmanager
def limited_memory(megabytes: int) -> Iterator[Path]:
    """A memory cgroup of a few MiB, of either version; the test is skipped where none can be made."""
    for root, limit in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")):
        group = Path(root, f"lakeshore-{new_id()}")
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            (group / limit).write_text(str(megabytes << 20))
        except OSError:
            group.rmdir()
            continue
        try:
            yield group
        finally:
            members = group / "cgroup.procs"
            until(lambda file=members: not file.read_text(), "somebody stays in the cgroup")
            group.rmdir()
        return
    pytest.skip("no memory cgroup can be made here (root and a writable /sys/fs/cgroup are needed)")


@pytest.mark.inventory("K-12")
def test_a_worker_that_is_killed_for_want_of_memory_is_told_so(table: Table) -> None:
    with limited_memory(200) as group:
        (poisoned,) = table.submit((bodies.fills_memory, ("",)), max_attempts=1)
        enter = 'echo $$ > "$0/cgroup.procs" && exec "$@"'
        worker = [sys.executable, "-m", "dreamlake.lakeshore.daemon", "--queue", table.queue, "--url", table.server.url]
        with (table.directory / "crew.log").open("ab") as log:
            process = subprocess.Popen(
                ["sh", "-c", enter, str(group), *worker], cwd=HERE, env=served.environment(), stdout=log, stderr=log
            )
        try:
            until(lambda: table.row(poisoned)["state"] in TERMINAL, lambda: f"{table.row(poisoned)} {table.crew.log()}")
            error = table.ended(poisoned, 0.0)["error"]
            assert (error["type"], error["code"], error["signal"], error["oom"]) == (
                "WorkerLost",
                None,
                "SIGKILL",
                True,
            )
            assert "for want of memory" in error["message"]
        finally:
            process.kill()
            process.wait()
