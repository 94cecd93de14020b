"""What `.submit` puts on a plane, and the mistakes that it catches before anything leaves."""

from __future__ import annotations

import asyncio
import functools
import inspect
import pickle
import threading
import warnings
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import trio

import dreamlake.lakeshore as dls
from lakeshore import wire
from lakeshore.sdk.context import RunContext, installed
from lakeshore.sdk.dispatch import Dispatch
from lakeshore.sdk.errors import TransportError


@dls.udf(queue="gpu")
def embed(x: Any, scale: float = 1.0) -> Any:
    return x


@dls.udf(queue="gpu")
async def later(x: int) -> int:
    return x


@dls.udf(queue="gpu")
async def frames(n: int) -> AsyncIterator[int]:
    for i in range(n):
        yield i


@dls.udf(queue="gpu")
def anything(**kwargs: Any) -> Any:
    return kwargs


@dls.udf(queue="gpu")
def impatient() -> str:
    with pytest.raises(TimeoutError) as caught:
        embed.remote(1, _timeout=0)
    return str(caught.value)


@dls.udf
def unbound(x: int) -> int:
    return x


SHAPES: list[Any] = [
    lambda: 0,
    lambda a: 0,
    lambda a, b=1: 0,
    lambda a, /, b, *, c=1: 0,
    lambda a, *rest: 0,
    lambda *, c: 0,
    lambda a=1, *, c: 0,
    lambda **kwargs: 0,
    functools.partial(lambda a, b, c=1: 0, 1),
    functools.partial(lambda a, b: 0, a=1),
]


@pytest.mark.parametrize("body", SHAPES, ids=lambda body: str(inspect.signature(body)))
@pytest.mark.parametrize("count", range(4))
@pytest.mark.parametrize("kwargs", [{}, {"b": 1}, {"c": 1}], ids=str)
def test_a_call_is_refused_where_python_would_refuse_it(
    plane: Dispatch, body: Any, count: int, kwargs: dict[str, Any]
) -> None:
    function = dls.udf(queue="gpu", transport="pickle")(body)
    try:
        inspect.signature(body).bind(*range(count), **kwargs)
    except TypeError:
        with pytest.raises(TypeError):
            function.submit(*range(count), **kwargs, _dispatch=plane)
    else:
        assert function.submit(*range(count), **kwargs, _dispatch=plane)


@pytest.fixture
def plane() -> Iterator[Dispatch]:
    made = Dispatch(":memory:")
    yield made
    made.close()


def taken(plane: Dispatch, queue: str = "gpu") -> wire.Envelope:
    claimed = plane.claim(queue, "w")
    assert claimed is not None
    return wire.Envelope.from_bytes(claimed.envelope)


@pytest.mark.inventory("P-086", "P-103", "P-093")
def test_submit_returns_the_id_of_an_envelope_on_the_queue(plane: Dispatch) -> None:
    invocation = embed.submit((1, [2]), scale=2.5, _dispatch=plane)
    assert len(invocation) == 26
    sent = taken(plane)
    assert sent.id == invocation
    assert wire.unpack(sent.args) == [(1, [2])]
    assert wire.unpack(sent.kwargs) == {"scale": 2.5}
    assert sent.fn["kind"] == "ref"
    assert sent.fn["qualname"] == "embed"
    assert (sent.prefix, sent.key, sent.parent, dict(sent.cfg)) == ("", None, None, {})


@pytest.mark.inventory("P-189", "P-192", "P-196")
def test_what_leaves_is_one_envelope_made_by_submit_or_by_a_thunk(plane: Dispatch) -> None:
    embed.submit(1, _dispatch=plane)
    by_submit, by_thunk = taken(plane), dls.thunk(embed, 1).to_envelope()
    assert type(by_submit) is type(by_thunk) is wire.Envelope
    assert (by_submit.fn, by_submit.args, by_submit.kwargs) == (by_thunk.fn, by_thunk.args, by_thunk.kwargs)
    assert (by_submit.prefix, by_submit.parent) == (by_thunk.prefix, by_thunk.parent) == ("", None)
    with dls.scope("scenes/0007"):
        embed.submit(1, _dispatch=plane, _parent="01P")
    inside = taken(plane)
    assert (inside.prefix, inside.parent) == ("scenes/0007", "01P")


