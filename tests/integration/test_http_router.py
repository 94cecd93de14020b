"""The table of routes, by itself and behind a real server."""

from __future__ import annotations

import json

import pytest
from http_peer import serving

from lakeshore.server.http import Request, Response, Router


async def tell(request: Request) -> Response:
    return Response(body=json.dumps([request.route, request.params]).encode())


async def take(request: Request) -> Response:
    return Response(body=str(len(await request.body())).encode())


def table() -> Router:
    router = Router()
    router.add("GET", "/healthz", tell)
    router.add("GET", "/v1/namespaces/{ns}/invocations", tell)
    router.add("GET", "/v1/namespaces/{ns}/invocations/{id}", tell)
    router.add("DELETE", "/v1/namespaces/{ns}/invocations/{id}", tell)
    router.add("POST", "/v1/namespaces/{ns}/invocations/bulk-cancel", tell)
    router.add("GET", "/v1/namespaces/{ns}/{kind}/literal", tell)
    router.add("GET", "/v1/blobs/{key...}", tell)
    router.add("PUT", "/v1/blobs/{key...}", take, max_body=20)
    router.add("POST", "/small", take, max_body=5)
    router.add("POST", "/usual", take)
    return router


FOUND = {
    "GET /healthz": ("/healthz", {}),
    "GET /healthz?verbose": ("/healthz", {}),
    "GET /v1/namespaces/lab/invocations": ("/v1/namespaces/{ns}/invocations", {"ns": "lab"}),
    "GET /v1/namespaces/lab/invocations/a%20b": (
        "/v1/namespaces/{ns}/invocations/{id}",
        {"ns": "lab", "id": "a b"},
    ),
    "GET /v1/namespaces/lab/invocations/%C3%A9:x": (
        "/v1/namespaces/{ns}/invocations/{id}",
        {"ns": "lab", "id": "é:x"},
    ),
    "GET /v1/namespaces/lab/invocations/100%25": (
        "/v1/namespaces/{ns}/invocations/{id}",
        {"ns": "lab", "id": "100%"},
    ),
    "POST /v1/namespaces/lab/invocations/bulk-cancel": (
        "/v1/namespaces/{ns}/invocations/bulk-cancel",
        {"ns": "lab"},
    ),
    # the literal row has no DELETE: the parameter's row answers
    "DELETE /v1/namespaces/lab/invocations/bulk-cancel": (
        "/v1/namespaces/{ns}/invocations/{id}",
        {"ns": "lab", "id": "bulk-cancel"},
    ),
    "GET /v1/namespaces/lab/other/literal": ("/v1/namespaces/{ns}/{kind}/literal", {"ns": "lab", "kind": "other"}),
    "GET /v1/blobs/lab/jobs/x%20y/z": ("/v1/blobs/{key...}", {"key": "lab/jobs/x y/z"}),
}


def test_each_path_reaches_its_handler_with_decoded_parameters() -> None:
    with serving(table()) as served, served.connect() as peer:
        for line, (pattern, params) in FOUND.items():
            method, path = line.split()
            peer.get(path, method)
            answer = peer.answer(method)
            assert answer.status == 200, line
            assert json.loads(answer.body) == [pattern, params], line


REFUSED = {
    "GET /": 404,
    "GET /none": 404,
    "GET /healthz/": 404,
    "GET /v1/namespaces//invocations": 404,
    "GET /v1/namespaces/lab/invocations/": 404,
    "GET /v1/blobs/": 404,
    "GET /v1/blobs/a//b": 404,
    "GET /%68ealthz": 404,
    "GET /v1/namespaces/a%2Fb/invocations": 400,
    "GET /v1/namespaces/a%2fb/invocations": 400,
    "GET /v1/namespaces/a%00b/invocations": 400,
    "GET /v1/namespaces/a%0Ab/invocations": 400,
    "GET /v1/namespaces/a%7F/invocations": 400,
    "GET /v1/namespaces/%FF/invocations": 400,
    "GET /v1/blobs/a%2Fb": 400,
    "OPTIONS *": 404,
}


def test_a_path_that_is_unknown_or_could_be_read_two_ways_is_refused_and_the_connection_goes_on() -> None:
    with serving(table()) as served, served.connect() as peer:
        for line, status in REFUSED.items():
            method, path = line.split()
            peer.get(path, method)
            answer = peer.answer()
            assert answer.status == status, line
            assert {"error", "hint"} <= json.loads(answer.body).keys()
            assert not answer.closes


def test_a_wrong_method_is_told_the_right_ones() -> None:
    with serving(table()) as served, served.connect() as peer:
        for line, allowed in {
            "POST /healthz": "GET, HEAD",
            "get /healthz": "GET, HEAD",
            "PATCH /v1/namespaces/lab/invocations/bulk-cancel": "DELETE, GET, HEAD, POST",
            "DELETE /v1/blobs/a/b": "GET, HEAD, PUT",
        }.items():
            method, path = line.split()
            peer.get(path, method)
            answer = peer.answer()
            assert (answer.status, answer.headers["allow"]) == (405, allowed)


def test_a_get_row_answers_head() -> None:
    with serving(table()) as served, served.connect() as peer:
        for path in ("/healthz", "/v1/blobs/a/b"):
            peer.get(path, "HEAD")
            answer = peer.answer("HEAD")
            assert (answer.status, answer.body) == (200, b"")
            assert int(answer.headers["content-length"]) > 2


def test_a_route_has_its_own_bound_for_bodies() -> None:
    with serving(table()) as served, served.connect() as peer:
        for path, size, status in (("/small", 5, 200), ("/small", 6, 413), ("/usual", 6, 200)):
            peer.post(path, b"x" * size)
            answer = peer.answer()
            assert answer.status == status


@pytest.mark.parametrize(
    ("pattern", "complaint"),
    [
        ("v1/x", "must begin with /"),
        ("/v1/{a}-b", "whole segment"),
        ("/v1/{a}/{a}", "twice"),
        ("/v1/{a...}/b", "only the last"),
        ("/v1/{other}", "already in the table"),
    ],
)
def test_a_row_that_makes_no_sense_is_refused_when_it_is_added(pattern: str, complaint: str) -> None:
    router = Router()
    router.add("GET", "/v1/{name}", tell)
    with pytest.raises(ValueError, match=complaint):
        router.add("GET", pattern, tell)


def test_the_table_can_be_listed() -> None:
    rows = [(route.method, route.pattern) for route in table().routes()]
    assert rows == sorted(rows, key=lambda row: (row[1], row[0]))
    assert ("PUT", "/v1/blobs/{key...}") in rows
