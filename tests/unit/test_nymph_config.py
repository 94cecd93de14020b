"""`udf-daemon.toml`: its nine sections, their defaults, what is refused and how, and that what is written is read."""

from __future__ import annotations

import string
import tomllib
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeshore.config.errors import ConfigError
from lakeshore.config.lengths import seconds_of
from lakeshore.nymph.config import (
    INSTALLED_KEYS,
    RUNNERS,
    SECTIONS,
    Config,
    DaemonSection,
    IdentitySection,
    IntrospectSection,
    LogSection,
    MountsSection,
    PollSection,
    RuntimeSection,
    ServerSection,
    ShutdownSection,
    parse,
    render,
)

FILE = "/etc/dreamlake/udf-daemon.toml"


def read(text: str) -> Config:
    """A file without a warning."""
    config, warnings = parse(text, FILE)
    assert warnings == ()
    return config


def refusal(text: str) -> str:
    with pytest.raises(ConfigError) as refused:
        parse(text, FILE)
    assert str(refused.value).startswith(f"{FILE}: ")
    return str(refused.value).removeprefix(f"{FILE}: ")


def warnings_of(text: str) -> list[str]:
    return [warning.removeprefix(f"{FILE}: ") for warning in parse(text, FILE)[1]]


# ---- defaults


@pytest.mark.parametrize(
    ("section", "key", "default"),
    [
        pytest.param("server", "url", "http://localhost:8080", marks=pytest.mark.inventory("N-030", "C-792")),
        ("server", "token_file", None),
        pytest.param("server", "tls_verify", True, marks=pytest.mark.inventory("C-794")),
        pytest.param("server", "namespace", "default", marks=pytest.mark.inventory("N-033", "C-795")),
        pytest.param("daemon", "machine_id", "auto", marks=pytest.mark.inventory("N-035", "C-796")),
        ("daemon", "label", ""),
        pytest.param("daemon", "tags", (), marks=pytest.mark.inventory("C-798")),
        pytest.param("daemon", "lanes", (), marks=pytest.mark.inventory("N-038", "C-799")),
        pytest.param("runtime", "workdir", "/var/lib/dreamlake/udf", marks=pytest.mark.inventory("N-040", "C-800")),
        pytest.param("runtime", "max_invocations", 100, marks=pytest.mark.inventory("N-041", "C-801")),
        pytest.param("runtime", "runners", ("process",), marks=pytest.mark.inventory("N-042", "C-802")),
        pytest.param("runtime", "default_runner", "process", marks=pytest.mark.inventory("N-043", "C-803")),
        pytest.param("runtime", "keep_alive_s", 300, marks=pytest.mark.inventory("N-044", "C-804")),
        ("runtime", "python_path", ()),
        ("runtime", "allow_pickled", False),
        pytest.param("runtime", "auto_update", False, marks=pytest.mark.inventory("N-045", "C-805")),
        pytest.param("runtime", "auto_update_check_interval_s", 300, marks=pytest.mark.inventory("N-046", "C-806")),
        pytest.param("poll", "wait_max_s", 20.0, marks=pytest.mark.inventory("N-048", "C-807")),
        pytest.param("poll", "retry_min_s", 1.0, marks=pytest.mark.inventory("N-049", "C-807")),
        pytest.param("poll", "retry_max_s", 60.0, marks=pytest.mark.inventory("N-050", "C-807")),
        pytest.param("shutdown", "grace_s", 60, marks=pytest.mark.inventory("N-051", "C-808")),
        pytest.param("mounts", "cache_dir", "/var/lib/dreamlake/cache", marks=pytest.mark.inventory("N-052", "C-812")),
        pytest.param("mounts", "cache_max_bytes", 20 * 2**30, marks=pytest.mark.inventory("N-053", "C-812")),
        pytest.param("log", "level", "info", marks=pytest.mark.inventory("N-054", "C-809")),
        pytest.param("log", "format", "human", marks=pytest.mark.inventory("N-055", "C-809")),
        pytest.param("log", "event_buffer", 1024, marks=pytest.mark.inventory("N-056", "C-809")),
        pytest.param("introspect", "enabled", False, marks=pytest.mark.inventory("N-057", "C-810")),
        pytest.param("introspect", "bind", "127.0.0.1", marks=pytest.mark.inventory("N-058", "C-810")),
        pytest.param("introspect", "port", 9876, marks=pytest.mark.inventory("N-059", "N-269", "C-810")),
        pytest.param("identity", "enabled", False, marks=pytest.mark.inventory("N-060")),
        pytest.param("identity", "key_file", "/etc/dreamlake/daemon.key", marks=pytest.mark.inventory("N-061")),
        pytest.param("identity", "enroll_token", None, marks=pytest.mark.inventory("N-062")),
        pytest.param("identity", "enroll_token_file", None, marks=pytest.mark.inventory("N-063")),
    ],
)
def test_the_documented_defaults_hold_without_a_file_and_in_an_empty_section(
    section: str, key: str, default: object
) -> None:
    for config in (Config(), read(""), read(f"[{section}]\n")):
        assert getattr(getattr(config, section), key) == default


