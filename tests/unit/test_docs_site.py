"""The generated pages name everything that there is, and the twins for programs are what their page says."""

from __future__ import annotations

import re
import sys
import zipfile
from pathlib import Path

import click
import pytest
import yaml

import dreamlake.lakeshore as dls
from lakeshore.cli.table import COMMANDS, NOT_BUILT
from lakeshore.server.routes.table import TABLE

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "docs" / "_site"))

import cli_reference  # noqa: E402  # the path above
import http_reference  # noqa: E402
import prose  # noqa: E402
import sdk_reference  # noqa: E402
import sources  # noqa: E402
import twins  # noqa: E402

SITE = "https://docs.example/lakeshore/"


def headings(page: str) -> list[str]:
    return re.findall(r"^#+ (.+)$", page, re.M)


def test_every_route_has_its_place_with_its_tier_its_scopes_and_its_statuses() -> None:
    page = http_reference.page()
    for row in TABLE:
        name = f"### {row.method} {row.pattern.replace('...', '')}\n"
        assert page.count(name) == 1
        said = page.split(name)[1].split("\n### ")[0]
        tier, statuses = re.match(r"\n\*\*(\w+)\*\*.* · ([\d, ]+)\n", said).groups()  # type: ignore[union-attr]
        assert tier in {row.tier, "admin"}
        assert {"200", "201", "202", "501"} & set(statuses.split(", "))
        if row.tier == "plain":
            assert all(f"`{scope}`" in said for scope in row.scopes)
        if row.tier not in ("open", "signed"):
            assert {"401", "403"} <= set(statuses.split(", "))


def test_the_statuses_of_a_route_are_those_that_its_handler_answers_with() -> None:
    by_name = {f"{row.method} {row.pattern}": http_reference.statuses(row) for row in TABLE}
    assert {200, 400, 401, 403, 404, 409, 413, 415, 422, 429, 507} == by_name["POST /v1/producer/submit"]
    assert {200, 202, 404, 409} <= by_name["DELETE /v1/namespaces/{ns}/invocations/{id}"]
    assert {200, 206, 403, 404, 416} >= by_name["GET /v1/blobs/{key...}"] >= {200, 403, 404, 416}
    assert by_name["GET /healthz"] == {200}


def test_every_body_of_the_protocol_that_a_route_takes_has_its_fields() -> None:
    page = http_reference.page()
    for name in ("SubmitItem", "SubmitBatch", "AwaitOne", "WatchSet", "PollRequest", "AckItem", "ChunkRun", "BlobRef"):
        section = page.split(f"### {name}\n")[1].split("\n### ")[0]
        for field in getattr(dls.wire, "messages", http_reference.messages).__dict__[name].__dataclass_fields__:
            assert f"| `{field}` |" in section


def test_every_command_and_every_option_has_its_place() -> None:
    page = cli_reference.page()
    found = dict(cli_reference.commands())
    assert {path.split()[1] for path in found} == set(COMMANDS)
    for path, command in found.items():
        assert re.search(rf"^#+ {re.escape(path)}$", page, re.M)
        for parameter in command.params:
            if isinstance(parameter, click.Option) and not parameter.hidden:
                assert max(parameter.opts, key=len) in page
        if isinstance(command, click.Group):
            ctx = click.Context(command)
            below = {name: command.get_command(ctx, name) for name in command.list_commands(ctx)}
            assert {f"{path} {name}" for name, inner in below.items() if inner and not inner.hidden} <= found.keys()
    assert all(f"| `{name}` |" in page for name in NOT_BUILT)
    assert not re.search(r"\bx(<|>|&lt;)=|=None", page), "a range in click's words"


def test_every_exported_name_and_every_public_method_has_its_place() -> None:
    page = sdk_reference.page()
    for name in dls.__all__:
        assert f"### {name}\n" in page or f"- `{name}`: not built yet" in page
    for cls in (dls.UDF, dls.SyncQueue, dls.Queue, dls.Topic, dls.Dispatch, dls.HttpDispatch, dls.RunContext):
        for name, value in vars(cls).items():
            if not name.startswith("_") and (callable(value) or isinstance(value, property)):
                assert f"#### {cls.__name__}.{name}\n" in page


def test_no_reference_names_rows_pages_or_classes_without_words() -> None:
    for page in (sdk_reference.page(), cli_reference.page(), http_reference.page()):
        assert not re.search(r"\b[SNPCK]-\d{1,4}\b", page)
        assert "Reference:" not in page
        assert len(headings(page)) == len(set(headings(page))), "two headings have one anchor"


