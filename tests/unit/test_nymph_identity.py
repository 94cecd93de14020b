"""A daemon's identity against the rules of the server's side: enrolment, rotation with overlap, clocks that are off,
revocation; through crashes and answers that are lost.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from lakeshore.nymph.hello import read_answer
from lakeshore.nymph.identity import Identity, IdentityError, KeyFile, Recovery
from lakeshore.wire.daemon_keys import DaemonKey, RotationRefused, new_key, reap, revoke, rotate
from lakeshore.wire.signing import canonical_string, from_text, is_signed_by, key_id_of, public_key_of
from lakeshore.wire.verification import EnrollToken, SignedRequest, Verdict, check_enrolment, verify

NOW = 1_750_000_000.0
MACHINE = "bos14-login"
WORKER = "6650a1b2c3d4e5f601234567"
SERVER = "https://control.example"
TOKEN = "dle_" + "t" * 43


@dataclass
class Server:
    """The keys of one worker, kept by the rules of `lakeshore.wire`."""

    now: float = NOW
    keys: dict[str, DaemonKey] = field(default_factory=dict)
    tokens: dict[str, EnrollToken] = field(default_factory=dict)
    nonces: set[tuple[str, str]] = field(default_factory=set)
    known: bool = False
    max_age_s: float = 10_000.0

    def mint(self, token: str) -> None:
        self.tokens[token] = EnrollToken(ns="default", expires_at=self.now + 3600)

    def find(self, worker_id: str, key_id: str) -> DaemonKey | None:
        return self.keys.get(key_id) if worker_id == WORKER else None

    def take(self, worker_id: str, nonce: str, until: float) -> bool:
        new = (worker_id, nonce) not in self.nonces
        self.nonces.add((worker_id, nonce))
        return new

    def hello(self, identity: Identity, now: float, bearer: str | None) -> dict[str, Any]:
        body = f"hello {identity.public_key}".encode()
        signed = identity.sign(method="POST", path="/v1/daemon/hello", body=body, now=now, machine_id=MACHINE)
        brought = bearer is not None and bearer.startswith("dle_")
        found = check_enrolment(
            SignedRequest(
                method="POST",
                path="/v1/daemon/hello",
                worker_id=MACHINE,
                headers={name.lower(): text for name, text in signed},
                body=body,
            ),
            public_key=identity.public_key,
            token=self.tokens.get(bearer or ""),
            brought_token=brought,
            find_key=self.find,
            known_as=WORKER if self.known else None,
            now=self.now,
        )
        if found.reject is not None:
            return {"reject": found.reject, "server_time_epoch_s": self.now}
        assert found.public_key is not None
        if found.spends:
            assert bearer is not None
            self.tokens[bearer] = replace(self.tokens[bearer], consumed_at=self.now)
            fresh = new_key(WORKER, found.public_key, self.now, max_age_s=self.max_age_s)
            self.keys[fresh.key_id] = fresh
        self.known = True
        return {"reject": None, "worker_id": WORKER, "key_id": found.key_id, "server_time_epoch_s": self.now}

    def request(self, identity: Identity, now: float, path: str = "/v1/daemon/poll", body: bytes = b"poll") -> Verdict:
        headers = identity.sign(method="POST", path=path, body=body, now=now)
        assert identity.worker_id is not None
        return self.judge(headers, identity.worker_id, path, body)

    def judge(self, headers: tuple[tuple[str, str], ...], worker_id: str, path: str, body: bytes) -> Verdict:
        self.keys = {key_id: reap(key, self.now) for key_id, key in self.keys.items()}
        request = SignedRequest(
            method="POST",
            path=path,
            worker_id=worker_id,
            headers={name.lower(): text for name, text in headers},
            body=body,
        )
        return verify(request, find_key=self.find, take_nonce=self.take, now=self.now)

    def rotate(self, identity: Identity, now: float, public_key: str) -> str:
        """The new key's id. Raises AssertionError when the request is refused."""
        verdict = self.request(identity, now, "/v1/daemon/keys", public_key.encode())
        assert verdict.key is not None, verdict
        raw = public_key_of(public_key)
        successor = self.keys.get(key_id_of(raw))
        old, fresh = rotate(verdict.key, raw, self.now, successor=successor, max_age_s=self.max_age_s)
        self.keys |= {old.key_id: old, fresh.key_id: fresh}
        return fresh.key_id


