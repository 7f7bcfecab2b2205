"""A controller's life: from its journal to the last job that leaves."""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from ssl import Purpose, SSLContext, create_default_context
from threading import Event as Flag
from threading import Thread
from time import monotonic, sleep
from urllib.parse import urlsplit

import uvicorn
from starlette.types import ASGIApp

from hocket.control.journal import JournalError
from hocket.control.ports import Cycle, MakeExecutor
from hocket.model.past_job import PastJob
from hocket.policies.registry import BoundPolicy
from hocket.service.app import make_app
from hocket.service.bundle_store import BundleStore
from hocket.service.compaction import EVERYTHING, Keep
from hocket.service.connections import Limits, guarded, raised_file_limit
from hocket.service.cycle_traces import trace_cycles
from hocket.service.engine import Engine
from hocket.service.history_process import HistoryProcess
from hocket.service.history_worker import HistorySource
from hocket.service.home import Home
from hocket.service.host_names import HostNames, host_of
from hocket.service.listening import LOOPBACK, Listening, Tls, called_at
from hocket.service.local_agent import LocalAgent
from hocket.service.metrics import PATH as METRICS
from hocket.service.metrics import Metrics, metrics_app
from hocket.service.notifier import Notifier
from hocket.service.policy_switch import PolicySwitch, SwitchOptions
from hocket.service.ray_nodes import RayNodes
from hocket.service.retention import Retention
from hocket.service.secret_store import KeyFile
from hocket.service.standby import StandbyOptions, token_digest, when_free
from hocket.service.whatif_runs import WhatIfRuns

_log = logging.getLogger("hocket.service")
_AGENT_S = 15.0  # for the agent to say hello
_RAY_S = 60.0  # for the first agent on Ray to do so
_MARGIN_S = 5.0  # beyond the grace of jobs that are stopped, for reports to come
_LOOK_S = 0.05  # between looks whether they have left
_SCRAPERS = 64  # connections to the port of metrics
_THREADS = 200  # for calls that wait for a cycle, or for an agent's answer