@pytest.mark.inventory("N-026", "C-369")
def test_there_are_exactly_nine_sections() -> None:
    nine = {"server", "daemon", "runtime", "poll", "log", "shutdown", "mounts", "introspect", "identity"}
    assert set(SECTIONS) == nine == {one.name for one in fields(Config)}
    assert {type(getattr(Config(), name)) for name in nine} == set(SECTIONS.values())


@pytest.mark.inventory("N-034", "N-047")
def test_sections_have_their_keys_and_no_others() -> None:
    keys = {name: {one.name for one in fields(kind)} for name, kind in SECTIONS.items()}
    assert keys["server"] == {"url", "token_file", "tls_verify", "namespace"}
    assert "default_image" not in keys["runtime"]
    assert sum(map(len, keys.values())) == 33


# ---- what is refused and what is warned of


@pytest.mark.inventory("N-025", "N-027", "C-814")
def test_an_unknown_section_is_refused_and_the_nearest_is_named() -> None:
    assert refusal("[relay]\n").startswith("[relay] is no section of this file: there are server, daemon,")
    assert "did you mean [identity]?" in refusal("[identities]\nenabled = true\n")
    assert "[runner] is no section" in refusal("[[runner]]\nx = 1\n")


@pytest.mark.inventory("N-025", "N-027", "C-814")
def test_a_key_outside_of_a_section_is_refused_and_its_place_is_named() -> None:
    told = refusal('server_url = "http://x"\n')
    assert told.startswith("server_url stands outside of any section: did you mean url in [server]?")
    assert "did you mean keep_alive_s in [runtime]?" in refusal("keep_alive_s = 3\n")
    assert "The sections are server," in refusal("nonsense_at_all = 3\n")
    assert refusal('server = "http://x"\n') == "server — must be a section: write [server] and its keys below"


@pytest.mark.inventory("N-028", "N-382", "C-368")
@pytest.mark.inventory("C-1474")
def test_an_unknown_key_in_a_section_is_warned_of_with_the_nearest_one_and_changes_nothing() -> None:
    text = "[runtime]\nkeepalive_s = 3\nzzz = 1\nmax_invocations = 7\n"
    config, _ = parse(text, FILE)
    assert config == Config(runtime=RuntimeSection(max_invocations=7))
    assert warnings_of(text) == [
        "[runtime] has no key 'keepalive_s', it is ignored; did you mean keep_alive_s?",
        "[runtime] has no key 'zzz', it is ignored",
    ]


@pytest.mark.inventory("N-034", "N-397")
@pytest.mark.parametrize("key", ["transport", "socket_path"])
@pytest.mark.inventory("C-1474")
def test_there_is_no_other_transport_and_who_asks_for_one_is_warned(key: str) -> None:
    assert warnings_of(f'[server]\n{key} = "unix"\n') == [f"[server] has no key {key!r}, it is ignored"]


@pytest.mark.inventory("N-047")
def test_there_is_no_default_image_and_no_section_of_a_runner() -> None:
    assert warnings_of('[runtime]\ndefault_image = "x"\n')[0].startswith("[runtime] has no key 'default_image'")
    assert warnings_of('[runtime.runner]\nkind = "x"\n')[0].startswith("[runtime] has no key 'runner'")


@pytest.mark.inventory("N-381", "C-1455", "N-039")
@pytest.mark.inventory("C-1413")
@pytest.mark.inventory("S-768")
def test_queues_are_lanes() -> None:
    for key in ("queues", "lanes"):
        assert read(f'[daemon]\n{key} = ["a", "train*"]\n').daemon.lanes == ("a", "train*")
    assert read('[daemon]\nqueues = ["a"]\nlanes = ["a"]\n').daemon.lanes == ("a",)
    told = refusal('[daemon]\nqueues = ["a"]\nlanes = ["b"]\n')
    assert told == "daemon.queues — is the same key as lanes: keep one of them"


