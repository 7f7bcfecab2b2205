"""One model on its device, with the parts of its training step, so that several models can be stepped together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from inspect import Parameter, signature
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from hocket.runtimes.packing.batches import Batch, BatchSource, batch_source_of
from hocket.runtimes.packing.checkpoint import ModelCheckpoint, copied, put_back
from hocket.runtimes.packing.rng_state import RngState
from hocket.runtimes.packing.shared_reading import SharedReader
from hocket.runtimes.packing.training import Refused, Training

Address = tuple[torch.device, int]  # of a piece of memory

FLAGS = ("capturable", "fused", "foreach", "differentiable", "initial_lr")  # not what an optimiser computes, only how


class Member:
    """A training that was loaded by `Pack.load`: its module is on the device, between two steps.

    Args:
        training: what the user gave.
        device: where it is trained.
        reader: reads its data, together with those of other models.
        saved: a checkpoint to continue from.
    """

    def __init__(
        self, training: Training, device: torch.device, reader: SharedReader, saved: ModelCheckpoint | None
    ) -> None:
        self.training, self.device, self.name = training, device, training.name
        self.module = training.module.to(device)
        self.pack: Any = None  # the pack it is in, where it was loaded by itself
        self.step = 0  # steps done
        self.optimiser = self._made_optimiser()
        self.flags = [{k: g[k] for k in FLAGS if k in g} for g in self.optimiser.param_groups]  # as the user set them
        self.schedule = self._made_schedule()
        self.scaler = training.scaler
        self.parameters = [p for p in self.module.parameters() if p.requires_grad]
        self.buffers = [b for b in self.module.buffers() if b is not None]
        self.tensors = ids_of(self.module)
        self._memory = memory_of(self.module)  # as it was loaded
        self.layers = ",".join(type(m).__name__ for m in self.module.modules())
        self.shapes = ",".join(str(tuple(p.shape)) for p in self.parameters)
        self.rng = RngState(device, training.seed)
        self.source: BatchSource = batch_source_of(self.name, training.data, reader)
        self.loss: Tensor | None = None  # of the last step, on the device
        self._before: tuple[dict[str, Any], list[Tensor]] | None = None
        self._pending: list[Batch] = []
        self._source_before: tuple[dict[str, Any], int] | None = None
        self._schedule_epochs = 0
        self._kinds = sorted({b.dtype for b in self.buffers}, key=str)
        self.needs_closure = _takes_closure(self.optimiser)
        self.solo_only: str | None = None  # why it must be stepped by itself
        self.is_known = False  # Whether its forward pass ran, so that it is known if a step can be repeated.
        if self.needs_closure:
            self.solo_only = f"its optimiser {type(self.optimiser).__name__} evaluates the loss several times in a step"
            if self.scaler is not None:
                raise Refused(f"model '{self.name}': {type(self.optimiser).__name__} cannot be used with a scaler")
        self._whole: dict[str, Any] | None = None
        if saved is not None:
            self.resume(saved)

    def shares(self, tensors: frozenset[int], memory: frozenset[Address]) -> bool:
        """Whether it has one of these `tensors` (ids of parameters and buffers), or uses the same `memory`."""
        if tensors & self.tensors:
            return True
        return bool(memory & self._memory and memory & memory_of(self.module))

    # -- what a step consists of ----------------------------------------------------------------------------

    def batches(self) -> list[Batch]:
        """The batches of the next step, the same ones until it is done: the first, and those that nothing is drawn for.

        Alone, a model draws for its second batch after it has drawn in its first forward pass.
        """
        while len(self._pending) < self.training.accumulate:
            batch = self.source.shared()
            if batch is None and self._pending:
                break
            if batch is None:
                self.rng.install()
                try:
                    batch = self.source.next()
                finally:
                    self.rng.read_back()
            self._pending.append(batch)
            self._schedule_epoch(self.source.epoch - 1)
        return self._pending

    @property
    def has_all_batches(self) -> bool:
        """Whether all batches of the next step are available."""
        return len(self._pending) == self.training.accumulate

    def _values(self) -> Iterator[Any]:
        """The step's batches in order; missing ones are read when needed. The model's generators are installed."""
        for number in range(self.training.accumulate):
            if number == len(self._pending):
                self._pending.append(self.source.next())
                self._schedule_epoch(self.source.epoch - 1)
            yield self._pending[number].aligned()

    def loss_of(self, value: Any) -> Tensor:
        """The loss of one batch, `value`, divided by the number of batches in a step."""
        if self.is_known:
            return self._loss_of(value)
        before = python_state(self.module)
        loss = self._loss_of(value)
        self.is_known = True
        if changed := changes(before, python_state(self.module)):
            self.solo_only = changed
        return loss

    def _loss_of(self, value: Any) -> Tensor:
        training = self.training
        with torch.autocast(self.device.type, training.autocast, enabled=training.autocast is not None):
            if training.forward is not None:
                loss = training.forward(self.module, value)
            else:
                inputs, targets = value
                assert training.loss is not None
                loss = training.loss(self.module(inputs), targets)
        if not isinstance(loss, Tensor) or loss.numel() != 1:
            shape = tuple(loss.shape) if isinstance(loss, Tensor) else type(loss).__name__
            raise Refused(f"model '{self.name}': its loss must be one number, not {shape}")
        if loss.dim():
            loss = loss.reshape(())
        return loss if training.accumulate == 1 else loss / training.accumulate

    def scaled(self, loss: Tensor) -> Tensor:
        """The `loss` to differentiate, scaled if there is a scaler."""
        return loss if self.scaler is None else self.scaler.scale(loss)

    def gradients(self, values: Iterable[Any]) -> Tensor:
        """Forward and backward over the step's batches, `values`; returns the step's loss."""
        self.optimiser.zero_grad(set_to_none=True)
        total: Tensor | None = None
        for value in values:
            loss = self.loss_of(value)
            self.scaled(loss).backward()  # type: ignore[no-untyped-call]
            total = loss.detach() if total is None else total + loss.detach()
        assert total is not None
        return total

    def update(self) -> None:
        """Clip and step the optimiser: everything after the gradients, except the schedule."""
        clip, scaler = self.training.clip, self.scaler
        if clip is not None:
            if scaler is not None:
                scaler.unscale_(self.optimiser)
            nn.utils.clip_grad_norm_(self.parameters, clip)
        if scaler is None:
            self.optimiser.step()
        else:
            scaler.step(self.optimiser)
            scaler.update()

    def done(self, loss: Tensor) -> None:
        """Count a step with this `loss`, and advance the schedule."""
        self.loss = loss
        self.step += 1
        self._pending.clear()
        self.rng.stepped()
        if self.schedule is not None and self.training.schedule_every == "step":
            self._go_on(self.schedule)
        self._schedule_epoch(self.source.ended)

    def train(self) -> None:
        """One whole step, as it would be made alone. The batches were taken."""
        self.rng.install()
        try:
            if self.needs_closure:
                loss = self._closed()
            else:
                loss = self.gradients(self._values())
                self.update()
        finally:
            self.rng.read_back()
        self.done(loss)

    def _closed(self) -> Tensor:
        """A step of an optimiser that evaluates the loss itself, on the same batches each time; the first loss."""
        losses: list[Tensor] = []

        def closure() -> Tensor:
            losses.append(self.gradients(self._values()))
            if self.training.clip is not None:
                nn.utils.clip_grad_norm_(self.parameters, self.training.clip)
            return losses[-1]

        self.optimiser.step(closure)  # type: ignore[arg-type]
        return losses[0]

    def read_from(self, reader: SharedReader) -> None:
        """Take further batches from this `reader`, which other models use."""
        state = self.source.state()
        self.source = batch_source_of(self.name, self.training.data, reader)
        self.source.restore(state)

    # -- back to where the step began -----------------------------------------------------------------------

    def begin_step(self) -> None:
        """Copy what a failed step would have changed: generators and buffers, and weights if it takes a closure."""
        self._whole = self.copy_state() if self.needs_closure else None
        kept = [] if self._before is None else self._before[1]
        if len(kept) != len(self.buffers):
            kept = [torch.empty_like(b) for b in self.buffers]
        self._copy_buffers(kept, self.buffers)
        self._before = self.rng.state(), kept
        self._source_before = None if self.has_all_batches else (self.source.state(), len(self._pending))

    def roll_back(self) -> None:
        """Back to `begin_step`; gradients are dropped, and the batches are kept for another try."""
        assert self._before is not None
        if self._whole is not None:
            self.restore_in_place(self._whole)
        self.rng.restore(self._before[0])
        self._copy_buffers(self.buffers, self._before[1])
        if self._source_before is not None:
            state, taken = self._source_before
            self.source.restore(state)
            del self._pending[taken:]
        self.optimiser.zero_grad(set_to_none=True)

    def _copy_buffers(self, into: list[Tensor], source: list[Tensor]) -> None:
        with torch.no_grad():
            for kind in self._kinds:  # One call for each type, instead of one for each buffer.
                chosen = [k for k, b in enumerate(self.buffers) if b.dtype == kind]
                torch._foreach_copy_([into[k] for k in chosen], [source[k] for k in chosen])

    # -- state ----------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Everything that its further training depends on; the tensors themselves, not copies."""
        return {
            "module": self.module.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "schedule": None if self.schedule is None else self.schedule.state_dict(),
            "scaler": None if self.scaler is None else self.scaler.state_dict(),
            "rng": self.rng.state(),
            "feed": self.source.state(),
            "step": self.step,
            "loss": self.loss,
            "schedule_epochs": self._schedule_epochs,
        }

    def copy_state(self, place: torch.device | None = None) -> dict[str, Any]:
        """A copy of the state on `place`, by default its own device."""
        state = self.state()
        at_host = {key: copied(state.pop(key), torch.device("cpu")) for key in ("rng", "feed")}
        return {**copied(state, place or self.device), **at_host}

    def restore_in_place(self, state: dict[str, Any]) -> None:
        """Restore a copied `state` into the same tensors: captured graphs and stacked weights point to them."""
        put_back(self.module, self.optimiser, state)
        if self.schedule is not None:
            self.schedule.load_state_dict(state["schedule"])
        if self.scaler is not None:
            self.scaler.load_state_dict(state["scaler"])
        self.rng.restore(state["rng"])
        self.step, self.loss = state["step"], state["loss"]
        self._schedule_epochs = state["schedule_epochs"]

    def rewind(self, state: dict[str, Any], batches: list[Batch]) -> None:
        """Go back to before the step that was made from `state` with these `batches`."""
        self.restore_in_place(state)
        self._pending = list(batches)

    def resume(self, saved: ModelCheckpoint) -> None:
        """Continue from the checkpoint `saved` as if there had been no break."""
        if why := saved.strange_to(self.module, self.optimiser):  # PyTorch would load what fits, then raise.
            raise Refused(f"model '{self.name}': the checkpoint of '{saved.name}' is of another model: {why}")
        state = copied(saved.state, self.device)
        self.module.load_state_dict(state["module"])
        self.optimiser.load_state_dict(state["optimiser"])
        if self.schedule is not None and state["schedule"] is not None:
            self.schedule.load_state_dict(state["schedule"])
        if self.scaler is not None and state["scaler"] is not None:
            self.scaler.load_state_dict(state["scaler"])
        rng = saved.state["rng"] if "rng" in saved.state else saved.state["dice"]  # the key in earlier checkpoints
        self.rng.restore(copied(rng, torch.device("cpu")))
        self.source.restore(copied(saved.state["feed"], torch.device("cpu")))
        self.step, self.loss = saved.step, state["loss"]
        if self.step:
            self.optimiser._opt_called = True  # type: ignore[attr-defined]  # Schedules warn if it never stepped.
        self._schedule_epochs = saved.state["schedule_epochs"]

    def checkpoint(
        self, reason: str, state: dict[str, Any] | None = None, place: torch.device = torch.device("cpu")
    ) -> ModelCheckpoint:
        """A copy of its state on `place`, by default the host; with `state`, a copy of that earlier one.

        `reason` says in words why it is made.
        """
        chosen = self.copy_state(place) if state is None else copied(state, place)
        for group, flags in zip(chosen["optimiser"]["param_groups"], self.flags, strict=True):
            group.update(flags)
        return ModelCheckpoint(self.name, chosen["step"], reason, chosen)

    # -- parts ----------------------------------------------------------------------------------------------

    def _made_optimiser(self) -> Optimizer:
        given = self.training.optimiser
        optimiser = given if isinstance(given, Optimizer) else given(self.module.parameters())
        own = {id(p) for p in self.module.parameters()}
        strange = sum(id(p) not in own for group in optimiser.param_groups for p in group["params"])
        if strange:
            raise Refused(f"model '{self.name}': its optimiser holds {strange} parameters that are not the module's")
        for state in optimiser.state.values():  # An optimiser that was used on another device has state there.
            for key, value in state.items():
                if isinstance(value, Tensor) and value.dim():
                    state[key] = value.to(self.device)
        return optimiser

    def _made_schedule(self) -> LRScheduler | None:
        given = self.training.schedule
        if given is None or isinstance(given, LRScheduler):
            return given
        return given(self.optimiser)

    def _schedule_epoch(self, epochs: int) -> None:
        """An epoch's end is known at its last batch, or only when there is no further one."""
        if self.schedule is None or self.training.schedule_every != "epoch":
            return
        while self._schedule_epochs < epochs:
            self._schedule_epochs += 1
            self._go_on(self.schedule)

    def _go_on(self, schedule: LRScheduler) -> None:
        if isinstance(schedule, ReduceLROnPlateau):
            assert self.loss is not None
            schedule.step(self.loss.item())
        else:
            schedule.step()


