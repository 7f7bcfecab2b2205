"""A model of a sidecar and of its job's process: what `hocket.agent.sidecar` does, without real processes.

Of the product it runs the run folder (lock, pipe, spec), the writer of facts, the watch over the lease and the file
with the attempt's number. Modelled after `attempt.py` are the order of events, the grace of a stop, and the facts that
are written; a job here counts units, tells of each, and saves now and then.
"""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

from tests.faultsim.kernel import Process

from hocket.agent import run_folder
from hocket.agent.run_folder import InUse
from hocket.agent.sidecar import events_writer, lease_watch, spec
from hocket.agent.sidecar.attempt_file import AttemptFile

if TYPE_CHECKING:
    from tests.faultsim.cluster import Cluster
    from tests.faultsim.scenario import JobPlan

_NUMBER_S = 2.0  # between looks whether a later attempt has the checkpoints; as in attempt.py
_SAID_EVERY_S = 3.0  # between reports of a save


class JobProcess:
    """The process of a job, or of its part on a node."""

    def __init__(self, sidecar: SidecarModel, plan: JobPlan, attempt: int, folder: str) -> None:
        self.sidecar, self.plan, self.attempt, self.folder = sidecar, plan, attempt, folder
        self.cluster = sidecar.cluster
        self.done = 0
        self.saved: int | None = None
        self.exit_code: int | None = None
        self._asked = False
        kernel = self.cluster.kernel
        name = f"{plan.job.id}#{attempt} on {sidecar.node}"
        self.process = kernel.process(sidecar.process.machine, name, self._run, sidecar.process)
        self.process.mark = sidecar.spec.mark
        self.process.dies_with_parent = True
        self.process.on_signal = self._signalled
        self.process.on_change = lambda: self.cluster.checks.job_process_changed(self)
        self.process.on_end.append(self._ended)
        self.cluster.checks.job_process_began(self)

    def _signalled(self, number: int) -> None:
        if number == signal.SIGUSR2:  # Save, and go on.
            self.saved = -1
        else:
            self._asked = self.plan.obeys
        for thread in self.process.threads:
            self.cluster.kernel.wake(thread)

    def _run(self) -> None:
        kernel, plan, system = self.cluster.kernel, self.plan, self.cluster.system
        path = f"{self.folder}/saved"
        try:
            with system.open(path) as file:
                self.done = int(file.read() or 0)
        except (OSError, ValueError):
            pass
        while self.done < plan.units:
            until_s = kernel.now_s + plan.unit_s
            while kernel.now_s < until_s and not self._asked:
                if self.saved == -1:
                    self._save(path)
                kernel.park(until_s)
            if self._asked:
                self._save(path)
                break
            self.done += 1
            if plan.crashes_at == self.done and self.cluster.checks.may_crash(plan):
                self.cluster.checks.job_crashed(self)
                self.exit_code = 1
                return
            self.sidecar.hear_progress(self.done)
            if self.done % plan.saves_every == 0:
                self._save(path)
        self.exit_code = 0

    def _save(self, path: str) -> None:
        system = self.cluster.system
        try:
            with system.open(f"{path}.{self.attempt}.part", "w") as file:
                file.write(str(self.done))
            system.os.replace(f"{path}.{self.attempt}.part", path)
        except OSError:  # The disk is full: it goes on without.
            self.saved = None
            return
        self.saved = self.done
        self.sidecar.hear_save()

    def _ended(self) -> None:
        self.cluster.checks.job_process_ended(self)
        self.sidecar.ring()