@pytest.mark.inventory("N-375")
@pytest.mark.parametrize("key", ["queues", "lanes"])
def test_a_prefix_with_a_slash_is_no_queue(key: str) -> None:
    assert refusal(f'[daemon]\n{key} = ["train/*"]\n').startswith(f"daemon.{key} — a queue: 'train/' is not allowed")


@pytest.mark.parametrize(
    ("section", "line", "says"),
    [
        ("server", "url = 3", "server.url — must be a string"),
        ("server", 'url = "localhost:8080"', "server.url — must be a server's address"),
        ("server", 'url = "https://me:secret@host"', "server.url — must be a server's address"),
        ("server", "tls_verify = 1", "server.tls_verify — must be true or false (got 1)"),
        ("server", 'tls_verify = "false"', "server.tls_verify — must be true or false"),
        ("server", 'namespace = "No"', "server.namespace — namespace: 'No' is not allowed"),
        ("server", 'token_file = ""', "server.token_file — must be a path"),
        ("daemon", 'tags = "gpu"', "daemon.tags — must be a list of strings (got 'gpu')"),
        ("daemon", "tags = [1]", "daemon.tags — must be a list of strings"),
        ("daemon", 'label = "a\\nb"', "daemon.label — must be a string of at most 200 printable"),
        ("daemon", 'lanes = ["a/b"]', "daemon.lanes — a queue: 'a/b' is not allowed"),
        ("runtime", "max_invocations = -1", "runtime.max_invocations — must be a whole number from 0 (got -1)"),
        ("runtime", "max_invocations = 1.5", "runtime.max_invocations — must be a whole number from 0"),
        ("runtime", "max_invocations = true", "runtime.max_invocations — must be a whole number from 0"),
        ("runtime", 'runners = ["proces"]', "runtime.runners — must be one of process, docker, gvisor, slurm, kube"),
        ("runtime", "runners = []", "runtime.runners — must name at least one of"),
        ("runtime", 'default_runner = "k8s"', "runtime.default_runner — must be one of"),
        ("runtime", "keep_alive_s = -2", "runtime.keep_alive_s — must be whole seconds"),
        ("runtime", "keep_alive_s = 0.5", "runtime.keep_alive_s — must be whole seconds"),
        ("poll", "wait_max_s = 0", "poll.wait_max_s — must be a number of seconds above 0"),
        ("poll", 'wait_max_s = "soon"', "poll.wait_max_s — must be a number of seconds above 0"),
        ("poll", "wait_max_s = inf", "poll.wait_max_s — must be a number of seconds above 0"),
        ("poll", "wait_max_s = nan", "poll.wait_max_s — must be a number of seconds above 0"),
        ("poll", "retry_min_s = 5\nretry_max_s = 2", "poll.retry_max_s — must be at least poll.retry_min_s"),
        ("shutdown", "grace_s = -1", "shutdown.grace_s — must be a number of seconds from 0"),
        ("log", 'level = "loud"', "log.level — must be one of error, warn, info, debug, trace (got 'loud')"),
        ("log", "event_buffer = -1", "log.event_buffer — must be a whole number from 0"),
        ("introspect", "port = 65536", "introspect.port — must be a whole number from 0 to 65535"),
        ("mounts", "cache_max_bytes = -1", "mounts.cache_max_bytes — must be a whole number from 0"),
        ("identity", "enabled = 0", "identity.enabled — must be true or false"),
    ],
)
def test_a_wrong_value_is_refused_by_file_section_and_key(section: str, line: str, says: str) -> None:
    told = refusal(f"[{section}]\n{line}\n")
    assert told.startswith(says)
    assert "secret" not in told


def test_a_file_that_is_no_toml_is_refused_with_the_line() -> None:
    assert refusal("[server]\nurl = \n").startswith("not TOML: ")
    assert "line 2" in refusal("[server]\nurl = \n")
    assert "not TOML" in refusal("[server]\n[server]\n")


def test_a_token_is_never_part_of_a_message() -> None:
    for value in ('["dle_s3cret"]', '"dle_s3cret\\nx"', '{ a = "dle_s3cret" }'):
        told = refusal(f"[identity]\nenroll_token = {value}\n")
        assert told == "identity.enroll_token — must be the token, a string of one line"
    assert "s3cret" not in repr(read('[identity]\nenroll_token = "dle_s3cret"\n'))


