"""Which file a daemon reads, and what flags and variables say above it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from lakeshore.config.errors import ConfigError
from lakeshore.nymph import lookup
from lakeshore.nymph.lookup import SYSTEM_FILE, Boot, Flags, boot, find_file

NOWHERE = Path("/nonexistent/udf-daemon.toml")


def started(flags: Flags | None = None, **environ: str) -> Boot:
    return boot(flags or Flags(), environ, NOWHERE)


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def label(name: str) -> str:
    return f'[daemon]\nlabel = "{name}"\n'


@pytest.mark.inventory("N-023", "N-013", "C-368")
@pytest.mark.inventory("C-1352", "C-1353")
def test_the_file_is_the_named_one_then_the_systems_then_the_users_then_none(tmp_path: Path) -> None:
    assert str(SYSTEM_FILE) == "/etc/dreamlake/udf-daemon.toml"
    flag = write(tmp_path / "flag.toml", label("flag"))
    variable = write(tmp_path / "variable.toml", label("variable"))
    system = write(tmp_path / "etc" / "udf-daemon.toml", label("system"))
    home = write(tmp_path / ".config" / "dreamlake" / "udf-daemon.toml", label("home"))
    environ = {"HOME": str(tmp_path), "LAKESHORED_CONFIG": str(variable)}
    asked = [
        boot(Flags(config=str(flag)), environ, system),
        boot(Flags(), environ, system),
        boot(Flags(), {"HOME": str(tmp_path)}, system),
        boot(Flags(), {"HOME": str(tmp_path)}, NOWHERE),
        boot(Flags(), {}, NOWHERE),
        boot(Flags(), {**environ, "LAKESHORED_CONFIG": ""}, system),
    ]
    assert [one.config.daemon.label for one in asked] == ["flag", "variable", "system", "home", "", "system"]
    assert [one.path for one in asked] == [flag, variable, system, home, None, system]


@pytest.mark.inventory("N-023")
def test_the_first_file_is_the_only_one(tmp_path: Path) -> None:
    system = write(tmp_path / "etc.toml", "[server]\n")
    write(tmp_path / ".config" / "dreamlake" / "udf-daemon.toml", label("home"))
    assert boot(Flags(), {"HOME": str(tmp_path)}, system).config.daemon.label == ""


def test_a_named_file_must_be_there_and_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read .*gone.toml: No such file.*--config"):
        started(Flags(config=str(tmp_path / "gone.toml")))
    with pytest.raises(ConfigError, match="cannot read"):
        started(LAKESHORED_CONFIG=str(tmp_path))
    (tmp_path / "latin").write_bytes(b"# \xe9\n")
    with pytest.raises(ConfigError, match="not UTF-8"):
        started(Flags(config=str(tmp_path / "latin")))


@pytest.mark.inventory("N-020", "C-1473")
def test_the_variables_are_spelled_as_documented_and_the_near_ones_stand_in_and_are_told(tmp_path: Path) -> None:
    own = write(tmp_path / "own.toml", label("own"))
    other = write(tmp_path / "other.toml", label("other"))
    near = {"LAKESHORE_CONFIG": str(other), "LAKESHORE_QUEUE": "gpu"}
    found = started(**near)
    assert (found.path, found.config.daemon.label, found.queue) == (other, "other", "gpu")
    assert "for LAKESHORED_CONFIG is not set" in found.warnings[0]
    assert "for DREAMLAKE_QUEUE is not set" in found.warnings[1]
    documented = started(**near, LAKESHORED_CONFIG=str(own), DREAMLAKE_QUEUE="cpu")
    assert (documented.config.daemon.label, documented.queue, documented.warnings) == ("own", "cpu", ())
    flags = started(Flags(config=str(own), queue="flag"), **near)
    assert (flags.config.daemon.label, flags.queue, flags.warnings) == ("own", "flag", ())
    with pytest.raises(ConfigError, match="LAKESHORE_QUEUE — "):
        started(LAKESHORE_QUEUE="a/b/*c")


@pytest.mark.inventory("N-014")
def test_the_server_is_the_flags_then_the_variables_then_the_files(tmp_path: Path) -> None:
    file = str(write(tmp_path / "f.toml", '[server]\nurl = "http://file:1"\nnamespace = "team"\n'))
    both = started(Flags(config=file, server="http://flag:1"), LAKESHORE_SERVER="http://variable:1")
    assert (both.config.server.url, both.config.server.namespace) == ("http://flag:1", "team")
    assert started(Flags(config=file), LAKESHORE_SERVER="http://variable:1").config.server.url == "http://variable:1"
    assert started(Flags(config=file), LAKESHORE_SERVER="").config.server.url == "http://file:1"
    assert started().config.server.url == "http://localhost:8080"
    with pytest.raises(ConfigError, match="--server — must be a server's address"):
        started(Flags(server="cp.example"))
    with pytest.raises(ConfigError, match="LAKESHORE_SERVER — must be"):
        started(LAKESHORE_SERVER="cp.example")


def test_functions_by_value_are_let_in_by_the_flag_or_by_the_file(tmp_path: Path) -> None:
    file = str(write(tmp_path / "f.toml", '[runtime]\nallow_pickled = true\nworkdir = "/w"\n'))
    assert not started().config.runtime.allow_pickled
    assert started(Flags(config=file)).config.runtime.allow_pickled
    by_flag = started(Flags(config=str(write(tmp_path / "g.toml", '[runtime]\nworkdir = "/w"\n')), allow_pickled=True))
    assert (by_flag.config.runtime.allow_pickled, by_flag.config.runtime.workdir) == (True, "/w")


@pytest.mark.inventory("N-015", "N-031")
@pytest.mark.inventory("C-793")
def test_the_token_is_the_flags_then_the_variables_then_the_files(tmp_path: Path) -> None:
    write(tmp_path / "token", "  dlk_file\n")
    file = str(write(tmp_path / "f.toml", f'[server]\ntoken_file = "{tmp_path}/token"\n'))
    assert started(Flags(config=file, token="dlk_flag"), LAKESHORE_TOKEN="dlk_variable").token == "dlk_flag"
    assert started(Flags(config=file), LAKESHORE_TOKEN="dlk_variable").token == "dlk_variable"
    assert started(Flags(config=file)).token == "dlk_file"
    assert started().token is None


@pytest.mark.inventory("N-016", "N-409")
@pytest.mark.inventory("C-462")
def test_the_queue_is_the_flags_then_the_variables_then_the_first_lane(tmp_path: Path) -> None:
    file = str(write(tmp_path / "f.toml", '[daemon]\nlanes = ["a", "b"]\n'))
    assert started(Flags(config=file, queue="train*"), DREAMLAKE_QUEUE="variable").queue == "train*"
    assert started(Flags(config=file), DREAMLAKE_QUEUE="variable").queue == "variable"
    assert started(Flags(config=file)).queue == "a"
    assert started().queue == "default"
    with pytest.raises(ConfigError, match="--queue — "):
        started(Flags(queue="train/*"))


@pytest.mark.inventory("N-017", "N-069")
@pytest.mark.inventory("S-063")
def test_the_provisional_id_is_machine_and_ulid_unless_a_flag_says_it(tmp_path: Path) -> None:
    def named(machine: str) -> Boot:
        return started(Flags(config=str(write(tmp_path / "f.toml", f'[daemon]\nmachine_id = "{machine}"\n'))))

    assert named("box").provisional_id("host", lambda: "01ULID") == "box-01ULID"
    for auto in ("auto", ""):
        assert named(auto).provisional_id("host", lambda: "01ULID") == "host-01ULID"
        assert named(auto).machine_id("host") == "host"
    assert started(Flags(worker_id="w7"), LAKESHORE_WORKER_ID="no").provisional_id("host", lambda: "01") == "w7"


@pytest.mark.inventory("N-018", "C-813")
def test_rust_log_is_taken_whole_and_above_the_files_level(tmp_path: Path) -> None:
    file = str(write(tmp_path / "f.toml", '[log]\nlevel = "debug"\n'))
    assert started(Flags(config=file), RUST_LOG="nymph::drain=debug,hyper=warn").log_filter == (
        "nymph::drain=debug,hyper=warn"
    )
    assert started(Flags(config=file)).log_filter == "debug"
    assert started().log_filter == "info"


@pytest.mark.inventory("N-019", "C-813")
def test_the_variable_of_the_format_is_above_the_files_in_any_case(tmp_path: Path) -> None:
    file = str(write(tmp_path / "f.toml", '[log]\nformat = "human"\n'))
    assert started(Flags(config=file), LAKESHORE_LOG_FORMAT="JSON").config.log.format == "json"
    found = started(Flags(config=file), LAKESHORE_LOG_FORMAT="yaml")
    assert (found.config.log.format, found.warnings) == (
        "human",
        ('unknown log.format yaml; falling back to "human"',),
    )


@pytest.mark.inventory("N-021", "N-383", "N-057")
@pytest.mark.inventory("C-454", "C-1453")
def test_the_status_page_is_switched_on_by_the_file_alone_and_the_variable_is_warned_of() -> None:
    found = started(LAKESHORE_INTROSPECT="1")
    assert not found.config.introspect.enabled
    assert found.warnings == (
        "LAKESHORE_INTROSPECT is set, and read by nothing: [introspect] enabled = true in the configuration file "
        "switches the status page on",
    )


@pytest.mark.inventory("N-022", "N-370")
@pytest.mark.inventory("C-1479")
def test_relay_variables_are_read_by_nothing() -> None:
    found = started(LAKESHORE_RELAY_URL="http://relay", LAKESHORE_RELAY_SOCKET="/run/x")
    assert found.config == started().config
    assert len(found.warnings) == 2


@pytest.mark.inventory("N-029", "N-420")
@pytest.mark.inventory("N-361", "C-1350")
def test_a_relative_path_is_the_working_directorys_and_else_the_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    file = str(write(there / "f.toml", '[server]\ntoken_file = "token"\n'))
    here.mkdir()
    monkeypatch.chdir(here)
    write(there / "token", "dlk_beside_the_file")
    assert started(Flags(config=file)).token == "dlk_beside_the_file"
    write(here / "token", "dlk_here")
    assert started(Flags(config=file)).token == "dlk_here"
    monkeypatch.chdir(there)
    (here / "token").unlink()
    assert started(Flags(config="f.toml")).token == "dlk_beside_the_file"
    assert started(Flags(config=file)).place("daemon.key") == there / "daemon.key"
    assert started(Flags(config=file)).place("/abs") == Path("/abs")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "there is no file"),
        ("", "is empty"),
        (" \n", "is empty"),
        ("a b", "holds no token"),
        ("a\nb", "no token"),
    ],
)
def test_a_token_file_that_holds_none_is_an_error_that_names_the_key(
    tmp_path: Path, content: str | None, says: str
) -> None:
    if content is not None:
        write(tmp_path / "token", content)
    file = str(write(tmp_path / "f.toml", f'[server]\ntoken_file = "{tmp_path}/token"\n'))
    with pytest.raises(ConfigError, match=rf"f.toml: server.token_file — .*{says}"):
        started(Flags(config=file))


@pytest.mark.inventory("N-062", "N-063", "C-811")
def test_the_enroll_token_is_the_inline_one_then_its_files_trimmed(tmp_path: Path) -> None:
    write(tmp_path / "enroll", "\n dle_file \n")

    def token(*lines: str) -> str | None:
        file = write(tmp_path / "f.toml", "\n".join(["[identity]", *lines]))
        return started(Flags(config=str(file))).enroll_token

    from_file = f'enroll_token_file = "{tmp_path}/enroll"'
    assert token("enabled = true", from_file) == "dle_file"
    assert token("enabled = true", from_file, 'enroll_token = "dle_inline"') == "dle_inline"
    assert token(from_file) is None, "an identity that is off reads nothing"
    (tmp_path / "enroll").unlink()
    assert token("enabled = true", from_file) is None, "a spent token's file may be gone"


def test_what_is_printed_of_it_holds_no_token() -> None:
    found = started(Flags(token="dlk_s3cret"))
    assert "s3cret" not in repr(found)


@pytest.mark.inventory("N-024")
def test_the_file_is_read_once(tmp_path: Path) -> None:
    path = write(tmp_path / "f.toml", label("before"))
    found = started(Flags(config=str(path)))
    path.write_text(label("after"))
    assert found.config.daemon.label == "before"


def test_every_variable_that_is_read_is_documented() -> None:
    source = Path(lookup.__file__).read_text("utf-8")
    read = {
        str(node.args[0].value)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get"
        if node.args and isinstance(node.args[0], ast.Constant)
    }
    assert read == {"LAKESHORE_SERVER", "LAKESHORE_TOKEN", "RUST_LOG", "LAKESHORE_LOG_FORMAT", "HOME"}
    assert lookup._INSTEAD.keys() == {"LAKESHORED_CONFIG", "DREAMLAKE_QUEUE"}


def test_a_home_is_no_must() -> None:
    assert find_file(None, {}, NOWHERE) is None
