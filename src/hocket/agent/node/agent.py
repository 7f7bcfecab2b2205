"""The agent of one machine: `hocket agent --url URL --token-file FILE --state DIR`.

It runs what the controller orders and reports what happens. Its jobs do not depend on it: killed in any way and started
again on the same folder, it finds them and goes on; while the controller is away, they run on.

SIGTERM ends the agent and leaves the jobs, unless `--stop-jobs` was said; SIGINT asks the jobs to save and to leave,
and the agent waits for them. Either one a second time kills them.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import socket
import sys
import threading
import time
from contextlib import suppress
from functools import partial
from itertools import count
from typing import NoReturn

from hocket.agent.log_setup import LEVEL_VARIABLE, LEVELS, set_up_logging
from hocket.agent.node.containment import Containment, Wanted
from hocket.agent.node.controller_link import Away, CallRefused, Credentials, Link, Session
from hocket.agent.node.controllers import Controllers
from hocket.agent.node.devices import VISIBLE, Declared, discover
from hocket.agent.node.gpus import GpuUsage
from hocket.agent.node.job_code import JobCode
from hocket.agent.node.lease import Heartbeat, Lease
from hocket.agent.node.loops import OrderLoop, ReportLoop, repeat_in_thread
from hocket.agent.node.poller import Poller
from hocket.agent.node.runs import Runs
from hocket.agent.node.state_folder import StateFolder, safe_name, share_checkpoints
from hocket.agent.phase_token_rules import FLOOR_S
from hocket.agent.protocol import Hello
from hocket.agent.run_folder import InUse
from hocket.model.resources import MAX_GPUS

_log = logging.getLogger("hocket.agent")
FAILED = 2  # exit code
_LAST_WORDS_S = 5.0  # for reports to be heard when the jobs are stopped; a later agent would say them too


class NodeAgent:
    """The main thread: it waits, for sidecars and signals, and ends the agent."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._stop_jobs: bool = options.stop_jobs
        self._poller = Poller()
        self._signals = _signal_pipe()
        self._poller.readable(self._signals, self._take_signals)
        self._failure = ""
        self._leaves = self._stops = False
        folder = os.path.join(options.state, safe_name(options.name)) if options.state_by_node else options.state
        if options.checkpoints:
            share_checkpoints(folder, options.checkpoints)
        state = StateFolder(folder)
        controllers = Controllers(options.url, state.controllers, options.ca)
        credentials = Credentials(options.token_file, options.ca)
        links = [Link(controllers, credentials) for _ in range(4)]
        declared = Declared(options.gpus, options.gpu_kind, options.cores, options.mem_mib)
        devices = discover(options.name, declared, os.environ.get(VISIBLE))
        node = devices.node
        contained = Containment(Wanted(options.containment), state.identity, node.cores, options.hard_cpus)
        state.keep_containment(contained.text)
        code = JobCode(state, partial(_read_bundle, links[3], threading.Lock()))
        self._runs = Runs(state, self._poller, devices.shown, contained, options.phase_limit, code)
        self._containment = contained
        said = "starts: process %d, node '%s' with %d GPUs, %g cores, %g MiB, state folder '%s', controller %s"
        _log.info(said, os.getpid(), node.id, node.gpus, node.cores, node.mem_mib, state.path, options.url)
        _log.log(logging.INFO if contained.limits_all else logging.WARNING, "%s", contained.text)
        self._runs.find()

        numbers = count(1)

        def hello(link: Link) -> Hello:
            address = options.address or link.own_address()
            runs, seen = self._runs.present(), self._runs.last_numbers()
            folder, jobs = (state.identity, state.path), tuple(sorted(seen))
            which = state.starts, next(numbers)
            return Hello(devices.node, address, runs, jobs, *folder, seen, contained.kind, *which)

        session, lease = Session(hello), Lease(state.lease)
        self._orders = OrderLoop(links[0], session, self._runs, state, lease)
        self._reports = ReportLoop(links[1], session, self._runs, GpuUsage(state))
        self._heartbeat = Heartbeat(links[2], session, lease, controllers, options.controller_lock)

    def run(self) -> int:
        """Until a signal comes, or the controller refuses us; the exit code."""
        try:
            return self._run()
        finally:
            self._runs.close()
            self._containment.close()

    def _run(self) -> int:
        repeat_in_thread(self._take_orders, self._fail)
        repeat_in_thread(self._reports.say, self._fail)
        repeat_in_thread(self._heartbeat.beat, self._fail)
        last_s: float | None = None  # until when to wait for reports to be heard
        while not self._failure:
            next_s = self._runs.tick()
            if self._leaves:
                _log.info("leaves; its jobs run on")
                return 0
            if self._stops and self._runs.are_gone:
                last_s = last_s if last_s is not None else time.monotonic() + _LAST_WORDS_S
                if self._runs.outbox_is_empty or time.monotonic() > last_s:
                    _log.info("leaves; its jobs have ended")
                    return 0
                next_s = 0.02
            self._poller.wait(next_s)
        _log.error("%s", self._failure)
        return FAILED

    def _take_orders(self) -> None:
        if self._stops:  # Whatever the controller wants to run here will be elsewhere.
            time.sleep(3600)
        self._orders.take()

    def _fail(self, why: str) -> None:
        self._failure = why
        self._poller.ring()

    def _take_signals(self) -> None:
        for number in os.read(self._signals, 4096):
            if number == signal.SIGTERM and not self._stop_jobs and not self._stops:
                self._leaves = True
            elif self._stops:
                _log.warning("told to leave once more: all jobs are killed")
                self._runs.kill_all()
            else:
                _log.info("told to leave: all jobs are asked to save and leave")
                self._stops = True
                self._runs.stop_all()