@pytest.mark.inventory("P-152")
def test_only_the_function_is_ever_pickled(plane: Dispatch) -> None:
    dls.udf(lambda x, y: (x, y), queue="gpu").submit(b"\x80\x04", _dispatch=plane, y=[1, (2,)])
    sent = taken(plane)
    assert sent.fn["kind"] == "pickle"
    assert pickle.loads(sent.fn["blob"]) is not None
    assert (wire.unpack(sent.args), wire.unpack(sent.kwargs)) == ([b"\x80\x04"], {"y": [1, (2,)]})
    for packed in (sent.args, sent.kwargs):
        with pytest.raises(pickle.UnpicklingError):
            pickle.loads(packed)


@pytest.mark.inventory("P-126", "P-764")
def test_keys_travel_and_the_bytes_of_their_files_do_not(plane: Dispatch, tmp_path: Path) -> None:
    marker = b"the content of the file"
    (tmp_path / "in.bin").write_bytes(marker)
    with dls.scope(root=tmp_path):
        embed.submit("in.bin", _dispatch=plane)
    job = plane.claim("gpu", "w")
    assert job is not None
    assert b"in.bin" in job.envelope
    assert marker not in job.envelope
    with (tmp_path / "in.bin").open("rb") as file:
        for value in (tmp_path / "in.bin", file):
            with pytest.raises(TypeError):
                embed.submit(value, _dispatch=plane)


@pytest.mark.inventory("P-087", "P-088", "P-090")
def test_the_options_go_to_the_plane_and_not_to_the_function(plane: Dispatch) -> None:
    first = embed.submit(1, _dispatch=plane, _key="k")
    assert embed.submit(1, _dispatch=plane, _key="k") == first
    urgent = embed.submit(2, _dispatch=plane, _priority=1.5)
    assert plane.count("gpu") == 2
    sent = taken(plane)
    assert sent.id == urgent
    assert wire.unpack(sent.kwargs) == {}
    assert taken(plane).key == "k"


@pytest.mark.inventory("P-094", "P-747", "P-720")
@pytest.mark.inventory("S-785")
def test_the_prefix_and_the_running_invocation_travel(plane: Dispatch, tmp_path: Path) -> None:
    with installed(RunContext(root=tmp_path, prefix="scenes", invocation_id="01PARENT")), dls.scope("0007"):
        child = embed.submit(1, _dispatch=plane)
        named = embed.submit(2, _dispatch=plane, _parent="01OTHER")
    assert (sent := taken(plane)).id == child
    assert (sent.prefix, sent.parent) == ("scenes/0007", "01PARENT")
    assert (sent := taken(plane)).id == named
    assert sent.parent == "01OTHER"


@pytest.mark.inventory("P-092", "P-405", "P-714")
def test_without_a_queue_submit_says_how_to_name_one(plane: Dispatch) -> None:
    with pytest.raises(TypeError) as caught:
        unbound.submit(1, _dispatch=plane)
    assert str(caught.value) == (
        "unbound has no queue binding; decorate with @udf(queue=...) or pass one at submit time"
    )
    with pytest.raises(TypeError, match="unbound has no queue binding"):
        unbound.remote(1, _dispatch=plane)
    unbound.submit(1, _dispatch=plane, _queue="gpu")
    embed.submit(2, _dispatch=plane, _queue="other")
    assert (plane.count("gpu"), plane.count("other")) == (1, 1)
    with pytest.raises(TypeError, match="_queue takes a queue's name"):
        unbound.submit(1, _dispatch=plane, _queue=plane)


