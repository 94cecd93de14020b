# /// script
# requires-python = ">=3.11"
# dependencies = ["lakeshore"]
#
# [tool.uv.sources]
# lakeshore = { path = "../..", editable = true }
# ///
"""Many calls for as many workers as there are, in the order of the calls.

lakeshore worker start --queue compute --procs 2
python fan_out.py
"""

import asyncio

import dreamlake.lakeshore as dls


@dls.udf(queue="compute")
def square(x: int) -> int:
    return x * x


async def main(n: int = 10) -> None:
    q = dls.Queue("compute")
    ids = [square.submit(x) for x in range(n)]
    print(await asyncio.gather(*(q.result(i, timeout=60) for i in ids)))


if __name__ == "__main__":
    asyncio.run(main())
