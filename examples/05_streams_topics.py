# /// script
# requires-python = ">=3.11"
# dependencies = ["lakeshore"]
#
# [tool.uv.sources]
# lakeshore = { path = "..", editable = true }
# ///
"""Values while the job runs, from any point; and channels that belong to no job.

Teaches: a generator's yields are numbered frames of its invocation; `q.stream` follows them, and `since=` goes on after
the last number that was seen, without a loss or a repetition, also from another process; an error ends the stream as an
error; `q.topic` is the same journal under a name, for anybody to post to and to read.

Needs nothing but Python.
"""

import threading
from collections.abc import Iterator

import dreamlake.lakeshore as dls
from dreamlake.lakeshore.dispatch import DispatchError

plane = dls.Dispatch(":memory:")
q = dls.SyncQueue("render", dispatch=plane)


@dls.udf(queue="render")
def render(n: int) -> Iterator[dict]:
    for i in range(n):
        yield {"frame": i, "px": i * i}


@dls.udf(queue="render")
def breaks() -> Iterator[dict]:
    yield {"frame": 0}
    raise ValueError("no more film")


def main() -> None:
    invocation = render.submit(4, _dispatch=plane)
    worker = threading.Thread(target=dls.run_worker, args=(q,), kwargs={"once": True})
    worker.start()

    # A reader that goes away after two frames keeps one number: the last that it saw.
    live = q.stream(invocation, timeout=10)
    seen = [next(live), next(live)]
    cursor = len(seen) - 1
    live.close()
    print("live:", [item["frame"] for item in seen], "cursor:", cursor)

    # Whoever has the id and the number goes on from there.
    print("resumed:", [item["frame"] for item in q.stream(invocation, since=cursor, timeout=10)])
    worker.join()
    print("replayed:", [item["frame"] for item in q.stream(invocation, timeout=10)])

    broken = breaks.submit(_dispatch=plane)
    dls.run_worker(q, once=True, retries=0)
    try:
        for item in q.stream(broken, timeout=10):
            print("before it broke:", item["frame"])
    except DispatchError as error:
        print("an error is no end:", "no more film" in str(error))

    topic = q.topic("progress")
    for done in (10, 20, 30):
        topic.post({"done": done, "of": 30})
    topic.post(None, final=True)
    print("topic:", [message["done"] for message in topic.stream()])
    print("next after 0:", topic.listen(since=0)["done"])


if __name__ == "__main__":
    main()