@pytest.mark.inventory("P-091", "P-755")
@pytest.mark.parametrize("name", ["key", "priority", "dispatch", "queue", "timeout", "run_config", "parent"])
def test_a_misspelt_option_is_named_at_the_call(name: str, plane: Dispatch) -> None:
    with pytest.raises(TypeError, match=f"embed.. takes no argument '{name}'.* spelled _{name}"):
        embed.submit(1, _dispatch=plane, **{name: "x"})
    with pytest.raises(TypeError, match=f"spelled _{name}"):
        later.remote(1, _dispatch=plane, **{name: "x"})
    assert plane.count("gpu") == 0
    anything.submit(_dispatch=plane, **{name: "x"})  # this function takes it
    assert wire.unpack(taken(plane).kwargs) == {name: "x"}


def test_arguments_that_the_function_does_not_take_fail_at_the_call(plane: Dispatch) -> None:
    for args, kwargs in (((), {}), ((1, 2, 3), {}), ((1,), {"other": 2})):
        with pytest.raises(TypeError, match=r"^embed\(\)"):
            embed.submit(*args, _dispatch=plane, **kwargs)
    with pytest.raises(TypeError, match=r"the options are .*_priority"):
        embed.submit(1, _prioriti=2, _dispatch=plane)
    assert plane.count("gpu") == 0


@pytest.mark.inventory("P-083")
def test_an_iterator_cannot_travel(plane: Dispatch) -> None:
    for value in (iter([1]), frames.local(2)):
        with pytest.raises(TypeError, match=r"argument 0 of embed is a \w+: it lives in this process"):
            embed.submit(value, _dispatch=plane)
    coroutine = later.local(1)
    with pytest.raises(TypeError, match="argument 'scale' of embed is a coroutine"):
        embed.submit(1, scale=coroutine, _dispatch=plane)
    coroutine.close()  # type: ignore[attr-defined]


@pytest.mark.inventory("P-420")
def test_a_value_that_the_codec_does_not_know_fails_at_the_call(plane: Dispatch) -> None:
    with pytest.raises(TypeError, match="register"):
        embed.submit(object(), _dispatch=plane)


@pytest.mark.inventory("P-148")
def test_a_reference_that_cannot_be_made_fails_at_the_call(plane: Dispatch) -> None:
    stuck = dls.udf(lambda: 1, queue="gpu", transport="ref")
    with pytest.raises(TransportError):
        stuck.submit(_dispatch=plane)


@pytest.mark.inventory("P-098")
def test_remote_of_an_async_body_is_an_awaitable_that_has_sent_nothing(plane: Dispatch) -> None:
    for made in (later.remote(1, _dispatch=plane), later(1, _dispatch=plane), frames(1, _dispatch=plane)):  # type: ignore[call-arg]
        assert inspect.isawaitable(made)
        made.close()  # type: ignore[attr-defined]
    assert plane.count("gpu") == 0


class Remote(Dispatch):
    """The same plane, for workers that somebody else runs."""

    local = False


@pytest.mark.inventory("P-728", "P-167")
def test_a_function_by_value_to_strangers_warns_and_names_both_ways_out() -> None:
    plane = Remote(":memory:")
    fn = dls.udf(lambda: 1, queue="gpu")
    with pytest.warns(UserWarning, match=r"--allow-pickled; or move the function to a module"):
        fn.submit(_dispatch=plane)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        embed.submit(1, _dispatch=plane)
        fn.submit(_dispatch=(local := Dispatch(":memory:")))
    plane.close()
    local.close()


@pytest.mark.inventory("P-096")
def test_code_is_pushed_for_a_reference_where_the_plane_takes_code() -> None:
    class Pushes(Dispatch):
        def push_code(self) -> dict[str, str]:
            return {"commit": "abc"}

    plane = Pushes(":memory:")
    embed.submit(1, _dispatch=plane)
    assert dict(taken(plane).cfg) == {"code": {"commit": "abc"}}
    dls.udf(lambda: 1, queue="gpu").submit(_dispatch=plane)
    assert dict(taken(plane).cfg) == {}
    plane.close()


