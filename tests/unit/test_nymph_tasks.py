"""Commands and scripts from the server, hibernation, keys and versions."""

from __future__ import annotations

import pytest
from nymph_world import EPOCH, World, command, exec_, run

from lakeshore.nymph.core import events
from lakeshore.nymph.core.instructions import (
    DetectHost,
    Exit,
    GiveUpPoll,
    InstallUpdate,
    Poll,
    ReleaseExec,
    Restart,
    RotateKey,
    RunExec,
    RunSetup,
    SendResult,
    StopExec,
    StopJob,
)

SHA = "0123456789abcdef" * 4


def setup(id_: str, **more: object) -> dict[str, object]:
    return command("setup", id_, script=f"install {id_}", **more)


def setup_ended(world: World, id_: str, code: int = 0) -> None:
    world.tell(events.SetupEnded(setup_id=id_, result={"exit_code": code, "duration_ms": 5}))


def greeted_with(*commands: dict[str, object], **given: object) -> World:
    return World(**given).up(*commands)


# ---- exec


@pytest.mark.inventory("N-145", "K-34")
def test_a_command_is_run_with_its_body_and_its_result_is_told_until_it_is_taken() -> None:
    sent = exec_("e", workdir="/srv", timeout_s=3, log={"stdout_url": "/u", "flush_ms": 1, "flush_bytes": 2})
    world = greeted_with(sent)
    assert world.one(RunExec) == RunExec(exec_id="e", body=sent["body"])
    result = {"exit_code": -2, "stdout": b"half", "stderr": b"", "duration_ms": 3000}
    world.tell(events.ExecEnded(exec_id="e", result=result))
    assert world.one(SendResult) == SendResult(kind="exec", id="e", body=result)
    for wait in (1.0, 2.0):
        world.tell(events.ResultFailed(kind="exec", id="e", rand=0.0, reason="reset"))
        assert not world.these(ReleaseExec), "the note stays"
        before = world.now
        world.wait()
        assert world.now == before + wait
        world.one(SendResult)
    world.tell(events.ResultAnswered(kind="exec", id="e"))
    assert world.one(ReleaseExec).exec_id == "e"


def test_results_that_were_taken_in_one_request_are_each_over() -> None:
    world = greeted_with(*(exec_(id_) for id_ in "abc"))
    for id_ in "abc":
        world.exec_ended(id_)
    world.tell(events.ResultsAnswered(kind="exec", ids=["a", "c"]))
    assert [one.exec_id for one in world.these(ReleaseExec)] == ["a", "c"]
    world.tell(events.ResultFailed(kind="exec", id="b", rand=0.0, reason="reset"))
    world.wait()
    assert world.one(SendResult).id == "b"


def test_a_result_that_nobody_wants_is_told_once() -> None:
    world = greeted_with(exec_("e"))
    world.exec_ended("e")
    world.tell(events.ResultFailed(kind="exec", id="e", rand=0.0, reason="no such exec", status=404))
    world.one(ReleaseExec)
    assert "nobody takes the result of exec e" in world.said


def test_results_do_not_wait_for_each_other() -> None:
    world = greeted_with(exec_("e1"), exec_("e2"))
    world.exec_ended("e1")
    world.exec_ended("e2")
    assert world.one(SendResult).id == "e2"


def test_a_command_can_be_cancelled_while_it_waits_and_while_it_runs() -> None:
    world = greeted_with(exec_("e1"), exec_("e2"), max_invocations=1)
    assert [one.exec_id for one in world.these(RunExec)] == ["e1"]
    world.wait()
    world.answer(command("cancel", exec_id="e1"), command("cancel", exec_id="e2"))
    assert world.one(StopExec).exec_id == "e1"
    assert (world.one(SendResult).id, world.one(SendResult).body["exit_code"]) == ("e2", -1)


# ---- setup


@pytest.mark.inventory("N-138", "N-139", "N-143")
def test_scripts_run_one_after_the_other_in_the_order_in_which_they_came_and_polls_go_on() -> None:
    world = greeted_with(setup("s1", sudo=True, name="docker"))
    assert world.one(RunSetup).body["sudo"] is True
    world.one(Poll)
    world.answer(setup("s2"), setup("s3"))
    assert not world.these(RunSetup)
    setup_ended(world, "s1", code=1)
    assert world.one(RunSetup).setup_id == "s2"
    setup_ended(world, "s2")
    assert world.one(RunSetup).setup_id == "s3"


@pytest.mark.inventory("N-139")
def test_a_script_takes_no_slot() -> None:
    world = greeted_with(setup("s1"), run("a"), max_invocations=1)
    assert world.these(RunSetup)
    world.ended("a")
    assert world.poll["capacity"] == 1


@pytest.mark.inventory("N-398", "N-144")
def test_a_script_that_is_delivered_again_is_not_run_again() -> None:
    world = greeted_with(setup("s1"))
    world.answer(setup("s1"), after=1.0)
    setup_ended(world, "s1")
    assert not world.these(RunSetup)
    world.answer(setup("s1"), after=1.0)
    assert not world.these(RunSetup)


