"""What an operator sets by the environment: sizes and times of payloads; and what is not asked for any more."""

from __future__ import annotations

import gc
import time
from datetime import datetime
from functools import partial
from pathlib import Path

import pytest
import trio
from served import Served, one, running

from lakeshore.server.serve import ServeError, ServeOptions, serve

NS = "/v1/namespaces/default"


def result_of(served: Served, size: int) -> set[str]:
    """How a result of that many bytes comes back."""
    said = one()
    served.post("/v1/producer/submit", said)
    served.post("/v1/daemon/poll", {"worker_id": "w", "queue": said["queue"], "timeout_s": 0})
    id_ = said["invocation_id"]
    ack = {"invocation_id": id_, "worker_id": "w", "state": "succeeded", "result_blob": b"x" * size}
    answer = served.post("/v1/daemon/ack", ack)
    assert answer.status == 200, answer.raw
    told = served.post("/v1/producer/await", {"invocation_id": id_, "timeout_s": 5}).body
    return {"result_blob", "result_ref"} & set(told)


def lifetime_s(served: Served) -> float:
    told = served.post(f"{NS}/payloads/presign", {"op": "put", "size": 1}).body
    return datetime.fromisoformat(told["expires_at"]).timestamp() - time.time()


@pytest.mark.inventory("S-260", "S-262", "S-802")
@pytest.mark.inventory("S-261", "S-024", "S-017")
def test_unless_it_is_set_a_quarter_of_a_mebibyte_is_inline_and_a_url_lasts_a_quarter_of_an_hour(
    server: Served,
) -> None:
    assert result_of(server, 262_144) == {"result_blob"}
    assert result_of(server, 262_145) == {"result_ref"}
    assert 890 < lifetime_s(server) <= 901
    most = server.post(f"{NS}/payloads/presign", {"op": "put", "size": 104_857_600})
    over = server.post(f"{NS}/payloads/presign", {"op": "put", "size": 104_857_601})
    assert (most.status, most.body["bucket"], over.status) == (200, "local", 413)


@pytest.mark.inventory("S-698", "S-699", "S-700")
@pytest.mark.inventory("S-694")
def test_a_threshold_a_limit_and_a_lifetime_are_those_of_the_environment(tmp_path: Path) -> None:
    env = {
        "INLINE_THRESHOLD_BYTES": "70000",
        "MAX_PAYLOAD_BYTES": "90000",
        "PAYLOAD_PRESIGN_TTL_S": "60",
        "REDIS_URL": "redis://127.0.0.1:1/0",  # nothing asks it for anything
    }
    with running(tmp_path, env=env) as served:
        assert result_of(served, 70_000) == {"result_blob"}
        assert result_of(served, 70_001) == {"result_ref"}
        assert 50 < lifetime_s(served) <= 61
        over = served.post(f"{NS}/payloads/presign", {"op": "put", "size": 90_001})
        assert (over.status, over.body["limit"]) == (413, 90_000)
        assert served.post(f"{NS}/payloads/presign", {"op": "put", "size": 90_000}).status == 200
        assert served.post("/v1/producer/submit", one(args_blob=b"x" * 90_001)).status == 413


@pytest.mark.parametrize(
    "name, value",
    [
        pytest.param("INLINE_THRESHOLD_BYTES", "1k", marks=pytest.mark.inventory("S-698")),
        pytest.param("MAX_PAYLOAD_BYTES", "104857601", marks=pytest.mark.inventory("S-699")),
        pytest.param("PAYLOAD_PRESIGN_TTL_S", "0", marks=pytest.mark.inventory("S-700")),
    ],
)
def test_what_is_no_such_number_is_refused_by_its_variable(tmp_path: Path, name: str, value: str) -> None:
    with pytest.raises(ServeError, match=f"{name}='{value}' is no number of"):
        trio.run(partial(serve, ServeOptions(port=0, state_dir=tmp_path), environ={name: value}))
    gc.collect()  # what it had opened is closed: a warning here fails this test
