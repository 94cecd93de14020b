# /// script
# requires-python = ">=3.11"
# dependencies = ["lakeshore", "scikit-learn"]
#
# [tool.uv.sources]
# lakeshore = { path = "..", editable = true }
# ///
"""A hyper-parameter sweep that may be killed: 24 points on two workers, each computed once.

Teaches: `_key=` makes a submit the same submit however often it is made. So a script that was killed is simply started
again: it asks for all 24 points as before, finds those that are done, waits for those that are not, and submits none
twice. The work belongs to the control plane and its workers, not to this process.

    pip install scikit-learn
    python examples/07_sweep.py

With LAKESHORE_URL set it uses that server and its workers; start some where they can import `digits.py`:

    cd examples && lakeshore worker start --queue sweep --procs 2

Without it, it starts a server and two workers for as long as it runs, with their files in ./sweep-state. Remove that
directory to begin anew (or pass another --name: it is the first part of every key).
"""

import argparse
import importlib.util
import itertools
import os
import sys
from pathlib import Path

from digits import evaluate

import dreamlake.lakeshore as dls
from dreamlake.lakeshore.stack import Stack

C = (0.5, 1.0, 2.0, 5.0, 10.0, 50.0)
GAMMA = (0.0001, 0.0005, 0.001, 0.002)
POINTS = [{"c": c, "gamma": gamma} for c, gamma in itertools.product(C, GAMMA)]
PATIENCE_S = 600.0


def label(point: dict) -> str:
    return f"c={point['c']:g} gamma={point['gamma']:g}"


def sweep(name: str) -> None:
    q = dls.SyncQueue("sweep")
    # A point that failed is tried again; one that was done, or is being done, is not.
    ids = [evaluate.submit(**point, _key=f"{name}/{label(point)}", _retry_failed=True) for point in POINTS]
    done = {i for i in ids if q.dispatch.get(i)["state"] == "succeeded"}
    print(f"{len(ids)} points, {len(done)} already done", flush=True)

    results = []
    for number, (invocation, point) in enumerate(zip(ids, POINTS, strict=True), 1):
        result = q.result(invocation, timeout=PATIENCE_S)
        results.append((result["accuracy"], result["seconds"], point, invocation in done))
        print(f"  {number:2} of {len(ids)}  {label(point):<22} {result['accuracy']:.4f}", flush=True)

    print(f"\n{'rank':>4}  {'c':>5}  {'gamma':>7}  {'accuracy':>8}  {'seconds':>7}")
    results.sort(key=lambda row: (-row[0], row[2]["c"], row[2]["gamma"]))
    for rank, (accuracy, seconds, point, was_done) in enumerate(results, 1):
        note = "  already done" if was_done else ""
        print(f"{rank:4}  {point['c']:5}  {point['gamma']:7}  {accuracy:8.4f}  {seconds:7.2f}{note}")


def main() -> None:
    parser = argparse.ArgumentParser(description="A resumable sweep over 24 points.")
    parser.add_argument("--name", default="digits", help="the sweep's name: another one begins anew")
    name = parser.parse_args().name
    if "LAKESHORE_URL" in os.environ:
        print(f"control plane: {os.environ['LAKESHORE_URL']} (LAKESHORE_URL)")
        sweep(name)
        return
    if importlib.util.find_spec("sklearn") is None:
        sys.exit("this example computes with scikit-learn: pip install scikit-learn")
    with Stack("sweep-state", modules=Path(__file__).parent) as stack:
        os.environ["LAKESHORE_URL"] = stack.serve()
        stack.work("sweep", 2)
        print(f"control plane: {stack.url} (ours, with two workers; its files are in {stack.directory})")
        sweep(name)


if __name__ == "__main__":
    main()
