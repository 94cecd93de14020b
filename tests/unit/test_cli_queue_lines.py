"""Every documented command line about queues, as it is printed: it is understood, and goes as far as the network."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import click
import pytest

from lakeshore.cli.main import main
from lakeshore.cli.program import program

NOWHERE = "http://127.0.0.1:1"
LINES = """
C-1078 queues add training-h100
C-1079 queues add eval --kind priority --description "evaluation, urgent first"
C-1080 queues add training-h100 --kind priority --provider my-gpu-provider --elasticity pool-with-threshold --min 2 --max 16 --threshold 0.7 --instance-type p4d.24xlarge --max-depth 1000 --on-full reject
C-1081 queues ls
C-1082 queues ls --state active
C-1083 queues ls --json
C-1084 queues show training-h100
C-1085 queues show training-h100 --json
C-1086 queues patch training-h100 --description "h100 prod"
C-1087 queues patch training-h100 --max 32 --threshold 0.6
C-1088 queues patch training-h100 --max-depth 2000 --on-full block
C-1089 queues patch training-h100 --provider ""
C-1090 queues drain training-h100
C-1091 queues archive eval
C-1092 queues unarchive eval
C-1093 queues rm eval
C-1094 queues rm eval --force
C-1095 queues events training-h100
C-1096 queues events training-h100 --verbose --limit 200
C-1097 queues events training-h100 --json
C-1098 queues stats training-h100
C-1099 queues stats training-h100 --json
C-1193 queues add cpu-queue --kind fifo
C-1194 queues add gpu-t4 --kind priority
C-1198 queues rm cpu-queue
C-1199 queues rm gpu-t4
C-1205 queues add hello --kind fifo --elasticity fixed
C-1206 queues add training-burst --kind fifo --elasticity fully-elastic --provider ec2-h100 --max 32
C-1207 queues add training-h100 --kind priority --elasticity pool-with-threshold --provider ec2-h100 --min 2 --max 16 --threshold 0.7
C-1208 queues add nightly-eval --kind fifo --elasticity max-count --provider ec2-cpu --max 4
C-1209 queues events training-h100 --verbose
C-1210 queues unarchive training-h100
C-1230 queues archive training-h100
C-1231 queues rm training-h100
C-1234 queues add cpu-prep --kind fifo --elasticity fixed
C-1235 queues add training-h100 --kind priority --elasticity fixed
C-1240 queues patch training-h100 --max-depth 1000 --on-full reject
C-1241 queues patch training-h100 --description "h100 production"
C-1285 queues add smoke --kind fifo --elasticity fixed
C-1286 queues show smoke
C-1287 queues patch smoke --description "release smoke"
C-1288 queues stats smoke
C-1289 queues events smoke --verbose
C-1290 queues drain smoke
C-1291 queues unarchive smoke
"""  # noqa: E501  # as they are printed
FLAGS = """
C-619 add name
C-620 add --description
C-621 add --kind
C-622 add --provider
C-623 add --elasticity
C-624 add --min
C-625 add --max
C-626 add --threshold
C-627 add --instance-type
C-628 add --image-id
C-629 add --runner
C-630 add --max-depth
C-631 add --on-full
C-632 add --json
C-633 ls --state
C-634 ls --json
C-635 show name
C-636 show --json
C-637 patch name
C-638 patch --description
C-639 patch --provider
C-640 patch --min
C-641 patch --max
C-642 patch --threshold
C-643 patch --max-depth
C-644 patch --on-full
C-645 patch --json
C-646 archive name
C-647 unarchive --json
C-648 rm name
C-649 rm --force
C-650 events name
C-651 events --verbose
C-652 events --limit
"""


def rows(text: str) -> list[Any]:
    split = (line.partition(" ") for line in text.strip().splitlines())
    return [pytest.param(line, id=line, marks=pytest.mark.inventory(row)) for row, _, line in split]


@pytest.mark.parametrize("line", rows(LINES))
def test_a_documented_line_is_accepted_as_it_is_written(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LAKESHORE_URL", NOWHERE)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert main(shlex.split(line)) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("error: ")
    assert f"{NOWHERE}/v1/" in said.err


def verb(name: str) -> click.Command:
    group = program.get_command(click.Context(program), "queues")
    assert isinstance(group, click.Group)
    found = group.get_command(click.Context(group), name)
    assert found is not None, name
    return found


@pytest.mark.parametrize("line", rows(FLAGS))
def test_a_documented_flag_or_argument_is_taken_by_its_verb(line: str) -> None:
    name, wanted = line.split()
    assert wanted in {spelling for one in verb(name).params for spelling in (*one.opts, one.name)}


@pytest.mark.inventory("C-030")
def test_the_documented_verbs_are_listed_and_those_of_other_groups_are_not() -> None:
    group = program.get_command(click.Context(program), "queues")
    assert isinstance(group, click.Group)
    listed = group.list_commands(click.Context(group))
    assert {"add", "ls", "show", "patch", "archive", "unarchive", "drain", "rm", "events", "stats"} <= set(listed)
    assert not {"list", "remove", "create", "edit"} & set(listed)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        pytest.param("add Big", "lower-case letters", marks=pytest.mark.inventory("C-016")),
        pytest.param("add q --kind lifo", "fifo", marks=pytest.mark.inventory("C-177")),
        pytest.param("add q --elasticity elastic", "fully-elastic", marks=pytest.mark.inventory("C-178")),
        pytest.param("add q --threshold 1.5", "from 0 to 1", marks=pytest.mark.inventory("C-179")),
        pytest.param("add q --on-full wait", "block", marks=pytest.mark.inventory("C-179")),
        pytest.param("ls --state open", "archived", marks=pytest.mark.inventory("C-180")),
        pytest.param("events q --limit 201", "from 1 to 200", marks=pytest.mark.inventory("C-185")),
        ("add q --run-config [1]", "JSON object"),
        ("add q --rate-limit 0", "above 0"),
        ("patch q", "name something to change"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_sent(
    line: str, says: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LAKESHORE_URL", NOWHERE)
    assert main(["queues", *line.split()]) == 2
    said = capsys.readouterr()
    assert says in said.err and NOWHERE not in said.err
