"""`lakeshore.yaml`: the files that the pages print load, and what is wrong is refused with its file, line and key."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from lakeshore.cli.completing import local
from lakeshore.cli.compose.pythons import interpreter, with_pythons
from lakeshore.config.compose import Compose, Mount, place_of, read_compose
from lakeshore.config.errors import ConfigError

SPEC = Path(__file__).resolve().parents[3] / "shared" / "spec"
HEAD = "version: 1\nproject: p\nprovider: x\n"
ONE = "daemons: {a: {queues: [q], count: 1}}\n"
CONCEPT, TUTORIAL = "get-started/compose.md", "get-started/tutorials/compose.md"
HAPPY, REFERENCE = "admin/happy-paths/12-compose-cluster.md", "api/configuration.md"

PRINTED: list[Any] = [  # (page, which of its blocks, what is put before it, project, {group: count}, queues)
    pytest.param(REFERENCE, 0, "", "research", {"trainers": 2}, ["training"], marks=pytest.mark.inventory("C-818")),
    pytest.param(
        *(CONCEPT, 0, "", "hello-cluster", {"cpu": 5, "gpu": 5}, ["cpu-queue", "gpu-t4"]),
        marks=pytest.mark.inventory("C-819"),
    ),
    pytest.param(CONCEPT, 1, HEAD, "p", {"gpu": 4}, [], marks=pytest.mark.inventory("C-820")),
    pytest.param(TUTORIAL, 0, "", "my-first-cluster", {"worker": 2}, ["work"], marks=pytest.mark.inventory("C-821")),
    pytest.param(
        *(TUTORIAL, 1, "", "training-cluster", {"cpu": 5, "gpu": 3}, ["cpu-pool", "gpu-t4"]),
        marks=pytest.mark.inventory("C-822"),
    ),
    pytest.param(TUTORIAL, 2, "", "ml-training", {"gpu": 2}, ["training"], marks=pytest.mark.inventory("C-823")),
    pytest.param(TUTORIAL, 3, HEAD, "p", {"train": 4}, [], marks=pytest.mark.inventory("C-824", "C-892")),
    pytest.param(
        TUTORIAL,
        4,
        HEAD + "daemons: {a: {queues: [training], count: 1}}\n",
        "p",
        {"a": 1},
        ["training"],
        marks=pytest.mark.inventory("C-825"),
    ),
    pytest.param(
        *(HAPPY, 0, "", "08-queues-tutorial", {"cpu": 5, "gpu": 5}, ["cpu-lane", "gpu-t4"]),
        marks=pytest.mark.inventory("C-826"),
    ),
]


def loaded(directory: Path, text: str) -> Compose:
    path = directory / "lakeshore.yaml"
    path.write_text(text)
    return read_compose(path)


def group(directory: Path, text: str) -> Any:
    """The one group of a file, whose keys are given."""
    return loaded(directory, f"{HEAD}daemons:\n  gpu: {{queues: [q], count: 1, {text}}}\n").groups[0]


def queue(directory: Path, text: str) -> Compose:
    return loaded(directory, f"{HEAD}queues:\n  q: {{{text}}}\ndaemons: {{gpu: {{queues: [q], count: 1}}}}\n")


@pytest.mark.parametrize(("page", "which", "before", "project", "groups", "queues"), PRINTED)
def test_a_file_that_a_page_prints_loads(
    tmp_path: Path, page: str, which: int, before: str, project: str, groups: dict[str, int], queues: list[str]
) -> None:
    if not SPEC.exists():
        pytest.skip("the contract's pages (../shared/spec) are not here")
    blocks = re.findall(r'```yaml file="lakeshore.yaml"\n(.*?)```', (SPEC / page).read_text(), re.DOTALL)
    found = loaded(tmp_path, before + blocks[which])
    assert (found.project, {one.name: one.count for one in found.groups}) == (project, groups)
    assert [one.name for one in found.queues] == queues
    assert found.warnings == ()
    assert all(one.provider for one in found.groups)


@pytest.mark.parametrize("name", ["08-queues-cpu-vs-gpu", "14-compose-cluster"])
def test_the_files_of_the_examples_load(name: str) -> None:
    found = read_compose(Path(__file__).resolve().parents[2] / "examples" / name / "lakeshore.yaml")
    assert found.warnings == ()
    assert {queue.name for queue in found.queues} == {name for group in found.groups for name in group.queues}


def test_a_tab_offers_the_groups_of_the_file_and_the_labels_of_their_daemons(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert (local.compose_groups(), local.compose_names()) == ([], [])
    loaded(tmp_path, f"{HEAD}daemons: {{a: {{queues: [q], count: 2}}, b: {{queues: [q], count: 1}}}}\n")
    assert local.compose_groups() == ["a", "b"]
    assert local.compose_names() == ["a", "b", "a-0", "a-1", "b-0"]
    (tmp_path / "lakeshore.yaml").write_text("daemons: {a: {queues: [q]}}\n")
    assert local.compose_groups() == []


@pytest.mark.inventory("C-317", "C-364")
def test_it_is_looked_for_in_the_working_directory_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded(tmp_path, f"{HEAD}daemons: {{a: {{queues: [q], count: 1}}}}\n")
    monkeypatch.chdir(tmp_path)
    assert read_compose().project == "p"
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    with pytest.raises(ConfigError, match=r"there is no lakeshore\.yaml here: name one with -f <path>"):
        read_compose()
    assert read_compose(Path("../lakeshore.yaml")).project == "p"


@pytest.mark.inventory("C-324", "C-325", "C-326")
@pytest.mark.inventory("C-327", "C-328", "C-329")
@pytest.mark.inventory("C-330", "C-331", "C-332")
def test_a_group_has_all_that_the_pages_name(tmp_path: Path) -> None:
    text = (
        'provider: own, instance_type: t3.medium, image_id: ami-1, runner: docker, keep_alive_s: -1, python: "3.12", '
        "setup: [apt-get update -y, pip install torch], startup: pip install -q x, "
        "mounts: [{storage: org/ckpt, mount_path: /mnt/c, readonly: true}, {storage: data, mount_path: /d}]"
    )
    found = group(tmp_path, text)
    assert (found.provider, found.instance_type, found.image_id, found.runner) == (
        *("own", "t3.medium"),
        *("ami-1", "docker"),
    )
    assert (found.keep_alive_s, found.python, found.startup) == (-1, "3.12", "pip install -q x")
    assert found.setup == ("apt-get update -y", "pip install torch")
    assert found.mounts == (
        Mount(storage="org/ckpt", mount_path="/mnt/c", readonly=True),
        Mount(storage="data", mount_path="/d"),
    )
    assert group(tmp_path, "runner:, setup:").runner is None


@pytest.mark.inventory("C-335")
def test_labels_are_the_groups_name_and_a_number_from_nought(tmp_path: Path) -> None:
    found = loaded(tmp_path, f"{HEAD}daemons: {{a-1: {{queues: [q], count: 3}}}}\n")
    assert found.groups[0].labels == ["a-1-0", "a-1-1", "a-1-2"]
    assert [place_of(label) for label in found.groups[0].labels] == [("a-1", 0), ("a-1", 1), ("a-1", 2)]
    assert [place_of(label) for label in ("a", "a-", "-1", "a-x", "a-01", "A-1", "a-²", "")] == [None] * 8


REFUSED: list[Any] = [
    ("project: p\n", r"line 1: version — required, must be 1 \(got null\)"),
    ('version: "1"\nproject: p\n', r'line 1: version — required, must be 1 \(got "1"\)'),
    ("version: 2\nproject: p\n", r"version — required, must be 1 \(got 2\)"),
    ("version: true\nproject: p\n", r"version — required, must be 1 \(got true\)"),
    ("version: 1\n", r"project — required, a name of lower-case letters"),
    ("version: 1\nproject: My_Project\n", r'line 2: project — must be a name of .* \(got "My_Project"\)'),
    ("version: 1\nproject: 12\n", r'project — must be a name of .* \(got 12\); write "12"'),
    (HEAD, r"daemons — required, a mapping of one group or more \(got null\)"),
    (f"{HEAD}daemons: {{}}\n", r"line 4: daemons — required, a mapping of one group or more \(got \{\}\)"),
    (f"{HEAD}daemons: [a]\n", r"line 4: daemons — must be a mapping"),
    (f"{HEAD}daemons:\n  GPU: {{queues: [q], count: 1}}\n", r"line 5: daemons\.GPU — must be a name"),
    ("", r"is empty; `version: 1`, `project` and `daemons` are required"),
    ("daemons: {\n", r"line 2: "),
]
IN_A_GROUP: list[Any] = [
    ("queues: [q]", r"daemons\.gpu\.count — required, positive integer \(got null\)", "C-864"),
    ("queues: [q], count:", r"daemons\.gpu\.count — required, positive integer \(got null\)", "C-359"),
    ("queues: [q], count: 0", r"daemons\.gpu\.count — required, positive integer \(got 0\)", "C-323"),
    ("queues: [q], count: 1.5", r"count — required, positive integer \(got 1\.5\)", "C-323"),
    ('queues: [q], count: "3"', r'count — required, positive integer \(got "3"\)', "C-323"),
    ("queues: [q], count: true", r"count — required, positive integer \(got true\)", "C-323"),
    ("queues: [q], count: 100000", r"count — must be 10000 at most", "C-323"),
    ("count: 1", r"daemons\.gpu\.queues — required, non-empty list of queue names \(got null\)", "C-322"),
    ("queues: [], count: 1", r"queues — required, non-empty list of queue names \(got \[\]\)", "C-322"),
    ("queues: q, count: 1", r'queues — required, non-empty list of queue names \(got "q"\)', "C-322"),
    ("queues: [q, Q], count: 1", r'queues\[1\] — must be a name of .* \(got "Q"\)', "C-322"),
    ("queues: [q], count: 1, mode: m", r"mode — no such key; a daemon group has queues, count, provider,", "C-891"),
    ("queues: [q], count: 1, tags: [t]", r"gpu\.tags — no such key; .*runner, keep_alive_s, setup, startup", "C-333"),
    ("queues: [q], count: 1, host_setup: [t]", r"host_setup — is called setup; a daemon group has", "C-895"),
    ("queues: [q], count: 1, setup: apt-get", r'setup — must be a list of bash snippets \(got "apt-get"\)', "C-890"),
    ("queues: [q], count: 1, setup: [1]", r'setup\[0\] — must be text \(got 1\); write "1"', "C-334"),
    ("queues: [q], count: 1, python: 3.12", r'python — must be text \(got 3\.12\); write "3\.12"', "C-331"),
    ("queues: [q], count: 1, keep_alive_s: soon", r"keep_alive_s — must be a number of seconds, or -1", "C-328"),
    ("queues: [q], count: 1, mounts: {a: b}", r"mounts — must be a list of \{storage, mount_path, readonly\}", "C-334"),
    ("queues: [q], count: 1, mounts: [{storage: s}]", r"mounts\[0\]\.mount_path — required", "C-334"),
    ("queues: [q], count: 1, mounts: [{storage: a/b/c, mount_path: /m}]", r"storage — must be <name> or", "C-332"),
    ("queues: [q], count: 1, mounts: [{storage: a, mount_path: m}]", r"mount_path — must begin with /", "C-332"),
    ("queues: [q], count: 1, mounts: [{storage: a, mount_path: /m, ro: true}]", r"mounts\[0\]\.ro — no such", "C-332"),
]


@pytest.mark.inventory("C-318")
@pytest.mark.parametrize(("text", "says"), REFUSED)
def test_what_the_file_lacks_is_told_with_its_line_and_key(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        loaded(tmp_path, text)
    assert str(tmp_path / "lakeshore.yaml") in str(caught.value)


@pytest.mark.parametrize(
    ("text", "says"), [pytest.param(text, says, marks=pytest.mark.inventory(row)) for text, says, row in IN_A_GROUP]
)
def test_what_is_wrong_with_a_group_is_told_with_its_line_and_key(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=f"lakeshore.yaml, line 5: .*{says}"):
        loaded(tmp_path, f"{HEAD}daemons:\n  gpu: {{{text}}}\n")


@pytest.mark.inventory("C-890")
def test_a_block_of_text_is_no_list_of_snippets(tmp_path: Path) -> None:
    text = f"{HEAD}daemons:\n  gpu:\n    queues: [q]\n    count: 1\n    setup: |\n      apt-get update\n      true\n"
    with pytest.raises(ConfigError, match=r"line 8: daemons\.gpu\.setup — must be a list .*make an entry of each"):
        loaded(tmp_path, text)


@pytest.mark.inventory("C-320", "C-1424")
def test_a_queue_says_what_the_server_knows_of_one(tmp_path: Path) -> None:
    text = (
        "kind: filo, description: d, provider: x, admission: {max_depth: 5}, run_config: {timeout_s: 3}, "
        "kind_params: {temperature: 2}, daemon_template: {instance_type: t, image_id: i, runner: docker}, "
        "elasticity: {kind: max_count, max: 4, pool: a, match: {tags: [t]}, steal_delay_s: 2, cost_weight: 3}"
    )
    found = queue(tmp_path, text)
    assert found.warnings == ()
    assert found.queues[0].settings == {
        "kind": "filo",
        "description": "d",
        "providerRef": "x",
        "admission": {"max_depth": 5},
        "runConfig": {"timeout_s": 3},
        "kindParams": {"temperature": 2},
        "daemonTemplate": {"instance_type": "t", "image_id": "i", "runner": "docker"},
        "elasticity": {
            "kind": "max_count",
            "max": 4,
            "pool": "a",
            "match": {"tags": ["t"]},
            "steal_delay_s": 2,
            "cost_weight": 3,
        },
    }


@pytest.mark.inventory("C-319", "C-320", "C-1424")
def test_unknown_keys_of_the_file_and_of_a_queue_are_ignored_with_a_warning(tmp_path: Path) -> None:
    found = queue(tmp_path, "colour: red, elasticity: {speed: 3}, daemon_template: {zone: z}")
    assert [re.search(r"line 5: (\S+) — no such key, ignored; there are", one)[1] for one in found.warnings] == [  # type: ignore[index]  # it matches, or the test fails
        "queues.q.colour",
        "queues.q.elasticity.speed",
        "queues.q.daemon_template.zone",
    ]
    assert found.queues[0].settings == {"elasticity": {"kind": "fixed"}, "daemonTemplate": {}}
    top = f"{HEAD}x-mine: 1\nserver: http://x\nnamespace: team\ndaemons: {{a: {{queues: [q], count: 1}}}}\n"
    found = loaded(tmp_path, top)
    assert found.namespace == "team"
    assert [one.split(", ", 1)[1] for one in found.warnings] == [
        "line 5: server — no such key, ignored; there are version, project, namespace, provider, queues, daemons"
    ]


@pytest.mark.inventory("C-321")
@pytest.mark.parametrize("kind", ["fixed", "fully_elastic", "pool_with_threshold", "max_count"])
def test_an_elasticity_kind_has_underscores(tmp_path: Path, kind: str) -> None:
    assert queue(tmp_path, f"elasticity: {{kind: {kind}}}").queues[0].settings["elasticity"] == {"kind": kind}
    if "_" in kind:
        said = kind.replace("_", "-")
        with pytest.raises(
            ConfigError, match=rf"elasticity\.kind — must be one of .* \(got \"{said}\"\); write {kind}"
        ):
            queue(tmp_path, f"elasticity: {{kind: {said}}}")


@pytest.mark.inventory("C-320")
@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("kind: lifo", r'kind — must be one of fifo, priority, boltzmann, filo \(got "lifo"\)'),
        ("kind: [fifo]", r"kind — must be one of"),
        ("elasticity: {min: 3, max: 2}", r"elasticity\.min — is above max \(3 > 2\)"),
        ("elasticity: {min: -1}", r"elasticity\.min — must be a whole number"),
        ("elasticity: {threshold: 80}", r"elasticity\.threshold — must be a number from 0 to 1"),
        ("elasticity: fixed", r"elasticity — must be a mapping"),
        ("daemon_template: {runner: 3}", r"daemon_template\.runner — must be text"),
    ],
)
def test_what_is_wrong_with_a_queue_is_told_with_its_key(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=rf"line 5: queues\.q\.{says}"):
        queue(tmp_path, text)


def test_groups_may_share_what_is_written_once(tmp_path: Path) -> None:
    text = (
        f"{HEAD}x-base: &base {{queues: [q], count: 1, runner: docker}}\n"
        "daemons:\n  a: &a {<<: *base, count: 2}\n  b: *a\n  c: {<<: *a, count: 3}\n"
    )
    found = loaded(tmp_path, text)
    assert [(one.name, one.count, one.runner) for one in found.groups] == [
        *(("a", 2, "docker"), ("b", 2, "docker")),
        ("c", 3, "docker"),
    ]


@pytest.mark.inventory("C-331")
def test_a_declared_queue_whose_groups_have_one_python_runs_its_jobs_with_it(tmp_path: Path) -> None:
    text = (
        f"{HEAD}queues: {{one: {{}}, two: {{}}, own: {{run_config: {{python: /opt/py}}}}}}\n"
        'daemons:\n  a: {queues: [one, two, own, other], count: 1, python: "3.12"}\n'
        "  b: {queues: [two], count: 1}\n"
    )
    found = with_pythons(loaded(tmp_path, text))
    assert {one.name: one.settings.get("runConfig") for one in found.queues} == {
        "one": {"python": "python3.12"},
        "two": None,
        "own": {"python": "/opt/py"},
    }
    assert [one.split(":")[0] for one in found.warnings] == ["queues.two", "daemons.a.python"]
    assert [interpreter(said) for said in ("3.12", "3.12.4", "3", "python3.9", "/opt/py")] == [
        *("python3.12", "python3.12", "python3", "python3.9"),
        "/opt/py",
    ]


@pytest.mark.parametrize("said", ["2026-01-01", "!!binary aGk=", ".nan", "{a: [!!timestamp 2026-01-01]}"])
@pytest.mark.parametrize("table", ["admission", "kind_params", "run_config", "elasticity"])
def test_what_the_server_cannot_be_told_is_the_files_fault(tmp_path: Path, table: str, said: str) -> None:
    key = "pool" if table == "elasticity" else "x"
    with pytest.raises(ConfigError, match=rf"line \d+: queues\.q\.{table}\.{key} — must be text"):
        loaded(tmp_path, f"{HEAD}queues: {{q: {{{table}: {{{key}: {said}}}}}}}\n{ONE}")


def test_what_a_queue_is_told_compares_as_its_row_has_it(tmp_path: Path) -> None:
    found = loaded(tmp_path, f"{HEAD}queues: {{q: {{run_config: {{env: {{1: a}}, p: !!pairs [a: 1]}}}}}}\n{ONE}")
    assert found.queues[0].settings["runConfig"] == {"env": {"1": "a"}, "p": [["a", 1]]}