# ---- what is taken


@pytest.mark.inventory("N-044", "C-804", "N-041")
def test_numbers_with_a_meaning_of_their_own() -> None:
    for written, value in (("-1", -1), ("0", 0), ("45", 45), ('"5m"', 300), ("60.0", 60)):
        assert read(f"[runtime]\nkeep_alive_s = {written}\n").runtime.keep_alive_s == value
    assert read("[runtime]\nmax_invocations = 0\n").runtime.max_invocations == 0
    assert read("[introspect]\nport = 0\n").introspect.port == 0
    assert read("[log]\nevent_buffer = 0\n").log.event_buffer == 0


@pytest.mark.parametrize(("text", "seconds"), [("1.5", 1.5), ("2", 2.0), ('"90s"', 90.0), ('"1h30m"', 5400.0)])
def test_a_length_of_time_is_a_number_or_a_text_with_units(text: str, seconds: float) -> None:
    assert read(f"[poll]\nretry_max_s = {text}\n").poll.retry_max_s == seconds


@given(st.text(string.digits + "smhdw. -", max_size=8))
def test_a_text_is_a_length_of_time_or_is_not(text: str) -> None:
    seconds = seconds_of(text)
    assert seconds is None or (seconds >= 0 and text.strip()[-1] in "smhdw")


def test_subprocess_is_process() -> None:
    runtime = read('[runtime]\nrunners = ["subprocess", "docker", "process"]\ndefault_runner = "subprocess"\n').runtime
    assert (runtime.runners, runtime.default_runner) == (("process", "docker"), "process")


@pytest.mark.inventory("N-055", "C-809")
@pytest.mark.inventory("C-463")
def test_an_unknown_log_format_is_human_with_the_documented_warning() -> None:
    config, warnings = parse('[log]\nformat = "xml"\n', FILE)
    assert config.log.format == "human"
    assert warnings == ('unknown log.format xml; falling back to "human"',)
    assert read('[log]\nformat = "JSON"\n').log.format == "json"


@pytest.mark.inventory("N-058", "C-810")
@pytest.mark.parametrize(
    ("bind", "is_taken"),
    [
        *((local, True) for local in ("127.0.0.1", "::1", "localhost", "127.9.9.9")),
        *((other, False) for other in ("0.0.0.0", "::", "10.0.0.5", "example.com", "")),
    ],
)
def test_a_status_page_is_for_loopback_only(bind: str, is_taken: bool) -> None:
    refused = read(f'[introspect]\nbind = "{bind}"\n').introspect.refusal()
    assert (refused is None) == is_taken
    assert refused is None or "no loopback address" in refused


DOCUMENTED = {
    "every section": """
        [server]
        url = "https://api.example.ai"
        namespace = "default"
        token_file = "/etc/dreamlake/token"
        tls_verify = true
        [daemon]
        machine_id = "auto"
        label = "gpu-box-01"
        tags = ["gpu:h100", "region:us-east"]
        lanes = []
        [runtime]
        workdir = "/var/lib/dreamlake/udf"
        max_invocations = 100
        runners = ["process", "docker"]
        default_runner = "process"
        keep_alive_s = 300
        auto_update = false
        auto_update_check_interval_s = 300
        [poll]
        wait_max_s = 20.0
        retry_min_s = 1.0
        retry_max_s = 60.0
        [shutdown]
        grace_s = 60
        [log]
        level = "info"
        format = "human"
        event_buffer = 1024
        [introspect]
        enabled = false
        bind = "127.0.0.1"
        port = 9876
        [identity]
        enabled = false
        key_file = "/etc/dreamlake/daemon.key"
        enroll_token_file = "/etc/dreamlake/enroll-token"
        [mounts]
        cache_dir = "/var/lib/dreamlake/cache"
        cache_max_bytes = 21474836480
    """,
    "a small one": """
        [server]
        url = "https://api.example.ai"
        token_file = "/etc/dreamlake/token"
        namespace = "default"
        [daemon]
        label = "bos14-login"
        tags = ["gpu:h100"]
        [runtime]
        workdir = "/var/lib/dreamlake/udf"
        runners = ["process"]
        default_runner = "process"
        keep_alive_s = -1
    """,
    "an installed one": """
        [server]
        url = "https://api.example.ai"
        token_file = "token"
        namespace = "default"
        [daemon]
        label = "bos14-01K4G8AX000000000000000001"
        tags = ["installed-from-mac"]
        [runtime]
        runners = ["process"]
        default_runner = "process"
        keep_alive_s = -1
    """,
    "an identity": """
        [identity]
        enabled = true
        key_file = "/etc/dreamlake/daemon.key"
        enroll_token_file = "/etc/dreamlake/enroll-token"   # or: enroll_token = "dle_…"
    """,
    "a log": """
        [log]
        level = "info"          # error | warn | info | debug | trace
        format = "human"        # human | json
        event_buffer = 1024
    """,
    "a status page": """
        [introspect]
        enabled = true
        bind = "127.0.0.1"
        port = 9876
    """,
}


