"""`lakeshore tunnels`, `mounts`, `storage` and `code` before a real server, as their pages have them."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from served import Served, new_id
from spaces import Space

Run = Callable[..., tuple[int, str, str]]
SECRETS = {"aws-prod-keys": "aws_keypair", "r2-keys": "aws_keypair", "s3-creds": "opaque", "wg-key": "opaque"}
CONF = """[Interface]
PrivateKey = $secret:wg-key
Address = 10.0.0.2/32

[Peer]
PublicKey = AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=
Endpoint = vpn.example.com:51820
AllowedIPs = 10.0.0.0/24
"""


@pytest.fixture
def space(server: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Space:
    """A namespace of its own with secrets, and a directory without any file."""
    space = Space(server)
    for name, kind in SECRETS.items():
        space.made("secrets", {"name": name, "kind": kind, "plaintext": "planted-3c"})
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    for variable, value in (
        ("HOME", tmp_path),
        ("XDG_CONFIG_HOME", tmp_path / "config"),
        ("LAKESHORE_STATE_DIR", tmp_path / "state"),
        ("LAKESHORE_URL", server.url),
        ("LAKESHORE_NAMESPACE", space.ns),
    ):
        monkeypatch.setenv(variable, str(value))
    return space


@pytest.fixture
def typed(run: Run, space: Space) -> Callable[..., tuple[int, str, str]]:
    """Run a line as somebody types it."""
    return lambda line: run(*shlex.split(line))


def config_of(space: Space, path: str) -> Any:
    return space("GET", path).body["config"]


# -- tunnels


@pytest.mark.inventory("C-143", "C-147", "C-571")
@pytest.mark.inventory("C-572", "C-573", "C-575")
@pytest.mark.inventory("C-576", "C-026", "C-1437")
@pytest.mark.inventory("C-1393")
def test_a_tunnel_is_added_from_a_file_listed_shown_and_removed(typed: Run, space: Space) -> None:
    Path("ny-lab.conf").write_text(CONF)
    code, out, err = typed("tunnels add ny-lab --kind wireguard --config-file ./ny-lab.conf")
    assert (code, out, err) == (0, "tunnel ny-lab added  (wireguard)\n", "stored; not activated yet\n")
    assert config_of(space, "tunnels/ny-lab")["interface"]["privateKey"] == {"$secret": "wg-key"}
    code, out, _ = typed("tunnels list")
    assert (code, out.split()[:5]) == (0, ["NAME", "KIND", "ENDPOINT", "PROVIDERS", "CHANGED"])
    assert "vpn.example.com:51820" in out
    assert [row["name"] for row in json.loads(typed("tunnels list --json")[1])] == ["ny-lab"]
    shown = typed("tunnels show ny-lab")[1]
    assert 'privateKey: "<secret: wg-key>"' in shown and "activation: not-supported" in shown
    assert json.loads(typed("tunnels show ny-lab --json")[1])["config"] == config_of(space, "tunnels/ny-lab")
    assert typed("tunnels update ny-lab")[0] == 2, "there is no such verb"
    assert typed("tunnels rm ny-lab")[:2] == (0, "ny-lab removed\n")
    code, out, err = typed("tunnels ls")
    assert (code, out) == (0, "") and err.startswith("no tunnels in namespace")
    assert typed("tunnels show ny-lab")[0] == 1


@pytest.mark.inventory("C-574", "C-1126", "C-1255")
def test_a_tunnel_is_added_from_text_which_is_sent_as_it_is(typed: Run, space: Space) -> None:
    assert typed(f"tunnels add wg-vpc --conf {shlex.quote(CONF)}")[0] == 0
    assert config_of(space, "tunnels/wg-vpc") == {"conf": CONF}
    code, _, err = typed("tunnels add other --conf '[Interfaces]'")
    assert (code, err.startswith("error: --conf: line 1: ")) == (2, True)


@pytest.mark.inventory("C-375", "C-1262")
@pytest.mark.parametrize("dump", [json.dumps, yaml.safe_dump])
def test_yaml_and_json_of_a_tunnel_are_sent_as_they_are(typed: Run, space: Space, dump: Any) -> None:
    config = {"interface": {"privateKey": {"$secret": "wg-key"}, "AnyThing": [1]}, "peers": []}
    Path("ny-lab.json").write_text(dump(config))
    code, _, err = typed("tunnels add ny-lab --config-file ./ny-lab.json")
    assert (code, config_of(space, "tunnels/ny-lab")) == (0, config)
    assert err.startswith("warning: config.peers: ")


PAGES = Path(__file__).resolve().parents[3] / "shared" / "spec" / "get-started"
needs_pages = pytest.mark.skipif(not PAGES.is_dir(), reason=f"the reference's pages are not at {PAGES}")


@needs_pages
@pytest.mark.inventory("C-830")
def test_both_shapes_of_a_tunnel_that_the_page_shows_come_back_as_they_were(typed: Run, space: Space) -> None:
    block = (PAGES / "tunnels.md").read_text("utf-8").split("```json\n// structured")[1].split("```")[0]
    structured, conf = re.fullmatch(r"[^\n]*\n(.*)// pass-through INI\n(.*)", block, re.DOTALL).groups()  # type: ignore[union-attr]  # else the page has changed
    for name, text in (("structured", structured), ("conf", conf)):
        Path(f"{name}.json").write_text(text, "utf-8")
        code, _, err = typed(f"tunnels add {name} --config-file {name}.json")
        assert code == 0, err
        assert json.loads(typed(f"tunnels show {name} --json")[1])["config"] == json.loads(text)


@needs_pages
@pytest.mark.inventory("C-829")
def test_the_file_of_a_mount_that_the_page_shows_loads(typed: Run, space: Space) -> None:
    block = (PAGES / "mounts.md").read_text("utf-8").split('file="app-config.yaml"\n')[1].split("```")[0]
    Path("app-config.yaml").write_text(block, "utf-8")
    assert typed("mounts add app-config --kind configmap --config-file ./app-config.yaml")[0] == 0
    items = [{"key": "config.json", "path": "config.json"}]
    config = {"kubeNamespace": "training", "name": "app-config", "items": items}
    assert config_of(space, "mounts/app-config") == config


def test_what_is_wrong_with_a_tunnel_is_told_with_what_to_do(typed: Run, space: Space) -> None:
    Path("bad.conf").write_text("[Interface]\nAddress\n")
    for line in ("tunnels add t", "tunnels add t --config-file a --conf b", "tunnels add t --kind openvpn --conf x"):
        assert typed(line)[0] == 2
    code, _, err = typed("tunnels add t --config-file bad.conf")
    assert (code, err) == (2, "error: bad.conf: line 2: Address is not <Key> = <value>\n")
    assert typed("tunnels add t --config-file none.conf")[0] == 2
    code, _, err = typed("tunnels add t --conf '[Interface]' --namespace Bad")
    assert code != 0
    Path("ref.conf").write_text(CONF.replace("wg-key", "none-such"))
    code, _, err = typed("tunnels add t --config-file ref.conf")
    assert (code, "unknown secret: none-such" in err, "--kind opaque" in err) == (1, True, True)


@pytest.mark.inventory("C-148", "C-1258", "C-1130")
@pytest.mark.inventory("C-1259", "C-1260", "C-099")
def test_a_tunnel_stays_while_a_provider_refers_to_it(typed: Run, space: Space) -> None:
    assert typed("tunnels add ny-lab --conf '[Interface]'")[0] == 0
    assert typed("providers add bos14 --launcher SSH --kwarg ip=10.0.0.1")[0] == 0
    assert typed("providers update bos14 --tunnel ny-lab")[0] == 0
    assert "tunnel: ny-lab" in typed("providers show bos14")[1]
    code, _, err = typed("tunnels remove ny-lab")
    assert (code, "is used by bos14" in err, "hint: " in err) == (1, True, True)
    assert typed('providers update bos14 --tunnel ""')[0] == 0
    assert "tunnel: null" in typed("providers show bos14")[1]
    assert typed("tunnels remove ny-lab")[0] == 0
    assert typed("providers update bos14 --tunnel ny-lab")[0] == 1


# -- mounts

ADDED: list[Any] = [
    pytest.param(
        "datasets --kind nfs --kwarg server=10.0.0.10 --kwarg path=/srv/datasets",
        {"server": "10.0.0.10", "path": "/srv/datasets"},
        marks=pytest.mark.inventory("C-1166", "C-577", "C-579"),
    ),
    pytest.param(
        "s3-cache --kind s3fs --kwarg bucket=my-bucket --kwarg prefix=cache/ --kwarg 'creds.$secret=s3-creds'",
        {"bucket": "my-bucket", "prefix": "cache/", "creds": {"$secret": "s3-creds"}},
        marks=pytest.mark.inventory("C-1167", "C-1224", "C-374"),
    ),
    pytest.param(
        "hf-cache --kind bind --kwarg hostPath=/home/ge/.cache/huggingface --kwarg readOnly=true",
        {"hostPath": "/home/ge/.cache/huggingface", "readOnly": True},
        marks=pytest.mark.inventory("C-1168", "C-578", "C-372"),
    ),
    pytest.param(
        "my-cm --kind configmap --kwarg kubeNamespace=default --kwarg name=app-cm",
        {"kubeNamespace": "default", "name": "app-cm"},
        marks=pytest.mark.inventory("C-1169", "C-1219"),
    ),
    pytest.param(
        "shared --kind nfs --config-file mount.yaml",
        {"server": "10.0.0.10", "path": "/srv/shared"},
        marks=pytest.mark.inventory("C-1170", "C-1228", "C-580"),
    ),
    pytest.param(
        "both --kind nfs --config-file mount.yaml --kwarg path=/over --kwarg port=21 --kwarg 'deep.items=[1]'",
        {"server": "10.0.0.10", "path": "/over", "port": 21, "deep": {"items": [1]}},
        marks=pytest.mark.inventory("C-150", "C-371"),
    ),
]


@pytest.mark.parametrize(("line", "config"), ADDED)
@pytest.mark.inventory("C-1392")
def test_a_mount_is_added_from_pairs_and_files(typed: Run, space: Space, line: str, config: Any) -> None:
    Path("mount.yaml").write_text("server: 10.0.0.10\npath: /srv/shared\n")
    name, _, kind = line.split()[:3]
    code, out, err = typed(f"mounts add {line}")
    assert (code, out) == (0, f"mount {name} added  ({kind})\n")
    assert err.splitlines()[-1] == "stored; not activated yet"
    assert config_of(space, f"mounts/{name}") == config


@pytest.mark.inventory("C-153", "C-156", "C-475")
@pytest.mark.inventory("C-154", "C-582", "C-583")
@pytest.mark.inventory("C-581", "C-584", "C-585")
@pytest.mark.inventory("C-1225", "C-1226", "C-1227")
@pytest.mark.inventory("S-220")
def test_a_mount_is_merged_into_replaced_listed_shown_and_removed(typed: Run, space: Space) -> None:
    assert typed("mounts add imagenet --kind nfs --kwarg server=10.0.0.12 --kwarg path=/exports/imagenet")[0] == 0
    assert typed("mounts update imagenet --kwarg options=ro")[:2] == (0, "mount imagenet changed\n")
    shown = json.loads(typed("mounts show imagenet --json")[1])
    whole = {"server": "10.0.0.12", "path": "/exports/imagenet", "options": "ro"}
    assert (list(shown)[:3], shown["config"]) == (["name", "kind", "config"], whole)
    assert yaml.safe_load(typed("mounts show imagenet")[1]) == {"name": "imagenet", "kind": "nfs", "config": whole}
    assert typed("mounts update imagenet --kwarg options=null --kwarg path=/v2")[0] == 0
    assert config_of(space, "mounts/imagenet") == {"server": "10.0.0.12", "path": "/v2"}
    Path("new.json").write_text('{"server": "h", "path": "/p"}')
    assert typed("mounts update imagenet --config-file new.json")[0] == 0
    assert config_of(space, "mounts/imagenet") == {"server": "h", "path": "/p"}
    for wrong in ("", "--config-file new.json --kwarg a=1", "--kwarg '[a'", "--kwarg 'path={'"):
        assert typed(f"mounts update imagenet {wrong}")[0] == 2
    code, out, _ = typed("mounts list")
    assert (code, out.split()[:4]) == (0, ["NAME", "KIND", "TARGET", "CHANGED"])
    assert "h:/p" in out
    assert [row["name"] for row in json.loads(typed("mounts list --json")[1])] == ["imagenet"]
    assert typed("mounts remove imagenet")[:2] == (0, "imagenet removed\n")
    assert json.loads(typed("mounts ls --json")[1]) == []
    assert typed("mounts remove imagenet")[0] == 1


@pytest.mark.inventory("C-151", "C-155", "C-1438")
def test_a_mount_that_makes_no_sense_is_refused_with_what_to_do(typed: Run, space: Space) -> None:
    code, _, err = typed("mounts add m --kind git")
    assert (code, "lakeshore code push" in err) == (2, True)
    assert typed("mounts add m")[0] == typed("mounts add m --kind smb")[0] == 2
    code, _, err = typed("mounts add m --kind nfs --kwarg server=h")
    assert (code, "config.path" in err) == (1, True)
    code, _, err = typed("mounts add m --kind s3 --kwarg bucket=b --kwarg 'creds.$secret=none-such'")
    assert (code, "unknown secret: none-such" in err) == (1, True)
    line = "mounts add m --kind bind --kwarg hostPath=/p --kwarg raedOnly=true"
    code, _, err = typed(line)
    assert (code, err.startswith("warning: config.raedOnly: ")) == (0, True)
    assert typed(line)[0] == 1, "the name is taken"


# -- storage

STORED: list[Any] = [
    pytest.param(
        "my-s3 --kind s3 --bucket my-bucket --region us-east-1 --creds aws-prod-keys",
        {"bucket": "my-bucket", "region": "us-east-1", "creds": {"$secret": "aws-prod-keys"}},
        marks=pytest.mark.inventory("C-157", "C-158", "C-1137"),
    ),
    pytest.param(
        "training-data --kind s3-prefix --bucket my-bucket --prefix datasets/imagenet --creds aws-prod-keys "
        '--description "read-only imagenet source"',
        {"bucket": "my-bucket", "prefix": "datasets/imagenet", "creds": {"$secret": "aws-prod-keys"}},
        marks=pytest.mark.inventory("C-1138", "C-590", "C-593"),
    ),
    pytest.param(
        "r2-cache --kind s3 --bucket cache --endpoint 'https://<account>.r2.cloudflarestorage.com' --creds r2-keys",
        {
            "bucket": "cache",
            "endpoint": "https://<account>.r2.cloudflarestorage.com",
            "creds": {"$secret": "r2-keys"},
        },
        marks=pytest.mark.inventory("C-1139", "C-591", "C-592"),
    ),
    pytest.param(
        "my-s3 --kind s3 --config-file storage.yaml --region over",
        {"bucket": "from-file", "region": "over"},
        marks=pytest.mark.inventory("C-1140", "C-595", "C-589"),
    ),
    pytest.param(
        "my-s3 --kind s3 --kwarg bucket=my-bucket --kwarg 'creds.$secret=aws-prod-keys'",
        {"bucket": "my-bucket", "creds": {"$secret": "aws-prod-keys"}},
        marks=pytest.mark.inventory("C-1141", "C-594", "C-587"),
    ),
    pytest.param(
        "code-staging --kind s3 --bucket b --acl.owner me --retries=3 --versioned true",
        {"bucket": "b", "acl": {"owner": "me"}, "retries": 3, "versioned": True},
        marks=pytest.mark.inventory("C-160", "C-598", "C-1378"),
    ),
]


@pytest.mark.inventory("C-586", "C-588")
@pytest.mark.parametrize(("line", "config"), STORED)
def test_a_storage_is_added_from_options_pairs_and_files(typed: Run, space: Space, line: str, config: Any) -> None:
    Path("storage.yaml").write_text("bucket: from-file\nregion: r\n")
    name, _, kind = line.split()[:3]
    code, out, err = typed(f"storage add {line}")
    assert (code, out) == (0, f"storage {name} added  ({kind})\n"), err
    assert config_of(space, f"storages/{name}") == config


@pytest.mark.inventory("C-1422")
def test_a_folded_option_is_told_of_with_the_one_that_was_probably_meant(typed: Run, space: Space) -> None:
    code, _, err = typed("storage add data --regoin eu-1 --kind s3 --bucket b")
    assert (code, config_of(space, "storages/data")) == (0, {"bucket": "b", "regoin": "eu-1"})
    assert "--regoin is no option" in err and "did you mean --region?" in err
    for wrong in ("--kind s3 --bucket b --flag", "--kind s3 --bucket b --flag --region r", "--kind s4 --bucket b"):
        assert typed(f"storage add other {wrong}")[0] == 2
    assert [row["name"] for row in space("GET", "storages").body["storages"]] == ["data"]


@pytest.mark.inventory("C-159", "C-600", "C-602")
@pytest.mark.inventory("C-606", "S-243")
def test_a_name_may_say_its_namespace(typed: Run, space: Space, server: Served) -> None:
    other = Space(server)
    other.made("secrets", {"name": "aws-team", "kind": "aws_keypair", "plaintext": "A:b"})
    name = f"{other.ns}/training-data"
    assert typed(f"storage add {name} --kind s3 --bucket b --region us-east-1 --creds aws-team")[0] == 0
    assert config_of(other, "storages/training-data")["creds"] == {"$secret": "aws-team"}
    assert typed("storage show training-data")[0] == 1
    assert json.loads(typed(f"storage show {name} --json")[1])["namespace"] == other.ns
    assert typed(f"storage update {name} --description shared")[0] == 0
    assert "v2/dataset.tar?X-Amz-" in typed(f"storage presign {name} v2/dataset.tar")[1]
    assert typed(f"storage remove {name}")[:2] == (0, "training-data removed\n")
    for wrong in ("/a", "a/", "a/b/c"):
        assert typed(f"storage show {wrong}")[0] == 2


@pytest.mark.inventory("C-163", "C-165", "C-603")
@pytest.mark.inventory("C-599", "C-601", "C-605")
@pytest.mark.inventory("C-1143", "C-1144", "C-1145")
@pytest.mark.inventory("C-1146", "C-1147", "C-1148")
def test_a_storage_is_listed_shown_and_changed(typed: Run, space: Space) -> None:
    assert typed("storage add my-s3 --kind s3 --bucket my-bucket --creds aws-prod-keys")[0] == 0
    assert typed("storage update my-s3 --kwarg region=us-west-2")[:2] == (0, "storage my-s3 changed\n")
    assert typed('storage update my-s3 --description "prod artifacts"')[0] == 0
    row = json.loads(typed("storage show my-s3 --json")[1])
    assert (row["config"]["region"], row["description"]) == ("us-west-2", "prod artifacts")
    assert 'creds: "<secret: aws-prod-keys>"' in typed("storage show my-s3")[1]
    assert typed("storage update my-s3 --kwarg region=null")[0] == 0
    assert "region" not in config_of(space, "storages/my-s3")
    Path("new.yaml").write_text("bucket: my-bucket\nregion: eu-1\n")
    assert typed("storage update my-s3 --config-file new.yaml")[0] == 0
    assert config_of(space, "storages/my-s3") == {"bucket": "my-bucket", "region": "eu-1"}
    code, out, _ = typed("storage list")
    assert (code, out.split()[:3]) == (0, ["NAME", "KIND", "BUCKET"])
    assert "prod artifacts" in out
    assert [row["bucket"] for row in json.loads(typed("storage list --json")[1])] == ["my-bucket"]
    assert typed("storage update my-s3")[0] == 2


@pytest.mark.inventory("C-162", "C-604")
def test_a_target_cannot_be_changed(typed: Run, space: Space) -> None:
    assert typed("storage add data --kind s3 --bucket b --endpoint http://h")[0] == 0
    Path("new.yaml").write_text("bucket: other\n")
    for change in ("--kwarg bucket=other", "--kwarg endpoint=null", "--config-file new.yaml"):
        code, _, err = typed(f"storage update data {change}")
        assert (code, "immutable field" in err, "hint: add another storage" in err) == (1, True, True)


@pytest.mark.inventory("C-1149", "C-1304")
def test_a_storage_is_forgotten(typed: Run, space: Space) -> None:
    assert typed("storage add my-s3 --kind s3 --bucket my-bucket --creds aws-prod-keys")[0] == 0
    assert typed("storage remove my-s3")[:2] == (0, "my-s3 removed\n")
    code, out, err = typed("storage list")
    assert (code, out, err) == (0, "", f"no storages in namespace {space.ns!r}\n")
    assert "my-s3 [deleted 20" in typed("storage list --deleted")[1]


@pytest.mark.inventory("C-860", "C-168", "C-022")
@pytest.mark.parametrize("verb", ["put", "get", "upload", "download", "duplicate", "mv", "sync"])
def test_there_are_no_verbs_for_objects(typed: Run, verb: str) -> None:
    code, _, err = typed(f"storage {verb} my-s3 key")
    assert code == 2 and err.startswith(f"error: unknown command '{verb}'")


def test_usage_of_presign_and_credentials_is_checked_here(typed: Run, space: Space) -> None:
    for line in ("presign my-s3", "presign my-s3 k --expires-in 0", "credentials s --duration 899", "credentials"):
        assert typed(f"storage {line}")[0] == 2
    assert typed("storage presign none k")[0] == 1


# -- code


def git(*words: str) -> str:
    environment = ("-c", "user.name=n", "-c", "user.email=e@example.com", "-c", "commit.gpgsign=false")
    return subprocess.run(["git", *environment, *words], check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def repository(space: Space) -> str:
    """A git repository in the working directory; its commit."""
    git("init", "-q")
    git("remote", "add", "origin", "https://me:token@example.com/r.git")
    Path("a.py").write_text("a = 1\n")
    git("add", ".")
    git("commit", "-qm", "one")
    return git("rev-parse", "HEAD")


@pytest.mark.inventory("C-171", "C-029", "C-861")
def test_a_commit_is_archived_once_and_kept_by_the_control_plane(typed: Run, space: Space, repository: str) -> None:
    code, out, err = typed("code push")
    assert (code, out.split()[:2], err) == (0, ["archived", repository[:12]], "")
    (row,) = space("GET", "code-repos").body["codeRepos"]
    assert (row["remote"], row["storageName"], row["ref"]) == ("https://example.com/r.git", None, None)
    code, out, _ = typed("code push")
    assert (code, out) == (0, f"already archived  {repository[:12]}  {row['archiveKey']}\n")
    told = json.loads(typed("code push --json")[1])
    assert (told["alreadyArchived"], told["commit"]) == (True, repository)
    assert typed("code list")[1].split("\n")[1].startswith(repository[:12])


@pytest.mark.inventory("C-170", "C-615", "C-1160")
def test_a_commit_that_is_in_a_storage_is_not_sent_again(typed: Run, space: Space, repository: str) -> None:
    assert typed("storage add code-staging --kind s3 --bucket b")[0] == 0
    row = {"remote": "https://example.com/r.git", "commit": repository, "archiveKey": f"code/{repository}.tar.gz"}
    space.made("code-repos", row)
    code, out, _ = typed("code push --storage code-staging")
    assert (code, out) == (0, f"already archived  {repository[:12]}  code/{repository}.tar.gz\n")


@pytest.mark.inventory("C-172", "C-616", "C-1161")
def test_a_tree_with_changes_is_refused_unless_it_is_meant(typed: Run, space: Space, repository: str) -> None:
    Path("a.py").write_text("a = 2\n")
    Path("new.py").write_text("b = 3\n")
    Path(".gitignore").write_text("*.secret\n")
    Path("x.secret").write_text("s\n")
    Path("__pycache__").mkdir()
    Path("__pycache__/a.pyc").write_text("c\n")
    code, out, err = typed("code push")
    assert (code, out, "--dirty" in err) == (2, "", True)
    before = git("status", "--porcelain")
    code, out, err = typed("code push --dirty")
    assert (code, out.split()[0], err) == (0, "archived", "")
    assert git("status", "--porcelain") == before and git("stash", "list") == "", "the tree is as it was"
    (row,) = space("GET", "code-repos").body["codeRepos"]
    assert row["commit"] != repository and row["ref"].startswith("refs/snapshots/run-")
    assert git("ls-tree", "--name-only", row["commit"]).split() == [".gitignore", "a.py", "new.py"]
    assert typed("code push --dirty")[1].startswith("already archived"), "the same content is the same commit"
    Path("a.py").write_text("a = 4\n")
    assert typed("code push --dirty")[1].startswith("archived")


@pytest.mark.inventory("C-173", "C-1162")
def test_a_storage_that_is_not_there_is_told_with_the_command_that_adds_it(
    typed: Run, space: Space, repository: str
) -> None:
    code, _, err = typed("code push --storage code-staging")
    says = "storage add code-staging --kind s3 --kwarg bucket=<your-bucket> --kwarg 'creds.$secret=<aws-creds>'"
    assert (code, f"hint: lakeshore {says}" in err) == (1, True)
    filled = says.replace("<your-bucket>", "b").replace("<aws-creds>", "aws-prod-keys")
    assert typed(filled)[0] == 0


def test_where_there_is_no_repository_it_is_said(typed: Run, space: Space, tmp_path: Path) -> None:
    assert typed("code push")[0] == 2
    git("init", "-q")
    code, _, err = typed("code push")
    assert (code, "no commit" in err) == (2, True)
    git("commit", "-q", "--allow-empty", "-m", "one")
    code, out, _ = typed("code push")
    assert (code, out.split()[0]) == (0, "archived"), "a repository without a remote goes by the name of its directory"
    assert space("GET", "code-repos").body["codeRepos"][0]["remote"] == f"local:{Path.cwd().name}"


def test_an_archive_is_removed_by_the_first_digits_of_its_commit(typed: Run, space: Space, repository: str) -> None:
    assert typed("code push")[0] == 0
    for line, said in (("abc", "6 digits"), ("0123456789", "code list")):
        code, _, err = typed(f"code remove {line}")
        assert (code, said in err) == (1, True)
    code, out, _ = typed(f"code remove {repository[:8]}")
    assert (code, out) == (0, f"removed  {repository[:12]}  https://example.com/r.git\n")
    assert typed("code list")[:2] == (0, "")


@pytest.mark.inventory("C-174", "C-617", "C-618")
@pytest.mark.inventory("C-1163", "C-1164", "C-1165")
def test_archives_are_listed_newest_first(typed: Run, space: Space) -> None:
    assert typed("code list")[:2] == (0, "")
    assert typed("storage add code-staging --kind s3 --bucket b")[0] == 0
    remotes = ("https://github.com/you/your-repo.git", "git@example.com:r.git")
    for index in range(4):
        row = {"remote": remotes[index % 2], "commit": f"{index:040x}", "archiveKey": f"k{index}"}
        space.made("code-repos", row)
    rows = json.loads(typed("code list --json")[1])
    assert [row["archiveKey"] for row in rows] == ["k3", "k2", "k1", "k0"]
    code, out, _ = typed(f"code list --remote {remotes[0]}")
    assert (code, out.split()[:5]) == (0, ["COMMIT", "REMOTE", "STORAGE", "REF", "ARCHIVED"])
    assert out.count(remotes[0]) == 2 and remotes[1] not in out
    code, out, err = typed("code list --limit 3")
    assert (out.count("code-staging"), "3 shown; more with --all" in err) == (3, True)


def test_a_namespace_is_named_as_everywhere(typed: Run, space: Space, server: Served) -> None:
    other = Space(server, f"ns-{new_id()}")
    assert typed(f"mounts add m --kind bind --kwarg hostPath=/p --namespace {other.ns}")[0] == 0
    assert config_of(other, "mounts/m") == {"hostPath": "/p"}
