# /// script
# requires-python = ">=3.11"
# dependencies = ["lakeshore"]
#
# [tool.uv.sources]
# lakeshore = { path = "../..", editable = true }
# ///
"""One program, two kinds of machine: a queue for each, and the workers decide where they belong.

    lakeshore worker start --queue cpu      # on any machine
    lakeshore worker start --queue gpu      # where there is a GPU
    python mixed.py

The bodies of this one are content with any processor.
"""

import os

import dreamlake.lakeshore as dls


@dls.udf(queue="cpu")
def prepare(sample: int) -> dict:
    return {"sample": sample, "features": [sample, sample + 1, sample + 2], "pid": os.getpid()}


@dls.udf(queue="gpu")
def embed(features: list[int]) -> dict:
    return {"embedding": sum(features) / len(features), "pid": os.getpid()}


def main() -> None:
    cpu, gpu = dls.SyncQueue("cpu"), dls.SyncQueue("gpu")
    prepared = [cpu.result(i, timeout=60) for i in [prepare.submit(sample) for sample in range(4)]]
    embedded = [gpu.result(i, timeout=60) for i in [embed.submit(p["features"]) for p in prepared]]
    for before, after in zip(prepared, embedded, strict=True):
        print(f"sample {before['sample']}: {after['embedding']}")
    pids = {p["pid"] for p in prepared}, {e["pid"] for e in embedded}
    print("prepared and embedded by different processes:", pids[0].isdisjoint(pids[1]))


if __name__ == "__main__":
    main()