@pytest.mark.inventory("C-828")
@pytest.mark.parametrize("name", DOCUMENTED)
def test_the_documented_files_load_and_say_what_they_say(name: str) -> None:
    said: dict[str, dict[str, Any]] = tomllib.loads(DOCUMENTED[name])
    config = read(DOCUMENTED[name])
    for section, keys in said.items():
        for key, value in keys.items():
            found = getattr(getattr(config, section), key)
            assert (list(found) if isinstance(found, tuple) else found) == value


# ---- writing

names = st.text(string.ascii_letters + string.digits + "é-_. ", max_size=12).filter(lambda text: text.isprintable())
words = st.text(string.ascii_lowercase, min_size=1, max_size=8)
times = st.floats(0.001, 1e6, allow_nan=False)
paths = st.text(st.characters(min_codepoint=1, exclude_categories=["Cs"]), min_size=1, max_size=20)
configs = st.builds(
    Config,
    server=st.builds(
        ServerSection,
        url=st.sampled_from(["http://localhost:8080", "https://cp.example/prefix", "http://[::1]:80"]),
        token_file=st.none() | paths,
        tls_verify=st.booleans(),
        namespace=words,
    ),
    daemon=st.builds(
        DaemonSection,
        machine_id=names,
        label=names,
        tags=st.lists(names.filter(bool), max_size=3).map(tuple),
        lanes=st.lists(words | words.map("{}*".format), max_size=3, unique=True).map(tuple),
    ),
    runtime=st.builds(
        RuntimeSection,
        workdir=paths,
        max_invocations=st.integers(0, 10**6),
        runners=st.lists(st.sampled_from(RUNNERS), min_size=1, unique=True).map(tuple),
        default_runner=st.sampled_from(RUNNERS),
        keep_alive_s=st.integers(-1, 10**6),
        python_path=st.lists(paths, max_size=3, unique=True).map(tuple),
        allow_pickled=st.booleans(),
        auto_update=st.booleans(),
        auto_update_check_interval_s=times,
    ),
    poll=st.builds(PollSection, wait_max_s=times, retry_min_s=st.just(0.001), retry_max_s=times),
    log=st.builds(
        LogSection,
        level=st.sampled_from(["error", "warn", "info", "debug", "trace"]),
        format=st.sampled_from(["human", "json"]),
        event_buffer=st.integers(0, 10**6),
    ),
    shutdown=st.builds(ShutdownSection, grace_s=times),
    mounts=st.builds(MountsSection, cache_dir=paths, cache_max_bytes=st.integers(0, 2**50)),
    introspect=st.builds(IntrospectSection, enabled=st.booleans(), bind=st.just("::1"), port=st.integers(0, 65_535)),
    identity=st.builds(
        IdentitySection,
        enabled=st.booleans(),
        key_file=paths,
        enroll_token=st.none() | words.map("dle_{}".format),
        enroll_token_file=st.none() | paths,
    ),
)


@given(configs)
def test_what_is_written_is_read_to_the_same(config: Config) -> None:
    assert read(render(config)) == config
    assert read(render(read(render(config)))) == config


@pytest.mark.inventory("C-218")
def test_an_install_writes_its_eight_keys_and_no_other() -> None:
    config = Config(
        server=ServerSection(url="https://cp.example", token_file="token", namespace="team"),
        daemon=DaemonSection(label='bos14-"x"', tags=("installed-from-mac",)),
        runtime=RuntimeSection(keep_alive_s=-1),
    )
    text = render(config, INSTALLED_KEYS)
    assert tomllib.loads(text) == {
        "server": {"url": "https://cp.example", "token_file": "token", "namespace": "team"},
        "daemon": {"label": 'bos14-"x"', "tags": ["installed-from-mac"]},
        "runtime": {"runners": ["process"], "default_runner": "process", "keep_alive_s": -1},
    }
    assert read(text) == config
