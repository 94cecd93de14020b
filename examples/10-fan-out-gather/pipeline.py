# /// script
# requires-python = ">=3.11"
# dependencies = ["lakeshore"]
#
# [tool.uv.sources]
# lakeshore = { path = "../..", editable = true }
# ///
"""Two fan-outs in a row: the values of the first are the arguments of the second.

lakeshore worker start --queue compute --procs 2
python pipeline.py
"""

import asyncio

import dreamlake.lakeshore as dls


@dls.udf(queue="compute")
def double(x: int) -> int:
    return x * 2


@dls.udf(queue="compute")
def to_hex(n: int) -> dict:
    return {"n": n, "hex": hex(n)}


async def main(n: int = 6) -> None:
    q = dls.Queue("compute")
    doubled = await asyncio.gather(*(q.result(i, timeout=60) for i in [double.submit(x) for x in range(n)]))
    for labelled in await asyncio.gather(*(q.result(i, timeout=60) for i in [to_hex.submit(d) for d in doubled])):
        print(labelled)


if __name__ == "__main__":
    asyncio.run(main())