def test_every_public_method_of_the_sdk_says_what_it_does() -> None:
    silent = [
        f"{name}.{method}"
        for name in dls.__all__
        if isinstance(cls := getattr(dls, name), type)
        for method, value in vars(cls).items()
        if not method.startswith("_") and (callable(value) or isinstance(value, property))
        if not prose.doc_of(value)
    ]
    assert silent == []


def test_the_menu_names_pages_that_are_there_or_made() -> None:
    text = re.sub(r"!ENV \[.*\]", "x", (ROOT / "mkdocs.yml").read_text())
    listed = re.findall(r"[\w/-]+\.md", yaml.safe_dump(yaml.safe_load(text)["nav"]))
    made = re.findall(r'^    "([\w/-]+\.md)":', (ROOT / "docs/_site/hooks.py").read_text(), re.M)
    assert len(made) > 5
    assert len(listed) == len(set(listed))
    there = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    assert {*listed} - {*made} <= there


def test_a_figure_is_included_from_where_it_was_measured() -> None:
    row = "| round trip, HTTP plane, p50 ms |"
    measured = next(line for line in sources.read("benchmarks/README.md").splitlines() if line.startswith(row))
    whole = sources.included("<!-- include: benchmarks/README.md#Table -->\n")
    part = sources.included(
        "<!-- include: benchmarks/README.md#Table rows=round trip, HTTP plane, p50 columns=row; × -->"
    )
    assert measured in whole
    assert part.splitlines()[2] == f"{row} {measured.split('|')[2].strip()} |"
    with pytest.raises(ValueError, match="no section 'Tables'"):
        sources.included("<!-- include: benchmarks/README.md#Tables -->")
    with pytest.raises(ValueError, match="0 of"):
        sources.included("<!-- include: benchmarks/README.md#Table rows=nothing -->")


def test_comments_reach_no_reader_but_those_that_a_fence_shows() -> None:
    text = "a\n<!-- page: bare -->\nb\n```text\n<!-- shown -->\n```\n<!-- two\nlines -->\nc\n"
    assert sources.without_directives(text) == "a\nb\n```text\n<!-- shown -->\n```\nc\n"


PAGES = [
    twins.Twin(path="index.md", section="", text="# Home\n\nFirst *words*. More.\n\n[on](guides/a.md#here)\n"),
    twins.Twin(
        path="guides/a.md",
        section="Guides",
        text="# A\n\n[home](../index.md) [out](https://x.example/y.md)\n\n```text\n[raw](../index.md)\n```\n",
        said="About a.",
    ),
]


@pytest.fixture
def site(tmp_path: Path) -> Path:
    twins.write(PAGES, tmp_path, SITE, "Lakeshore", "Runs functions.")
    return tmp_path


def test_a_page_has_a_twin_whose_links_lead_to_twins(site: Path) -> None:
    assert "[on](/lakeshore/guides/a.md#here)" in (site / "index.md").read_text()
    told = (site / "guides/a.md").read_text()
    assert "[home](/lakeshore/index.md)" in told
    assert "[out](https://x.example/y.md)" in told
    assert "[raw](../index.md)" in told


def test_llms_txt_lists_every_page_by_section_with_one_line(site: Path) -> None:
    assert (site / "llms.txt").read_text() == (
        "# Lakeshore\n\n> Runs functions.\n\n"
        f"- [Home]({SITE}index.md): First *words*.\n"
        f"\n## Guides\n\n- [A]({SITE}guides/a.md): About a.\n"
    )


def test_llms_full_txt_has_every_page_after_its_source(site: Path) -> None:
    full = (site / "llms-full.txt").read_text()
    assert full.startswith(f"Source: {SITE}\n\n# Home\n")
    assert f"\nSource: {SITE}guides/a/\n\n# A\n" in full


def test_the_skill_has_an_index_and_a_file_a_page_and_is_the_same_each_time(site: Path, tmp_path: Path) -> None:
    archive = site / "skills" / "lakeshore.zip"
    first = archive.read_bytes()
    with zipfile.ZipFile(archive) as skill:
        assert sorted(skill.namelist()) == [
            "lakeshore/SKILL.md",
            "lakeshore/reference/guides-a.md",
            "lakeshore/reference/index.md",
        ]
        index = skill.read("lakeshore/SKILL.md").decode()
        assert index.startswith("---\nname: lakeshore\ndescription: ")
        assert "- [A](reference/guides-a.md): About a." in index
        assert "(reference/guides-a.md#here)" in skill.read("lakeshore/reference/index.md").decode()
    twins.write(PAGES, tmp_path, SITE, "Lakeshore", "Runs functions.")
    assert archive.read_bytes() == first
