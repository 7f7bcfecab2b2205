"""A pack: models that are trained together on one device, each as if it were alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import isfinite

import torch

from hocket.runtimes.packing.admission import Admission
from hocket.runtimes.packing.certificate import Certificate, certified, not_measured, of_turn
from hocket.runtimes.packing.checkpoint import Checkpoint
from hocket.runtimes.packing.choosing import Chooser, Remembered
from hocket.runtimes.packing.dice import Outside
from hocket.runtimes.packing.keeping import Keeper, Watch
from hocket.runtimes.packing.member import Member, ids_of, memory_of
from hocket.runtimes.packing.memory import Memory, Need
from hocket.runtimes.packing.parking import Parking, move
from hocket.runtimes.packing.reading import Library
from hocket.runtimes.packing.resident import clear
from hocket.runtimes.packing.training import NoRoom, Refused, Training, device_of
from hocket.runtimes.packing.ways.fused import Fused
from hocket.runtimes.packing.ways.graphs import Graphs, OneGraph
from hocket.runtimes.packing.ways.joint import Joint
from hocket.runtimes.packing.ways.lanes import Lanes
from hocket.runtimes.packing.ways.turn import Turn
from hocket.runtimes.packing.ways.way import Way

WAYS = ("turn", "joint", "fused", "graphs", "graph")
_REMEMBERED = Remembered()


class Pack:
    """Loads models, steps them together by the way that is fastest, and frees them with a checkpoint.

    `way` fixes how it runs; `exact` keeps to ways that make the same operations as a solo run. `memory_mib` limits
    what is predicted for all models together. Every `keep_every` steps a model's state is kept, for the case that it
    fails; None: never, and it is then freed as it stands. What packs measure is `remembered` by all of a process,
    unless they are given a memory of their own.
    """

    def __init__(
        self,
        device: torch.device | str = "cpu",
        *,
        way: str | None = None,
        exact: bool = False,
        memory_mib: float | None = None,
        keep_every: int | None = 200,
        check_every: int = 50,
        remembered: Remembered | None = None,
    ) -> None:
        self.device = device_of(device)
        if way is not None and way not in WAYS:
            raise Refused(f"way '{way}' is not one of {', '.join(WAYS)}")
        if memory_mib is not None and not memory_mib > 0:
            raise Refused(f"memory_mib is more than 0, not {memory_mib}")
        if keep_every is not None and keep_every < 1:
            raise Refused(f"keep_every is at least 1, or None, not {keep_every}")
        if check_every < 1:
            raise Refused(f"check_every is at least 1, not {check_every}")
        self.members: dict[str, Member] = {}
        self.library = Library(self.device)
        self.certificates: dict[str, Certificate] = {}
        self.steps = 0  # of the pack
        self._inexact: dict[str, str] = {}  # by model: the last way that stepped it and may not be bitwise as alone
        self._exact, self._keep_every = exact, keep_every
        self._turn, self._lanes = Turn(), Lanes()
        remembered = remembered or (_REMEMBERED if way is None else Remembered())
        self._chooser = Chooser(self.device, self._ways(way), remembered)
        self._ledger = remembered.certificates[exact]
        self._fixed = next((w for w in self._chooser.ways if w.name == way), None)
        self._way: Way = self._turn
        self._keepers: dict[str, Keeper] = {}
        self._watch = Watch(self.device, check_every)
        self._parking = Parking()
        self._admission = Admission(self.library, memory_mib, keeps=keep_every is not None)
        self._freed: list[Checkpoint] = []

    def _ways(self, way: str | None) -> list[Way]:
        ways: list[Way] = [self._turn]
        if self.device.type == "cuda":
            ways += [Graphs(self._exact, self._lanes), OneGraph(self._exact, self._lanes)]
        ways += [Joint(), Fused()]
        return [w for w in ways if w.exact or w.name == way or not self._exact]

    # -- entering and leaving -------------------------------------------------------------------------------

    def load(self, training: Training, checkpoint: Checkpoint | None = None) -> Member:
        """Bring a model to the device, to train from its beginning or from a checkpoint; others are not disturbed."""
        if not isinstance(training, Training):
            raise Refused(f"a hocket.pack.Training is needed, not a {type(training).__name__}")
        training.refuse()
        if training.name in self.members:
            raise Refused(f"model '{training.name}' is loaded already")
        self._refuse_shared(training)
        if checkpoint is None:
            self.certificates.pop(training.name, None)
        self._inexact.pop(training.name, None)
        with Outside(self.device):
            need = self._admission.admit(training)
            member = self._placed(training, checkpoint)
        if member.step >= training.steps:
            raise Refused(
                f"model '{training.name}' has made {member.step} steps already; its training is {training.steps}"
            )
        return self._entered(member, need)

    def _placed(self, training: Training, checkpoint: Checkpoint | None) -> Member:
        """On the device, even if the prediction was wrong: others are parked to make room."""
        while True:
            try:
                return Member(training, self.device, self.library, checkpoint)
            except torch.OutOfMemoryError as error:
                training.module.to("cpu")
                self._go_in_turn()
                if not self._parking.split(list(self.members.values())):
                    raise NoRoom(f"model '{training.name}' does not fit on {self.device}: {_said(error)}") from error
                self._empty_cache()

    def adopt(self, member: Member) -> Member:
        """A model that is on this device already, from another pack; it reads with the others from now on."""
        if member.name in self.members:
            raise Refused(f"model '{member.name}' is loaded already")
        if member.device != self.device:
            raise Refused(f"model '{member.name}' is on {member.device}, the pack on {self.device}")
        self._refuse_shared(member.training)
        with Outside(self.device):
            need = self._admission.admit(member.training)
            member.read_from(self.library)
        return self._entered(member, need)

    def _entered(self, member: Member, need: Need | None) -> Member:
        if need is not None:
            self.memory.enter(member.training, need)
        self.members[member.name] = member
        self._admission.changed()
        if self._keep_every is not None:
            self._keepers[member.name] = Keeper(member, self._keep_every)
        return member

    def let_go(self, model: Member | str) -> Member:
        """Take a model out of this pack and leave it on the device, for another pack to adopt."""
        member = self._known(model)
        self._withdraw(member)
        self._gone(member, leaves=False)
        return member

    def _refuse_shared(self, training: Training) -> None:
        tensors, memory = ids_of(training.module), memory_of(training.module)
        for other in self.members.values():
            if other.shares(tensors, memory):
                raise Refused(f"model '{training.name}' shares parameters with '{other.name}': each needs its own")
            if training.optimiser is other.optimiser or (training.scaler and training.scaler is other.scaler):
                raise Refused(f"model '{training.name}' shares its optimiser or scaler with '{other.name}'")

    def free(self, model: Member | str, reason: str = "freed") -> Checkpoint:
        """Take a model off the device; what it has become, with all it needs to go on."""
        member = self._known(model)
        self._withdraw(member)
        checkpoint = member.checkpoint(reason)
        self._gone(member)
        return checkpoint

    def _known(self, model: Member | str) -> Member:
        name = model if isinstance(model, str) else model.name
        if name not in self.members:
            raise Refused(f"model '{name}' is not loaded here")
        return self.members[name]

    def _withdraw(self, member: Member) -> None:
        for way in self._chooser.ways:
            way.release(member)
        self._parking.fetch(member)

    def _gone(self, member: Member, leaves: bool = True) -> None:
        del self.members[member.name]
        self._keepers.pop(member.name, None)
        if leaves:
            move(member, torch.device("cpu"))
        self._parking.forget(member)
        self.memory.leave(member.name)
        self._admission.changed()

    # -- stepping -------------------------------------------------------------------------------------------

    def run(self, each: Callable[[Pack], None] | None = None) -> Iterator[Checkpoint]:
        """Step until nobody is left; gives the checkpoint of each model that ended or failed, as soon as it did.

        Models may be loaded and freed meanwhile. `each` is called after every step.
        """
        while self.members:
            self.step()
            if each is not None:
                each(self)
            yield from self.take_freed()

    def take_freed(self) -> list[Checkpoint]:
        """Those that ended or failed since it was last asked."""
        freed, self._freed = self._freed, []
        return freed

    def step(self) -> None:
        """One step of every model that is on the device now."""
        if not self.members:
            raise Refused("a pack without models has no step to make")
        members = self._parking.present(list(self.members.values()))
        while self._parking.too_large:
            self._fail(self._parking.too_large.pop(), "out of memory, even alone on the device")
        if not members:
            return
        foreign = any(member.dice.foreign for member in members)
        with Outside(self.device, foreign):
            members = self._fed(members)
            if members:
                self._stepped(members)
        self.steps += 1
        self._look(members)
        for member in members:
            if member.name in self.members:
                if member.step >= member.training.steps:
                    self._end(member)
                elif member.name in self._keepers:
                    self._keepers[member.name].keep()

    def _fed(self, members: list[Member]) -> list[Member]:
        """Those whose batches could be read."""
        fed: list[Member] = []
        starved: list[Member] = []
        for member in members:
            try:
                member.batches()
            except Exception as error:
                if _is_out_of_memory(error):
                    starved.append(member)
                else:
                    self._fail(member, f"its data failed: {_said(error)}")
            else:
                fed.append(member)
        if starved:
            self._make_room(starved)
            fed = [m for m in fed if m.name in self.members and not self._parking.is_parked(m)]
        return fed

    def _stepped(self, members: list[Member]) -> None:
        way = self._fixed or self._chooser.way(members)
        if way is not self._way:
            for member in members:
                self._way.release(member)
            self._way = way
        able = [m for m in members if way.refuses(m) is None]
        if way.name.startswith("graph") and not self._admission.side_by_side():
            able = []
        rest = [] if len(able) == len(members) else [m for m in members if m not in able]
        failed: dict[str, Exception] = {}
        looks_back = self._fixed is None and self._chooser.looks_back()
        # A probe's steps stand. On a GPU those that are captured are measured once they are chosen.
        skips = self.is_probing and (way.exact or self.device.type == "cuda")
        new = [] if skips else [m for m in able if m.is_known and not self._has_certificate(m, way)]
        if way is self._turn or not able or looks_back:
            self._chooser.measured(lambda: failed.update(self._in_turn(members)))
        elif new and way.settled(new) and all(m.is_fed for m in members):
            self._mark_inexact(way, able)
            measured = new if self._exact else self._ledger.to_measure(new, way.name)
            failed.update(self._certify(way, measured, able))
            failed.update(self._in_turn(rest))
        else:
            self._mark_inexact(way, able)
            self._chooser.measured(lambda: failed.update({**way.step(able), **self._in_turn(rest)}))
        self._sort_out(failed)

    def _mark_inexact(self, way: Way, members: Sequence[Member]) -> None:
        if not way.exact:
            self._inexact.update((member.name, way.name) for member in members)

    def _in_turn(self, members: Sequence[Member]) -> dict[str, Exception]:
        failed: dict[str, Exception] = {}
        for member in members:
            with self._admission.watching(member):
                failed.update(self._turn.step([member]))
        return failed

    def _has_certificate(self, member: Member, way: Way) -> bool:
        own = self.certificates.get(member.name)
        if own is not None and own.way == way.name:
            return True
        known = self._ledger.of_its_kind(member, way.name)
        if known is not None:
            self.certificates[member.name] = known
        return known is not None

    def _certify(self, way: Way, new: list[Member], able: list[Member]) -> dict[str, Exception]:
        found, failed = certified(way, new, able)
        self.certificates.update(found)
        for member in new:
            if member.name in found:
                self._ledger.add(member, found[member.name])
        if self._exact and self._fixed is None and not all(c.bitwise for c in found.values()):
            self._chooser.exclude(way)
        return failed

    # -- faults ---------------------------------------------------------------------------------------------

    def _sort_out(self, failed: dict[str, Exception]) -> None:
        starved = [self.members[name] for name, error in failed.items() if _is_out_of_memory(error)]
        for name, error in failed.items():
            if not _is_out_of_memory(error):
                self._fail(self.members[name], _said(error))
        failed.clear()
        if starved:
            self._make_room(starved)

    def _make_room(self, starved: list[Member]) -> None:
        """Out of memory: graphs are given up first; then half of the models wait on the host, and take turns."""
        self._go_in_turn()
        while starved:
            failed = self._in_turn(starved)
            again = [self.members[name] for name, error in failed.items() if _is_out_of_memory(error)]
            for name, error in failed.items():
                if not _is_out_of_memory(error):
                    self._fail(self.members[name], _said(error))
            if len(again) == len(starved) or again:
                member = again[0]
                if not self._parking.split(list(self.members.values()), keep=member):
                    self._fail(member, "out of memory, even alone on the device")
                    again = again[1:]
                self._empty_cache()
            starved = [m for m in again if m.name in self.members and not self._parking.is_parked(m)]

    def _go_in_turn(self) -> None:
        for member in self.members.values():
            self._way.release(member)
        self._fixed, self._way = self._turn, self._turn
        clear(self.device)
        self._lanes.forget_spare()
        self._empty_cache()

    def _empty_cache(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    def _look(self, members: list[Member]) -> None:
        for member, step, loss in self._watch.look([m for m in members if m.name in self.members]):
            if member.name not in self.members:
                continue
            if not isfinite(loss):
                self._fail(member, f"its loss was {loss} in step {step}")
            elif member.name in self._keepers:
                self._keepers[member.name].found_good(step)

    def _end(self, member: Member) -> None:
        loss = float(member.loss) if member.loss is not None else 0.0
        if isfinite(loss):
            self._freed.append(self.free(member, f"all {member.step} steps are made"))
        else:
            self._fail(member, f"its loss was {loss} in step {member.step}")

    def _fail(self, member: Member, reason: str) -> None:
        self._withdraw(member)
        keeper = self._keepers.get(member.name)
        good = member.checkpoint(reason, None if keeper is None else keeper.good)
        self._gone(member)
        self._freed.append(replace(good, failed=True))

    # -- what is known --------------------------------------------------------------------------------------

    @property
    def way(self) -> str:
        """How its last step was made."""
        return self._way.name

    @property
    def memory(self) -> Memory:
        """Needs of the models here, the device's limit, and how far predictions were off."""
        return self._admission.memory

    def predict(self, training: Training) -> Need:
        """What this model would take, corrected by what was seen of its kind."""
        with Outside(self.device):
            return self._admission.predict(training)

    @property
    def is_probing(self) -> bool:
        """Whether ways are being measured now."""
        return self._fixed is None and self._chooser.probe is not None

    def clock_s(self) -> float:
        """The time that ways are measured by: one thread's own where it does all of the work, else the clock's."""
        return self._chooser.clock()

    def times_s(self) -> dict[str, float]:
        """Step times of the present mix by way, as the probe found them."""
        return self._chooser.times_s()

    def certificate(self, model: Member | str) -> Certificate:
        """How far this model's steps here are from its solo run's, by whatever way they were made."""
        member = self._known(model)
        own, inexact = self.certificates.get(member.name), self._inexact.get(member.name)
        if inexact is None:
            return of_turn(member) if own is None or self._way is self._turn else own
        if own is None or own.way != inexact:
            own = self._ledger.of_its_kind(member, inexact) or not_measured(inexact, member)
        return own

    def refusals(self) -> dict[str, str]:
        """By model: why the present way does not take it, so that it goes in turn."""
        found = {name: self._way.refuses(member) for name, member in self.members.items()}
        uncapturable = getattr(self._way, "uncapturable", {})
        return {**{n: why for n, why in found.items() if why}, **uncapturable}


def _is_out_of_memory(error: Exception) -> bool:
    said = str(error)
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or "can't allocate memory" in said


def _said(error: Exception) -> str:
    lines = str(error).splitlines()
    if isinstance(error, Refused):
        return lines[0]
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
