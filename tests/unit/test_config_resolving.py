"""Which configuration counts for a command, what is kept of a server's, and what `.dreamrc` text it becomes."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakeshore.config.dreamrc_file import parse
from lakeshore.config.dreamrc_text import to_yaml
from lakeshore.config.errors import ConfigError
from lakeshore.config.found import found_files
from lakeshore.config.modes import BACKENDS, KNOWN_PROVIDER_TAGS, RUNNERS, DreamRc, Provider, RunConfig
from lakeshore.config.resolving import Away, Server, cache_file, resolve_config
from lakeshore.config.served import Pulled, composed

ROW: dict[str, Any] = {
    "name": "gpu",
    "namespace": "default",
    "backend": "fabric",
    "runner": "dokcer",
    "image": "example/torch:2.4",
    "tags": ["gpu:h100"],
    "resources": {"gpu": 1, "__extras": {"instance_type": "p5", "server": "https://other.example"}},
    "env": {"LEVEL": "3", "TOKEN": {"$secret": "keys"}},
    "timeout_s": 60,
    "provider": "aws",
    "revision": 4,
}
PROVIDERS = (
    {"name": "aws", "launcher": "EC2", "kwargs": {"region": "us-east-1"}, "dispatch": "daemon"},
    {"name": "lab", "launcher": "SSH", "kwargs": {"host": "box"}, "dispatch": "daemon"},
    {"name": "new", "launcher": "Fargate", "kwargs": {}, "dispatch": "direct"},
)


class World:
    """A home, a working directory below another one, and a server that may be away."""

    def __init__(self, tmp_path: Path) -> None:
        self.home, self.work = tmp_path / "home", tmp_path / "work" / "deep"
        self.home.mkdir()
        self.work.mkdir(parents=True)
        self.environ = {"HOME": str(self.home), "XDG_CACHE_HOME": str(tmp_path / "cache")}
        self.answer: Pulled | Away = Pulled(modes=(ROW,), providers=PROVIDERS)
        self.asked = 0
        self.said: list[str] = []
        self.server: Server | None = self.at("https://Lake.example:8443/x", "team")

    def at(self, url: str, namespace: str) -> Server:
        return Server(url=url, namespace=namespace, fetch=self.fetch)

    def fetch(self) -> Pulled:
        self.asked += 1
        if isinstance(self.answer, Away):
            raise self.answer
        return self.answer

    def resolved(self, path: Path | None = None) -> DreamRc:
        return resolve_config(path, self.server, tell=self.said.append, environ=self.environ)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    made = World(tmp_path)
    monkeypatch.chdir(made.work)
    return made


@pytest.mark.inventory("C-305", "C-306", "C-361")
def test_the_first_of_seven_places_is_all_there_is(world: World, tmp_path: Path) -> None:
    def there(path: Path) -> Path:
        path.write_text(f"default_mode: m\nmodes: {{m: {{timeout_s: {len(str(path))}}}}}\n")
        return path

    world.server = None
    assert world.resolved() == DreamRc()
    world.server = world.at("http://127.0.0.1:8080", "default")
    assert world.resolved().source == "server"
    world.answer = Away("server unreachable")
    assert world.resolved().source == "cache"
    assert world.asked == 2
    there(world.home / ".dreamrc")
    assert world.resolved().source == "home"
    there(world.work.parent / ".dreamrc")
    assert world.resolved().source == "workspace"
    world.environ["DREAMRC"] = str(there(tmp_path / "env.yml"))
    assert world.resolved().source == "env"
    explicit = world.resolved(there(tmp_path / "explicit.yml"))
    assert (explicit.source, explicit.path) == ("explicit", tmp_path / "explicit.yml")
    assert world.asked == 2, "who has a file asks no server"
    assert sorted(explicit.modes) == ["local", "m"]


@pytest.mark.inventory("C-307", "S-187")
def test_a_servers_modes_and_providers_are_a_dreamrc_and_its_default_mode_the_root(world: World) -> None:
    world.answer = Pulled(modes=(ROW, {**ROW, "name": "default", "runner": "process"}), providers=PROVIDERS)
    rc = world.resolved()
    assert sorted(rc.modes) == ["gpu", "local"]
    assert rc.root.runner == "process"
    assert rc.modes["gpu"] == RunConfig(
        backend="fabric",
        runner="dokcer",
        image="example/torch:2.4",
        server="https://other.example",
        tags=["gpu:h100"],
        resources={"gpu": 1},
        env=ROW["env"],
        timeout_s=60,
        provider="aws",
        extras={"instance_type": "p5"},
    )
    assert rc.providers == {
        "aws": Provider(name="aws", kind="EC2", kwargs={"region": "us-east-1"}),
        "lab": Provider(name="lab", kind="SSH", kwargs={"host": "box", "dispatch": "daemon"}),
    }


@pytest.mark.inventory("C-308", "C-309", "C-362")
def test_a_copy_is_kept_for_its_owner_and_counts_while_the_server_is_away(world: World, tmp_path: Path) -> None:
    before = world.resolved()
    place = tmp_path / "cache" / "lakeshore" / "lake.example-8443-x" / "team" / "dreamrc.yml"
    assert stat.S_IMODE(place.stat().st_mode) == 0o600
    for directory in place.parents[:3]:
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert world.said == []
    world.answer = Away("server unreachable")
    after = world.resolved()
    assert (after.modes, after.providers, after.root) == (before.modes, before.providers, before.root)
    assert (after.source, after.path) == ("cache", place)
    (told,) = world.said
    assert told.startswith("⚠ server unreachable, using cached config from 20")
    assert place.parent.parent.parent == cache_file(world.at("http://x", "y"), world.environ).parents[2]


def test_a_copy_of_another_server_or_a_torn_one_is_none(world: World) -> None:
    world.resolved()
    assert world.server is not None
    place = cache_file(world.server, world.environ)
    text = place.read_text()
    world.answer = Away("server unreachable")
    for spoilt in (text.replace("Lake.example", "evil.example"), text[:10], text + "modes: {", "", "# lakeshore: 3\n"):
        place.write_text(spoilt)
        assert world.resolved() == DreamRc()
        assert world.said[-1] == "⚠ server unreachable, and there is no copy of its config"
    place.write_text(text)
    assert world.resolved().source == "cache"


def test_a_wide_cache_is_narrowed_and_one_that_cannot_be_written_is_only_told_of(world: World, tmp_path: Path) -> None:
    root = tmp_path / "cache" / "lakeshore"
    root.mkdir(parents=True, mode=0o755)
    assert world.resolved().source == "server"
    assert stat.S_IMODE(root.stat().st_mode) == 0o700
    world.environ["XDG_CACHE_HOME"] = str(tmp_path / "file" / "below")
    (tmp_path / "file").write_text("")
    assert world.resolved().source == "server"
    assert world.said[-1].startswith("note: cannot write ")
    assert "XDG_CACHE_HOME names another place" in world.said[-1]


def test_a_file_that_makes_no_sense_is_an_error_with_its_line_and_key_whatever_the_server_says(world: World) -> None:
    (world.work / ".dreamrc").write_text("modes:\n  a:\n    runner: podman\n")
    with pytest.raises(ConfigError, match=r"\.dreamrc, line 3: modes\.a\.runner — must be one of process, docker"):
        world.resolved()
    assert world.asked == 0


@pytest.mark.inventory("C-1469")
def test_every_file_that_could_be_meant_is_listed_with_who_reads_it(world: World, tmp_path: Path) -> None:
    (tmp_path / "work" / ".git").mkdir()
    for path in (world.home / ".dreamrc", world.work / ".dreamrc", world.work / ".lakeshore.local"):
        path.write_text("")
    (world.work / "lakeshore.yaml").write_text("")
    (world.home / "daemon.toml").write_text("")
    world.environ |= {"XDG_CONFIG_HOME": str(tmp_path), "LAKESHORED_CONFIG": str(world.home / "daemon.toml")}
    found = [(one.path.name, one.counts) for one in found_files(None, world.environ)]
    assert found[:5] == [
        (".dreamrc", True),
        (".dreamrc", False),
        (".lakeshore.local", True),
        ("lakeshore.yaml", True),
        ("daemon.toml", True),
    ]


# -- the text

_WORDS = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=6)
_PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | _WORDS
_VALUES = st.recursive(
    _PLAIN, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(_WORDS, inner, max_size=2), max_leaves=5
)
_TABLES = st.dictionaries(_WORDS, _VALUES, max_size=2)
_OWN = ("backend", "server", "tags", "runner", "resources", "image", "env", "timeout_s", "provider")
_NAMES = _WORDS.filter(lambda name: name not in (*_OWN, "default_mode", "modes", "mode", "providers", "<<"))
_MODES = st.builds(
    RunConfig,
    backend=st.sampled_from(BACKENDS),
    server=st.none() | _WORDS,
    tags=st.lists(_WORDS, max_size=2),
    runner=st.sampled_from(RUNNERS),
    resources=_TABLES,
    image=st.none() | _WORDS,
    env=st.dictionaries(_WORDS, _WORDS, max_size=2),
    timeout_s=st.none() | st.integers(1, 10**9),
    provider=st.none() | _WORDS,
    extras=st.dictionaries(_NAMES, _VALUES, max_size=2),
)


@settings(max_examples=25)
@given(
    modes=st.dictionaries(_WORDS, _MODES, max_size=2),
    root=_MODES,
    providers=st.dictionaries(_WORDS, st.tuples(st.sampled_from(KNOWN_PROVIDER_TAGS), _TABLES), max_size=2),
)
def test_what_is_read_back_from_the_text_of_a_dreamrc_is_the_same(
    modes: dict[str, RunConfig], root: RunConfig, providers: dict[str, tuple[str, dict[str, Any]]]
) -> None:
    rc = DreamRc(
        modes={"local": RunConfig(), **modes},
        root=root,
        providers={
            name: Provider(
                name=name, kind=kind, kwargs={key: value for key, value in kwargs.items() if key != "dispatch"}
            )
            for name, (kind, kwargs) in providers.items()
        },
        path=Path("x"),
        source="cache",
    )
    assert parse(to_yaml(rc), Path("x"), "cache") == rc


def test_a_server_that_says_nothing_is_a_local_mode() -> None:
    assert composed(Pulled()).modes == {"local": RunConfig()}
    assert composed(Pulled(modes=({"name": 3}, {}))).modes == {"local": RunConfig()}
