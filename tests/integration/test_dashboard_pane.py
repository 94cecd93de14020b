"""The detail pane of `lakeshore tui` before a real server: what it tells of each kind of row, following it."""

from __future__ import annotations

import re

import msgpack
from dashboards import dashboard, made, namespace, run, state_of, submitted
from served import JSON, Served
from worker_peer import Daemon


def frame(seq: int, body: object) -> bytes:
    packed: bytes = msgpack.packb([0, seq, body, None])
    return packed


def test_a_call_is_followed_from_its_queue_to_its_error_with_what_it_prints_and_yields(server: Served) -> None:
    ns = namespace(server)
    made(server, ns, "gpu")
    id_ = submitted(server, ns, "gpu")

    async def main() -> None:
        async with dashboard(server, ns, tab="invocations", follows=True) as shown:
            await shown.press("enter")
            await shown.until(lambda: "no worker serves queue 'gpu'" in shown.text())
            text = shown.text()
            assert "_native_wire.envelope" in text and id_ in text and "arguments 4 B, result —" in text
            assert re.search(r"submitted +\d{4}-\d\d-\d\d [\d:]{8} +[\d.]+s ago", text) and "nothing yet" in text
            assert re.search(r"claimed +— +waits for ", text) and "SUBMIT " not in text
            worker = Daemon(server, ns=ns, queue="gpu")
            (command,) = worker.ask(capacity=1)["commands"]
            await shown.until(lambda: re.search(r"lease +\d+ s left", shown.text()) and "waited" in shown.text())
            of = {"invocation_id": id_, "claim": command["body"]["claim"]}
            parts = [["stdout", 0, b"epoch 1\n\x1b[32mgreen"], ["stderr", 0, b"warned\n"]]
            assert worker.post("/v1/daemon/log-chunk", {**of, "attempt": 1, "parts": parts}).status == 200
            chunk = {**of, "worker_id": worker.id, "seq": 0, "bytes": frame(0, {"loss": 0.25})}
            assert worker.post("/v1/daemon/result-chunk", chunk).status == 200
            await shown.until(lambda: "{'loss': 0.25}" in shown.text() and "  green" not in shown.text())
            await shown.until(lambda: {" epoch 1", " green", " warned"} <= {line.rstrip() for line in shown.lines()})
            error = {"type": "ValueError", "message": "no such shard", "traceback": 'File "a.py", line 3\nValueError'}
            ack = {**of, "worker_id": worker.id, "state": "failed", "error": error, "last_seq": 0}
            assert worker.post("/v1/daemon/ack", ack).status == 200
            await shown.until(lambda: re.search(r"ended +\d{4}-.* ran ", shown.text()))
            assert "ValueError: no such shard" in shown.text() and 'File "a.py", line 3' in shown.text()
            assert re.search(r"_native_wire.envelope +failed", shown.text())
            await shown.until(lambda: "[k]ill" not in shown.said())  # the list has it, too
            await shown.press("escape")
            assert shown.row(id_) and "SUBMIT" in shown.text()

    run(main)


def test_a_pane_is_left_scrolled_and_led_to_the_neighbours_and_acts_on_its_own_row(server: Served) -> None:
    ns = namespace(server)
    calls = [submitted(server, ns, "gpu") for _ in range(3)]

    async def main() -> None:
        async with dashboard(server, ns, tab="invocations", size=(80, 12), follows=True) as shown:
            await shown.press("down", "enter")
            await shown.until(lambda: "waits for" in shown.text() or "waits " in shown.text())
            top = shown.lines()[2]
            await shown.press("down")
            assert shown.lines()[2] != top
            await shown.press("up")
            assert shown.lines()[2] == top and calls[1] in shown.said()
            await shown.press("slash", "greater_than_sign", "S")
            assert shown.app._active.column is None and not shown.app._input.has_class("-shown")
            await shown.press("left")
            assert calls[2] in shown.said()
            await shown.press("right", "right", "right")
            assert calls[0] in shown.said() and "[k]ill" in shown.said() and shown.lines()[-1].startswith(" Esc back")
            newer = submitted(server, ns, "gpu")
            await shown.until(lambda: "4" in shown.lines()[0].partition("Invocations")[2][:3])
            await shown.press("Y")
            assert shown.app.clipboard == calls[0]
            await shown.press("k", "R", "escape")
            assert shown.app._pane.item is not None  # the question swallowed it, the answer was no
            await shown.press("k", "y")
            await shown.until(lambda: f"killed {calls[0]}" in shown.said())
            await shown.until(lambda: " killed" in shown.lines()[2])
            assert [state_of(server, ns, f"invocations/{id_}") for id_ in (*calls, newer)] == ["killed"] + [
                "queued"
            ] * 3
            await shown.press("2")
            assert "ELASTICITY" in shown.text()
            await shown.pilot.click("#list", offset=(3, 0))
            await shown.until(lambda: "DEPTH AND THROUGHPUT" in shown.text())

    run(main)


