"""Commands of the server with a real keeper: what they get, what they give back, and that nothing of them is left."""

# ruff: noqa: ASYNC240  (nothing else waits on this loop)

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import kept as k
import pytest
import trio
import trio.testing
from exec_host import Host

from lakeshore.nymph.execs import PayloadError

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counts processes in /proc")

MIB = 1 << 20


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


BODIES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "its own code and its two streams": (
        {"command": "echo out; echo err >&2; exit 7"},
        {"exit_code": 7, "stdout": b"out\n", "stderr": b"err\n", "error": None},
    ),
    "a success has no typed result": (
        {"command": "true"},
        {"exit_code": 0, "stdout": b"", "stderr": b"", "error": None, "result_inline": None, "result_ref": None},
    ),
    "bash without a login": (
        {"command": "shopt -q login_shell && echo login; [[ a = a ]] && echo $0"},
        {"exit_code": 0, "stdout": b"bash\n"},
    ),
    "env on top of the daemon's, whose credentials stay with it": (
        {"command": "echo $FROM_DAEMON $MINE; env | grep -c secret", "env": {"MINE": 1}},
        {"exit_code": 1, "stdout": b"yes 1\n0\n"},
    ),
    "env replaces a variable": (
        {"command": "echo $FROM_DAEMON", "env": {"FROM_DAEMON": "mine"}},
        {"stdout": b"mine\n"},
    ),
    "stdin, then its end": ({"command": "wc -c", "stdin": b"\0\xff" * 100_000}, {"stdout": b"200000\n"}),
    "no stdin is an empty one": ({"command": "cat; echo end"}, {"stdout": b"end\n"}),
    "a working directory": ({"command": "pwd", "workdir": "/usr"}, {"stdout": b"/usr\n"}),
    "the daemon's working directory": ({"command": "pwd"}, {"stdout": os.getcwd().encode() + b"\n"}),
    "a working directory that is not there": (
        {"command": "pwd", "workdir": "/no/such"},
        {"exit_code": -1, "error": "the directory /no/such: No such file or directory"},
    ),
    "a command of any length": (
        {"command": "echo " + "x" * 300_000},
        {"exit_code": 0, "stdout": b"x" * 300_000 + b"\n"},
    ),
    "no command": ({"payload_inline": b"x"}, {"exit_code": -1, "error": "there is no command"}),
    "a signal, as a shell says it": (
        {"command": "kill -9 $$"},
        {"exit_code": 137, "error": "killed by SIGKILL"},
    ),
    "a variable that cannot be": (
        {"command": "true", "env": {"a=b": "c"}},
        {"exit_code": -1, "error": "env — 'a=b' cannot be a variable"},
    ),
    "a time limit that makes no sense": (
        {"command": "true", "timeout_s": -1},
        {"exit_code": -1, "error": "timeout_s — seconds above 0 (got -1)"},
    ),
    "a payload, as a file and on stdin": (
        {"command": "cat; cat $LAKESHORE_PAYLOAD_FILE", "payload_inline": b"abc"},
        {"stdout": b"abcabc"},
    ),
    "stdin beside a payload": (
        {"command": "cat; cat $LAKESHORE_PAYLOAD_FILE", "payload_inline": b"abc", "stdin": b"in"},
        {"stdout": b"inabc"},
    ),
    "a typed result from the file that is named for it": (
        {"command": "printf '\\x01\\x02' > $LAKESHORE_RESULT_FILE"},
        {"exit_code": 0, "result_inline": b"\x01\x02", "result_ref": None},
    ),
    "a link is no typed result": (
        {"command": "ln -s /etc/passwd $LAKESHORE_RESULT_FILE"},
        {"exit_code": 0, "result_inline": None},
    ),
    "as much as is kept, and no word about it": (
        {"command": f"head -c {MIB} /dev/zero; head -c {MIB} /dev/zero >&2"},
        {"stdout": bytes(MIB), "stderr": bytes(MIB), "error": None},
    ),
    "stdout truncated": (
        {"command": f"head -c {MIB} /dev/zero; echo more"},
        {"exit_code": 0, "stdout": bytes(MIB), "error": "stdout truncated"},
    ),
    "stderr truncated": (
        {"command": f"head -c {MIB + 1} /dev/zero >&2; exit 3"},
        {"exit_code": 3, "stderr": bytes(MIB), "error": "stderr truncated"},
    ),
    "stdout truncated; stderr truncated": (
        {"command": f"head -c {2 * MIB} /dev/zero | tee /dev/stderr"},
        {"stdout": bytes(MIB), "stderr": bytes(MIB), "error": "stdout truncated; stderr truncated"},
    ),
}
ROWS = {
    "its own code and its two streams": ("N-152", "N-155"),
    "a success has no typed result": ("N-156", "C-1481"),
    "bash without a login": ("N-146",),
    "env on top of the daemon's, whose credentials stay with it": ("N-147",),
    "stdin, then its end": ("N-148",),
    "a working directory": ("N-149",),
    "a working directory that is not there": ("N-151",),
    "a payload, as a file and on stdin": ("N-145",),
    "a typed result from the file that is named for it": ("N-388",),
    "as much as is kept, and no word about it": ("N-153",),
    "stdout truncated": ("N-154", "C-255"),
    "stderr truncated": ("N-154", "C-255"),
    "stdout truncated; stderr truncated": ("N-154",),
}


