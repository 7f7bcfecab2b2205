"""Carries out actions in this process: a packed partition is a `Pack`, its tenants are the models that it steps.

One thread does everything. `wait` trains: it steps until a model has come to the end of its stretch or has failed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import isfinite
from pathlib import Path
from typing import assert_never

import torch

from hocket.executors.inprocess.checkpoint_store import IN_MEMORY_BYTES, CheckpointStore, MemoryBudget
from hocket.executors.inprocess.model_factory import ModelFactory
from hocket.executors.inprocess.running import Running
from hocket.model.action import Action, Checkpoint, End, Move, Pause, Prepare, Resize, Resume, Start, Store
from hocket.model.event import (
    EpochEnded,
    Event,
    JobCheckpointed,
    JobEnded,
    JobFailed,
    JobMoved,
    JobPaused,
    JobPrepared,
    JobResized,
    JobStarted,
    StateStored,
)
from hocket.runtimes.packing.memory import limit_of
from hocket.runtimes.packing.pack import Pack
from hocket.runtimes.packing.training import NoRoom, Refused, Training, device_of

SAVING_APART = 20  # times as long as saving takes, between two savings at least
WAITING_SHARE = 8  # One part in so many of all memory is for models that wait: made and weighed, or between stretches.
BURST_S = 0.2  # how long a pack is stepped before the loop looks whether it is to be stopped


class InProcessExecutor:
    """Packs on one device. `now_s` is a clock that goes on where an earlier process stopped."""

    def __init__(
        self,
        factory: ModelFactory,
        now_s: Callable[[], float],
        *,
        device: str = "cpu",
        mode: str | None = None,
        exact: bool = False,
        memory_mib: float | None = None,
        checkpoints: Path | None = None,
        checkpoint_s: float = 60.0,
        stepped: Callable[[int], None] = lambda _steps: None,
    ) -> None:
        """`stepped` is told how many steps of models were made, after every step of a pack."""
        self.device = device_of(device)
        self._factory, self._clock, self._stepped = factory, now_s, stepped
        self._skipped_s = 0.0  # while nothing ran
        self._mode, self._exact, self._memory_mib = mode, exact, memory_mib
        self._checkpoint_s, self._save_at_s = checkpoint_s, now_s() + checkpoint_s
        self._packs: dict[str, Pack] = {}  # by partition
        self._running: dict[str, Running] = {}  # by job
        self._no_room: list[Start | Resume] = []  # until a model leaves
        self._ready: list[Event] = []
        limit = limit_of(self.device) if memory_mib is None else int(memory_mib * 2**20)
        share = min(limit_of(torch.device("cpu")), limit) // WAITING_SHARE
        if self.device.type == "cuda":  # Models that wait take of the memory that others train in.
            self._memory_mib = (limit - share) / 2**20
        else:
            share = max(share, IN_MEMORY_BYTES)
        self._waiting = MemoryBudget(share)
        self.checkpoints = CheckpointStore(checkpoints, self._waiting)
        self._scales = self._new_pack()  # It weighs all models, and is the first to train some: dry runs are made once.
        self._spare: Pack | None = self._scales
        self._built: dict[str, tuple[Training, int]] = {}  # of jobs that were weighed and have not started; bytes
        self._is_stopped = False

    def _new_pack(self) -> Pack:
        """Without good states of its models: of one that fails, no more than the reason is asked for."""
        return Pack(self.device, mode=self._mode, exact=self._exact, memory_mib=self._memory_mib, keep_every=None)

    # -- before anything is submitted -----------------------------------------------------------------------

    @property
    def memory_mib(self) -> float:
        """What the models of a pack may take together; 0 where nothing limits them."""
        limited = self.device.type == "cuda" or self._memory_mib is not None
        return self._scales.memory.limit / 2**20 if limited else 0.0

    def need_mib(self, job: str) -> float:
        """What a job's model will take beside its input, by a dry run; 0 where nothing limits it.

        A model that cannot be made is said to need nothing: it fails when it starts.
        """
        if not self.memory_mib:
            return 0.0
        try:
            training = self._factory.training(job)
            need = self._scales.predict(training)
        except Exception:
            return 0.0
        if job not in self._built and self._waiting.take(need.parameters):  # Others are made again when they start.
            self._built[job] = training, need.parameters
        return (need.stays + need.passes) / 2**20

    def now_s(self) -> float:
        """The clock that its events are told by: ahead of the one it was given by the time that it passed over."""
        return self._clock() + self._skipped_s

    def stop(self) -> None:
        """Let `wait` return None after the step that is being made, with all models saved."""
        self._is_stopped = True

    # -- the port -------------------------------------------------------------------------------------------

    def apply(self, actions: Iterable[Action]) -> None:
        """Begin to carry these out."""
        for action in actions:
            job, at_s = action.job, self.now_s()
            match action:
                case Start() | Resume():
                    self._start(action)
                case Pause(tier=tier):
                    self._save(self._running[job])
                    self._leave(self._running[job])
                    self._ready.append(JobPaused(at_s, job, action.task, tier))
                case End(verdict=verdict):
                    if job in self._running:
                        self._leave(self._running[job])
                    self._no_room = [a for a in self._no_room if a.job != job]
                    self._ready.append(JobEnded(at_s, job, verdict))
                case Checkpoint(tier=tier):
                    self._save(self._running[job])
                    self._ready.append(JobCheckpointed(at_s, job, tier))
                case Move(to=to):
                    self._move(self._running[job], to.partition)
                    self._ready.append(JobMoved(at_s, job, action.task))
                case Resize():
                    self._ready.append(JobResized(at_s, job, action.task))
                case Prepare():
                    self._ready.append(JobPrepared(at_s, job))
                case Store(tier=tier):
                    self._ready.append(StateStored(at_s, job, tier))
                case _:
                    assert_never(action)

    def wait(self, until_s: float | None) -> tuple[float, Sequence[Event]] | None:
        """Train until there is something to report."""
        while not self._ready:
            now_s = self.now_s()
            if self._is_stopped:
                return self._last_words(now_s)
            if not self._running:
                if until_s is None:
                    return None
                # Nothing can happen before then, so that time is passed over, and all that follows is later.
                self._skipped_s += max(0.0, until_s - now_s)
                return max(now_s, until_s), ()
            if until_s is not None and now_s >= until_s:
                return now_s, ()
            if now_s >= self._save_at_s:
                self._ready += self._saved_all()
            for pid in list(self._packs):
                self._train(pid)
        events, self._ready = self._ready, []
        return max(self.now_s(), events[-1].at_s), events

    def _last_words(self, now_s: float) -> tuple[float, Sequence[Event]] | None:
        events = self._saved_all()
        return (now_s, events) if events else None

    # -- starting -------------------------------------------------------------------------------------------

    def _start(self, action: Start | Resume) -> None:
        job, at_s = action.job, self.now_s()
        stretch = self._factory.stretch(job)
        pack = self._pack(action.to.partition)
        try:
            training = self._taken(job)
            member = pack.load(training, self.checkpoints.get(stretch.model))
        except NoRoom as error:
            if not pack.members:
                self._ready.append(JobFailed(at_s, job, str(error), final=True))
                return
            self._no_room.append(action)
            return
        except Exception as error:  # The user's code: whatever it raises ends this model, and no other.
            self._ready.append(JobFailed(at_s, job, _said(error), final=True))
            return
        self._running[job] = Running(job, stretch, action.to.partition, member)
        self._ready.append(JobStarted(at_s, job, action.task))

    def _taken(self, job: str) -> Training:
        """The job's model: the one that was weighed, if it was kept."""
        training, size = self._built.pop(job, (None, 0))
        self._waiting.give_back(size)
        return training or self._factory.training(job)

    def _pack(self, partition: str) -> Pack:
        """The partition's pack; one without models is used again, for it has the data on its device."""
        if partition not in self._packs:
            self._packs[partition], self._spare = self._spare or self._new_pack(), None
        return self._packs[partition]

    def _move(self, running: Running, partition: str) -> None:
        old = self._packs[running.partition]
        pack = self._pack(partition)
        pack.adopt(old.detach(running.member))
        running.partition = partition
        self._forget_empty(old)

    # -- training -------------------------------------------------------------------------------------------

    def _train(self, pid: str) -> None:
        """Steps of one pack, until one of its models has to be looked at or some time has passed."""
        pack = self._packs[pid]
        here = [r for r in self._running.values() if r.partition == pid]
        most = min((r.left for r in here), default=0)
        began_s, began = self.now_s(), pack.clock_s()
        made = 0
        while made < most and not self._is_stopped:
            pack.step()
            made += 1
            self._stepped(len(here))
            if len(pack.members) < len(here) or self.now_s() - began_s >= BURST_S:
                break
        self._measure(pack, here, made, began)
        for checkpoint in pack.take_freed():
            self._fail(next(r for r in here if r.member.name == checkpoint.name), checkpoint.reason)
        for running in here:
            if running.job in self._running and running.left <= 0:
                self._end(pack, running)

    def _measure(self, pack: Pack, here: list[Running], made: int, began: float) -> None:
        """By the clock that a step in turn was measured by."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        seconds = pack.clock_s() - began
        in_turn_s = pack.times_s().get("turn")
        for running in here:
            running.stepped(made, seconds, len(here) - 1, in_turn_s)

    def _end(self, pack: Pack, running: Running) -> None:
        """A stretch is over: the model is saved and judged, on its device, and leaves."""
        member = pack.detach(running.member)
        metrics = running.told()
        loss = float(member.loss) if member.loss is not None else 0.0
        if not isfinite(loss):
            self._fail(running, f"its loss was {loss} in step {member.step}")
            return
        if member.step > running.saved_step:
            self.checkpoints.put(member, "its stretch is over")
        try:
            member.module.eval()
            with torch.no_grad():
                metrics = {"loss": loss, **self._factory.metrics(running.job, member.module), **metrics}
        except Exception as error:
            self._fail(running, _said(error))
            return
        self._gone(running)
        at_s = self.now_s()
        self._ready.append(EpochEnded(at_s, running.job, running.stretch.epoch, metrics))
        self._ready.append(JobEnded(at_s, running.job))

    def _fail(self, running: Running, reason: str) -> None:
        self._gone(running)
        self._ready.append(JobFailed(self.now_s(), running.job, reason, final=True))

    def _leave(self, running: Running) -> None:
        self._packs[running.partition].detach(running.member)
        self._gone(running)

    def _gone(self, running: Running) -> None:
        """Its place is free: jobs that found no room are tried again, and a pack without models is no more."""
        del self._running[running.job]
        if running.partition in self._packs:  # Where all models fail in one step, the first of them takes it along.
            self._forget_empty(self._packs[running.partition])
        waiting, self._no_room = self._no_room, []
        for action in waiting:
            self._start(action)

    def _forget_empty(self, pack: Pack) -> None:
        if not pack.members and not any(self._packs.get(a.to.partition) is pack for a in self._no_room):
            self._packs = {pid: other for pid, other in self._packs.items() if other is not pack}
            self._spare = pack

    # -- saving ---------------------------------------------------------------------------------------------

    def _saved_all(self) -> list[Event]:
        """All models that went on since they were saved; the next time is so far off that saving takes little of it."""
        began_s = self.now_s()
        ahead = [r for r in self._running.values() if r.member.step > r.saved_step]
        for running in ahead:
            self._save(running)
        now_s = self.now_s()
        self._save_at_s = now_s + max(self._checkpoint_s, SAVING_APART * (now_s - began_s))
        return [JobCheckpointed(now_s, r.job) for r in ahead]

    def _save(self, running: Running) -> None:
        self.checkpoints.put(running.member, "saved")
        running.saved_step = running.member.step


def _said(error: Exception) -> str:
    lines = str(error).splitlines() or [""]
    return lines[0] if isinstance(error, Refused) else f"{type(error).__name__}: {lines[0]}"