def test_a_worker_is_told_with_its_jobs_its_last_exec_and_its_capabilities_and_goes(server: Served) -> None:
    ns = namespace(server)
    id_ = submitted(server, ns, "gpu")
    worker = Daemon(server, ns=ns, queue="gpu")
    worker.ask(capacity=1)
    exec_id = worker.run("nvidia-smi -L")
    worker.end(exec_id, exit_code=3)
    Daemon(server, ns=ns)  # another one, which is selected when the first has gone

    async def main() -> None:
        async with dashboard(server, ns, follows=True) as shown:
            await shown.select(worker.id)
            await shown.press("enter")
            await shown.until(lambda: "nvidia-smi -L" in shown.text())
            text = shown.text()
            assert re.search(rf"{worker.machine[:6]} .*active", text) and "IN FLIGHT  1 of 4" in text
            assert re.search(rf"{id_} +running +[\d.]+s +gpu +_native_wire.envelope", text)
            assert re.search(r"last poll +\d{4}-.* ago", text) and "exit 3" in text and "workdir" in text
            assert "[k]ill" in shown.said()
            worker.order("reset")
            await shown.press("R")
            await shown.until(lambda: "told to" in shown.text() and "reset_backoff" in shown.text())
            assert server.call("DELETE", worker.at()).status == 200
            await shown.until(lambda: "is gone; this is what was read last" in shown.text())
            await shown.press("k")
            assert "[y/n]" not in shown.text() and "IN FLIGHT" in shown.text()

    run(main)


def test_a_queue_is_told_with_its_depth_its_members_and_why_its_calls_wait(server: Served) -> None:
    ns = namespace(server)
    made(server, ns, "gpu", elasticity={"kind": "max_count", "max": 2})
    for _ in range(3):
        submitted(server, ns, "gpu")
    worker = Daemon(server, ns=ns, queue="gpu")
    worker.ask(capacity=1)

    async def main() -> None:
        async with dashboard(server, ns, tab="queues") as shown:
            await shown.select("gpu")
            await shown.press("enter")
            await shown.until(lambda: re.search(r"queued +█* *█+ +2 +most 2", shown.text()))
            await shown.until(lambda: re.search(r"ended/s +▁+ +0\.0", shown.text()))
            text = shown.text()
            assert re.search(r"running +█+ +1 +most 1", text)
            assert "2: the one worker of queue 'gpu' is busy" in text and "elasticity  " in text
            assert re.search(rf"MEMBERS  1 *\n +box-{worker.machine[:6]} +active", text)
            submitted(server, ns, "gpu")
            await shown.until(lambda: re.search(r"queued .* 3 +most 3", shown.text()))  # by itself

    run(main)


def test_a_storage_is_told_with_its_target_and_its_configuration(server: Served) -> None:
    ns = namespace(server)
    body = {"name": "s-1", "kind": "s3-prefix", "config": {"bucket": f"b-{ns[3:]}", "prefix": "runs/a"}}
    assert server.post(f"/v1/namespaces/{ns}/storages", body, encoding=JSON).status == 201

    async def main() -> None:
        async with dashboard(server, ns, tab="storage") as shown:
            await shown.press("enter")
            await shown.until(lambda: re.search(rf"target +s3://b-{ns[3:]}/runs/a", shown.text()))
            assert re.search(r"prefix +runs/a", shown.text()) and "[r]emove" in shown.said()

    run(main)