@pytest.mark.inventory("P-141", "P-144", "P-145")
def test_a_thunk_makes_an_envelope(tmp_path: Path) -> None:
    with installed(RunContext(root=tmp_path, prefix="p", invocation_id="01P")):
        sent = dls.thunk(lambda x, y: x + y, 40, y=(2,)).to_envelope(key="k")
    assert sent.fn["kind"] == "pickle"
    assert wire.unpack(sent.args) == [40]
    assert wire.unpack(sent.kwargs) == {"y": (2,)}
    assert (sent.prefix, sent.key, sent.parent) == ("p", "k", "01P")
    assert dls.thunk(embed, 1).to_envelope(id="01X").id == "01X"
    assert dls.thunk(embed, 1).to_envelope().fn["kind"] == "ref"


def test_ids_rise() -> None:
    ids = [dls.thunk(len, "").to_envelope().id for _ in range(50)]
    assert ids == sorted(set(ids))


@pytest.mark.parametrize("start", [asyncio.run, lambda coroutine: trio.run(lambda: coroutine)])
def test_sending_does_not_hold_up_an_event_loop(start: Any) -> None:
    threads: list[int] = []

    class Noting(Dispatch):
        def submit(self, *args: Any, **kwargs: Any) -> str:
            threads.append(threading.get_ident())
            return super().submit(*args, **kwargs)

    noting = Noting(":memory:")

    async def main() -> None:
        with pytest.raises(TimeoutError):
            await later.remote(1, _dispatch=noting, _timeout=0.01)

    start(main())
    assert threads != [threading.get_ident()]
    noting.close()


