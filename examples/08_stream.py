# /// script
# requires-python = ">=3.11"
# dependencies = ["lakeshore"]
#
# [tool.uv.sources]
# lakeshore = { path = "..", editable = true }
# ///
"""A long job on a web page, row by row: reload the page, kill this program, start it again; no row is lost or doubled.

Teaches: what a generator yields is numbered and kept, so a reader needs two things to go on, the id and the last number
that it saw. Server-sent events have room for exactly these: the browser sends the last event's number when it comes
back (`Last-Event-ID`), and `q.stream(id, since=number)` goes on from there. The job runs in a worker; this program only
shows it, and may be killed at any time.

    python examples/08_stream.py            # then open the address that it prints
    python examples/08_stream.py --text     # the same stream in the terminal, at the same time if you like

The picture called --name is computed once; under another name you see it grow again. Without LAKESHORE_URL the job lies
in a file of this machine, and a worker is started for it, which ends when the job does. With LAKESHORE_URL it is the
server's, whose workers must accept functions by value: lakeshore worker start --queue stream --allow-pickled
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import dreamlake.lakeshore as dls
from dreamlake.lakeshore.dispatch import DispatchError

QUIET_S = 5.0
PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Row by row</title>
<style>body { font: 14px/1.4 system-ui; margin: 2em } pre { font: 9px/9px monospace }</style>
<h1>Row by row</h1><p><progress value="0"></progress> <span id="state">waiting for the first row</span></p><pre></pre>
<script>
const picture = document.querySelector("pre"), bar = document.querySelector("progress");
const state = document.getElementById("state"), rows = [];
const events = new EventSource("/events");
events.onmessage = event => {
  const row = JSON.parse(event.data);
  rows[row.number] = row.text;  // by its number: a job that had to run again yields again
  picture.textContent = rows.join("\\n");
  bar.max = row.of;
  bar.value = row.number + 1;
  state.textContent = `${row.number + 1} of ${row.of} rows`;
};
events.addEventListener("quiet", event => { state.textContent = event.data; });
events.addEventListener("end", () => { events.close(); state.textContent += ", finished"; });
events.addEventListener("failed", event => { events.close(); state.textContent = event.data; });
</script></html>
"""


@dls.udf(queue="stream")
def picture(height: int, width: int, depth: int) -> Iterator[dict]:
    """The Mandelbrot set in letters, one row a yield. The greater `depth`, the longer it takes and the finer it is."""
    shades = " .:-=+*%@"
    for number in range(height):
        y = 2.4 * number / (height - 1) - 1.2
        line = []
        for column in range(width):
            point = complex(3.2 * column / (width - 1) - 2.3, y)
            z, steps = 0j, 0
            while abs(z) < 2 and steps < depth:
                z, steps = z * z + point, steps + 1
            line.append("#" if steps == depth else shades[min(steps.bit_length(), len(shades) - 1)])
        yield {"number": number, "of": height, "text": "".join(line)}


class Job:
    """The picture: its id, and whatever it takes that somebody computes it."""

    def __init__(self, name: str, depth: int) -> None:
        self.q = dls.SyncQueue("stream")
        self.id = picture.submit(60, 120, depth, _key=f"picture/{name}/{depth}")  # the same job, however often
        if self.state() == "queued":
            self.find_a_worker()

    def state(self) -> str:
        return self.q.dispatch.get(self.id)["state"]

    def find_a_worker(self) -> None:
        """One that runs one job and ends. It is nobody's child: it stays when this program goes."""
        if "LAKESHORE_URL" not in os.environ:
            command = [sys.executable, "-m", "dreamlake.lakeshore.daemon", "--queue", "stream", "--once"]
            quietly = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            subprocess.Popen(command, start_new_session=True, **quietly)

    def rows(self, since: int) -> Iterator[tuple[int, dict | None]]:
        """(number, row) behind the number `since`, live, to the end. (number, None) when nothing came for a while."""
        while True:
            try:
                for row in self.q.stream(self.id, since=since, timeout=QUIET_S):
                    since += 1  # numbers have no gaps
                    yield since, row
            except TimeoutError:
                self.find_a_worker()  # if the last one is dead; where there is nothing to do, it ends at once
                yield since, None
            else:
                return


class Handler(BaseHTTPRequestHandler):
    job: Job

    def do_GET(self) -> None:
        if self.path == "/":
            self.begin("text/html; charset=utf-8")
            self.wfile.write(PAGE.encode())
        elif self.path == "/events":
            self.begin("text/event-stream")
            with contextlib.suppress(ConnectionError):  # the page was closed or reloaded
                self.send_events(int(self.headers.get("Last-Event-ID") or -1))
        else:
            self.send_error(404)

    def begin(self, kind: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Cache-Control", "no-store")
        self.end_headers()

    def send_events(self, since: int) -> None:
        self.wfile.write(b"retry: 500\n\n")  # milliseconds until a browser comes back
        try:
            for number, row in self.job.rows(since):
                if row is None:
                    self.wfile.write(f"event: quiet\ndata: {self.job.state()}, nothing new yet\n\n".encode())
                else:
                    self.wfile.write(f"id: {number}\ndata: {json.dumps(row)}\n\n".encode())
            self.wfile.write(b"event: end\ndata:\n\n")
        except DispatchError as error:
            self.wfile.write(f"event: failed\ndata: {' '.join(str(error).split())}\n\n".encode())

    def log_message(self, *_: object) -> None:
        """Nothing on the terminal for each request."""


def main() -> None:
    parser = argparse.ArgumentParser(description="A long job on a web page, row by row.")
    parser.add_argument("--name", default="first", help="the picture's name: another one is computed anew")
    parser.add_argument("--depth", type=int, default=40_000, help="how much work it is (default: %(default)s)")
    parser.add_argument("--port", type=int, default=8000, help="of the page (default: %(default)s; 0: any)")
    parser.add_argument("--text", action="store_true", help="print the rows here instead, and end with them")
    parser.add_argument("--since", type=int, default=-1, help="with --text: go on after this number")
    given = parser.parse_args()
    job = Job(given.name, given.depth)
    if given.text:
        for number, row in job.rows(given.since):
            if row is not None:
                print(f"{number:3} {row['text']}", flush=True)
        return
    Handler.job = job
    with ThreadingHTTPServer(("127.0.0.1", given.port), Handler) as server:
        print(f"job {job.id}: http://127.0.0.1:{server.server_port}/", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print("the job goes on; start this again to go on watching")


if __name__ == "__main__":
    main()
