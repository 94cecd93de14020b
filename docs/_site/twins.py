"""The site for programs: a Markdown twin of each page, `llms.txt`, `llms-full.txt` and the skill archive.

    <page>.md               the page's text, its links to other pages as /<page>.md
    llms.txt                every page by section, each with one line            (llmstxt.org)
    llms-full.txt           every page in one file, each after a line `Source: <canonical URL>`
    skills/lakeshore.zip    lakeshore/SKILL.md and lakeshore/reference/<page>.md

Rule: one text, four shapes; the same commit gives the same bytes. Reference: api/llm-readable.md.
"""

from __future__ import annotations

import posixpath
import re
import zipfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

SKILL = "lakeshore"
_FENCE = re.compile(r"(^(?:```+|~~~+).*?^(?:```+|~~~+)[ \t]*$)", re.M | re.S)
_LINK = re.compile(r"(\]\()([^)\s#:]+\.md)(#[^)\s]*)?(\))")
_SVG = re.compile(r"<figure\b.*?</figure>\n?", re.S)
_CAPTION = re.compile(r"<figcaption>(.*?)</figcaption>", re.S)
_TAG = re.compile(r"</?(?:div|section|span|p|figure)\b[^>]*>\n?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Twin:
    """One page: `path` below the docs directory, `section` of the menu, `text` in Markdown, `said` about itself."""

    path: str
    section: str
    text: str
    said: str | None = None

    @property
    def title(self) -> str:
        """Its first heading."""
        found = re.search(r"^# (.+)$", self.text, re.M)
        return found[1].strip() if found is not None else self.path

    @property
    def description(self) -> str:
        """One line: what the page says about itself, else its first sentence."""
        if self.said is not None:
            return self.said
        for block in re.split(r"\n\s*\n", flat(self.text)):
            line = " ".join(block.split())
            if line and line[0] not in "#|`<-!>" and line != "Accepted.":
                plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", re.sub(r"^\*\*\w+\.\*\* ", "", line))
                return re.split(r"(?<=[.?])\s", plain.replace("**", "").replace("`", ""), maxsplit=1)[0]
        return self.title

    @property
    def slug(self) -> str:
        """Its name in the skill: the path with dashes."""
        return self.path.replace("/", "-")


def base_of(site_url: str) -> str:
    """The path below which the site is served, with a slash at its end."""
    return urlsplit(site_url).path.rstrip("/") + "/"


def address_of(path: str, site_url: str) -> str:
    """The canonical URL of a page."""
    route = "" if path == "index.md" else path.removesuffix("index.md").removesuffix(".md").rstrip("/") + "/"
    return site_url.rstrip("/") + "/" + route


def flat(text: str) -> str:
    """Markdown without markup: figures become their captions; fences stay as they are."""
    return _outside_fences(text, lambda piece: _TAG.sub("", _SVG.sub(_captioned, piece)))


def linked(text: str, path: str, known: Iterable[str], name: Callable[[str], str]) -> str:
    """The text of the page at `path` with its links to `known` pages as `name` says; anchors stay."""
    pages = set(known)

    def renamed(found: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(path), found[2]))
        return f"{found[1]}{name(target)}{found[3] or ''}{found[4]}" if target in pages else found[0]

    return _outside_fences(text, lambda piece: _LINK.sub(renamed, piece))


def write(pages: Sequence[Twin], site: Path, site_url: str, name: str, summary: str) -> None:
    """All four shapes, below `site`."""
    known = [page.path for page in pages]
    base = base_of(site_url)
    told = {page.path: linked(flat(page.text), page.path, known, lambda to: base + to).strip() + "\n" for page in pages}
    for page in pages:
        place = site / page.path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(told[page.path], "utf-8")
    full = [f"Source: {address_of(page.path, site_url)}\n\n{told[page.path]}" for page in pages]
    (site / "llms-full.txt").write_text("\n---\n\n".join(full), "utf-8")
    (site / "llms.txt").write_text(_index(pages, f"# {name}\n\n> {summary}\n", lambda to: _twin(to, site_url)), "utf-8")
    _skill(pages, site / "skills" / f"{SKILL}.zip", summary)


def _twin(path: str, site_url: str) -> str:
    return f"{site_url.rstrip('/')}/{path}"


def _index(pages: Sequence[Twin], head: str, name: Callable[[str], str]) -> str:
    lines, section = [head], None
    for page in pages:
        if page.section != section:
            section = page.section
            lines += [f"\n## {section}\n"] if section else []
        lines.append(f"- [{page.title}]({name(page.path)}): {page.description}")
    return "\n".join(lines) + "\n"


def _skill(pages: Sequence[Twin], archive: Path, summary: str) -> None:
    head = (
        f"---\nname: {SKILL}\ndescription: {summary} Read this to write, run or operate Lakeshore functions.\n---\n\n"
        "# Lakeshore\n\nRead the page that fits the question; each is complete by itself.\n"
    )
    names = {page.path: f"reference/{page.slug}" for page in pages}
    files = {"SKILL.md": _index(pages, head, lambda to: names[to])}
    for page in pages:
        files[names[page.path]] = linked(flat(page.text), page.path, names, lambda to: names[to]).strip() + "\n"
    archive.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as out:
        for name in sorted(files):
            entry = zipfile.ZipInfo(f"{SKILL}/{name}", date_time=(1980, 1, 1, 0, 0, 0))
            entry.external_attr = 0o644 << 16
            out.writestr(entry, files[name], zipfile.ZIP_DEFLATED)


def _captioned(found: re.Match[str]) -> str:
    caption = _CAPTION.search(found[0])
    return "" if caption is None else f"*{' '.join(caption[1].split())}*\n"


def _outside_fences(text: str, change: Callable[[str], str]) -> str:
    pieces = _FENCE.split(text)
    return "".join(change(piece) if place % 2 == 0 else piece for place, piece in enumerate(pieces))
