"""What tools of this machine print may be anything: a sentence, never a traceback, a full disk or a hang."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lakeshore.clouds import docker, gcloud, instances, kube, slurm, tools

KEYS = (
    *("name", "Name", "Reservations", "Instances", "State", "Tags", "Key", "Value", "items", "metadata", "status"),
    *("spec", "contexts", "clusters", "cluster", "context", "server", "current-context", "user", "namespace"),
    *("networkInterfaces", "accessConfigs", "machineType", "properties", "core", "account", "auth", "compute"),
    *("credential_file_override", "DockerEndpoint", "Description", "phase"),
)


def named(parse: Callable[[Any], Any]) -> str:
    return f"{parse.__module__}.{parse.__name__}"


def tree(rng: random.Random, deep: int = 0) -> Any:
    many = rng.random()
    if deep > 5 or many < 0.3:
        return rng.choice([None, 1, -1.5, True, "", "a\x1b[2J", "x\0y", "..", [], {}, float("nan"), 10**40])
    if many < 0.6:
        return [tree(rng, deep + 1) for _ in range(rng.randrange(4))]
    return {rng.choice(KEYS): tree(rng, deep + 1) for _ in range(rng.randrange(8))}


@pytest.mark.parametrize(
    "parse",
    [gcloud.parsed, kube.parsed, instances.of_ec2, instances.of_gce, instances.of_kube],
    ids=named,
)
def test_any_json_is_read(parse: Callable[[Any], Any]) -> None:
    rng = random.Random(1)
    for _ in range(2000):
        parse(tree(rng))


@pytest.mark.parametrize("parse", [docker.parsed, slurm.parsed, instances.of_slurm], ids=named)
def test_any_lines_are_read_or_refused(parse: Callable[[Any], Any]) -> None:
    rng = random.Random(1)
    for _ in range(1000):
        told = [json.dumps(tree(rng)), "|".join(str(tree(rng, 9)) for _ in range(rng.randrange(10)))]
        try:
            parse(told[:1] if parse is docker.parsed else told)
        except tools.ToolError as error:
            assert "docker answered" in str(error)


def tool(path: Path, text: str) -> str:
    made = path / "hostile"
    made.write_text(f"#!/bin/sh\n{text}\n")
    made.chmod(0o755)
    return str(made)


@pytest.mark.parametrize("where", ["", ">&2"])
def test_a_tool_that_never_ends_to_print_is_ended_long_before_its_time(where: str, tmp_path: Path) -> None:
    began = time.monotonic()
    with pytest.raises(tools.ToolError, match="says more than 16 MiB"):
        tools.said_by([tool(tmp_path, f"exec cat /dev/zero {where}")], limit_s=60)
    assert time.monotonic() - began < 30


@pytest.mark.parametrize("text", ["[" * 100_000, "9" * 10_000, "", "\x1b[2J"])
def test_what_is_no_json_is_told(text: str, tmp_path: Path) -> None:
    (tmp_path / "said").write_text(text or "x")
    with pytest.raises(tools.ToolError, match="something else than JSON") as caught:
        tools.json_of([tool(tmp_path, f"cat {tmp_path}/said")])
    assert "\x1b" not in str(caught.value)
