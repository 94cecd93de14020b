"""The SDK's happy paths as their pages do them: each terminal is a process. From a checkout, and from the one file with
a Python that has nothing else installed.

What is typed comes from the pages, except the program of path 01, which the reference keeps elsewhere; it is written
here from what the page says of it.
"""

from __future__ import annotations

import contextlib
import re
import sys
import time
import venv
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from snippets import reference
from snippets.processes import Place, Served, clean, daemon, on_plane, serving

HELLO = ("python-sdk/happy-paths/05-hello-queue-udf", (54, 67))
FAN_OUT = ("python-sdk/happy-paths/06-fan-out-gather", (33, 49))
ULID = "[0-9A-HJKMNP-TV-Z]{26}"

needs_pages = pytest.mark.skipif(not reference.available(), reason=reference.ABSENT)
Placed = Callable[..., Place]


@pytest.fixture(params=["checkout", "one file"])
def placed(request: pytest.FixtureRequest, tmp_path: Path) -> Placed:
    """Makes the place where a user works: what is installed, and on which plane."""

    def place(served: Served | None = None) -> Place:
        plane = on_plane("file" if served is None else "http", tmp_path, served)
        Path(plane["HOME"]).mkdir()
        if request.param == "checkout":
            command = (sys.executable, "-m", "lakeshore")
            return Place(directory=tmp_path, env=clean(LAKESHORE_PYTHON=sys.executable, **plane), cli=command)
        archive = str(request.getfixturevalue("pyz"))
        cache = str(request.getfixturevalue("warm_cache"))
        venv.create(tmp_path / "bare", with_pip=False, symlinks=True)
        python = str(tmp_path / "bare" / "bin" / "python3")
        env = clean(path=archive, XDG_CACHE_HOME=cache, LAKESHORE_PYTHON=python, **plane)
        return Place(directory=tmp_path, env=env, python=python, cli=(python, archive))

    return place


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("control-plane")) as served:
        yield served


def program(place: Place, block: tuple[str, tuple[int, int]], name: str) -> str:
    """The page's program in the file that its first line names."""
    text = reference.code(*block)
    assert text.startswith(f"# {name}\n")
    (place.directory / name).write_text(text, "utf-8")
    return name


@contextlib.contextmanager
def workers(place: Place, *commands: list[str]) -> Iterator[None]:
    """The worker terminals, each once it has said which queue it drains."""
    with contextlib.ExitStack() as stack:
        for command in commands:
            stack.enter_context(place.working(*command))
        log = place.directory / "worker.log"
        deadline = time.monotonic() + 60
        while len(re.findall("^lakeshore worker: queue ", log.read_text(), re.MULTILINE)) < len(commands):
            assert time.monotonic() < deadline, f"no worker:\n{log.read_text()}"
            time.sleep(0.02)
        yield


def worker_start(place: Place, queue: str, *flags: str) -> list[str]:
    return [*place.cli, "worker", "start", "--queue", queue, *flags]


def prints_five(place: Place) -> None:
    done = place.run(program(place, HELLO, "hello_udf.py"))
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(f"invocation: {ULID}\nresult: 5\n", done.stdout), done.stdout


# --- 01


@pytest.mark.inventory("P-620", "P-621")
@pytest.mark.inventory("C-835")
def test_path_01_runs_a_bare_udf_here_and_prints_the_three_losses(placed: Placed) -> None:
    place = placed()
    (place.directory / "train.py").write_text(
        "import random, sys\n"
        "import dreamlake.lakeshore as dls\n"
        "\n"
        "@dls.udf\n"
        "def train(seed: int) -> dict:\n"
        "    random.seed(seed)\n"
        "    return {'seed': seed, 'loss': random.random()}\n"
        "\n"
        "print(train(seed=42))\n"
        "print(train(seed=7))\n"
        "print(train.local(seed=1))\n"
        "assert not {'httpx', 'msgpack', 'sqlite3', 'lakeshore.net'} & sys.modules.keys()\n",
        "utf-8",
    )
    done = place.run("train.py")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "{'seed': 42, 'loss': 0.6394267984578837}",
        "{'seed': 7, 'loss': 0.32383276483316237}",
        "{'seed': 1, 'loss': 0.13436424411240122}",
    ]


# --- 05


@needs_pages
@pytest.mark.inventory("P-623", "P-624")
@pytest.mark.inventory("C-853")
def test_path_05_prints_five_with_lakeshore_worker_start_and_nothing_else(placed: Placed) -> None:
    place = placed()
    with workers(place, worker_start(place, "hello")):
        prints_five(place)


@needs_pages
@pytest.mark.inventory("P-623", "P-624")
def test_path_05_prints_five_with_the_worker_as_a_module(placed: Placed) -> None:
    place = placed()
    with workers(place, daemon(place.python, "hello")):
        prints_five(place)


@needs_pages
@pytest.mark.inventory("P-623")
def test_path_05_prints_five_against_a_control_plane_whose_worker_trusts_its_producers(
    placed: Placed, control_plane: Served
) -> None:
    place = placed(control_plane)
    command = worker_start(place, "hello", "--url", control_plane.url, "--allow-pickled")
    with workers(place, command):
        prints_five(place)


@needs_pages
@pytest.mark.inventory("P-728")
def test_path_05_names_the_way_out_when_the_worker_of_a_control_plane_refuses_a_script_s_function(
    placed: Placed, control_plane: Served
) -> None:
    place = placed(control_plane)
    with workers(place, worker_start(place, "hello", "--url", control_plane.url)):
        done = place.run(program(place, HELLO, "hello_udf.py"))
    assert done.returncode == 1
    assert "TransportError: this worker refuses pickled functions" in done.stderr
    assert "--allow-pickled" in done.stderr.splitlines()[-1]


@pytest.mark.inventory("P-624")
def test_path_05_names_a_module_that_the_worker_cannot_import(placed: Placed) -> None:
    place = placed()
    project = place.directory / "project"
    project.mkdir()
    (project / "mine.py").write_text(
        "import dreamlake.lakeshore as dls\n\n@dls.udf(queue='hello')\ndef add(a, b):\n    return a + b\n", "utf-8"
    )
    (project / "submit.py").write_text("from mine import add\nprint(add(2, 3))\n", "utf-8")
    with workers(place, worker_start(place, "hello")):
        done = place.run(str(project / "submit.py"))
    assert done.returncode == 1
    assert re.search(rf"invocation {ULID} failed: WorkerError: cannot import module '?mine", done.stderr), done.stderr


# --- 06


@needs_pages
@pytest.mark.inventory("P-626", "P-627")
@pytest.mark.inventory("C-854")
def test_path_06_prints_the_squares_in_order_and_shares_the_work_between_two_workers(placed: Placed) -> None:
    place = placed()
    command = worker_start(place, "compute")
    with workers(place, command, command):
        done = place.run(program(place, FAN_OUT, "fan_out.py"))
    assert done.returncode == 0, done.stderr
    printed = re.fullmatch(r"\[0, 1, 4, 9, 16, 25, 36, 49\] (\d+\.\d)s\n", done.stdout)
    assert printed, done.stdout
    assert 4.0 <= float(printed[1]) < 7.5, "eight seconds of work between two workers"