@pytest.mark.inventory("P-763", "P-718")
def test_a_wait_at_the_local_file_names_a_login_that_is_not_used(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    login = tmp_path / "config" / "lakeshore" / "auth.yml"
    login.parent.mkdir(parents=True)
    login.write_text("server: https://cp.example.com\nnamespace: dev\ntoken: dlk_secret\n")
    login.chmod(0o600)
    plane = Dispatch(tmp_path / "plane.sqlite")
    inv_id = embed.submit(1, _dispatch=plane)
    with pytest.raises(
        TimeoutError, match=r"still 'queued' after 0\.0s; .*saved for https://cp\.example\.com"
    ) as caught:
        plane.result(inv_id, timeout=0)
    assert "dlk_secret" not in str(caught.value)
    monkeypatch.setenv("LAKESHORE_URL", "https://cp.example.com")
    with pytest.raises(TimeoutError, match=r"still 'queued' after 0\.0s; no worker has taken it: ") as caught:
        plane.result(inv_id, timeout=0)
    assert "saved for" not in str(caught.value)
    plane.close()


def test_a_wait_for_what_runs_says_to_wait_again(tmp_path: Path) -> None:
    plane = Dispatch(tmp_path / "plane.sqlite")
    inv_id = embed.submit(1, _dispatch=plane)
    assert plane.claim("gpu", "a worker") is not None
    with pytest.raises(TimeoutError, match=r"still 'running' after 0\.0s; it goes on: wait again"):
        plane.result(inv_id, timeout=0)
    plane.close()


def test_a_body_that_waits_in_vain_for_its_own_queue_is_told_of_the_worker_that_it_keeps(tmp_path: Path) -> None:
    plane = Dispatch(tmp_path / "plane.sqlite")
    inv_id = impatient.submit(_dispatch=plane)
    q = dls.SyncQueue("gpu", dispatch=plane)
    assert dls.run_worker(q, once=True) == 1
    assert "the body that waits for it keeps its own one: their queue needs more of them" in q.result(inv_id)
    plane.close()


@pytest.mark.parametrize(
    ("key", "meant"), [("timeout", "timeout_s"), ("retries", "max_attempts"), ("max_atempts", "max_attempts")]
)
def test_a_key_of_a_run_config_that_is_nearly_one_that_is_read_is_warned_of(
    tmp_path: Path, key: str, meant: str
) -> None:
    plane = Dispatch(tmp_path / "plane.sqlite")
    with pytest.warns(UserWarning, match=f"nobody reads '{key}' of a run config; did you mean '{meant}'") as told:
        embed.submit(1, _dispatch=plane, _run_config={key: 3})
    assert told[0].filename == __file__
    assert plane.count("gpu") == 1, "it is taken all the same"
    plane.close()


def test_a_key_of_a_run_config_that_is_near_none_is_somebodys_own(tmp_path: Path) -> None:
    plane = Dispatch(tmp_path / "plane.sqlite")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        embed.submit(1, _dispatch=plane, _run_config={"timeout_s": 3, "python": "python3", "colour": "red", "p": 1})
    plane.close()


def test_the_warning_about_a_function_by_value_points_at_the_call(tmp_path: Any) -> None:
    class Remote(Dispatch):
        local = False

    plane = Remote(tmp_path / "plane.sqlite")
    near = dls.udf(queue="gpu")(lambda: 1)
    with pytest.warns(UserWarning, match="unless it was started with --allow-pickled") as told:
        near.submit(_dispatch=plane)
        with pytest.raises(TimeoutError):
            near(_dispatch=plane, _timeout=0)
    assert {warning.filename for warning in told} == {__file__}
    plane.close()


def _locked() -> Any:
    return threading.Lock()


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda _: embed.submit(1, _key=5), r"_key takes a str, got int: _key=str\(…\)"),
        (lambda _: embed.submit(1, _priority="high"), "_priority takes a number, got 'high'"),
        (lambda _: embed.submit(1, _timeout="soon"), "_timeout takes a number, got 'soon'"),
        (lambda _: embed.submit(1, _dispatch="http://a:1"), r"write _dispatch=dls\.HttpDispatch\('http://a:1'\)"),
        (lambda _: embed.submit(1, _dispatch=Path("p.sqlite")), r"write _dispatch=dls\.Dispatch\('p\.sqlite'\)"),
        (
            lambda _queue: dls.SyncQueue("gpu", dispatch="http://a:1"),
            r"write dispatch=dls\.HttpDispatch\('http://a:1'\)",
        ),
        (lambda q: q.submit(1, key=5), "key takes a str, got int"),
        (lambda q: q.submit(1, priority="high"), "priority takes a number, got 'high'"),
        (lambda q: q.submit(embed), r"embed is a function, not a call of it: embed\.submit\(…\) submits one"),
        (
            lambda queue: queue.submit(_locked),
            r"_locked is a function, not a call of it: submit dls\.thunk\(_locked, …\)",
        ),
        (
            lambda _queue: embed.submit(1, _locked()),
            "argument 1 of embed does not travel: wire: no codec for _thread.lock",
        ),
        (
            lambda _queue: embed.submit(1, scale={2}),
            "argument 'scale' of embed does not travel: wire: no codec for set: pass",
        ),
    ],
)
def test_a_mistake_in_a_submit_is_named_as_the_caller_wrote_it(tmp_path: Path, wrong: Any, said: str) -> None:
    with closing(Dispatch(tmp_path / "plane.sqlite")) as plane, pytest.raises(TypeError, match=said):
        wrong(dls.SyncQueue("gpu", dispatch=plane))


def test_a_call_that_is_never_awaited_is_named_by_its_function(tmp_path: Path) -> None:
    plane = Dispatch(tmp_path / "plane.sqlite")
    with pytest.warns(RuntimeWarning, match="coroutine 'later' was never awaited"):
        later(1, _dispatch=plane)  # type: ignore[call-arg]
    plane.close()