def _read_bundle(link: Link, lock: threading.Lock, digest: str, offset: int) -> bytes:
    with lock:
        return link.call("GET", f"/v1/bundles/{digest}/{offset}")


def _signal_pipe() -> int:
    """Signals become bytes that can be waited for like everything else."""
    read_end, write_end = os.pipe()
    os.set_blocking(read_end, False)
    os.set_blocking(write_end, False)
    signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    # The process that started us may have blocked them.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM, signal.SIGINT})
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    return read_end


def _count(text: str) -> int:
    if not text.isdecimal() or len(text) > 9 or int(text) > MAX_GPUS:
        raise argparse.ArgumentTypeError(f"must be a count from 0 to {MAX_GPUS}, not '{text}'")
    return int(text)


def _amount(text: str) -> float:
    try:
        amount = float(text)
    except ValueError:
        amount = 0.0
    if not 0 < amount < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a number above 0, not '{text}'")
    return amount


def _level(text: str) -> str:
    if text.lower() not in LEVELS:
        raise argparse.ArgumentTypeError(f"must be one of {', '.join(LEVELS)}, not '{text}'")
    return text.lower()


def _options(arguments: list[str] | None, called: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=called, description="The agent of one machine.")
    parser.add_argument("--url", required=True, help="of the controller: http://HOST:PORT, https://… or unix:///PATH")
    parser.add_argument("--token-file", required=True, metavar="FILE")
    parser.add_argument("--ca", default="", metavar="FILE", help="trust these certificates; default: the system's")
    parser.add_argument("--state", required=True, metavar="DIR", help="run folders, checkpoints, logs")
    by_node = "a folder of that name in --state is the state folder: for a line that starts agents on several nodes"
    parser.add_argument("--state-by-node", action="store_true", help=by_node)
    parser.add_argument(
        "--checkpoints", default="", metavar="DIR", help="a folder that all nodes share, for checkpoints"
    )
    name = os.environ.get("SLURMD_NODENAME") or socket.gethostname()  # Nodes of Slurm may have other names.
    parser.add_argument("--name", default=name, help="of this node; default: Slurm's name for it, or the host's")
    parser.add_argument("--address", default="", help="where other nodes reach this one")
    parser.add_argument("--gpus", type=_count, help="the first so many; virtual ones if there are fewer")
    parser.add_argument("--gpu-kind", metavar="KIND", help="default: as the driver calls it")
    parser.add_argument("--cores", type=_amount, help="default: all that this process may use")
    parser.add_argument("--mem-mib", type=_amount, help="default: all that this process may use")
    contained = (
        "cgroup: a cgroup with limits for each job, or do not start; default: auto, a cgroup where it can be made"
    )
    parser.add_argument("--containment", choices=[str(each) for each in Wanted], default="auto", help=contained)
    hard = "a job gets no more CPU time than the cores that it asked for, even if others are idle"
    parser.add_argument("--hard-cpus", action="store_true", help=hard)
    phase = "seconds after which a job that holds a phase token may lose it, if its phases were shorter; default: 30"
    parser.add_argument("--phase-limit", type=_amount, default=FLOOR_S, metavar="SECONDS", help=phase)
    parser.add_argument("--stop-jobs", action="store_true", help="SIGTERM stops the jobs as SIGINT does")
    level = os.environ.get(LEVEL_VARIABLE) or "info"
    levels = f"log from this level on: {', '.join(LEVELS)}; default: {LEVEL_VARIABLE}, or info"
    parser.add_argument("--log-level", type=_level, default=level, metavar="LEVEL", help=levels)
    parser.add_argument("--log-json", action="store_true", help="log one JSON object a line")
    # For `hocket up`, which starts us with this file as stderr: it is rotated. While no process has the lock on its
    # journal, there is no controller that could start our runs elsewhere.
    parser.add_argument("--log-file", metavar="FILE", help=argparse.SUPPRESS)
    parser.add_argument("--controller-lock", default="", metavar="FILE", help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def main(arguments: list[str] | None, called: str) -> int:
    """Run the agent; 0 when it was told to leave, 2 when it cannot go on."""
    options = _options(arguments, called)
    set_up_logging(options.log_level, options.log_json, options.log_file, node=options.name)
    try:
        agent = NodeAgent(options)
    except (InUse, CallRefused, Away, OSError, ValueError) as error:
        _log.error("%s", error)
        return FAILED
    return agent.run()


def run(arguments: list[str] | None = None, called: str = "python -m hocket.agent.node") -> NoReturn:
    """Run the agent; the process ends with it."""
    code = main(arguments, called)
    with suppress(AttributeError, OSError, ValueError):  # None, full or closed
        sys.stderr.flush()
    os._exit(code)  # A thread may stand in a call for orders, and Python would wait for nothing of it but its lock.
