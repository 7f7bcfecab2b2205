"""A pack: models that are trained together on one device, each as if it were alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import isfinite

import torch

from hocket.runtimes.packing.admission import Admission
from hocket.runtimes.packing.certificate import Certificate, certified, not_measured, solo_certificate, unrepeatable
from hocket.runtimes.packing.checkpoint import ModelCheckpoint
from hocket.runtimes.packing.determinism import why_not_exact
from hocket.runtimes.packing.device_datasets import clear
from hocket.runtimes.packing.host_offload import HostOffload, move
from hocket.runtimes.packing.last_good import LastGoodState, LossMonitor
from hocket.runtimes.packing.member import Member, ids_of, memory_of
from hocket.runtimes.packing.memory import Memory, Need
from hocket.runtimes.packing.mode_choice import Measurements, ModeChooser
from hocket.runtimes.packing.rng_state import PreservedRng
from hocket.runtimes.packing.shared_reading import SharedReader
from hocket.runtimes.packing.step_modes.cuda_graphs import CudaGraphs, OneCudaGraph
from hocket.runtimes.packing.step_modes.fused import Fused
from hocket.runtimes.packing.step_modes.joint_backward import JointBackward
from hocket.runtimes.packing.step_modes.step_mode import OneByOne, StepMode
from hocket.runtimes.packing.step_modes.streams import CaptureStreams
from hocket.runtimes.packing.training import NoRoom, Refused, Training, device_of

# How the models of a pack are stepped: one after another, with one backward pass, as one fused model, with a CUDA graph
# for each, or with one for all.
STEP_MODES = ("turn", "joint", "fused", "graphs", "graph")
_REMEMBERED = Measurements()


class Pack:
    """Loads models, steps them together in the fastest mode, and frees them with a checkpoint.

    Args:
        device: where all its models are trained.
        mode: one of `STEP_MODES`; None: the fastest, as measured.
        exact: use only modes that make the same operations as a solo run; a model that cannot repeat a step is refused.
        memory_mib: limit on the predicted memory of all models together; None: what the device has.
        keep_every: copy each model's state every so many steps, to free it with if it fails; None: never.
        check_every: on a GPU, look every so many steps whether losses are finite.
        remembered: what was measured before; None: shared by all packs of the process.
    """

    def __init__(
        self,
        device: torch.device | str = "cpu",
        *,
        mode: str | None = None,
        exact: bool = False,
        memory_mib: float | None = None,
        keep_every: int | None = 200,
        check_every: int = 50,
        remembered: Measurements | None = None,
    ) -> None:
        self.device = device_of(device)
        if mode is not None and mode not in STEP_MODES:
            raise Refused(f"mode '{mode}' is not one of {', '.join(STEP_MODES)}")
        if memory_mib is not None and not memory_mib > 0:
            raise Refused(f"memory_mib is more than 0, not {memory_mib}")
        if keep_every is not None and keep_every < 1:
            raise Refused(f"keep_every is at least 1, or None, not {keep_every}")
        if check_every < 1:
            raise Refused(f"check_every is at least 1, not {check_every}")
        self.members: dict[str, Member] = {}
        self.reader = SharedReader(self.device)
        self.certificates: dict[str, Certificate] = {}
        self.steps = 0  # of the pack
        self._inexact: dict[str, str] = {}  # by model: the last mode it stepped in that may not be bitwise
        self._repeatable: set[str] = set()  # models whose steps were seen to be the same when made again
        self._exact, self._keep_every = exact, keep_every
        self._solo, self._streams = OneByOne(), CaptureStreams()
        remembered = remembered or (_REMEMBERED if mode is None else Measurements())
        self._chooser = ModeChooser(self.device, self._modes(mode), remembered)
        self._known_certificates = remembered.certificates[exact]
        self._fixed = next((w for w in self._chooser.modes if w.name == mode), None)
        self._mode: StepMode = self._solo
        self._last_good: dict[str, LastGoodState] = {}
        self._loss_monitor = LossMonitor(self.device, check_every)
        self._offload = HostOffload()
        self._admission = Admission(self.reader, memory_mib, keeps=keep_every is not None)
        self._freed: list[ModelCheckpoint] = []

    def _modes(self, mode: str | None) -> list[StepMode]:
        modes: list[StepMode] = [self._solo]
        if self.device.type == "cuda":
            modes += [CudaGraphs(self._exact, self._streams), OneCudaGraph(self._exact, self._streams)]
        modes += [JointBackward(), Fused()]
        return [w for w in modes if w.exact or w.name == mode or not self._exact]

    # -- entering and leaving -------------------------------------------------------------------------------

    def load(self, training: Training, checkpoint: ModelCheckpoint | None = None) -> Member:
        """Bring the model of a `training` to the device, to train from its beginning or from a `checkpoint`.

        Raises NoRoom if it would not fit beside the others.
        """
        if not isinstance(training, Training):
            raise Refused(f"a hocket.pack.Training is needed, not a {type(training).__name__}")
        training.refuse()
        if training.name in self.members:
            raise Refused(f"model '{training.name}' is loaded already")
        self._refuse_shared(training)
        if self._exact and (why := why_not_exact(training.module, self.device)):
            raise Refused(f"model '{training.name}' cannot be trained exactly: {why}")
        self._repeatable.discard(training.name)
        if checkpoint is None:
            self.certificates.pop(training.name, None)
        self._inexact.pop(training.name, None)
        with PreservedRng(self.device):
            need = self._admission.admit(training)
            member = self._bring_to_device(training, checkpoint)
        if member.step >= training.steps:
            raise Refused(
                f"model '{training.name}' has made {member.step} steps already; its training is {training.steps}"
            )
        return self._add(member, need)

    def _bring_to_device(self, training: Training, checkpoint: ModelCheckpoint | None) -> Member:
        """Load it even if the prediction was wrong: others are moved to the host to make room."""
        while True:
            try:
                return Member(training, self.device, self.reader, checkpoint)
            except torch.OutOfMemoryError as error:
                training.module.to("cpu")
                self._fall_back()
                if not self._offload.split(list(self.members.values())):
                    raise NoRoom(f"model '{training.name}' does not fit on {self.device}: {_message(error)}") from error
                self._empty_cache()

    def adopt(self, member: Member) -> Member:
        """Take over a `member` of another pack, whose model is on this device already."""
        if member.name in self.members:
            raise Refused(f"model '{member.name}' is loaded already")
        if member.device != self.device:
            raise Refused(f"model '{member.name}' is on {member.device}, the pack on {self.device}")
        self._refuse_shared(member.training)
        with PreservedRng(self.device):
            need = self._admission.admit(member.training)
            member.read_from(self.reader)
        return self._add(member, need)

    def _add(self, member: Member, need: Need | None) -> Member:
        if need is not None:
            self.memory.enter(member.training, need)
        self.members[member.name] = member
        self._admission.changed()
        if self._keep_every is not None:
            self._last_good[member.name] = LastGoodState(member, self._keep_every)
        return member

    def detach(self, model: Member | str) -> Member:
        """Take a `model` (a member or its name) out of this pack, but leave it on the device for another to adopt."""
        member = self._known(model)
        self._take_out(member)
        self._remove(member, leaves=False)
        return member

    def _refuse_shared(self, training: Training) -> None:
        tensors, memory = ids_of(training.module), memory_of(training.module)
        for other in self.members.values():
            if other.shares(tensors, memory):
                raise Refused(f"model '{training.name}' shares parameters with '{other.name}': each needs its own")
            if training.optimiser is other.optimiser or (training.scaler and training.scaler is other.scaler):
                raise Refused(f"model '{training.name}' shares its optimiser or scaler with '{other.name}'")

    def free(self, model: Member | str, reason: str = "freed") -> ModelCheckpoint:
        """Take a `model` (a member or its name) off the device; the checkpoint has all it needs to go on.

        `reason` becomes that of the checkpoint.
        """
        member = self._known(model)
        self._take_out(member)
        checkpoint = member.checkpoint(reason)
        self._remove(member)
        return checkpoint

    def _known(self, model: Member | str) -> Member:
        name = model if isinstance(model, str) else model.name
        if name not in self.members:
            raise Refused(f"model '{name}' is not loaded here")
        return self.members[name]

    def _take_out(self, member: Member) -> None:
        for mode in self._chooser.modes:
            mode.release(member)
        self._offload.fetch(member)

    def _remove(self, member: Member, leaves: bool = True) -> None:
        del self.members[member.name]
        self._last_good.pop(member.name, None)
        if leaves:
            move(member, torch.device("cpu"))
        self._offload.forget(member)
        self.memory.leave(member.name)
        self._admission.changed()

    # -- stepping -------------------------------------------------------------------------------------------

    def run(self, each: Callable[[Pack], None] | None = None) -> Iterator[ModelCheckpoint]:
        """Step until no model is left; yields the checkpoint of each model as soon as it ends or fails.

        Models may be loaded and freed meanwhile. `each` is called with the pack after every step.
        """
        while self.members:
            self.step()
            if each is not None:
                each(self)
            yield from self.take_freed()

    def take_freed(self) -> list[ModelCheckpoint]:
        """The checkpoints of models that ended or failed since the last call."""
        freed, self._freed = self._freed, []
        return freed

    def step(self) -> None:
        """One step of every model that is on the device now."""
        if not self.members:
            raise Refused("a pack without models has no step to make")
        members = self._offload.present(list(self.members.values()))
        while self._offload.too_large:
            self._fail(self._offload.too_large.pop(), "out of memory, even alone on the device")
        if not members:
            return
        foreign = any(member.rng.swaps_python_numpy for member in members)
        with PreservedRng(self.device, foreign):
            members = self._with_batches(members)
            rest = self._check_repeatable(members) if self._exact else members
            if rest:
                self._make_step(rest)
            members = [member for member in members if member.name in self.members]
        self.steps += 1
        self._check_losses(members)
        for member in members:
            if member.name in self.members:
                if member.step >= member.training.steps:
                    self._end(member)
                elif member.name in self._last_good:
                    self._last_good[member.name].keep()

    def _with_batches(self, members: list[Member]) -> list[Member]:
        """The models whose batches could be read."""
        ready: list[Member] = []
        short: list[Member] = []
        for member in members:
            try:
                member.batches()
            except Exception as error:
                if _is_out_of_memory(error):
                    short.append(member)
                else:
                    self._fail(member, f"its data failed: {_message(error)}")
            else:
                ready.append(member)
        if short:
            self._make_room(short)
            ready = [m for m in ready if m.name in self.members and not self._offload.is_offloaded(m)]
        return ready

    def _make_step(self, members: list[Member]) -> None:
        mode = self._fixed or self._chooser.mode(members)
        if mode is not self._mode:
            for member in members:
                self._mode.release(member)
            self._mode = mode
        able = [m for m in members if mode.refuses(m) is None]
        if mode.name.startswith("graph") and not self._admission.side_by_side():
            able = []
        rest = [] if len(able) == len(members) else [m for m in members if m not in able]
        failed: dict[str, Exception] = {}
        looks_back = self._fixed is None and self._chooser.must_recheck()
        # The steps of a probe count. On a GPU, captured modes are certified once they are chosen.
        skips = self.is_probing and (mode.exact or self.device.type == "cuda")
        new = [] if skips else [m for m in able if m.is_known and not self._has_certificate(m, mode)]
        if mode is self._solo or not able or looks_back:
            self._chooser.measured(lambda: failed.update(self._one_by_one(members)))
        elif new and mode.is_warm(new) and all(m.has_all_batches for m in members):
            self._mark_inexact(mode, able)
            measured = new if self._exact else self._known_certificates.to_measure(new, mode.name)
            failed.update(self._certify(mode, measured, able))
            failed.update(self._one_by_one(rest))
        else:
            self._mark_inexact(mode, able)
            self._chooser.measured(lambda: failed.update({**mode.step(able), **self._one_by_one(rest)}))
        self._handle_failures(failed)

    def _check_repeatable(self, members: list[Member]) -> list[Member]:
        """Step models whose repeatability is unknown, twice from the same state; those that differ are freed.

        Returns the others, which have not been stepped. A model that must be stepped by itself anyway is not checked.
        """
        new = [
            member for member in members
            if member.name not in self._repeatable
            and member.is_known and member.solo_only is None and member.has_all_batches
        ]  # fmt: skip
        if not new:
            return members
        differing, failed = unrepeatable(new)
        self._handle_failures(failed)
        for member in new:
            if member.name in differing and member.name in self.members:
                self._fail(member, f"it cannot be trained exactly: {differing[member.name]}")
            else:
                self._repeatable.add(member.name)
        return [member for member in members if member not in new]

    def _mark_inexact(self, mode: StepMode, members: Sequence[Member]) -> None:
        if not mode.exact:
            self._inexact.update((member.name, mode.name) for member in members)

    def _one_by_one(self, members: Sequence[Member]) -> dict[str, Exception]:
        failed: dict[str, Exception] = {}
        for member in members:
            with self._admission.watching(member):
                failed.update(self._solo.step([member]))
        return failed

    def _has_certificate(self, member: Member, mode: StepMode) -> bool:
        own = self.certificates.get(member.name)
        if own is not None and own.mode == mode.name:
            return True
        known = self._known_certificates.of_its_kind(member, mode.name)
        if known is not None:
            self.certificates[member.name] = known
        return known is not None

    def _certify(self, mode: StepMode, new: list[Member], able: list[Member]) -> dict[str, Exception]:
        found, failed = certified(mode, new, able)
        self.certificates.update(found)
        for member in new:
            if member.name in found:
                self._known_certificates.add(member, found[member.name])
        if self._exact and self._fixed is None and not all(c.bitwise for c in found.values()):
            self._chooser.exclude(mode)
        return failed

    # -- faults ---------------------------------------------------------------------------------------------

    def _handle_failures(self, failed: dict[str, Exception]) -> None:
        short = [self.members[name] for name, error in failed.items() if _is_out_of_memory(error)]
        for name, error in failed.items():
            if not _is_out_of_memory(error):
                self._fail(self.members[name], _message(error))
        failed.clear()
        if short:
            self._make_room(short)

    def _make_room(self, short: list[Member]) -> None:
        """Out of memory: graphs are freed first; then half of the models wait on the host, in turns."""
        self._fall_back()
        while short:
            failed = self._one_by_one(short)
            again = [self.members[name] for name, error in failed.items() if _is_out_of_memory(error)]
            for name, error in failed.items():
                if not _is_out_of_memory(error):
                    self._fail(self.members[name], _message(error))
            if len(again) == len(short) or again:
                member = again[0]
                if not self._offload.split(list(self.members.values()), keep=member):
                    self._fail(member, "out of memory, even alone on the device")
                    again = again[1:]
                self._empty_cache()
            short = [m for m in again if m.name in self.members and not self._offload.is_offloaded(m)]

    def _fall_back(self) -> None:
        for member in self.members.values():
            self._mode.release(member)
        self._fixed, self._mode = self._solo, self._solo
        clear(self.device)
        self._streams.forget_spare()
        self._empty_cache()

    def _empty_cache(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    def _check_losses(self, members: list[Member]) -> None:
        for member, step, loss in self._loss_monitor.look([m for m in members if m.name in self.members]):
            if member.name not in self.members:
                continue
            if not isfinite(loss):
                self._fail(member, f"its loss was {loss} in step {step}")
            elif member.name in self._last_good:
                self._last_good[member.name].confirm(step)

    def _end(self, member: Member) -> None:
        loss = float(member.loss) if member.loss is not None else 0.0
        if isfinite(loss):
            self._freed.append(self.free(member, f"all {member.step} steps are made"))
        else:
            self._fail(member, f"its loss was {loss} in step {member.step}")

    def _fail(self, member: Member, reason: str) -> None:
        self._take_out(member)
        last_good = self._last_good.get(member.name)
        good = member.checkpoint(reason, None if last_good is None else last_good.good)
        self._remove(member)
        self._freed.append(replace(good, failed=True))

    # -- what is known --------------------------------------------------------------------------------------

    @property
    def mode(self) -> str:
        """The mode of its last step."""
        return self._mode.name

    @property
    def memory(self) -> Memory:
        """Needs of the models here, the device's limit, and how far predictions were off."""
        return self._admission.memory

    def predict(self, training: Training) -> Need:
        """The memory that the model of this `training` would take, corrected by what was measured for its kind."""
        with PreservedRng(self.device):
            return self._admission.predict(training)

    @property
    def is_probing(self) -> bool:
        """Whether modes are being measured now."""
        return self._fixed is None and self._chooser.probe is not None

    def clock_s(self) -> float:
        """The clock that steps are timed by: one thread's CPU time where that thread does all work, else wall time."""
        return self._chooser.clock()

    def times_s(self) -> dict[str, float]:
        """Step times of the present mix by mode, as the probe found them."""
        return self._chooser.times_s()

    def certificate(self, model: Member | str) -> Certificate:
        """How far this `model`'s steps here are from its solo run's, in whatever mode they were made."""
        member = self._known(model)
        own, inexact = self.certificates.get(member.name), self._inexact.get(member.name)
        if inexact is None:
            return solo_certificate(member) if own is None or self._mode is self._solo else own
        if own is None or own.mode != inexact:
            own = self._known_certificates.of_its_kind(member, inexact) or not_measured(inexact, member)
        return own

    def refusals(self) -> dict[str, str]:
        """By model: why the present mode cannot step it, so that it is stepped by itself."""
        found = {name: self._mode.refuses(member) for name, member in self.members.items()}
        uncapturable = getattr(self._mode, "uncapturable", {})
        return {**{n: why for n, why in found.items() if why}, **uncapturable}


def _is_out_of_memory(error: Exception) -> bool:
    said = str(error)
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or "can't allocate memory" in said


def _message(error: Exception) -> str:
    lines = str(error).splitlines()
    if isinstance(error, Refused):
        return lines[0]
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
