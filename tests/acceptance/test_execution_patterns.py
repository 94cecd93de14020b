"""docs/execution-patterns.md: the matrix of forms and levels, whose every cell is a block that runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from example_places import STRICT, place
from snippets.reference import ROOT

PAGE = ROOT / "docs" / "execution-patterns.md"
FORMS = {
    "F1 sync": "P-479",
    "F2 deferred": "P-480",
    "F3 generator": "P-481",
    "F4 async": "P-482",
    "F5 async generator": "P-483",
    "F6 scope": "P-484",
    "F7 run object": "P-485",
}
LEVELS = ("L0", "L1", "L2", "L3")
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def split(text: str, mark: str) -> dict[str, str]:
    """The parts under headings that begin with `mark`, by their titles."""
    pieces = re.split(rf"^{mark} (.+)$", text, flags=re.MULTILINE)[1:]
    return dict(zip(pieces[::2], pieces[1::2], strict=True))


SECTIONS = split(PAGE.read_text("utf-8"), "##")


def matrix() -> dict[str, list[str]]:
    rows = re.findall(r"^\| \[(F\d [\w ]+)\]\(#([\w-]+)\) \| (.+) \|$", PAGE.read_text("utf-8"), re.MULTILINE)
    assert all(anchor == form.lower().replace(" ", "-") for form, anchor, _ in rows)
    return {form: cells.split(" | ") for form, _, cells in rows}


@pytest.mark.inventory("P-501", "P-485")
def test_the_matrix_has_every_form_and_level_and_its_only_gap_is_the_run_object() -> None:
    assert list(matrix()) == list(FORMS) == list(SECTIONS)
    for form, cells in matrix().items():
        assert len(cells) == len(LEVELS)
        assert ("GAP" in cells) == (form == "F7 run object")
        explored = [level for level, cell in zip(LEVELS, cells, strict=True) if "explore" in cell]
        assert explored == (["L3"] if form in ("F3 generator", "F5 async generator") else [])
    assert set(matrix()["F7 run object"]) == {"GAP"}


@pytest.mark.inventory("P-486", "P-501")
@pytest.mark.parametrize("form", [form for form in FORMS if form != "F7 run object"])
def test_every_level_of_a_form_has_a_block_of_its_own(form: str) -> None:
    levels = split(SECTIONS[form], "###")
    assert tuple(levels) == LEVELS
    assert all(BLOCK.search(text) for text in levels.values())


@pytest.mark.parametrize(
    "form", [pytest.param(form, marks=pytest.mark.inventory(row, "P-486", "P-501")) for form, row in FORMS.items()]
)
def test_the_blocks_of_a_form_run_as_one_program(form: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    where = place("checkout", tmp_path, request, TMPDIR=str(tmp_path))
    program = tmp_path / "program.py"
    program.write_text("\n".join(BLOCK.findall(SECTIONS[form])) + "\nprint('to the end')\n", "utf-8")
    done = where.run(*STRICT, str(program))
    assert (done.returncode, done.stdout, done.stderr) == (0, "to the end\n", "")