@pytest.mark.parametrize(
    "what", [pytest.param(what, marks=pytest.mark.inventory(*ROWS[what]) if what in ROWS else ()) for what in BODIES]
)
def test_a_command_gets_and_gives(host: Host, what: str) -> None:
    body, wanted = BODIES[what]

    async def main() -> None:
        async with host.open():
            told = await host.result(**body)
            assert {name: told[name] for name in wanted} == wanted
            assert sorted(told) == [
                "duration_ms",
                "error",
                "exit_code",
                "result_inline",
                "result_ref",
                "stderr",
                "stdout",
            ]

    k.run(main)


@pytest.mark.inventory("N-154")
def test_of_a_flood_the_head_is_told_and_the_disk_is_spared(host: Host) -> None:
    async def main() -> None:
        async with host.open() as execs, trio.open_nursery() as nursery:
            results: list[dict[str, Any]] = []

            async def one() -> None:
                results.append(
                    await execs.run("x", {"command": "echo first; head -c 200000000 /dev/zero; read <> <(:)"})
                )

            nursery.start_soon(one)
            printed = Path(host.keeper.job_directory("exec-x"), "stdout")
            await k.until(lambda: printed.exists() and printed.stat().st_size == 200_000_006)
            await k.until(lambda: printed.stat().st_blocks * 512 < 100_000_000)
            await execs.stop("x", "cancelled", 0.0)
            await k.until(lambda: results != [])
            assert results[0]["stdout"] == b"first\n" + bytes(MIB - 6)
            assert results[0]["error"] == "cancelled; stdout truncated"

    k.run(main)


@pytest.mark.inventory("N-150")
@pytest.mark.parametrize("deaf", [False, True], ids=["TERM ends it", "KILL ends it"])
def test_a_command_whose_time_is_up_ends_with_all_that_it_began(host: Host, deaf: bool) -> None:
    trap = "trap '' TERM; " if deaf else ""

    async def main() -> None:
        async with host.open():
            told = await host.result(command=f"{trap}(setsid sleep 100 &); echo begun; sleep 100", timeout_s=2.0)
            assert (told["exit_code"], told["stdout"], told["error"]) == (-2, b"begun\n", "timed out")
            assert told["duration_ms"] >= (7000 if deaf else 2000)

    k.run(main)


@pytest.mark.inventory("N-151")
@pytest.mark.parametrize(
    "moment", ["while it runs", "while it is spawned", "while its payload comes", "before it is to begin"]
)
def test_a_command_that_is_stopped_says_why_and_leaves_nothing(host: Host, moment: str) -> None:
    body: dict[str, Any] = {"command": "(setsid sleep 100 &); echo begun; sleep 100"}
    fetching = trio.Event()

    class Slow:
        async def fetch(self, _ref: Mapping[str, Any], target: Path) -> None:
            target.write_bytes(b"half")
            fetching.set()
            await trio.sleep_forever()

    if moment == "while its payload comes":
        host.payloads, body["payload_ref"] = Slow(), {"key": "payloads/x"}

    async def main() -> None:
        async with host.open() as execs, trio.open_nursery() as nursery:
            results: list[dict[str, Any]] = []

            async def one() -> None:
                results.append(await execs.run("x", body))

            if moment == "before it is to begin":  # two tasks of the shell may come in any order
                await execs.stop("x", "the daemon is shutting down", 0.5)
            nursery.start_soon(one)
            if moment == "while it runs":
                printed = Path(host.keeper.job_directory("exec-x"), "stdout")
                await k.until(lambda: printed.exists() and printed.read_bytes() == b"begun\n")
            elif moment == "while its payload comes":
                await fetching.wait()
            else:
                await trio.testing.wait_all_tasks_blocked()
            await execs.stop("x", "the daemon is shutting down", 0.5)
            await k.until(lambda: results != [])
            assert (results[0]["exit_code"], results[0]["error"]) == (-1, "the daemon is shutting down")
            await execs.release("x")
            assert host.left() == []

    k.run(main)


