"""What the pages promise of `SyncQueue`, `Queue`, `Topic` and `Job`, on a plane in memory and on a control plane."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import served
import worker_bodies as bodies
from PIL import Image

import dreamlake.lakeshore as dls
from lakeshore import wire
from lakeshore.sdk.default_plane import default_dispatch
from lakeshore.sdk.errors import DispatchError

PATIENCE_S = 60.0
BLINK_S = 0.05


@pytest.fixture(scope="module")
def control_plane(server: served.Served) -> Iterator[dls.HttpDispatch]:
    """One for all tests here: each would start a guardian."""
    made = dls.HttpDispatch(server.url)
    yield made
    made.close()


@pytest.fixture(params=["memory", "http"])
def plane(request: pytest.FixtureRequest) -> Iterator[Any]:
    if request.param == "http":
        yield request.getfixturevalue("control_plane")
        return
    made = dls.Dispatch(":memory:")
    yield made
    made.close()


@pytest.fixture
def q(plane: Any) -> dls.SyncQueue:
    return dls.SyncQueue(f"q-{served.new_id()}", dispatch=plane)


def answer(q: dls.SyncQueue, result: Any) -> str:
    """Claim the next job and ack it; its id."""
    job = q.claim()
    assert job is not None
    q.ack(job, result)
    return job.id


# -- construction


@pytest.mark.inventory("P-207", "P-217", "P-241")
def test_signatures_are_the_documented_ones() -> None:
    def shape(function: Any) -> dict[str, Any]:
        found = inspect.signature(function).parameters.values()
        return {p.name: p.default for p in found if not p.name.startswith("_") and p.name != "self"}

    assert shape(dls.SyncQueue) == {
        "name": inspect.Parameter.empty,
        "dispatch": None,
        "kind": "fifo",
        "temperature": 1.0,
    }
    for queue in (dls.SyncQueue, dls.Queue):
        submit = shape(queue.submit)
        documented = {"payload": None, "envelope": None, "key": None, "priority": 0.0}
        assert {**submit, **documented} == submit
        assert not any(submit[name] for name in submit.keys() - documented), "what we add may be left out"
        assert shape(queue.result) == {"inv_id": inspect.Parameter.empty, "timeout": 30.0}
        assert shape(queue.stream) == {"inv_id": inspect.Parameter.empty, "since": -1, "timeout": 30.0}
    assert inspect.iscoroutinefunction(dls.Queue.result)


@pytest.mark.inventory("P-208", "P-209", "P-210")
def test_the_async_queue_holds_a_blocking_one_made_of_the_same_arguments(plane: Any) -> None:
    q = dls.Queue("jobs", dispatch=plane, kind="filo", temperature=0.5)
    assert not isinstance(q, dls.SyncQueue)
    assert q.sync is q._q
    assert isinstance(q.sync, dls.SyncQueue)
    assert (q.sync.name, q.sync.plane, q.sync.kind, q.sync.temperature) == ("jobs", plane, "filo", 0.5)


@pytest.mark.inventory("P-242")
def test_without_a_plane_a_queue_is_of_the_process() -> None:
    assert dls.SyncQueue("jobs").plane is default_dispatch()
    assert dls.Queue("jobs").sync.plane is default_dispatch()


@pytest.mark.inventory("P-771")
def test_a_verb_of_the_async_queue_that_nobody_awaits_names_the_blocking_one() -> None:
    q = dls.Queue("jobs", dispatch=dls.Dispatch(":memory:"))
    for call in (lambda: q.submit(1), lambda: q.result("01"), q.count, q.claim, lambda: q.cancel("01")):
        with pytest.warns(RuntimeWarning, match=r"Queue\.\w+ \(await it, or use dls\.SyncQueue.* was never awaited"):
            call()
    q.sync.plane.close()


@pytest.mark.inventory("P-211")
@pytest.mark.parametrize(
    ("kind", "order"), [("fifo", "bdac"), ("priority", "bdac"), ("filo", "dbca"), ("boltzmann", "")]
)
@pytest.mark.inventory("C-1432")
def test_each_kind_is_accepted_and_orders_what_it_claims(plane: Any, kind: str, order: str) -> None:
    q = dls.SyncQueue(f"q-{served.new_id()}", dispatch=plane, kind=kind, temperature=0.0)
    for name, priority in (("a", 0.5), ("b", 2.5), ("c", 0.5), ("d", 2.5)):
        q.submit(name, priority=priority)
    claimed = "".join(job.payload for _ in range(4) if (job := q.claim()) is not None)
    assert (sorted(claimed[:2]), sorted(claimed[2:])) == (["b", "d"], ["a", "c"])
    assert claimed == (order or claimed)


@pytest.mark.inventory("P-410")
@pytest.mark.parametrize("queue", [dls.SyncQueue, dls.Queue])
def test_an_unknown_kind_is_named_with_the_known_ones(plane: Any, queue: Any) -> None:
    with pytest.raises(DispatchError, match=r"unknown queue kind 'lifo'; use fifo\|filo\|boltzmann"):
        queue("jobs", dispatch=plane, kind="lifo")


@pytest.mark.inventory("P-216")
def test_the_order_is_what_the_claimer_asks_for(q: dls.SyncQueue) -> None:
    ids = [q.submit(n) for n in range(3)]
    newest_first = dls.SyncQueue(q.name, dispatch=q.plane, kind="filo")
    jobs = [newest_first.claim(), q.claim(), newest_first.claim()]
    assert [job.id for job in jobs if job is not None] == [ids[2], ids[0], ids[1]]


# -- producers


@pytest.mark.inventory("P-218", "P-140", "P-143")
def test_a_value_a_thunk_and_a_ready_envelope_can_be_submitted(q: dls.SyncQueue) -> None:
    value = q.submit({"n": 1})
    thunk = q.submit(dls.thunk(lambda: 40 + 2))
    ready = q.submit(envelope=dls.thunk(lambda x: x, 7).to_envelope())
    assert answer(q, "seen") == value
    for allowed in (True, False):
        if not allowed:
            refused = q.submit(dls.thunk(lambda: 0))
        while dls.run_worker(q, once=True, allow_pickled=allowed, retries=0):
            pass
    assert [q.result(inv, timeout=PATIENCE_S) for inv in (value, thunk, ready)] == ["seen", 42, 7]
    with pytest.raises(DispatchError, match="this worker refuses pickled functions"):
        q.result(refused, timeout=PATIENCE_S)


@pytest.mark.inventory("P-219", "P-447", "P-773")
def test_the_same_key_gives_the_same_id_in_both_spellings_and_per_queue(q: dls.SyncQueue) -> None:
    first = q.submit({"n": 1}, key="once")
    assert q.submit({"n": 1}, key="once") == first
    assert q.submit({"n": 1}, _key="once", _priority=3.0) == first
    assert dls.SyncQueue(f"{q.name}-b", dispatch=q.plane).submit({"n": 1}, key="once") != first
    assert q.count() == 1
    answer(q, None)
    assert q.submit({"n": 1}, key="once") == first


@pytest.mark.inventory("P-222", "P-225", "P-411")
def test_a_failure_carries_the_workers_error(q: dls.SyncQueue) -> None:
    inv = q.submit(1)
    job = q.claim()
    assert job is not None
    q.nack(job, error=ValueError("bad input"), retry=False)
    with pytest.raises(DispatchError, match=rf"^invocation {inv} failed: ValueError: bad input$") as caught:
        q.result(inv, timeout=PATIENCE_S)
    assert caught.value.error["type"] == "ValueError"  # type: ignore[attr-defined]


@pytest.mark.inventory("P-234", "P-412", "P-705")
def test_cancel_ends_what_is_queued_and_leaves_the_rest(q: dls.SyncQueue) -> None:
    running, queued = q.submit(1), q.submit(2)
    job = q.claim()
    assert job is not None
    assert job.id == running
    q.post(running, "begun")  # a claim that never said so could still be taken away
    assert (q.cancel(queued), q.cancel(queued), q.cancel(running)) == (True, False, False)
    with pytest.raises(DispatchError, match=f"invocation {queued} was cancelled") as caught:
        q.result(queued, timeout=PATIENCE_S)
    assert caught.value.state == "killed"  # type: ignore[attr-defined]
    q.ack(job, "finished all the same")
    assert q.result(running, timeout=PATIENCE_S) == "finished all the same"
    assert q.cancel(running) is False


@pytest.mark.inventory("P-223", "P-224", "P-422")
def test_a_wait_that_is_over_leaves_the_id_valid(q: dls.SyncQueue) -> None:
    inv = q.submit(1)
    with pytest.raises(TimeoutError, match=rf"^invocation {inv} still 'queued' after {BLINK_S}s"):
        q.result(inv, timeout=BLINK_S)
    answer(q, "late")
    assert q.result(inv, timeout=PATIENCE_S) == "late"


@pytest.mark.inventory("P-226")
def test_call_is_submit_and_result_by_id(q: dls.SyncQueue) -> None:
    asked = []

    def serve() -> None:
        while not asked:
            with q.working() as job:
                if job is not None:
                    asked.append(job.payload)

    thread = threading.Thread(target=serve)
    thread.start()
    assert q.call({"prompt": "hello"}, timeout=PATIENCE_S, key="k", priority=1.0) is None
    thread.join(PATIENCE_S)
    assert asked == [{"prompt": "hello"}]
    with pytest.raises(TimeoutError):
        q.call({"prompt": "again"}, timeout=BLINK_S)


@pytest.mark.inventory("P-235", "P-236")
def test_counts_are_by_state_and_len_is_the_queued(q: dls.SyncQueue) -> None:
    ids = [q.submit(n) for n in range(5)]
    answer(q, None)
    failing, running = q.claim(), q.claim()
    assert failing is not None
    assert running is not None
    q.nack(failing, error="no", retry=False)
    q.cancel(ids[4])
    states = ("queued", "running", "succeeded", "failed", "cancelled")
    assert [q.count(state) for state in states] == [1, 1, 1, 1, 1]
    assert q.count("killed") == 1
    assert q.count() == len(q) == 1
    q.ack(running)
    answer(q, None)
    assert len(q) == 0
    assert q, "an empty queue is still a queue"


@pytest.mark.inventory("P-244")
def test_payloads_and_results_ride_the_codec(q: dls.SyncQueue) -> None:
    picture = Image.new("RGB", (2, 1), (1, 2, 3))
    inv = q.submit({"array": np.arange(3), "picture": picture, "pair": (1, 2)})
    job = q.claim()
    assert job is not None
    assert job.payload["array"].tolist() == [0, 1, 2]
    assert job.payload["picture"].getpixel((1, 0)) == (1, 2, 3)
    q.ack(job, (job.payload["pair"], job.payload["array"] + 1))
    pair, array = q.result(inv, timeout=PATIENCE_S)
    assert pair == (1, 2)
    assert array.dtype == np.arange(3).dtype
    assert array.tolist() == [1, 2, 3]


# -- streams


@pytest.mark.inventory("P-230", "P-204", "P-243")
def test_a_stream_ends_with_end_and_resumes_after_any_seq(q: dls.SyncQueue) -> None:
    inv = q.submit(None)
    job = q.claim()
    assert job is not None
    assert [q.post(inv, n * n) for n in range(3)] == [0, 1, 2]
    cursor = -1
    for value in q.stream(inv, timeout=PATIENCE_S):  # this consumer stops after its second value
        cursor += 1
        if value == 1:
            break
    assert q.post(inv, 9, final=True) == 4
    q.ack(job)
    again = dls.SyncQueue(q.name, dispatch=q.plane)  # only (inv, cursor) was kept
    assert list(again.stream(inv, since=cursor, timeout=PATIENCE_S)) == [4, 9]
    assert list(again.stream(inv, timeout=PATIENCE_S)) == [0, 1, 4, 9]


@pytest.mark.inventory("P-231", "P-416")
def test_silence_ends_a_stream_with_a_timeout_and_each_frame_resets_it(q: dls.SyncQueue) -> None:
    inv = q.submit(None)
    assert q.claim() is not None
    q.post(inv, "first")
    seen = []
    with pytest.raises(TimeoutError, match=f"no frame of invocation {inv} for 0.4s"):
        for value in q.stream(inv, timeout=0.4):
            seen.append(value)
            if len(seen) < 4:
                q.post(inv, len(seen))
    assert seen == ["first", 1, 2, 3]


@pytest.mark.inventory("P-232", "P-233")
def test_a_stream_of_a_plain_body_ends_without_values_once_it_is_over(q: dls.SyncQueue) -> None:
    inv = bodies.add.submit(1, 2, _queue=q.name, _dispatch=q.plane)
    seen: list[Any] = []
    reader = threading.Thread(target=lambda: seen.append(list(q.stream(inv, timeout=PATIENCE_S))))
    reader.start()
    assert dls.run_worker(q, once=True) == 1
    reader.join(PATIENCE_S)
    assert seen == [[]]


@pytest.mark.inventory("P-413", "P-775")
def test_a_stream_that_fails_gives_its_frames_and_then_the_producers_error(q: dls.SyncQueue) -> None:
    inv = q.submit(None)
    job = q.claim()
    assert job is not None
    q.post(inv, "partial")
    q.nack(job, error=ValueError("frame 2 is bad"), retry=False)
    seen = []
    with pytest.raises(DispatchError, match=f"invocation {inv} failed: ValueError: frame 2 is bad"):
        for value in q.stream(inv, timeout=PATIENCE_S):
            seen.append(value)  # noqa: PERF402  # what came before the error is what is asked
    assert seen == ["partial"]


@pytest.mark.inventory("P-294", "P-769")
def test_a_trimmed_journal_ends_cleanly_and_the_result_stays(q: dls.SyncQueue) -> None:
    inv = bodies.count.submit(3, _queue=q.name, _dispatch=q.plane)
    assert dls.run_worker(q, once=True) == 1
    assert q.plane.journal_trim(inv) >= 3
    assert list(q.stream(inv, timeout=PATIENCE_S)) == []
    assert q.result(inv, timeout=PATIENCE_S) == [0, 1, 2]


# -- the async queue


@pytest.mark.inventory("P-237", "P-239", "P-429")
def test_every_verb_is_awaited_and_the_loop_stays_alive(plane: Any) -> None:
    async def main() -> None:
        q = dls.Queue(f"q-{served.new_id()}", dispatch=plane)
        ids = [await q.submit(n) for n in range(3)]
        assert await q.count() == 3
        waiting = [asyncio.ensure_future(q.result(inv, timeout=PATIENCE_S)) for inv in ids[:2]]
        for _ in range(10):
            await asyncio.sleep(0.001)
        assert not any(task.done() for task in waiting), "the loop ran on while both wait"
        for inv in ids[:2]:
            job = await q.claim()
            assert job is not None
            assert job.id == inv
            await q.ack(job, job.payload * 10)
        done = [await task for task in asyncio.as_completed(waiting)]
        assert sorted(done) == [0, 10]
        failing = await q.claim()
        assert failing is not None
        await q.nack(failing, error="no", retry=False)
        with pytest.raises(DispatchError):
            await q.result(ids[2], timeout=PATIENCE_S)
        assert await q.cancel(ids[2]) is False
        with pytest.raises(TimeoutError):
            await q.call("nobody", timeout=BLINK_S)
        assert isinstance(q.topic(), dls.Topic)

    asyncio.run(main())


@pytest.mark.inventory("P-238")
@pytest.mark.parametrize("verb", ["working", "post", "__len__"])
def test_what_the_async_queue_lacks_the_blocking_one_has(verb: str) -> None:
    assert not hasattr(dls.Queue, verb)
    assert hasattr(dls.SyncQueue, verb)


@pytest.mark.inventory("P-240", "P-607")
def test_an_async_stream_is_pulled_one_value_at_a_time(plane: Any) -> None:
    async def main() -> list[int]:
        q = dls.Queue(f"q-{served.new_id()}", dispatch=plane)
        inv = await q.submit(None)
        job = await q.claim()
        assert job is not None
        posted = await asyncio.to_thread(q.sync.post, inv, 0)
        seen = []
        async for value in q.stream(inv, timeout=PATIENCE_S):
            seen.append(value)
            if value < 3:  # the next one exists only because this one was taken
                posted = await asyncio.to_thread(q.sync.post, inv, value + 1)
                assert posted == value + 1
            else:
                await q.ack(job)
        return seen

    assert asyncio.run(main()) == [0, 1, 2, 3]


# -- topics


@pytest.mark.inventory("P-245", "P-246")
def test_a_topic_has_the_name_it_is_given_or_one_of_its_own(q: dls.SyncQueue) -> None:
    twin = dls.Queue(q.name, dispatch=q.plane)
    assert (q.topic("metrics").name, twin.topic("metrics").name) == ("metrics", "metrics")
    assert type(twin.topic("metrics")) is type(q.topic("metrics")) is dls.Topic
    made = [q.topic().name for _ in range(3)]
    assert all(name.startswith("topic-") and len(name) > 10 for name in made)
    assert len(set(made)) == 3


@pytest.mark.inventory("P-247", "P-250", "P-252")
def test_posts_are_numbered_and_streamed_until_the_end(q: dls.SyncQueue) -> None:
    topic = q.topic("metrics")
    assert [topic.post({"loss": n}) for n in range(3)] == [0, 1, 2]
    assert topic.post(None, final=True) == 3
    other = dls.SyncQueue(q.name, dispatch=q.plane).topic("metrics")
    assert list(other.stream()) == [{"loss": 0}, {"loss": 1}, {"loss": 2}]
    assert list(other.stream(since=1)) == [{"loss": 2}]
    assert q.count() == 0, "a topic belongs to no invocation"


@pytest.mark.inventory("P-249", "P-253")
def test_listen_gives_the_next_value_or_none(q: dls.SyncQueue) -> None:
    topic = q.topic("metrics")
    assert topic.listen(timeout=BLINK_S) is None
    topic.post("one")
    topic.post("two")
    assert (topic.listen(), topic.listen(since=0)) == ("one", "two")
    assert topic.listen(since=1, timeout=BLINK_S) is None


@pytest.mark.inventory("P-251", "P-756")
def test_a_topic_waits_five_seconds_by_default_and_for_ever_when_told_to(q: dls.SyncQueue) -> None:
    for verb in (dls.Topic.listen, dls.Topic.stream):
        assert inspect.signature(verb).parameters["timeout"].default == 5.0
    topic, heard = q.topic("slow"), threading.Event()
    got: list[Any] = []

    def listen() -> None:
        got.append(topic.listen(timeout=None))
        heard.set()

    threading.Thread(target=listen, daemon=True).start()
    assert not heard.wait(BLINK_S)
    topic.post("at last")
    assert heard.wait(PATIENCE_S)
    assert got == ["at last"]


@pytest.mark.inventory("P-774")
def test_a_stream_out_and_a_topic_back_make_a_two_way_flow(q: dls.SyncQueue) -> None:
    inv = q.submit({"answers": "back"})

    def ask() -> None:
        job = q.claim()
        assert job is not None
        back, rate = q.topic(job.payload["answers"]), 1.0
        for step in range(3):
            q.post(job.id, rate)
            rate *= back.listen(since=step - 1, timeout=PATIENCE_S)
        q.ack(job, rate)

    worker = threading.Thread(target=ask)
    worker.start()
    back, seen = q.topic("back"), []
    for rate in q.stream(inv, timeout=PATIENCE_S):
        seen.append(rate)
        back.post(0.5)
    worker.join(PATIENCE_S)
    assert seen == [1.0, 0.5, 0.25]
    assert q.result(inv, timeout=PATIENCE_S) == 0.125


# -- jobs


@pytest.mark.inventory("P-254", "P-255", "P-272")
def test_a_job_is_what_was_claimed_and_an_empty_queue_gives_none(q: dls.SyncQueue) -> None:
    assert q.claim() is None
    raw, call = q.submit({"n": 1}), bodies.add.submit(1, 2, _queue=q.name, _dispatch=q.plane)
    jobs = [q.claim(), q.claim()]
    assert q.claim() is None
    assert dataclasses.is_dataclass(dls.Job)
    assert [(job.id, job.attempt, job.queue) for job in jobs if job is not None] == [
        (raw, 1, q.name),
        (call, 1, q.name),
    ]
    assert jobs[0] is not None
    assert jobs[0].payload == {"n": 1}
    assert jobs[1] is not None
    assert isinstance(jobs[1].payload, wire.Envelope)
    assert jobs[1].payload.unpack_args() == (1, 2)


@pytest.mark.inventory("P-256", "P-257")
def test_ack_is_success_and_nack_takes_its_error_by_name(q: dls.SyncQueue) -> None:
    inv = q.submit(1)
    job = q.claim()
    assert job is not None
    with pytest.raises(TypeError):
        q.nack(job, "an error by position")  # type: ignore[misc]
    q.nack(job, error="once more")
    again = q.claim()
    assert again is not None
    assert (again.id, again.attempt) == (inv, 2)
    q.ack(again)
    assert q.result(inv, timeout=PATIENCE_S) is None


@pytest.mark.inventory("P-258", "P-414")
def test_only_who_holds_a_job_settles_it(q: dls.SyncQueue) -> None:
    q.submit(1)
    job = q.claim()
    assert job is not None
    q.nack(job, error="gives it back")
    other = dls.SyncQueue(q.name, dispatch=q.plane)
    taken = other.claim()
    assert taken is not None
    with pytest.raises(DispatchError, match=f"does not hold invocation {job.id} any more"):
        q.ack(job)
    with pytest.raises(DispatchError, match=f"does not hold invocation {job.id}"):
        q.nack(dls.Job(id=job.id, payload=None, attempt=1, queue=q.name), error="never claimed it")
    other.ack(taken, "mine")
    assert q.result(job.id, timeout=PATIENCE_S) == "mine"


@pytest.mark.inventory("P-259")
def test_working_acks_and_nacks_by_itself(q: dls.SyncQueue) -> None:
    with q.working() as job:
        assert job is None
    inv = q.submit(1)
    with pytest.raises(RuntimeError, match="first attempt"), q.working() as job:
        raise RuntimeError("first attempt")
    assert q.count("queued") == 1, "it may be tried again"
    with q.working() as job:
        assert job is not None
        assert job.attempt == 2
    assert q.count("succeeded") == 1
    assert q.result(inv, timeout=PATIENCE_S) is None


@pytest.mark.inventory("P-260")
def test_post_appends_a_frame_and_gives_its_seq(q: dls.SyncQueue) -> None:
    inv = q.submit(None)
    job = q.claim()
    assert job is not None
    assert (q.post(inv, "a"), q.post(inv, "b"), q.post(inv, None, final=True)) == (0, 1, 2)
    q.ack(job)
    frames = [wire.Frame.from_bytes(data) for _seq, data in q.plane.journal_read(inv, timeout=PATIENCE_S)]
    assert [(frame.kind.name, frame.seq, frame.body) for frame in frames] == [
        ("VALUE", 0, "a"),
        ("VALUE", 1, "b"),
        ("END", 2, None),
    ]


@pytest.mark.inventory("P-261")
def test_a_raw_payload_is_for_a_hand_written_loop_and_run_worker_says_so(q: dls.SyncQueue) -> None:
    by_hand, by_worker = q.submit({"n": 1}), q.submit({"n": 2})
    with q.working() as job:
        assert job is not None
        assert (job.id, job.payload) == (by_hand, {"n": 1})
    assert dls.run_worker(q, once=True) == 1
    with pytest.raises(DispatchError, match=r"q\.claim\(\) or q\.working\(\)"):
        q.result(by_worker, timeout=PATIENCE_S)