@pytest.mark.inventory("N-417")
def test_how_a_script_ended_is_told_until_it_is_taken() -> None:
    world = greeted_with(setup("s1"))
    setup_ended(world, "s1", code=7)
    assert world.one(SendResult) == SendResult(kind="setup", id="s1", body={"exit_code": 7, "duration_ms": 5})
    world.tell(events.ResultFailed(kind="setup", id="s1", rand=0.0, reason="reset", status=503))
    world.wait()
    world.one(SendResult)
    world.tell(events.ResultAnswered(kind="setup", id="s1"))
    world.answer(after=20.0)
    assert not world.these(SendResult)


@pytest.mark.inventory("N-142", "N-112")
def test_capabilities_are_found_again_after_a_success_and_told_until_a_poll_with_them_is_answered() -> None:
    world = greeted_with(setup("s1", refresh_capabilities=True))
    setup_ended(world, "s1")
    world.one(DetectHost)
    found = {"runners": ["process", "docker"], "max_invocations": 100, "workdir": "/w"}
    world.tell(events.HostDetected(capabilities=found))
    world.one(GiveUpPoll)
    assert world.poll["updated_capabilities"] == found, "at once, not when the held poll comes back"
    world.fail()
    world.wait()
    assert world.poll["updated_capabilities"] == found
    world.answer(after=1.0)
    world.wait() if not world.these(Poll) else None
    assert "updated_capabilities" not in world.last(Poll).body


def test_capabilities_that_change_while_the_last_are_on_their_way_are_told_as_well() -> None:
    world = greeted_with(run("a"), max_invocations=1)
    world.tell(events.HostDetected(capabilities={"runners": ["process"]}))
    assert world.poll["updated_capabilities"] == {"runners": ["process"]}
    world.tell(events.HostDetected(capabilities={"runners": ["process", "slurm"]}))
    assert not world.these(GiveUpPoll), "it is not held open"
    world.answer()
    assert world.poll["updated_capabilities"] == {"runners": ["process", "slurm"]}


@pytest.mark.inventory("N-142")
@pytest.mark.parametrize(("refresh", "code"), [(True, 1), (False, 0)])
def test_they_are_not_found_again_after_a_failure_or_unasked(refresh: bool, code: int) -> None:
    world = greeted_with(setup("s1", refresh_capabilities=refresh))
    setup_ended(world, "s1", code)
    assert not world.these(DetectHost)


# ---- hibernate


@pytest.mark.inventory("N-134", "N-136", "N-137")
def test_a_hibernating_daemon_polls_not_before_its_own_clock_says_so() -> None:
    world = World().up()
    world.answer(command("hibernate", until_epoch_s=EPOCH + world.now + 300.0))
    assert not world.these(Poll)
    assert world.core.status()["run_state"] == "hibernating"
    world.wait(299.9)
    assert not world.these(Poll)
    world.wait(0.2)
    assert world.poll["capacity"] == 32
    assert world.core.status()["run_state"] == "polling"


@pytest.mark.inventory("N-136")
def test_a_hibernation_is_cut_short_by_a_shutdown() -> None:
    world = World().up()
    world.answer(command("hibernate", until_epoch_s=EPOCH + 100_000))
    world.signal(after=5.0)
    assert world.poll["draining"] is True
    world.answer()
    assert world.one(Exit).code == 0


@pytest.mark.inventory("K-11")
def test_claims_are_renewed_while_the_daemon_hibernates() -> None:
    world = World().up(run("a"))
    world.started("a")
    world.answer(command("hibernate", until_epoch_s=EPOCH + world.now + 1000), after=15.0)
    for _ in range(10):
        assert (world.poll["capacity"], world.poll["timeout_s"]) == (0, 0.0)
        world.answer()
        assert not world.these(Poll)
        world.wait()
    world.answer()
    assert world.core.status()["run_state"] == "hibernating"
    assert not any(isinstance(one, StopJob) for one in world.all)
    world.ended("a")
    world.acked()
    assert world.timer and world.timer > world.now + 100


def test_a_hibernation_follows_the_walls_clock_when_that_is_set() -> None:
    world = World().up()
    world.answer(command("hibernate", until_epoch_s=EPOCH + world.now + 300.0))
    world.tell(events.ClockJumped(slept_s=0.0, epoch=EPOCH + world.now + 290.0))
    assert world.timer == world.now + 10.0


def test_a_hibernation_whose_time_is_over_is_none() -> None:
    world = World().up()
    world.answer(command("hibernate", until_epoch_s=EPOCH), after=1.0)
    world.one(Poll)


# ---- keys


