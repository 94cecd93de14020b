"""One daemon, from its configuration to its exit code.

    read the configuration → what is this host? (meanwhile: the keeper, the key) → status page → hello → polls → drain

Fails closed: without the key that it is configured for, or beside another daemon of the same name, it does not start.
Exit codes: 0 it left as it was told to, 1 it could not start or was refused, 2 the configuration is wrong.
Reference: nymph/daemons, "Boot sequence"; N-064…N-070, N-241…N-246.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import trio

from .._version import __version__
from ..config.errors import ConfigError
from ..net.proxy import through_proxy
from ..net.target import Target, parse_target
from ..wire.names import Ulids
from ..wire.signing import SigningError, SigningUnavailable
from . import introspect, logs
from .code import Code
from .core import events, instructions
from .core.core import Core
from .core.settings import Settings
from .detect import HostFacts, detect
from .execs import Execs
from .hello import capabilities, hello_body
from .identity import Identity, IdentityError, KeyFile
from .keeping.client import KeeperClient, KeeperError, KeeperTaken
from .leftovers import Leftovers
from .local_record import LocalRecord
from .logs import Ring
from .lookup import Boot
from .payloads import Payloads
from .performing.commands import Commands
from .performing.contact import Contact
from .performing.jobs import Jobs
from .performing.line import Line, Parts
from .performing.pending import Pending
from .performing.program import Updates
from .places import daemon_directory, note_launch, sign, working_directory
from .recording import Recorder
from .relay import Relay
from .runners.registry import Runners
from .setups import Setups
from .shell import Shell
from .transport import Transport
from .update import Program, Trial, become

HOUR_S: Final = 3600.0
PROVED_S: Final = 2.0
FAREWELL_S: Final = 3.0
"""For clearing away what was released last."""
log = logging.getLogger("nymph")


class CannotStart(Exception):
    """The daemon does not start; the text says why, and what to do."""


def run(
    boot: Boot,
    facts: Future[HostFacts],
    *,
    record: Path | None = None,
    environ: Mapping[str, str] = os.environ,
) -> int:
    """Run the daemon until it leaves; its exit code. Raises ConfigError. `facts` are of its host, when they are there;
    `record` gets what happened.
    """
    program = Program.this()
    trial = Trial(program)
    if trial.failed_before():
        trial.roll_back()
    ring = logs.install(boot)
    try:
        last = trio.run(partial(_run, boot, facts, ring, record, environ, program, trial))
    except CannotStart as error:
        log.error("%s", error)  # noqa: TRY400 - it is expected, and says all
        sys.stderr.write(f"error: {error}\n")
        return 1
    finally:
        logging.shutdown()
    if isinstance(last, instructions.Restart) and program is not None:
        become(program)
    if isinstance(last, instructions.Exit) and last.code == 0:
        trial.is_up()  # it was told to leave
    return last.code if isinstance(last, instructions.Exit) else 1


async def _run(
    boot: Boot,
    facts: Future[HostFacts],
    ring: Ring,
    record: Path | None,
    environ: Mapping[str, str],
    program: Program | None,
    trial: Trial,
) -> instructions.Exit | instructions.Restart:
    failure: Exception | None = None
    last: instructions.Exit | instructions.Restart | None = None
    async with trio.open_nursery() as nursery:
        daemon = Daemon(boot, facts, ring, nursery, record=record, environ=environ, program=program, trial=trial)
        try:
            last = await daemon.live()
        except (CannotStart, ConfigError) as error:
            failure = error
        nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure
    return last or instructions.Exit(code=0, why="told to leave before it began")


class Daemon:
    """What one is made of."""

    def __init__(
        self,
        boot: Boot,
        facts: Future[HostFacts],
        ring: Ring,
        nursery: trio.Nursery,
        *,
        record: Path | None,
        environ: Mapping[str, str],
        program: Program | None,
        trial: Trial,
    ) -> None:
        self._program, self._trial, self._found = program, trial, facts
        self._boot, self._ring, self._nursery, self._record, self._environ = boot, ring, nursery, record, environ
        self._config = boot.config
        self._machine_id = boot.machine_id(socket.gethostname())
        self._directory = daemon_directory(boot, self._machine_id, environ)
        self._local = LocalRecord(self._config.server.url, environ)
        self._ids = Ulids(lambda: time.time_ns() // 1_000_000, os.urandom)
        self._identity: Identity | None = None
        self._shell: Shell | None = None
        self._facts: HostFacts
        self._root: Path
        self._transport: Transport
        self._payloads: Payloads
        self._line: Line

    async def live(self) -> instructions.Exit | instructions.Restart | None:
        """From boot to end; None when it was told to leave before it began. CannotStart, ConfigError."""
        await self._nursery.start(self._hear_signals)
        problem: Exception | None = None
        async with trio.open_nursery() as booting:
            booting.start_soon(self._found_out)
            try:
                await self._take_what_is_ours()
            except (CannotStart, ConfigError) as error:
                problem = error
                booting.cancel_scope.cancel()
        if problem is not None:
            raise problem
        try:
            with self._recorded() as write:
                last = await self._served(write)
        finally:
            with trio.CancelScope(shield=True, deadline=trio.current_time() + 2):
                await self._line.close()
        if isinstance(last, instructions.Exit):
            self._local.remove()
        log.info("leaving: %s", last.why if isinstance(last, instructions.Exit) else f"becoming {last.version}")
        return last

    # ---- boot

    async def _hear_signals(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as heard:
            task_status.started()
            async for number in heard:
                if self._shell is None:
                    self._nursery.cancel_scope.cancel()
                    return
                self._shell.tell(events.Signalled(name=signal.Signals(number).name))

    async def _found_out(self) -> None:
        self._facts = await trio.to_thread.run_sync(self._found.result, abandon_on_cancel=True)

    async def _take_what_is_ours(self) -> None:
        config = self._config
        self._root, warning = working_directory(self._boot, self._environ)
        if warning is not None:
            log.warning("%s", warning)
        if config.identity.enabled:
            try:
                self._identity = await trio.to_thread.run_sync(self._open_identity)
            except (IdentityError, SigningError, SigningUnavailable, OSError) as error:
                raise CannotStart(f"[identity] is enabled, and there is no key to sign with: {error}") from error
        self._transport = self._open_transport()
        self._payloads = Payloads(self._transport)
        self._line = Line(self._directory, self._nursery, self._parts)
        # Before anything else is there, for whoever tidies up later; a full disk keeps nobody from starting.
        with contextlib.suppress(OSError):
            sign(self._directory, config.daemon.label)
        try:
            await self._line.open()
        except KeeperTaken as error:
            raise CannotStart(
                f"another daemon of machine {self._machine_id!r} and label {config.daemon.label!r} runs here for "
                f"{config.server.url}: stop it, or give this one a label ([daemon] label)"
            ) from error
        except (KeeperError, OSError) as error:
            raise CannotStart(f"the keeper of jobs cannot be started: {error}") from error
        with contextlib.suppress(OSError):
            note_launch(self._directory, self._environ.get("NYMPH_LAUNCH", ""))
        self._nursery.start_soon(self._line.watch)

    def _open_identity(self) -> Identity:
        section = self._config.identity
        files = KeyFile(self._boot.place(section.key_file))
        return Identity(files, server=self._config.server.url, enroll_token=self._boot.enroll_token)

    def _open_transport(self) -> Transport:
        try:
            target = self._target(self._config.server.url)
        except ValueError as error:
            raise ConfigError(str(error)) from None
        return Transport(
            target,
            aim=self._target,
            token=self._boot.token,
            identity=self._identity,
            machine_id=self._machine_id,
            namespace=self._config.server.namespace,
        )

    def _parts(self, keeper: KeeperClient) -> Parts:
        default = self._config.runtime.default_runner
        return Parts(
            runners=Runners(keeper, self._root, self._importing(), default=default),
            execs=Execs(keeper, self._transport, self._directory / "execs", self._environ, payloads=self._payloads),
            setups=Setups(keeper, self._root, self._environ),
            relay=Relay(self._transport, keeper, self._root),
        )

    def _importing(self) -> dict[str, str]:
        """The environment of jobs, with the directories that the configuration names for their modules."""
        places = [str(self._boot.place(written)) for written in self._config.runtime.python_path]
        for place in places:
            if not os.path.isdir(place):
                log.warning("runtime.python_path — there is no directory %s: nothing is imported from it", place)
        whole = [*places, *filter(None, self._environ.get("PYTHONPATH", "").split(os.pathsep))]
        return {**self._environ, **({"PYTHONPATH": os.pathsep.join(whole)} if places else {})}

    # ---- life

    async def _served(self, write: Any) -> instructions.Exit | instructions.Restart:
        settings = self._settings()
        recorder = None if write is None else Recorder(settings, write)
        shell = Shell(Core(settings) if recorder is None else recorder.core, recorder)
        pending = Pending(self._nursery)
        leftovers = Leftovers(self._root, self._directory)
        pending.start(trio.to_thread.run_sync, leftovers.prune)
        jobs = Jobs(
            shell.tell,
            self._nursery,
            self._line,
            pending,
            root=self._root,
            payloads=self._payloads,
            code=Code(self._transport, self._environ),
            leftovers=leftovers,
            may_begin=shell.may_begin,
            flags=("--allow-pickled",) if self._config.runtime.allow_pickled else (),
        )
        contact = Contact(
            shell.tell,
            self._nursery,
            self._transport,
            hello_body=self._hello,
            session=settings.session,
            worker_id=settings.worker_id,
            identity=self._identity,
            named=self._local.write,
            vouched=jobs.vouched,
        )
        commands = Commands(shell.tell, self._nursery, self._line, pending)
        updates = Updates(shell.tell, self._nursery, self._transport, self._program, self._ids.new)
        shell.perform_with(
            {
                instructions.SendHello: contact.hello,
                instructions.Poll: contact.poll,
                instructions.GiveUpPoll: contact.give_up,
                instructions.SendAcks: contact.acks,
                instructions.SendResult: contact.result,
                instructions.RotateKey: contact.rotate,
                instructions.StartJob: jobs.start,
                instructions.StopJob: jobs.stop,
                instructions.ReleaseJob: jobs.release,
                instructions.SendFrames: jobs.send_frames,
                instructions.RunExec: commands.run_exec,
                instructions.StopExec: commands.stop_exec,
                instructions.ReleaseExec: commands.release_exec,
                instructions.RunSetup: commands.run_setup,
                instructions.StopSetup: commands.stop_setup,
                instructions.ReleaseSetup: commands.release_setup,
                instructions.InstallUpdate: updates.install,
                instructions.DetectHost: self._detect_again,
            }
        )
        self._local.write()
        await self._nursery.start(introspect.serve, self._config.introspect, shell.core.status, self._ring)
        await commands.find_left()
        adopted = await jobs.found(self._line.keeper.found)
        log.info("daemon %s, queue %s, server %s", settings.worker_id, settings.queue, self._transport.target.url)
        self._shell = shell
        if self._identity is None:
            self._nursery.start_soon(_remind_of_signatures)
        self._nursery.start_soon(commands.tell_left, contact)
        self._nursery.start_soon(self._prove, contact)
        try:
            last = await shell.run(events.Booted(adopted=adopted), then=jobs.adopt)
            with trio.move_on_after(FAREWELL_S):
                await pending.done()
            return last
        finally:
            self._transport.close()

    async def _prove(self, contact: Contact) -> None:
        """A new program is up when the server has taken it and it goes on for a moment."""
        await contact.greeted.wait()
        await trio.sleep(PROVED_S)
        self._trial.is_up()

    def _settings(self) -> Settings:
        runtime, poll = self._config.runtime, self._config.poll
        return Settings(
            worker_id=self._boot.provisional_id(self._facts.hostname, self._ids.new),
            session=self._ids.new(),
            version=__version__,
            queue=self._boot.queue,
            max_invocations=runtime.max_invocations,
            wait_max_s=poll.wait_max_s,
            retry_min_s=poll.retry_min_s,
            retry_max_s=poll.retry_max_s,
            grace_s=self._config.shutdown.grace_s,
            keep_alive_s=runtime.keep_alive_s,
            auto_update=runtime.auto_update,
            auto_update_check_interval_s=runtime.auto_update_check_interval_s,
            has_identity=self._identity is not None,
            may_reenroll=self._identity is not None and self._identity.may_reenroll,
        )

    def _target(self, url: str) -> Target:
        """A server, by the proxy that the environment names."""
        target = through_proxy(parse_target(url), self._environ)
        return replace(target, verify=self._config.server.tls_verify)

    def _hello(self) -> Mapping[str, Any]:
        return hello_body(self._config, self._facts, machine_id=self._machine_id, workdir=str(self._root))

    def _detect_again(self, _one: instructions.DetectHost) -> None:
        self._nursery.start_soon(self._detected_again)

    async def _detected_again(self) -> None:
        self._facts = await detect(environ=self._environ)
        assert self._shell is not None, "it lives"
        found = capabilities(self._config, self._facts, workdir=str(self._root))
        self._shell.tell(events.HostDetected(capabilities=found))

    @contextlib.contextmanager
    def _recorded(self) -> Iterator[Any]:
        """Where the run is written down; None when it is not."""
        if self._record is None:
            yield None
            return
        try:
            file = self._record.open("w", encoding="utf-8", buffering=1)
        except OSError as error:
            raise CannotStart(f"--record {self._record}: {error.strerror or error}") from error
        with file:
            yield file.write


async def _remind_of_signatures() -> None:
    while True:
        log.info("requests are not signed: [identity] enabled = true gives this daemon a key of its own")
        await trio.sleep(HOUR_S)
