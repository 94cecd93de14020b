"""The build's own steps: pages that are generated, includes, the twins of every page for programs.

Rule: nothing is written twice, and no page loads anything from elsewhere.
References come from the code that they describe; the changelog, the contributor's
page and the benchmarks are the files of the repository; a figure is included from where it was measured.
Called by MkDocs (`hooks:` in mkdocs.yml).
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
for place in (str(ROOT), str(HERE)):
    if place not in sys.path:
        sys.path.insert(0, place)

from mkdocs.exceptions import PluginError  # noqa: E402
from mkdocs.structure.files import File  # noqa: E402

import cli_reference  # noqa: E402  # the two paths above
import http_reference  # noqa: E402
import sdk_reference  # noqa: E402
import sources  # noqa: E402
import twins  # noqa: E402

GENERATED = {
    "reference/sdk.md": sdk_reference.page,
    "reference/cli.md": cli_reference.page,
    "reference/http-api.md": http_reference.page,
    "decisions.md": sources.decisions,
    "changelog.md": sources.changelog,
    "contributing.md": sources.contributing,
    "benchmarks.md": sources.benchmarks,
}
WIDE = ("comparison.md", "benchmarks.md")
"""Their tables need the room of the page's own contents."""
_LOADED = re.compile(r"""<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)=["']?(?:https?:)?//[^>]*>""")
_pages: dict[str, twins.Twin] = {}
_order: dict[str, int] = {}


def _menu(nav: list[Any], docs: Path) -> list[Any]:
    """The menu without pages that are not there; a page that it does not name stands at the end of the guides."""
    kept = _there(nav, docs)
    named = {
        name for entry in kept for pages in entry.values() for name in ([pages] if isinstance(pages, str) else pages)
    }
    found = [path.relative_to(docs).as_posix() for path in sorted(docs.rglob("*.md"))]
    guides = next(entry["Guides"] for entry in kept if "Guides" in entry)
    guides += [name for name in found if name not in named and not name.startswith("adr/")]
    return kept


def _there(nav: Any, docs: Path) -> Any:
    if isinstance(nav, list):
        return [kept for item in nav if (kept := _there(item, docs)) is not None]
    if isinstance(nav, dict):
        return {title: _there(inner, docs) for title, inner in nav.items()}
    return nav if nav in GENERATED or (docs / nav).exists() else None


def on_config(config: Any) -> None:
    _pages.clear()
    _order.clear()
    config.nav = _menu(config.nav, Path(config.docs_dir))


def on_files(files: Any, config: Any) -> Any:
    for path, make in GENERATED.items():
        files.append(File.generated(config, path, content=make()))
    return files


def on_nav(nav: Any, config: Any, files: Any) -> Any:
    _order.update({page.file.src_uri: place for place, page in enumerate(nav.pages)})
    return nav


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    about = sources.ABOUT.search(markdown)
    if about is not None:
        page.meta.setdefault("description", about[1])
    text = sources.without_directives(sources.included(markdown))
    section = page.parent.title if page.parent is not None else "" if page.is_homepage else "Decisions"
    if page.file.src_uri in WIDE:
        page.meta.setdefault("hide", ["toc"])
    if not page.meta.get("noindex"):
        twin = twins.Twin(path=page.file.src_uri, section=section, text=text, said=page.meta.get("description"))
        _pages[twin.path] = twin
        page.meta.setdefault("description", twin.description)
    return text


def on_post_page(output: str, page: Any, config: Any) -> str:
    elsewhere = [found[0] for found in _LOADED.finditer(output) if "canonical" not in found[0]]
    if elsewhere:
        raise PluginError(f"{page.file.src_uri} loads from elsewhere: {', '.join(elsewhere)}")
    twin = _pages.get(page.file.src_uri)
    if twin is None:
        return output
    href = f"{twins.base_of(config.site_url)}{twin.path}"
    link = f'<link rel="alternate" type="text/markdown" href="{href}">'
    return re.sub(r"(?=</head>)", link, output, count=1)


def on_post_build(config: Any) -> None:
    pages = sorted(_pages.values(), key=lambda twin: (_order.get(twin.path, len(_order)), twin.path))
    twins.write(pages, Path(config.site_dir), config.site_url, config.site_name, config.site_description)
