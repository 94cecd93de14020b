"""`.lakeshore` and `.lakeshore.local`: where they are looked for, how they lie over each other, what flags change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lakeshore.config.errors import ConfigError
from lakeshore.config.project import ProjectDefaults, project_defaults

PAGES = (("api/configuration.md", "C-816"), ("nymph/daemon-lifecycle.md", "C-817"))


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A directory with `.git`, and one deep below it."""
    (tmp_path / "project" / ".git").mkdir(parents=True)
    (tmp_path / "project" / "deep" / "deeper").mkdir(parents=True)
    return tmp_path / "project"


@pytest.mark.inventory("C-311", "C-363")
def test_the_first_level_that_has_either_file_wins_and_git_ends_the_way_up(project: Path) -> None:
    deep = project / "deep" / "deeper"
    write(project.parent / ".lakeshore", "daemon: {name: outside}\n")
    assert project_defaults(deep) == ProjectDefaults()
    write(project / ".lakeshore", "daemon: {name: top, tags: [a]}\n")
    assert project_defaults(deep).name == "top"
    write(project / "deep" / ".lakeshore.local", "daemon: {name: nearer}\n")
    found = project_defaults(deep)
    assert (found.name, found.tags, found.files) == ("nearer", (), (project / "deep" / ".lakeshore.local",))


def test_the_working_directory_is_where_it_begins(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(project / ".lakeshore", "daemon: {name: top}\n")
    monkeypatch.chdir(project / "deep")
    assert project_defaults().name == "top"


@pytest.mark.inventory("C-316", "C-1381")
def test_a_directory_of_that_name_is_no_file(project: Path) -> None:
    (project / "deep" / ".lakeshore").mkdir()
    write(project / ".lakeshore", "daemon: {name: top}\n")
    assert project_defaults(project / "deep").name == "top"


@pytest.mark.inventory("C-313", "C-315")
def test_the_local_file_lies_over_the_other_key_by_key_and_lists_replace(project: Path) -> None:
    write(project / ".lakeshore", "daemon: {provider: aws, tags: [a, b], capacity: {n: 1, m: 2}, keep_alive_s: 600}\n")
    write(project / ".lakeshore.local", "daemon: {tags: [c], capacity: {n: 3}}\n")
    found = project_defaults(project)
    assert (found.provider, found.tags, found.capacity, found.keep_alive_s) == ("aws", ("c",), {"n": 3}, 600)
    assert [path.name for path in found.files] == [".lakeshore", ".lakeshore.local"]


@pytest.mark.inventory("C-315", "C-313", "C-203")
def test_flags_lie_over_the_files_and_setup_scripts_alone_are_added(project: Path) -> None:
    write(project / ".lakeshore", "daemon: {provider: aws, tags: [a], keep_alive_s: 600, setup_scripts: [one.sh]}\n")
    files = project_defaults(project)
    assert files.under() == files
    flags = files.under(tags=["b"], queues=["q"], keep_alive_s=0, setup_scripts=[Path("/two.sh")])
    assert (flags.provider, flags.tags, flags.queues, flags.keep_alive_s) == ("aws", ("b",), ("q",), 0)
    assert flags.setup_scripts == (project / "one.sh", Path("/two.sh"))
    none = files.under(setup_scripts=[Path("/two.sh")], bootstrap_script=Path("/boot.sh"), no_setup=True)
    assert (none.setup_scripts, none.bootstrap_script) == ((), None)


@pytest.mark.inventory("C-314", "C-206")
def test_scripts_are_meant_from_the_files_directory_and_travel_as_text(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(project / "scripts" / "boot.sh", "echo boot\n")
    write(project / "cuda.sh", "echo cuda\n")
    write(project / ".lakeshore", "daemon: {bootstrap_script: ./scripts/boot.sh, setup_scripts: [cuda.sh]}\n")
    monkeypatch.chdir(project / "deep" / "deeper")
    assert project_defaults().scripts() == ("echo boot\n", ("echo cuda\n",))
    (project / "cuda.sh").unlink()
    with pytest.raises(ConfigError, match=r"cannot read the script /.*/project/cuda\.sh"):
        project_defaults().scripts()


@pytest.mark.inventory("C-312")
def test_every_key_is_optional_unknown_ones_are_left_alone_and_lanes_are_queues(project: Path) -> None:
    write(project / ".lakeshore", "other: [1]\ndaemon:\n  lanes: [training]\n  colour: blue\n  provider:\n")
    found = project_defaults(project)
    assert (found.queues, found.provider) == (("training",), None)
    for text in ("", "# nothing\n", "daemon:\n", "daemon: {}\n"):
        write(project / ".lakeshore", text)
        assert project_defaults(project) == ProjectDefaults(files=(project / ".lakeshore",))


REFUSED: list[Any] = [
    ("daemon:\n  tags: gpu\n", r"line 2: daemon\.tags — must be a list of strings, got 'gpu'"),
    ("daemon:\n  keep_alive_s: soon\n", r"line 2: daemon\.keep_alive_s — must be an integer, got 'soon'"),
    ("daemon:\n  keep_alive_s: true\n", r"daemon\.keep_alive_s — must be an integer, got True"),
    ("daemon:\n  capacity: 3\n", r"line 2: daemon\.capacity — must be a mapping"),
    ("daemon:\n  provider: [a]\n", r"line 2: daemon\.provider — must be a string"),
    ("daemon:\n  queues: [a]\n  lanes: [b]\n", r"line 3: daemon\.lanes — is the old word for queues"),
    ("daemon: [a]\n", r"line 1: daemon — must be a mapping"),
    ("daemon: {\n", r"line 2: "),
]


@pytest.mark.parametrize(("text", "says"), REFUSED)
def test_what_makes_no_sense_is_refused_with_its_file_line_and_key(project: Path, text: str, says: str) -> None:
    path = write(project / ".lakeshore.local", text)
    with pytest.raises(ConfigError, match=says) as caught:
        project_defaults(project)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("page", [pytest.param(page, marks=pytest.mark.inventory(row), id=row) for page, row in PAGES])
def test_the_example_of_the_page_loads(project: Path, page: str) -> None:
    path = Path(__file__).resolve().parents[3] / "shared" / "spec" / page
    if not path.is_file():
        pytest.skip(f"the reference's page is not at {path}")
    write(project / ".lakeshore", path.read_text().split('file=".lakeshore"\n')[1].split("```")[0])
    found = project_defaults(project)
    assert found.provider is not None
    assert found.queues == ("training",)
    assert found.keep_alive_s in (600, 1800)
    assert set(found.capacity) == {"instance_type"}
    assert found.bootstrap_script is not None
    assert found.bootstrap_script.parent.parent == project
    assert found.setup_scripts