@pytest.mark.inventory("N-179", "N-181", "N-182")
def test_a_rotation_is_done_once_at_a_time_and_its_failure_changes_nothing() -> None:
    world = World(has_identity=True).up({"id": "r1", "kind": "rotate_key"})
    world.one(RotateKey)
    world.one(Poll)
    world.answer({"id": "r2", "kind": "rotate_key"})
    assert not world.these(RotateKey)
    world.tell(events.RotationFailed(reason="500"))
    assert "warning: the key was not rotated" in world.said
    world.answer({"id": "r3", "kind": "rotate_key", "body": {"reason": "max_age_exceeded"}}, after=1.0)
    world.one(RotateKey)
    world.tell(events.KeyRotated(key_id="k" * 16))
    assert world.core.status()["run_state"] == "polling"


@pytest.mark.inventory("N-183")
def test_without_an_identity_rotate_key_is_a_no_op_that_is_logged() -> None:
    world = World().up({"id": "r1", "kind": "rotate_key"})
    assert not world.these(RotateKey)
    assert "no identity" in world.said


# ---- versions


@pytest.mark.inventory("N-170")
@pytest.mark.parametrize(
    ("sha256", "fits"),
    [(SHA, True), (SHA.upper(), True), (SHA[1:], False), (SHA + "0", False), (SHA[1:] + "g", False), ("", False)],
)
def test_an_update_needs_a_checksum_of_exactly_64_hex_digits(sha256: str, fits: bool) -> None:
    world = World().up(command("ota_update", version="0.3.0", url="/x", sha256=sha256))
    assert world.these(InstallUpdate) == (
        [InstallUpdate(version="0.3.0", url="/x", sha256=sha256.lower())] if fits else []
    )


@pytest.mark.inventory("N-175")
def test_the_target_version_is_followed_at_most_once_an_interval_and_only_if_configured() -> None:
    world = World(auto_update=True, auto_update_check_interval_s=300).up()
    world.answer(target_nymph_version="0.2.0", after=20.0)
    assert not world.these(InstallUpdate), "it runs that"
    world.answer(target_nymph_version="0.3.0", after=20.0)
    assert world.one(InstallUpdate) == InstallUpdate(version="0.3.0")
    world.tell(events.UpdateFailed(version="0.3.0", reason="404"))
    began = world.now
    installs = []
    while not installs:
        assert world.now < began + 400
        world.answer(target_nymph_version="0.3.0", after=20.0)
        installs = world.these(InstallUpdate)
    assert world.now >= began + 300
    other = World().up()
    other.answer(target_nymph_version="0.3.0", after=20.0)
    assert not other.these(InstallUpdate)


def test_an_update_that_failed_is_logged_and_the_daemon_goes_on() -> None:
    world = World().up(command("ota_update", version="0.3.0", url="/x", sha256=SHA))
    world.tell(events.UpdateFailed(version="0.3.0", reason="the hash is another one"))
    assert "error: not updated to 0.3.0: the hash is another one" in world.said
    world.answer(command("ota_update", version="0.3.0", url="/x", sha256=SHA), after=1.0)
    world.one(InstallUpdate)


@pytest.mark.inventory("N-174")
def test_an_installed_update_is_run_while_jobs_go_on() -> None:
    world = World().up(run("a"), command("ota_update", version="0.3.0", url="/x", sha256=SHA))
    world.started("a")
    world.tell(events.UpdateInstalled(version="0.3.0"))
    assert world.one(Restart).version == "0.3.0"
    assert not world.these(StopJob), "the new daemon adopts it"
    assert not any(isinstance(one, Poll) and "draining" in one.body for one in world.all)


@pytest.mark.inventory("N-407", "K-34")
def test_commands_and_scripts_that_cannot_be_adopted_are_waited_for() -> None:
    world = World(grace_s=60.0).up(exec_("e"), run("a"), command("ota_update", version="9", url="/x", sha256=SHA))
    world.tell(events.UpdateInstalled(version="9"))
    assert not world.these(Restart)
    assert world.core.status()["pending_version"] == "9"
    assert (world.poll["capacity"], "draining" in world.poll) == (0, False)
    world.answer()
    world.exec_ended("e")
    assert not world.these(Restart), "its result is told first"
    world.tell(events.ResultAnswered(kind="exec", id="e"))
    world.one(Restart)


@pytest.mark.inventory("N-242")
def test_they_are_waited_for_no_longer_than_the_grace() -> None:
    world = World(grace_s=10.0).up(exec_("e"), run("a"), command("ota_update", version="9", url="/x", sha256=SHA))
    world.tell(events.UpdateInstalled(version="9"))
    world.wait(10.0)
    assert world.one(StopExec).exec_id == "e"
    assert not world.these(StopJob)


def test_a_signal_turns_a_restart_into_leaving() -> None:
    world = World().up(exec_("e"), command("ota_update", version="9", url="/x", sha256=SHA))
    world.tell(events.UpdateInstalled(version="9"))
    world.signal()
    world.exec_ended("e")
    world.tell(events.ResultAnswered(kind="exec", id="e"))
    assert world.poll["draining"] is True
    world.answer()
    world.one(Exit)