def ids_of(module: nn.Module) -> frozenset[int]:
    """The ids of its parameters and buffers."""
    return frozenset(id(t) for t in (*module.parameters(), *module.buffers()))


def memory_of(module: nn.Module) -> frozenset[Address]:
    """The memory addresses of these tensors."""
    tensors = (*module.parameters(), *module.buffers())
    return frozenset((t.device, t.untyped_storage().data_ptr()) for t in tensors if t.numel())


def has_hooks(optimiser: Optimizer) -> bool:
    """Whether hooks run before or after its steps."""
    return bool(optimiser._optimizer_step_pre_hooks or optimiser._optimizer_step_post_hooks)


def _takes_closure(optimiser: Optimizer) -> bool:
    closure = signature(type(optimiser).step).parameters.get("closure")
    return closure is not None and closure.default is Parameter.empty


def python_state(module: nn.Module) -> dict[str, object]:
    """The numbers, texts and flags that its parts have as plain attributes; PyTorch's own layers change none."""
    return {
        f"{name}.{key}" if name else key: value
        for name, part in module.named_modules()
        if not type(part).__module__.startswith("torch.nn.")
        for key, value in vars(part).items()
        if isinstance(value, bool | int | float | str)
    }


def changes(before: dict[str, object], after: dict[str, object]) -> str | None:
    """What a call has changed of these attributes, in words: it cannot be rolled back."""
    for key, value in after.items():
        if value != before.get(key, value):
            return f"its forward pass changes its attribute '{key}', which cannot be rolled back"
    return None