class Up:
    """Runs until it is told to go down."""

    def __init__(
        self,
        home: Home,
        policy: BoundPolicy | None,
        store: str,
        executor: MakeExecutor,
        *,
        listen: str = LOOPBACK,
        port: int | None = None,
        tls: Tls | None = None,
        insecure: bool = False,
        host_names: Iterable[str] = (),
        advertise: str = "",
        standby: StandbyOptions | None = None,
        when_lost: Callable[[], object] = lambda: None,
        agent_options: list[str] | None = None,
        ray: RayNodes | None = None,
        protect_s: float = 0.0,
        notify: tuple[str, ...] = (),
        notify_commands: bool = False,
        new_journal: bool = False,
        keep: Keep = EVERYTHING,
        history: Sequence[PastJob] = (),
        metrics_listen: tuple[str, int] | None = None,
        switch_to: SwitchOptions | None = None,
    ) -> None:
        """Take the journal and a port; without options for an agent, none is started here. `ray` is connected already.

        `insecure`: without `tls` it may listen to other machines all the same. `host_names` are names of this machine
        by which requests may call it.
        Other machines call this controller at `advertise`, or where it listens. With `standby`, it waits for a journal
        that another controller has. When another one has taken the journal over, `when_lost` is called.
        Notifications of all jobs go to `notify`; with `notify_commands`, clients on other machines may name commands
        too. With `new_journal`, a journal that this home had and that is missing or empty is begun anew. `keep` says
        which cycles stay in the journal, `history` are past jobs to begin with. Metrics are also served at
        `metrics_listen`, an address and a port, without a token. With `switch_to`, a learned policy decides as soon as
        it is at least as good as MLF-H.
        Raises JournalError.
        """
        home.make()
        self.home = home
        secrets_key = KeyFile(home.secrets_key, home.write)
        take = partial(_engine, home, policy, store, executor, new_journal, history)
        if standby is None:
            self.engine = take()
            self._listening = Listening(listen, port, home.last_port(), tls, insecure)
        else:  # Its address is known before it leads.
            secrets_key.make()  # so that it can be copied to the homes of the others
            self._listening = Listening(listen, port, home.last_port(), tls, insecure)
            self.engine = when_free(home, store, called_at(self._listening.url, advertise), standby, take)
        self._metrics_listening = metrics_listening(metrics_listen, tls, insecure)
        home.sweep()  # No other process writes there: we hold the journal.
        self._listening.begin()
        self.url = self._listening.url
        self.engine.journal.others.advertise(called_at(self.url, advertise), token_digest(home))
        self._when_lost = when_lost
        home.trust(None if tls is None else tls.ca or tls.cert)
        files_before, files = raised_file_limit()
        self._agent = None
        if agent_options is not None:
            lock = self.engine.journal.lock_file
            self._agent = LocalAgent(home, self.url, agent_options, lock, files_before)
        self._ray, self._called_at = ray, called_at(self.url, advertise)
        self._leaving = Flag()
        self._grace_s = 30.0
        self._ready = Flag()
        advertised = urlsplit(called_at(self.url, advertise)).hostname or ""
        names = [*host_names, host_of(listen), advertised, *(tls.names() if tls is not None else ())]
        hosts, metrics = HostNames(names), Metrics(self.engine)
        self._end_traces = trace_cycles(self.engine, os.environ)
        source = HistorySource(store, keep.archive, str(home.history))
        self._history = HistoryProcess(source, lambda: self.engine.cycles)
        self._whatif = WhatIfRuns(store, keep.archive)
        app = make_app(
            self.engine, home.token, self.leave, protect_s,
            notify_commands=notify_commands, local_commands=self._listening.is_local,
            is_ready=self._ready.is_set, hosts=hosts,
            secrets_key=secrets_key, metrics=metrics, history=self._history,
            whatif=self._whatif, bundles=BundleStore(home.bundles), grows=ray is not None and ray.grows,
        )  # fmt: skip
        self._notifier = Notifier(home, self.engine.catalogue, notify)
        self.engine.on_cycle.append(self._notifier.add_cycle)
        self._retention = Retention(store, self.engine.journal, keep, self.engine.now_s)
        self._switch = None
        if switch_to is not None:
            self._switch = PolicySwitch(self.engine, store, keep.archive, switch_to)
        self._is_marked = home.had_journal(self.engine.journal.name)
        self.engine.on_cycle.append(self._mark_journal)
        context = None if tls is None else _context(tls)
        self._server = _server(app, Limits(total=max(64, files * 4 // 5)), context)
        self._metrics_server = _server(metrics_app(metrics, hosts), Limits(total=_SCRAPERS), context)

    def _mark_journal(self, _number: int, _cycle: Cycle) -> None:
        """Note in the home that the journal has cycles, so that it is noticed if it is missing later."""
        if not self._is_marked:
            self._is_marked = True
            with suppress(OSError):  # On a full disk: a journal that is lost later is not noticed then.
                self.home.write(self.home.journal_mark, self.engine.journal.name)

    def leave(self, grace_s: float) -> None:
        """Stop all jobs and end."""
        self._grace_s = grace_s
        self._leaving.set()

    def run(self) -> int:
        """Serve until it is over; the exit code."""
        import anyio
        import anyio.to_thread

        signal.signal(signal.SIGTERM, lambda *_: self._leaving.set())
        signal.signal(signal.SIGINT, lambda *_: self._leaving.set())
        policy = self.engine.policy.policy.name
        message = "the controller starts: process %d, home '%s', at %s, policy '%s'"
        _log.info(message, os.getpid(), self.home.path, self.url, policy, extra={"url": self.url, "policy": policy})
        self._notifier.start(self.engine.journal)
        self.engine.start()
        self._retention.start()
        self._history.start()
        if self._switch is not None:
            self._switch.start()

        async def serve() -> None:
            anyio.to_thread.current_default_thread_limiter().total_tokens = _THREADS
            async with anyio.create_task_group() as servers:
                if (listening := self._metrics_listening) is not None:
                    servers.start_soon(partial(self._metrics_server._serve, sockets=[listening.socket]))
                await self._server._serve(sockets=[self._listening.socket])
                self._metrics_server.should_exit = True

        thread = Thread(target=lambda: anyio.run(serve), name="http", daemon=True)
        thread.start()
        if self._agent is not None:
            self._agent.start()
            self._await_agent(_AGENT_S, "the agent of this machine")
        self._ready.set()
        if self._ray is not None:  # It calls us for tokens, so we must be ready; clients find us once it has nodes.
            self._ray.start(self._called_at, self._listening.is_local)
            self._await_agent(_RAY_S, "an agent on Ray")
        self.home.write(self.home.url_file, self.url)
        journal = self.engine.journal
        while not self._leaving.wait(0.5):
            self.home.tell_controllers(journal.others.urls())
            if self._ray is not None and self._ray.grows:
                self._ray.look(self.engine.snapshot, self.engine.executor.sessions.nodes_with_files())
            if journal.lost or self.engine.over.is_set() or not thread.is_alive():
                _log.error("the controller ends: %s", journal.lost or self.engine.trouble or "its HTTP server failed")
                if journal.lost:
                    self._when_lost()
                os._exit(1)  # The jobs and the agent stay; the next controller takes them over.
        _log.info("going down: the jobs are stopped, with a grace of %g s", self._grace_s)
        self._notifier.leave()
        jobs_left = self.engine.executor.stop_all(self._grace_s)
        if self._agent is not None:
            self._agent.stop(self._grace_s)
        until_s = monotonic() + self._grace_s + _MARGIN_S
        while (left := jobs_left()) and monotonic() < until_s:
            sleep(_LOOK_S)
        if left:
            _log.warning("%d jobs may run on elsewhere: %s", len(left), ", ".join(left[:5]))
        if self._ray is not None:
            self._ray.stop()
        self._server.should_exit = True
        self._retention.close()
        self._history.close()
        self._whatif.close()
        if self._switch is not None:
            self._switch.close()
        self.engine.close()
        if self._end_traces is not None:
            self._end_traces()
        self._notifier.close()
        thread.join(timeout=5)
        self._listening.close()
        if self._metrics_listening is not None:
            self._metrics_listening.close()
        _log.info("the controller has ended")
        sys.stdout.flush()
        return 0

    def _await_agent(self, within_s: float, which: str) -> None:
        """Wait for the first agent: a user that finds the controller finds its devices too."""
        until = monotonic() + within_s
        while not self.engine.sessions.addresses() and monotonic() < until and not self._leaving.wait(0.01):
            pass
        if not self.engine.sessions.addresses() and not self._leaving.is_set():
            _log.warning("%s has not connected within %g s; see '%s'", which, within_s, self.home.log)


def _engine(
    home: Home,
    policy: BoundPolicy | None,
    store: str,
    executor: MakeExecutor,
    new_journal: bool,
    history: Sequence[PastJob],
) -> Engine:
    """The controller on its journal; not on an empty one in place of one that had jobs."""
    is_file = "://" not in store
    if is_file and not (os.path.exists(store) and os.path.getsize(store)):  # No file is made before it is refused.
        _refuse_empty(home, store, new_journal)
    gc.disable()  # All that a restore makes stays: looking for garbage in it would take as long as making it.
    try:
        engine = Engine(store, executor, policy, catalogue=home.catalogue, history=history)
    finally:
        gc.enable()
    gc.freeze()
    if not len(engine.journal):
        try:
            _refuse_empty(home, engine.journal.name, new_journal)
        except JournalError:
            engine.close()
            raise
    return engine


def metrics_listening(at: tuple[str, int] | None, tls: Tls | None, insecure: bool) -> Listening | None:
    """Where metrics are served without a token; None if nowhere. Raises OSError and ValueError."""
    if at is None:
        return None
    address, port = at
    found = Listening(address, port, 0, tls, insecure, option="--metrics-listen", carries="names of owners and nodes")
    found.begin()
    _log.info("metrics are at %s%s", found.url, METRICS, extra={"url": found.url})
    return found


def _server(app: ASGIApp, limits: Limits, tls: SSLContext | None) -> uvicorn.Server:
    # Without a set-up of its own, what it logs comes out as all else does.
    config = uvicorn.Config(
        app,
        http=guarded(limits, tls),
        log_config=None,
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=2,
        lifespan="off",
        proxy_headers=False,
        server_header=False,
    )
    return uvicorn.Server(config)


def _refuse_empty(home: Home, journal: str, new_journal: bool) -> None:
    if home.had_journal(journal) and not new_journal:
        raise JournalError(
            f"home '{home.path}' had a journal '{journal}', which is missing or empty: restore it, or begin anew, "
            "without the jobs that were in it, by `hocket up --new-journal`"
        )


def _context(tls: Tls) -> SSLContext:
    """Read the certificates, first of all: an error in them stops the start."""
    context = create_default_context(Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(tls.cert, tls.key)
        return context
    except OSError as error:
        raise OSError(f"certificate '{tls.cert}' and key '{tls.key}' cannot be used: {error}") from error
