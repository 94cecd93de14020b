"""Two pipelines of data functions over one scene, their bodies stood in for by text files.

`generate_scene` makes a mesh, maps, views and, for each episode, a trajectory with a frame a step; `annotate_subtasks`
goes through the episodes and labels them. What matters is where everything lies and which keys come back.
Run with a root: it prints the manifests of both as JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import dreamlake.lakeshore as dls

EPISODES = 2
STEPS = 3


@dls.udf
def splats_to_mesh(splats: str) -> str:
    dls.run.write("process/mesh.ply").write_text(f"mesh of {dls.run.read(splats).read_text()}")
    return "process/mesh.ply"


@dls.udf
async def mesh_to_maps(mesh: str) -> str:
    maps = dls.run.write("process/maps", dir=True)
    for floor in range(2):
        (maps / f"{floor}.txt").write_text(dls.run.read(mesh).read_text())
    return "process/maps"


@dls.udf
def poses_to_views(splats: str, poses: str) -> dict[str, str]:
    count = len(json.loads(dls.run.read(poses).read_text()))
    rgb, depth = dls.run.write("process/images/rgb", dir=True), dls.run.write("process/images/depth", dir=True)
    for pose in range(count):
        for images in (rgb, depth):
            (images / f"{pose}.png").write_text(dls.run.read(splats).read_text())
    return {"rgb": "process/images/rgb", "depth": "process/images/depth"}


@dls.udf
def goal_to_traj(goal: str, maps: str) -> str:
    floors = len(list(dls.run.read(maps).iterdir()))
    dls.run.write("traj.npz").write_text(f"{dls.run.read(goal).read_text()} over {floors} floors")
    return "traj.npz"


@dls.udf
async def traj_to_ego_views(splats: str, traj: str) -> AsyncIterator[list[str]]:
    assert dls.run.read(splats).exists() and dls.run.read(traj).exists()
    for step in range(STEPS):
        await asyncio.sleep(0)
        dls.run.write(f"images/ind_{step:04d}.png").write_text(f"step {step}")
        yield [f"images/ind_{step:04d}.png"]


@dls.udf
def frames_to_segments(frames: list[str]) -> str:
    seen = [path.read_text() for path in dls.run.read_all(frames)]
    dls.run.write("segments.json").write_text(json.dumps([seen[:1], seen[1:]]))
    return "segments.json"


@dls.udf
def segments_to_labels(segments: str) -> list[str]:
    keys = []
    for number, segment in enumerate(json.loads(dls.run.read(segments).read_text())):
        dls.run.write(f"labels/{number}.txt").write_text(f"{len(segment)} frames")
        keys.append(f"labels/{number}.txt")
    return keys


async def generate_scene(scene: str, root: Path) -> dict[str, object]:
    with dls.scope(scene, root=root):
        mesh = splats_to_mesh("source/splats.ply")
        maps = await mesh_to_maps(mesh)
        views = poses_to_views("source/splats.ply", "source/poses.json")
        episodes = []
        for i in range(EPISODES):
            with dls.scope(f"outputs/{i:04d}"):
                dls.run.write("goal.json").write_text(f"goal {i}")
                traj = goal_to_traj("goal.json", f"../../{maps}")
                frames = [key async for keys in traj_to_ego_views("../../source/splats.ply", traj) for key in keys]
                episodes.append({"traj": traj, "frames": frames})
    return {"mesh": mesh, "maps": maps, "views": views, "episodes": episodes}


def annotate_subtasks(scene: str, root: Path, episodes: list[dict[str, list[str]]]) -> list[list[str]]:
    labels = []
    with dls.scope(scene, root=root):
        for i, episode in enumerate(episodes):
            with dls.scope(f"outputs/{i:04d}"):
                labels.append(segments_to_labels(frames_to_segments(episode["frames"])))
    return labels


def main(root: Path) -> None:
    scene = asyncio.run(generate_scene("scenes/0007", root))
    labels = annotate_subtasks("scenes/0007", root, scene["episodes"])  # type: ignore[arg-type]
    print(json.dumps({"scene": scene, "labels": labels}))
    loaded = {"httpx", "msgpack", "sqlite3", "lakeshore.net", "lakeshore.plane"} & sys.modules.keys()
    assert not loaded, f"the local tier loads neither an HTTP client nor a database: {loaded}"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
