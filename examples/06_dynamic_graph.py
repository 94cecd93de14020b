# /// script
# requires-python = ">=3.11"
# dependencies = ["lakeshore"]
#
# [tool.uv.sources]
# lakeshore = { path = "..", editable = true }
# ///
"""A graph whose shape nobody knows before it has run.

Teaches: branches, width and loops are Python's own. Each seed proposes some candidates; each is scored; one that scores
too little is refined and scored again, three times at most. The edges are kept by hand, (source, target, verb), and
with `_parent=` the plane keeps them, too: they outlive this process.

Needs nothing but Python.
"""

from collections import Counter
from typing import Any

import dreamlake.lakeshore as dls

SEEDS = (0, 1, 2)
ENOUGH = 0.5
ATTEMPTS = 3

plane = dls.Dispatch(":memory:")
q = dls.SyncQueue("graph", dispatch=plane)
edges: list[tuple[str, str, str]] = []


@dls.udf(queue="graph")
def propose(seed: int) -> list[int]:
    return list(range(seed, seed + seed % 3 + 1))


@dls.udf(queue="graph")
def score(x: int) -> float:
    return x * 37 % 10 / 10


@dls.udf(queue="graph")
def refine(x: int) -> int:
    return x + 1


def step(udf: dls.UDF, argument: int, source: str) -> tuple[str, Any]:
    """One node behind `source`: its id and its value."""
    node = udf.submit(argument, _dispatch=plane, _parent=source)
    edges.append((source, node, udf.__name__))
    return node, run(node)


def run(node: str) -> Any:
    dls.run_worker(q, once=True)
    return q.result(node, timeout=10)


def settle(candidate: int, source: str) -> int | None:
    """Score, refine, score again; the value that was good enough, or None."""
    for attempt in range(1, ATTEMPTS + 1):
        scored, mark = step(score, candidate, source)
        if mark >= ENOUGH:
            return candidate
        if attempt < ATTEMPTS:
            source, candidate = step(refine, candidate, scored)
    return None


def main() -> None:
    for seed in SEEDS:
        proposed = propose.submit(seed, _dispatch=plane)
        candidates = run(proposed)
        print(f"seed {seed}: {candidates} -> {[settle(x, proposed) for x in candidates]}")

    tally = Counter(verb for _, _, verb in edges)
    print(f"{len(edges)} edges ({tally['score']} score, {tally['refine']} refine)")
    kept = [plane.get(target)["parent"] == source for source, target, _ in edges]
    print("the plane knows them:", all(kept))


if __name__ == "__main__":
    main()
