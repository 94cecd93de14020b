"""Every block of README.md and docs/ runs here as its reader would run it, or the page says why it cannot."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from snippets.documents import Document, Unclear, documents, read
from snippets.following import follow
from snippets.processes import Served, serving

PAGES = documents()


@pytest.fixture(scope="session")
def server_of_pages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("server-of-pages")) as served:
        yield served


@pytest.mark.parametrize("page", [pytest.param(page, id=page.name) for page in PAGES if page.run and not page.fresh])
def test_a_page_does_what_it_says(
    page: Document, tmp_path: Path, pyz: Path, warm_cache: Path, request: pytest.FixtureRequest
) -> None:
    served = request.getfixturevalue("server_of_pages") if page.plane == "http" else None
    assert follow(page, tmp_path, pyz, warm_cache, served) == len(page.run_with())


def test_few_blocks_are_excused_and_each_says_why() -> None:
    run = sum(len(page.run) for page in PAGES)
    excused = [(page.name, block) for page in PAGES for block in page.blocks if block.excused is not None]
    print(f"\n{len(PAGES)} pages: {run} blocks are run, {len(excused)} are excused:")
    for name, block in excused:
        print(f"  {name}:{block.line} {block.excused}")
    assert run > 3 * len(excused)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("```yaml\na: 1\n```\n", "is not run"),
        ("```\nx\n```\n", "no language"),
        ("```text\nx\n```\n", "no block before it"),
        ("<!-- excused: -->\n```bash\nx\n```\n", "what reason"),
        ("<!-- skip: it is slow -->\n```bash\nx\n```\n", "means nothing"),
        ("<!-- page: workers=2 -->\n```bash\nx\n```\n", "means nothing"),
    ],
)
def test_a_block_that_is_neither_run_nor_excused_is_refused(text: str, why: str, tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text(text)
    with pytest.raises(Unclear, match=why):
        read(tmp_path / "page.md")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("```bash\nfalse\ntrue\n```\n", "page.md:1: it failed"),
        ("```python\nprint(1)\n```\n\n```text\n2\n```\n", "page.md:1: the page says"),
        ("```python\nx = 1\n```\n\n```python\nassert x == 2\n```\n", "page.md:5: it failed"),
        ("<!-- fails: ValueError: no -->\n```python\nraise ValueError('yes')\n```\n", "page.md:2: must fail with"),
        ("<!-- stays: ready -->\n```bash\necho steady\n```\n", "'ready' is awaited"),
    ],
)
def test_a_page_that_is_wrong_is_found_out(text: str, why: str, tmp_path: Path, pyz: Path, warm_cache: Path) -> None:
    (tmp_path / "page.md").write_text(text)
    with pytest.raises(AssertionError, match=why):
        follow(read(tmp_path / "page.md"), tmp_path / "place", pyz, warm_cache, None)