@pytest.mark.inventory("N-165", "N-168")
def test_a_payload_that_is_corrupt_keeps_its_command_from_beginning(host: Host, tmp_path: Path) -> None:
    class Corrupt:
        async def fetch(self, _ref: Mapping[str, Any], _target: Path) -> None:
            raise PayloadError("payload corrupt: sha256 mismatch (expected a, got b)")

    host.payloads = Corrupt()

    async def main() -> None:
        async with host.open():
            told = await host.result(command=f"touch {tmp_path}/ran", payload_ref={"key": "payloads/x"})
            assert (told["exit_code"], told["error"]) == (-1, "payload corrupt: sha256 mismatch (expected a, got b)")
            assert not (tmp_path / "ran").exists()

    k.run(main)


DAEMON = """\
from pathlib import Path
from lakeshore.nymph.execs import Execs
execs = Execs(keeper, None, Path({inputs!r}), dict(os.environ))
nursery.start_soon(execs.run, 'ends', {{'command': 'echo told; exit 6', 'stdin': b'in'}})
nursery.start_soon(execs.run, 'runs', {{'command': '(setsid sleep 1000 &); echo x; sleep 1000', 'stdin': b'in'}})
for id in ('ends', 'runs'):
    while not os.path.exists(keeper.job_directory('exec-' + id) + '/' + {{'ends': 'exit.json', 'runs': 'stdout'}}[id]):
        await trio.sleep(0.01)
"""


@pytest.mark.inventory("K-34")
def test_after_a_kill_9_what_ended_is_told_and_what_ran_is_ended_and_never_begun_again(
    host: Host, tmp_path: Path
) -> None:
    async def main() -> None:
        program = DAEMON.format(inputs=str(host.inputs))
        await k.killed_when_ready(k.daemon(host.place, tmp_path / "ready", program), tmp_path / "ready")
        async with host.open() as execs:
            (host.inputs / "left.stdin").write_bytes(b"of one that was just to begin")
            told = await execs.recovered()
            assert {id_: (one["exit_code"], one["stdout"], one["error"]) for id_, one in told.items()} == {
                "ends": (6, b"told\n", None),
                "runs": (-1, b"", "daemon restarted"),
            }
            again = await execs.run("ends", {"command": f"touch {tmp_path}/again"})
            assert (again["exit_code"], (tmp_path / "again").exists()) == (-1, False)
            for id_ in told:
                await execs.release(id_)
            assert host.left() == []

    k.run(main)


@pytest.mark.inventory("K-34")
def test_without_another_daemon_a_command_ends_and_is_told_by_the_one_that_comes_much_later(
    host: Host, tmp_path: Path
) -> None:
    async def main() -> None:
        program = "# ORPHANS\n" + DAEMON.format(inputs=str(host.inputs))
        keeper = await k.killed_when_ready(k.daemon(host.place, tmp_path / "ready", program), tmp_path / "ready")
        await k.until(lambda: not k.alive(keeper))
        assert k.marked(host.place, "exec-runs", "exec-ends") == []
        async with host.open() as execs:
            told = await execs.recovered()
            assert {id_: one["error"] for id_, one in told.items()} == {"ends": None, "runs": "daemon restarted"}
            for id_ in told:
                await execs.release(id_)
            assert host.left() == []

    k.run(main)


def test_200_commands_at_once_are_each_other_s_neighbours_and_leave_nothing(host: Host) -> None:
    async def main() -> None:
        async with host.open() as execs:
            told: dict[int, dict[str, Any]] = {}

            async def one(n: int) -> None:
                told[n] = await execs.run(f"e{n}", {"command": f"cat; echo {n} >&2; exit {n % 7}", "stdin": b"%d" % n})
                await execs.release(f"e{n}")

            async with trio.open_nursery() as nursery:
                for n in range(200):
                    nursery.start_soon(one, n)
            assert {n: (one["exit_code"], one["stdout"], one["stderr"]) for n, one in told.items()} == {
                n: (n % 7, b"%d" % n, b"%d\n" % n) for n in range(200)
            }
            assert host.left() == []

    k.run(main)
