"""Every Python block of the reference's SDK pages runs here as it stands, or the table says why it does not."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from snippets import reference, signatures
from snippets.processes import Served, serving
from snippets.running import check
from snippets.table import Entry, entries, runs

pytestmark = pytest.mark.skipif(not reference.available(), reason=reference.ABSENT)

TABLE = entries()
PAGES = (
    "index",
    "python-sdk",
    "get-started/quick-start",
    "get-started/functions",
    "get-started/tutorials/hello-udf",
    "get-started/tutorials/fan-out",
    "python-sdk/udf",
    "python-sdk/queue",
    "python-sdk/dispatch",
    "python-sdk/invocations",
    "python-sdk/architecture/f1-sync",
    "python-sdk/architecture/f2-ids",
    "python-sdk/architecture/f3-generators",
    "python-sdk/architecture/f4-async",
    "python-sdk/architecture/f5-async-generators",
    "python-sdk/architecture/f6-scopes",
    "python-sdk/architecture/f7-run-object",
    "python-sdk/happy-paths/01-hello-local-python",
    "python-sdk/happy-paths/05-hello-queue-udf",
    "python-sdk/happy-paths/06-fan-out-gather",
    "python-sdk/happy-paths/11-storage-from-udf",
    "python-sdk/architecture/primitives",
    "python-sdk/rewrite/design",
    "get-started/storages",
    "api/function-protocol",
)
SDK = ("index", "python-sdk", "python-sdk/*", "get-started/*", "api/*", "notes/*")
"""The pages whose Python blocks are all listed, wherever they lie."""


def named(entry: Entry, where: str) -> str:
    return f"{entry.place} {where}"


def cases(*, waits: bool) -> list[object]:
    return [
        pytest.param(entry, plane, id=named(entry, plane), marks=pytest.mark.inventory(*entry.rows))
        for entry, plane in runs(TABLE)
        if entry.waits is waits
    ]


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("control-plane")) as served:
        yield served


def served_for(plane: str, request: pytest.FixtureRequest) -> Served | None:
    return request.getfixturevalue("control_plane") if plane == "http" else None


@pytest.mark.parametrize("page", PAGES)
def test_the_table_knows_every_python_block_of_the_page(page: str) -> None:
    listed = [entry.lines for entry in TABLE if entry.page == page]
    assert sorted(listed) == [block.lines for block in reference.blocks(page) if block.is_python]


def test_no_page_of_the_sdk_has_a_python_block_that_is_not_listed() -> None:
    with_python = {name for name in reference.pages(*SDK) if any(block.is_python for block in reference.blocks(name))}
    assert with_python - set(PAGES) == set()


@pytest.mark.parametrize("entry", [entry for entry in TABLE if entry.exception], ids=lambda entry: entry.place)
def test_an_exception_says_why(entry: Entry) -> None:
    assert len(entry.exception or "") > 20
    assert not (entry.signatures or entry.worker or entry.waits)


def test_the_table_has_no_page_that_is_not_checked_and_cites_every_row_of_those_pages() -> None:
    assert {entry.page for entry in TABLE} <= set(PAGES)
    cited = {row for entry in TABLE for row in entry.rows}
    wanted = {f"P-{number}" for number in range(502, 620)}
    assert wanted - cited == set()


@pytest.mark.parametrize(
    ("entry", "target"),
    [
        pytest.param(entry, target, id=named(entry, target), marks=pytest.mark.inventory(*entry.rows))
        for entry in TABLE
        for target in entry.signatures
    ],
)
def test_a_printed_signature_is_accepted(entry: Entry, target: str) -> None:
    assert signatures.differences(reference.code(entry.page, entry.lines), target) == []


@pytest.mark.parametrize(("entry", "plane"), cases(waits=False))
def test_a_block_does_what_its_page_says(
    entry: Entry, plane: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    check(entry, plane, tmp_path, served_for(plane, request))


@pytest.mark.inventory("P-577", "P-603", "P-625")
def test_the_waits_that_pages_leave_to_run_out_run_out_side_by_side(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    waiting = [(entry, plane) for entry, plane in runs(TABLE) if entry.waits]
    assert waiting
    with ThreadPoolExecutor(len(waiting)) as pool:
        started = []
        for number, (entry, plane) in enumerate(waiting):
            directory = tmp_path / str(number)
            directory.mkdir()
            started.append(pool.submit(check, entry, plane, directory, served_for(plane, request)))
        wrong = [
            (named(*case), str(error))
            for case, task in zip(waiting, started, strict=True)
            if (error := task.exception()) is not None
        ]
    assert not wrong, "\n\n".join(f"{name}: {what}" for name, what in wrong)