class Host:
    """A host on which one daemon starts again and again."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._files: KeyFile | None = None

    def start(self, token: str | None = TOKEN, server: str = SERVER) -> Identity:
        if self._files is not None:
            self._files.close()
        self._files = KeyFile(self.path)
        return Identity(self._files, server=server, enroll_token=token)


def enrol(identity: Identity, server: Server, now: float | None = None) -> None:
    now = server.now if now is None else now
    answer = server.hello(identity, now, identity.hello_bearer("dlk_ordinary"))
    assert answer["reject"] is None, answer
    admit(identity, answer, now)


def admit(identity: Identity, answer: dict[str, Any], now: float) -> None:
    identity.admitted(
        worker_id=answer["worker_id"], key_id=answer["key_id"], server_time=answer["server_time_epoch_s"], now=now
    )


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path / "keys" / "daemon.key")


@pytest.fixture
def server() -> Server:
    server = Server()
    server.mint(TOKEN)
    return server


def tell(identity: Identity, verdict: Verdict, now: float, *, retried: bool = False) -> Recovery:
    return identity.refused(
        verdict.status, verdict.error, server_time=verdict.server_time_epoch_s, now=now, retried=retried
    )


# ---- enrolment


@pytest.mark.inventory("N-098", "N-262", "N-264")
def test_a_hello_is_signed_under_the_machine_id_and_what_follows_under_the_id_that_the_server_gave(
    host: Host, server: Server
) -> None:
    identity = host.start()
    assert identity.hello_bearer("dlk_ordinary") == TOKEN
    with pytest.raises(RuntimeError, match="before hello was answered"):
        identity.sign(method="POST", path="/v1/daemon/poll", body=b"", now=NOW)
    enrol(identity, server)
    assert identity.worker_id == WORKER
    assert server.request(identity, NOW).accepted


@pytest.mark.inventory("N-070", "N-099")
@pytest.mark.parametrize(("told", "name"), [(WORKER, WORKER), (None, "box-01K4"), ("", "box-01K4")])
def test_a_server_that_gives_no_name_leaves_the_provisional_one(host: Host, told: str | None, name: str) -> None:
    identity = host.start()
    answer = read_answer({"worker_id": told, "reject": None})
    identity.admitted(worker_id=answer.name("box-01K4"), key_id=None, server_time=None, now=NOW)
    signed = dict(identity.sign(method="POST", path="/v1/daemon/poll", body=b"", now=NOW))
    message = canonical_string(
        method="POST",
        path="/v1/daemon/poll",
        worker_id=name,
        key_id=identity.key_id,
        timestamp=int(NOW),
        nonce=signed["X-LS-Nonce"],
        body=b"",
    )
    signature = from_text(signed["X-LS-Signature"], 64, "it")
    assert is_signed_by(public_key_of(identity.public_key), message, signature)


@pytest.mark.inventory("N-265", "N-101")
def test_the_token_is_spent_at_the_first_hello_and_never_sent_again(host: Host, server: Server) -> None:
    first = host.start()
    enrol(first, server)
    assert first.enrolled
    assert first.hello_bearer("dlk_ordinary") == "dlk_ordinary"
    again = host.start()
    assert (again.key_id, again.enrolled) == (first.key_id, True)
    assert again.hello_bearer(None) is None
    enrol(again, server)
    assert server.request(again, NOW).accepted


def test_a_daemon_that_lost_its_notes_is_let_in_by_its_key(host: Host, server: Server) -> None:
    enrol(host.start(), server)
    os.unlink(f"{host.path}.json")
    identity = host.start()
    assert not identity.enrolled
    enrol(identity, server)  # its spent token does no harm
    assert server.request(identity, NOW).accepted


def test_another_server_is_another_enrolment(host: Host, server: Server) -> None:
    enrol(host.start(), server)
    elsewhere = host.start("dle_other", "https://another.example")
    assert not elsewhere.enrolled
    assert elsewhere.hello_bearer("dlk_ordinary") == "dle_other"


@pytest.mark.inventory("N-068")
def test_a_server_that_confirms_another_key_is_not_believed(host: Host) -> None:
    identity = host.start()
    with pytest.raises(IdentityError, match="the server enrolled the key"):
        identity.admitted(worker_id=WORKER, key_id="A" * 16, server_time=None, now=NOW)


def test_a_server_that_enrols_nothing_gives_a_name_and_the_token_stays_fresh(host: Host) -> None:
    identity = host.start()
    identity.admitted(worker_id=WORKER, key_id=None, server_time=None, now=NOW)
    assert (identity.worker_id, identity.enrolled, identity.hello_bearer(None)) == (WORKER, False, TOKEN)


@pytest.mark.parametrize("code", ["enroll_token_expired", "key_id_mismatch", "protocol_mismatch"])
def test_a_refused_enrolment_ends_the_daemon(host: Host, code: str) -> None:
    identity = host.start()
    assert identity.hello_refused(code, server_time=NOW, now=NOW, retried=False) is Recovery.DRAIN


@pytest.mark.inventory("N-258")
def test_an_identity_shows_its_key_id_alone(host: Host) -> None:
    identity = host.start()
    assert repr(identity) == f"Identity({identity.key_id})"
    assert TOKEN not in repr(identity)


# ---- clocks


@pytest.mark.inventory("N-104", "S-479")
@pytest.mark.parametrize("off", [-100_000.0, -301.0, 302.0, 1e6])
def test_a_clock_that_is_off_learns_the_offset_from_the_refusal_and_tries_once_more(
    host: Host, server: Server, off: float
) -> None:
    identity = host.start()
    ours = server.now - off
    refused = server.hello(identity, ours, identity.hello_bearer(None))
    assert refused["reject"] == "enroll_signature_invalid"
    told = {"server_time": server.now, "now": ours}
    assert identity.hello_refused(refused["reject"], **told, retried=False) is Recovery.RETRY
    enrol(identity, server, ours)
    assert server.request(identity, ours).accepted
    assert server.request(identity, ours + 100).accepted, "the offset lasts"


def test_a_clock_that_is_mended_later_is_followed_too(host: Host, server: Server) -> None:
    identity = host.start()
    enrol(identity, server)
    jumped = NOW + 5000
    refused = server.request(identity, jumped)
    assert refused.error == "timestamp outside skew window"
    assert tell(identity, refused, jumped) is Recovery.RETRY
    assert server.request(identity, jumped).accepted
    back = server.request(identity, NOW)
    assert tell(identity, back, NOW) is Recovery.RETRY
    assert server.request(identity, NOW).accepted


def test_a_request_is_sent_once_more_and_not_for_ever(host: Host, server: Server) -> None:
    identity = host.start()
    enrol(identity, server)
    refused = server.request(identity, NOW + 5000)
    assert tell(identity, refused, NOW + 5000, retried=True) is Recovery.NONE
    assert tell(identity, replace(refused, server_time_epoch_s=None), NOW) is Recovery.NONE
    lying = replace(refused, server_time_epoch_s=NOW)  # refuses, and names the time that we have
    assert tell(identity, lying, NOW) is Recovery.NONE
    assert identity.hello_refused("enroll_signature_invalid", server_time=NOW, now=NOW, retried=False) is Recovery.DRAIN


@pytest.mark.inventory("N-263")
def test_every_request_has_a_nonce_of_its_own(host: Host, server: Server) -> None:
    identity = host.start()
    enrol(identity, server)
    headers = [dict(identity.sign(method="POST", path="/", body=b"", now=NOW + 0.7)) for _ in range(50)]
    assert len({said["X-LS-Nonce"] for said in headers}) == 50
    assert {said["X-LS-Timestamp"] for said in headers} == {str(int(NOW))}


# ---- rotation


@pytest.mark.inventory("N-180", "N-181", "S-454")
def test_the_key_is_swapped_after_the_confirmation_and_what_was_under_way_is_still_taken(
    host: Host, server: Server
) -> None:
    identity = host.start()
    enrol(identity, server)
    old = identity.key_id
    under_way = identity.sign(method="POST", path="/v1/daemon/poll", body=b"x", now=NOW)
    confirmed = server.rotate(identity, NOW, identity.begin_rotation())
    assert identity.key_id == old, "not before"
    identity.confirm_rotation(confirmed)
    assert identity.key_id == confirmed != old
    assert server.judge(under_way, WORKER, "/v1/daemon/poll", b"x").accepted
    assert server.request(identity, NOW).accepted
    server.now += 601
    late = identity.sign(method="POST", path="/v1/daemon/poll", body=b"x", now=server.now)
    assert server.judge(late, WORKER, "/v1/daemon/poll", b"x").accepted
    assert host.start().key_id == confirmed


@pytest.mark.inventory("N-182")
def test_a_rotation_that_is_refused_leaves_the_key(host: Host, server: Server) -> None:
    identity = host.start()
    enrol(identity, server)
    old = identity.key_id
    identity.begin_rotation()
    identity.abandon_rotation()
    assert (identity.key_id, identity.rotating) == (old, False)
    assert server.request(identity, NOW).accepted
    assert os.listdir(host.path.parent).count("daemon.key.next") == 0


def test_a_rotation_without_an_answer_is_sent_again_with_the_same_successor(host: Host, server: Server) -> None:
    identity = host.start()
    enrol(identity, server)
    first = identity.begin_rotation()
    server.rotate(identity, NOW, first)  # and its answer is lost
    assert identity.begin_rotation() == first
    identity.confirm_rotation(server.rotate(identity, NOW, first))
    identity.confirm_rotation(identity.key_id)  # the first answer, late
    assert server.request(identity, NOW).accepted


@pytest.mark.parametrize("later", [0.0, 599.0, 700.0, 5000.0])
def test_a_crash_between_the_servers_swap_and_ours_loses_nothing(host: Host, server: Server, later: float) -> None:
    identity = host.start()
    enrol(identity, server)
    swapped = server.rotate(identity, NOW, identity.begin_rotation())
    server.now += later
    again = host.start()
    assert again.rotating
    answer = server.hello(again, server.now, again.hello_bearer(None))
    if answer["reject"] is not None:
        told = again.hello_refused(answer["reject"], server_time=server.now, now=server.now, retried=False)
        assert told is Recovery.RETRY
        answer = server.hello(again, server.now, again.hello_bearer(None))
    admit(again, answer, server.now)
    if again.rotating:
        again.confirm_rotation(server.rotate(again, server.now, again.begin_rotation()))
    assert again.key_id == swapped
    assert server.request(again, server.now).accepted


def test_a_confirmation_of_another_key_is_not_believed(host: Host, server: Server) -> None:
    identity = host.start()
    enrol(identity, server)
    old = identity.key_id
    with pytest.raises(IdentityError, match="no rotation is under way"):
        identity.confirm_rotation("A" * 16)
    identity.begin_rotation()
    for wrong in ("A" * 16, old, None):
        with pytest.raises(IdentityError, match="not used"):
            identity.confirm_rotation(wrong)
    assert identity.key_id == old


# ---- revocation


@pytest.mark.inventory("N-421", "S-491")
def test_a_revoked_daemon_without_a_fresh_token_drains_and_ends(host: Host, server: Server) -> None:
    identity = host.start()
    enrol(identity, server)
    server.keys[identity.key_id], _ = revoke(server.keys[identity.key_id], NOW)
    refused = server.request(identity, NOW)
    assert refused.status == 403
    assert tell(identity, refused, NOW) is Recovery.DRAIN


@pytest.mark.inventory("N-421")
def test_a_revoked_daemon_with_a_fresh_token_comes_back_with_a_new_key(host: Host, server: Server) -> None:
    enrol(host.start(), server)
    server.mint("dle_fresh")
    identity = host.start("dle_fresh")
    enrol(identity, server)
    old = identity.key_id
    server.keys[old], _ = revoke(server.keys[old], NOW)
    assert tell(identity, server.request(identity, NOW), NOW) is Recovery.HELLO
    assert identity.key_id != old
    enrol(identity, server)
    assert server.request(identity, NOW).accepted
    assert host.start("dle_fresh").enrolled


def test_a_fresh_token_that_is_refused_as_well_ends_the_daemon(host: Host, server: Server) -> None:
    enrol(host.start(), server)
    identity = host.start("dle_not_minted")
    enrol(identity, server)
    server.keys[identity.key_id], _ = revoke(server.keys[identity.key_id], NOW)
    assert tell(identity, server.request(identity, NOW), NOW) is Recovery.HELLO
    answer = server.hello(identity, NOW, identity.hello_bearer(None))
    assert answer["reject"] == "invalid_enroll_token"
    assert identity.hello_refused(answer["reject"], server_time=NOW, now=NOW, retried=False) is Recovery.DRAIN


@pytest.mark.parametrize(
    "refusal",
    [(401, "signature verification failed"), (401, "replayed nonce"), (403, "scope"), (422, "x"), (503, None)],
)
def test_other_refusals_are_ordinary_failures(host: Host, server: Server, refusal: tuple[int, str | None]) -> None:
    identity = host.start()
    enrol(identity, server)
    assert tell(identity, Verdict(status=refusal[0], error=refusal[1]), NOW) is Recovery.NONE


# ---- any order of it all


class AnyOrder(RuleBasedStateMachine):
    """Crashes, rotations, lost answers and time, in any order: the daemon always gets back in."""

    make: Callable[[], Path]

    def __init__(self) -> None:
        super().__init__()
        self.server = Server(max_age_s=1e9)
        self.server.mint(TOKEN)
        self.host = Host(type(self).make() / "k")
        self.identity = self.host.start()
        enrol(self.identity, self.server)

    @rule()
    def crash(self) -> None:
        self.identity = self.host.start()
        self.enter()

    @rule()
    def rotate_and_lose_the_answer(self) -> None:
        self._rotate()

    @rule()
    def rotate(self) -> None:
        confirmed = self._rotate()
        if confirmed is not None:
            self.identity.confirm_rotation(confirmed)

    @precondition(lambda self: not self.identity.rotating)
    @rule()
    def make_a_successor_that_is_never_sent(self) -> None:
        self.identity.begin_rotation()

    @rule()
    def time_goes(self) -> None:
        self.server.now += 400

    def _rotate(self) -> str | None:
        self.reach()
        try:
            return self.server.rotate(self.identity, self.server.now, self.identity.begin_rotation())
        except RotationRefused:
            self.identity.abandon_rotation()
            return None

    def enter(self) -> None:
        for retried in (False, True):
            answer = self.server.hello(self.identity, self.server.now, self.identity.hello_bearer(None))
            if answer["reject"] is None:
                admit(self.identity, answer, self.server.now)
                return
            told = self.identity.hello_refused(
                answer["reject"], server_time=self.server.now, now=self.server.now, retried=retried
            )
            assert told is Recovery.RETRY

    def reach(self) -> None:
        verdict = self.server.request(self.identity, self.server.now)
        if not verdict.accepted:
            assert tell(self.identity, verdict, self.server.now) is Recovery.RETRY
            verdict = self.server.request(self.identity, self.server.now)
        assert verdict.accepted

    @invariant()
    def it_gets_in(self) -> None:
        self.reach()


def test_in_any_order_of_crashes_rotations_and_lost_answers_the_daemon_gets_back_in(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    AnyOrder.make = staticmethod(lambda: tmp_path_factory.mktemp("host"))  # type: ignore[assignment,method-assign]
    AnyOrder.TestCase.settings = settings(max_examples=25, stateful_step_count=12, deadline=None)
    AnyOrder.TestCase("runTest").runTest()
