"""The golden local run of two pipelines: exactly these files, exactly these keys, and no network."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from example_places import KINDS, STRICT, place

SCENE = Path(__file__).with_name("scene.py")
EPISODE = ["goal.json", "images/ind_0000.png", "images/ind_0001.png", "images/ind_0002.png"]
EPISODE += ["labels/0.txt", "labels/1.txt", "segments.json", "traj.npz"]
TREE = [
    *(f"outputs/{episode}/{name}" for episode in ("0000", "0001") for name in EPISODE),
    *(f"process/images/{kind}/{pose}.png" for kind in ("depth", "rgb") for pose in (0, 1)),
    *("process/maps/0.txt", "process/maps/1.txt", "process/mesh.ply", "source/poses.json", "source/splats.ply"),
]
FRAMES = [f"images/ind_000{step}.png" for step in range(3)]

# Any socket but a pair in this process ends the program: a plug of Python's own.
NO_NETWORK = """\
import sys
def forbid(event, _):
    if event in ("socket.connect", "socket.bind", "socket.getaddrinfo"):
        raise SystemExit(f"the network was asked for: {event}")
sys.addaudithook(forbid)
"""


@pytest.mark.inventory("P-474")
@pytest.mark.parametrize("kind", KINDS)
def test_the_golden_local_run_makes_this_tree_and_these_manifests(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    plug = tmp_path / "plug"
    plug.mkdir()
    (plug / "sitecustomize.py").write_text(NO_NETWORK, "utf-8")
    where = place(kind, tmp_path, request)
    where.env["PYTHONPATH"] += f":{plug}"
    scene = tmp_path / "root" / "scenes" / "0007"
    (scene / "source").mkdir(parents=True)
    (scene / "source" / "splats.ply").write_text("points")
    (scene / "source" / "poses.json").write_text("[0, 1]")

    done = where.run(*STRICT, str(SCENE), str(tmp_path / "root"))
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == {
        "scene": {
            "mesh": "process/mesh.ply",
            "maps": "process/maps",
            "views": {"rgb": "process/images/rgb", "depth": "process/images/depth"},
            "episodes": [{"traj": "traj.npz", "frames": FRAMES}] * 2,
        },
        "labels": [["labels/0.txt", "labels/1.txt"]] * 2,
    }
    root = tmp_path / "root"
    assert sorted(str(path.relative_to(scene)) for path in root.rglob("*") if path.is_file()) == sorted(TREE)
    assert (scene / "outputs" / "0001" / "traj.npz").read_text() == "goal 1 over 2 floors"
    assert (scene / "outputs" / "0001" / "labels" / "1.txt").read_text() == "2 frames"