class SidecarModel:
    """A sidecar, for one run folder."""

    def __init__(self, cluster: Cluster, folder: str, agent: Process) -> None:
        self.cluster, self.folder = cluster, folder
        self.node = agent.machine.name
        self.job = ""
        self._rung = False
        self.process = cluster.kernel.process(agent.machine, f"sidecar of {folder} on {self.node}", self._main)

    def _main(self) -> None:
        kernel = self.cluster.kernel
        kernel.sleep(self.cluster.rng.uniform(0.02, 0.5))  # until it is up
        try:
            run_folder.lock(self.folder)
            self.events = events_writer.Events(f"{self.folder}/{run_folder.EVENTS}")
        except (InUse, OSError):
            return
        if any(e["event"] in ("exited", "cannot-start") for e in self.events.before):
            return
        try:
            self.spec = spec.read_spec(f"{self.folder}/{run_folder.SPEC}")
        except spec.BadSpec as error:
            self.events.add("cannot-start", reason=str(error))
            return
        self.job = self.spec.job
        if any(e["event"] != run_folder.LET_GO for e in self.events.before):
            self.cluster.kill_marked(self.process.machine, self.spec.mark)
            self.events.add("warning", about="an earlier sidecar of this attempt died; the attempt begins again")
        self._control = run_folder.Control(self.folder)
        self._listen()
        self._run()
        while not self.events.flush():
            kernel.sleep(1.0)
        self.events.sync()

    def _listen(self) -> None:
        opened = self.process.files[self._control.fd]
        opened.of.told = self.ring

    def ring(self) -> None:
        """Something came."""
        self._rung = True
        if self.process.is_alive:
            self.cluster.kernel.wake(self.process.threads[0])

    # -- as attempt.py ----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        kernel, plan = self.cluster.kernel, self.cluster.plan_of(self.spec.job)
        self._lease = lease_watch.LeaseWatch(self.spec.lease, self.spec.mark)
        self._number = AttemptFile(self.spec.attempt_file, self.spec.job, self.spec.attempt)
        self._plan = plan
        self._worker: JobProcess | None = None
        self._given = self._killed = self._is_over = self._lease_held = self._may_start = False
        self._asked_s: float | None = None
        self._kill_s: float | None = None
        self._number_s: float | None = None
        self._prepared_s: float | None = None
        self._start_s: float | None = None  # when to look whether it may start
        self._saved_s: float | None = None
        self._said_s = -1e9
        self._unsaid = False
        self._fenced_by = 0
        self._is_prepared = False
        self._progress: list[int] = []
        if self.spec.checkpoint_dir is not None:
            self.cluster.system.os.makedirs(self.spec.checkpoint_dir, exist_ok=True)
        if self.spec.warm:
            self._prepared_s = kernel.now_s + self.cluster.rng.uniform(0.1, 3.0)
        else:
            self._start()
        while not self._is_over:
            self._wait()
            self._take_orders()
            self._tick()

    def _wait(self) -> None:
        kernel = self.cluster.kernel
        times = [self._kill_s, self._prepared_s, self._start_s]
        if self._worker is not None:
            times += [self._lease_s(), self._number_s]
        if not self.events.flush():
            times.append(kernel.now_s + 1.0)
        until_s = min((t for t in times if t is not None), default=None)
        kernel.call()
        while not self._rung and kernel.park(until_s):
            pass
        self._rung = False

    def _take_orders(self) -> None:
        for order in self._control.orders():
            if self._is_over or not isinstance(order, dict):
                continue
            match order["do"]:
                case "start":
                    if not self._given and self.spec.warm:
                        self._given = True
                        if self._is_prepared:
                            self._start()
                case "checkpoint":
                    if self._worker is not None and self._kill_s is None and self.spec.checkpoint_signal:
                        self.cluster.deliver(self._worker.process, signal.SIGUSR2)
                        self.events.add("checkpoint-asked", then="go-on", signal=self.spec.checkpoint_signal)
                        self.cluster.checks.count("checkpoint-asked", self.spec.job, self.spec.attempt)
                case "stop":
                    self._stop(float(order.get("grace_s", self.spec.grace_s)))
                case "kill":
                    self._asked_s = self._asked_s if self._asked_s is not None else self.cluster.kernel.now_s
                    self._kill()

    def _tick(self) -> None:
        now_s, worker = self.cluster.kernel.now_s, self._worker
        if self._is_over:
            return
        if self._kill_s is not None and now_s >= self._kill_s:
            self._kill()
        elif self._start_s is not None and now_s >= self._start_s:
            self._may_start = self._lease_held
            self._start()
        elif self._prepared_s is not None and now_s >= self._prepared_s:
            self._prepared_s, self._is_prepared = None, True
            self.events.add("prepared", warm=True, reason=None, pids=[], took_s=1.0, mem_mib=0, left_from_line=None)
            if self._given:
                self._start()
        elif worker is not None:
            self._look_at_running(worker, now_s)

    def _look_at_running(self, worker: JobProcess, now_s: float) -> None:
        if self._number_s is not None and now_s >= self._number_s and self._is_stale():
            self._number_s = None
            self._kill()
            return
        lease_s = self._lease_s()
        if lease_s is not None and now_s >= lease_s:
            found = self._lease.look(self.process.machine.boot_s(), [worker.process.pid])
            if found is not None:
                self.events.add("frozen" if self._lease.is_frozen else "thawed", **found)
        self._tell_progress()
        if self._unsaid and now_s - self._said_s >= _SAID_EVERY_S:
            self._say_saved(now_s)
        if not worker.process.is_alive:
            self._finish(worker)

    def _lease_s(self) -> float | None:
        """When to look at the lease: the watch counts as the machine does."""
        if self._lease.next_s is None:
            return None
        return self._lease.next_s + self.process.machine.booted_s

    def _is_stale(self) -> bool:
        self._number_s = self.cluster.kernel.now_s + _NUMBER_S if self.spec.attempt_file is not None else None
        self._fenced_by = self._number.newer()
        return self._fenced_by > 0

    def _start(self) -> None:
        self._start_s = None
        if not self._may_start:
            self._lease_held = not self._lease.is_over
            self._start_s = self.cluster.kernel.now_s + (0.0 if self._lease_held else lease_watch.FROZEN_S)
            return
        if self._is_stale():
            self._finish(None)
            return
        assert self.spec.checkpoint_dir is not None
        self._worker = JobProcess(self, self._plan, self.spec.attempt, self.spec.checkpoint_dir)
        self._lease.begin(self.process.machine.boot_s())
        self.events.add("started", pids=[self._worker.process.pid], warm=self.spec.warm, resumed=self.spec.resumes())

    def hear_progress(self, done: int) -> None:
        """The job tells that it has done a unit."""
        if self.process.is_alive:
            self._progress.append(done)
            self.ring()

    def _tell_progress(self) -> None:
        for done in self._progress:
            self.cluster.checks.count("progress", self.spec.job, self.spec.attempt)
            self.events.add("progress", epoch=done, metrics={"loss": 1.0 / done})
        self._progress.clear()

    def hear_save(self) -> None:
        """The job has saved its state."""
        self._saved_s, self._unsaid = self.cluster.kernel.now_s, True
        self.ring()

    def _say_saved(self, now_s: float) -> None:
        self._unsaid, self._said_s = False, now_s
        self.cluster.checks.count("saved", self.spec.job, self.spec.attempt)
        self.events.add("saved")

    def _stop(self, grace_s: float) -> None:
        now_s = self.cluster.kernel.now_s
        if self._asked_s is None:
            self._asked_s = now_s
        if self._worker is None:
            self._finish(None)
        elif self._kill_s is None:
            self._kill_s = now_s + grace_s
            self.cluster.deliver(self._worker.process, signal.SIGTERM)
            self.events.add("checkpoint-asked", then="stop", signal="SIGTERM", grace_s=grace_s)
            self.cluster.checks.count("checkpoint-asked", self.spec.job, self.spec.attempt)
        else:
            self._kill_s = min(self._kill_s, now_s + grace_s)

    def _kill(self) -> None:
        if self._worker is None:
            self._finish(None)
            return
        self._killed = True
        self._kill_s = self.cluster.kernel.now_s + 1.0
        self._worker.process.end()
        self._finish(self._worker)

    def _finish(self, worker: JobProcess | None) -> None:
        now_s = self.cluster.kernel.now_s
        facts: dict[str, Any] = {"code": None, "signal": None, "worker": None}
        if worker is not None:
            facts = {"code": worker.exit_code, "signal": None, "worker": 0}
            if worker.exit_code is None:
                facts |= {"signal": "SIGKILL"}
            self._tell_progress()
            if self._unsaid:
                self._say_saved(now_s)
        after_s = None if self._asked_s is None else round(now_s - self._asked_s, 3)
        saved = self._asked_s is not None and self._saved_s is not None and self._saved_s >= self._asked_s
        self.events.add(
            "exited", **facts, asked=self._asked_s is not None, after_s=after_s, hung=False, killed=self._killed,
            fenced_by=self._fenced_by, saved_when_asked=saved, ran_s=0, cpu_s=0, peak_mib=0, first_epoch=None,
        )  # fmt: skip
        self._is_over = True


class Child:
    """A sidecar as its agent has it: what `subprocess.Popen` is."""

    def __init__(self, cluster: Cluster, sidecar: SidecarModel, agent: Process) -> None:
        self.pid = sidecar.process.pid
        self._cluster, self._agent = cluster, agent
        cluster.system.zombies[agent, self.pid] = sidecar.process

    def wait(self) -> None:
        """It has ended."""
        self._cluster.system.zombies.pop((self._agent, self.pid), None)
