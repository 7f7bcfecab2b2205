"""Captured steps: each model's whole step as CUDA graph work on a stream of its own, replayed by one launch.

`Graphs` captures a graph a model and replays them side by side; `OneGraph` captures one graph for all, with a branch a
model. Random draws stay each model's own, for a graph holds the generators that it was captured with.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim.lr_scheduler import ReduceLROnPlateau

from hocket.runtimes.packing.dice import WATCHED_STEPS, foreign_states, same_states, set_foreign
from hocket.runtimes.packing.member import Member
from hocket.runtimes.packing.tensors import leaves, mapped, shape
from hocket.runtimes.packing.ways.captured_optimiser import CapturedOptimiser, as_made
from hocket.runtimes.packing.ways.lanes import Lane, Lanes
from hocket.runtimes.packing.ways.turn import Turn

WARM_STEPS = (
    WATCHED_STEPS  # eager ones before a capture: libraries choose their algorithms, optimisers make their state
)

DRAWS = "draws random numbers on the host"
CACHED_SHARE = 0.25  # of the device's memory


class Input:
    """A batch at a fixed place, from which captured steps read. Models that see the same batches share it."""

    def __init__(self, value: Any, token: object) -> None:
        self.value = mapped(value, lambda tensor: tensor.clone())
        self.tensors = [leaf for leaf in leaves(self.value) if isinstance(leaf, Tensor)]
        self.token = token
        self.filled_in = -1  # in which round

    def fill(self, value: Any, token: object, round_: int, copies: Copies) -> bool:
        """Have a batch brought here; False if somebody else's other batch is brought in this round."""
        if self.filled_in == round_:
            return token is not None and token == self.token
        copies.add(self.tensors, [leaf for leaf in leaves(value) if isinstance(leaf, Tensor)])
        self.token, self.filled_in = token, round_
        return True


class Copies:
    """Copies that are to be made: those of one type by one call."""

    def __init__(self) -> None:
        self._by_kind: dict[torch.dtype, tuple[list[Tensor], list[Tensor]]] = {}

    def add(self, into: list[Tensor], source: list[Tensor]) -> None:
        """These to there."""
        for there, here in zip(into, source, strict=True):
            targets, sources = self._by_kind.setdefault(there.dtype, ([], []))
            targets.append(there)
            sources.append(here)

    def make(self) -> None:
        """All of them."""
        for targets, sources in self._by_kind.values():
            torch._foreach_copy_(targets, sources)
        self._by_kind.clear()


class Part:
    """One model's part of a captured graph."""

    def __init__(self, member: Member, inputs: list[Input], stream: torch.cuda.Stream, exact: bool) -> None:
        self.member, self.inputs, self.stream = member, inputs, stream
        self.optimiser = CapturedOptimiser(member, exact)
        self.loss: Tensor | None = None
        self._gradients: list[Tensor | None] = []

    def record(self) -> None:
        """Issue the step's work; called while a capture is under way."""
        with self.optimiser.capturing() as inside:
            self.loss = self.member.gradients([i.value for i in self.inputs])
            self._gradients = [p.grad for p in self.member.parameters]
            if inside:
                self.member.update()

    def finish(self) -> None:
        """What the graph does not hold: optimisers that cannot be captured, and the count."""
        member = self.member
        if not self.optimiser.inside:
            for parameter, gradient in zip(member.parameters, self._gradients, strict=True):
                parameter.grad = gradient
            member.dice.take()
            try:
                member.update()
            finally:
                member.dice.leave()
        else:
            self.optimiser.count()
        assert self.loss is not None
        member.done(self.loss)


class Unit:
    """A captured graph and the models in it."""

    def __init__(self, parts: list[Part], lane: Lane) -> None:
        self.parts, self.stream = parts, lane.stream
        self._done = torch.cuda.Event()  # type: ignore[no-untyped-call]
        self._graph = torch.cuda.CUDAGraph()
        try:
            self._capture(lane)
        except Exception:
            lane.forget()  # A capture that broke may have left its memory unusable.
            raise

    def _capture(self, lane: Lane) -> None:
        """Nothing is computed: the work is written down."""
        torch.cuda.synchronize(self.stream.device)
        pool = lane.pool()
        members = [part.member for part in self.parts]
        generators = [m.dice.cuda.get_state() for m in members if m.dice.cuda is not None]
        before = torch.default_generator.get_state()
        for member in members:
            if member.dice.cuda is not None:
                self._graph.register_generator_state(member.dice.cuda)
        began = False
        try:
            with torch.cuda.stream(self.stream):
                members[0].dice.take()
                torch.default_generator.set_state(before)
                self._graph.capture_begin(pool, capture_error_mode="thread_local")
                began = True
                for part in self.parts:
                    self._branch(part, before)
                for part in self.parts:
                    self.stream.wait_stream(part.stream)
                self._graph.capture_end()
                began = False
            if not torch.equal(before, torch.default_generator.get_state()):
                raise RuntimeError(DRAWS)
        except Exception:
            if began:
                try:
                    with torch.cuda.stream(self.stream):
                        self._graph.capture_end()
                except Exception:
                    pass  # The capture was broken already; this only ends it.
            for member, state in zip(members, generators, strict=True):
                member.dice.renew(state)
                member.optimiser.zero_grad(set_to_none=True)
            raise
        finally:
            torch.default_generator.set_state(before)

    def _branch(self, part: Part, host: Tensor) -> None:
        part.member.dice.take()
        torch.default_generator.set_state(host)
        part.stream.wait_stream(self.stream)
        foreign = foreign_states()
        with torch.cuda.stream(part.stream):
            part.record()
        if not same_states(foreign_states(), foreign):
            set_foreign(foreign)
            raise RuntimeError(DRAWS)

    def stale(self) -> bool:
        """Whether it holds numbers that have changed since, such as a learning rate."""
        return any(part.optimiser.stale() for part in self.parts)

    def refresh(self) -> None:
        """Numbers that it reads, as they are now."""
        for part in self.parts:
            part.optimiser.refresh()

    def replay(self) -> None:
        """Launch it on the present stream."""
        self._graph.replay()

    def replay_after(self, after: torch.cuda.Event) -> torch.cuda.Event:
        """Launch it on its own stream after an event; gives the one of its end."""
        self.stream.wait_event(after)
        torch.cuda.set_stream(self.stream)  # Whoever calls goes back to its own: a context for each would be dear.
        self._graph.replay()
        self._done.record(self.stream)
        return self._done


class Graphs:
    """A captured graph a model, replayed side by side on streams of their own."""

    name = "graphs"
    light = True

    def __init__(self, exact: bool, lanes: Lanes) -> None:
        self.uncapturable: dict[str, str] = {}  # by model: why
        self.exact = exact
        self._turn = Turn()
        self._lanes = lanes
        self._filled = torch.cuda.Event()  # type: ignore[no-untyped-call]
        self._seen: dict[tuple[object, ...], int] = {}  # eager steps by model and shape
        self._units: dict[tuple[object, ...], Unit] = {}
        self._inputs: list[Input] = []
        self._captured: set[tuple[str, str]] = set()  # kinds of models that could be
        self._round = 0
        self._copies = Copies()

    def refuses(self, member: Member) -> str | None:
        """What no graph can hold."""
        if member.device.type != "cuda":
            return "graphs are captured on CUDA devices only"
        if member.in_turn_only is not None:
            return member.in_turn_only
        if isinstance(member.schedule, ReduceLROnPlateau):
            return "its schedule looks at every loss"
        return None

    def step(self, members: Sequence[Member]) -> dict[str, Exception]:
        """Replay what is captured, capture what is warm, and make the rest's step in turn."""
        self._round += 1
        ready: list[tuple[Member, tuple[object, ...]]] = []
        eager: list[Member] = []
        for member in members:
            key: tuple[object, ...] = (member.name, *(b.shape for b in member.batches()))
            self._seen[key] = self._seen.get(key, 0) + 1
            if member.dice.foreign and member.step >= WATCHED_STEPS:
                self.uncapturable[member.name] = DRAWS
            if member.is_fed and self._seen[key] > self._warm_steps(member) and member.name not in self.uncapturable:
                ready.append((member, key))
            else:
                eager.append(member)
        units: list[Unit] = []
        for key, group in self._grouped(ready):
            unit = self._unit(key, group)
            if unit is None:
                eager += group
            else:
                units.append(unit)
        self._replay(units)
        return self._eager(eager)

    def _warm_steps(self, member: Member) -> int:
        """One brings libraries to its stream, if it or one like it is known to draw nothing on the host."""
        return WARM_STEPS if member.dice.foreign and (member.layers, member.shapes) not in self._captured else 1

    def _grouped(self, ready: list[tuple[Member, tuple[object, ...]]]) -> list[tuple[tuple[object, ...], list[Member]]]:
        return [(key, [member]) for member, key in ready]

    def _unit(self, key: tuple[object, ...], members: list[Member]) -> Unit | None:
        """The captured graph of these models, filled with their batches; None if there is none for this step."""
        unit = self._units.get(key)
        if unit is not None and not unit.stale() and self._fill(unit):
            return unit
        self._units.pop(key, None)
        parts: list[Part] = []
        try:
            for member in members:
                parts.append(self._part(member))
            self._make_room(members[0].device)
            unit = Unit(parts, self._lanes.of(members[0].name if len(members) == 1 else ""))
        except Exception as error:
            self._blame(members, error)
            return None
        self._units[key] = unit
        self._captured.update((m.layers, m.shapes) for m in members)
        return unit

    def _make_room(self, device: torch.device) -> None:
        """Memory that is kept for eager steps only: no capture could take it, nor have it given back meanwhile."""
        idle = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        if idle > CACHED_SHARE * torch.cuda.get_device_properties(device).total_memory:
            torch.cuda.synchronize(device)
            self._lanes.forget_spare()
            torch.cuda.empty_cache()

    def _blame(self, members: list[Member], error: Exception) -> None:
        for member in members:
            said = str(error).splitlines()
            self.uncapturable[member.name] = said[0] if said else type(error).__name__
            self._drop(member)

    def _part(self, member: Member) -> Part:
        inputs = []
        for batch in member.batches():
            found = next(
                (
                    i
                    for i in self._inputs
                    if batch.token is not None and i.token == batch.token and i.filled_in == self._round
                    if shape(i.value) == shape(batch.value)
                ),
                None,
            )
            if found is None:
                found = Input(batch.value, batch.token)
                found.fill(batch.value, batch.token, self._round, self._copies)
                self._inputs.append(found)
            inputs.append(found)
        return Part(member, inputs, self._lanes.of(member.name).stream, self.exact)

    def _fill(self, unit: Unit) -> bool:
        return all(
            there.fill(batch.value, batch.token, self._round, self._copies)
            for part in unit.parts
            for there, batch in zip(part.inputs, part.member.batches(), strict=True)
        )

    def _replay(self, units: list[Unit]) -> None:
        self._copies.make()
        if not units:
            return
        for unit in units:
            unit.refresh()
        if len(units) == 1:  # There is nothing to be beside: it follows on the stream that brought its input.
            units[0].replay()
        else:
            main = torch.cuda.current_stream(units[0].stream.device)
            self._filled.record(main)
            try:
                ends = [unit.replay_after(self._filled) for unit in units]
            finally:
                torch.cuda.set_stream(main)
            for ended in ends:
                main.wait_event(ended)
        for unit in units:
            for part in unit.parts:
                part.finish()

    def _eager(self, members: list[Member]) -> dict[str, Exception]:
        if not members:
            return {}
        # On one stream beside the main one: a capture wants to find it so, and each stream holds memory of its own.
        stream, main = self._lanes.of("").stream, torch.cuda.current_stream(members[0].device)
        stream.wait_stream(main)
        with torch.cuda.stream(stream):
            failed = self._turn.step(members)
        main.wait_stream(stream)
        return failed

    def _drop(self, member: Member) -> None:
        """Graphs that it is in; those of others without it stay as they are."""
        for key in [k for k, unit in self._units.items() if any(p.member is member for p in unit.parts)]:
            del self._units[key]
        as_made(member)

    def settled(self, members: Sequence[Member]) -> bool:
        """Whether the next step of all that can be captured is made by a graph."""
        return all(
            member.name in self.uncapturable
            or self._seen.get((member.name, *(b.shape for b in member.batches())), 0) >= self._warm_steps(member)
            for member in members
        )

    def release(self, member: Member) -> None:
        """Its graphs are dropped, and its optimiser is as the user made it."""
        self._drop(member)
        used = {id(i) for unit in self._units.values() for part in unit.parts for i in part.inputs}
        self._inputs = [i for i in self._inputs if id(i) in used]
        self._seen = {key: n for key, n in self._seen.items() if key[0] != member.name}
        self._lanes.give_back(member.name)
        self.uncapturable.pop(member.name, None)


class OneGraph(Graphs):
    """One captured graph for all, with a branch and a stream for each model; captured anew when the models change."""

    name = "graph"
    light = False

    def _grouped(self, ready: list[tuple[Member, tuple[object, ...]]]) -> list[tuple[tuple[object, ...], list[Member]]]:
        return [(tuple(key for _, key in ready), [member for member, _ in ready])] if ready else []

    def _blame(self, members: list[Member], error: Exception) -> None:
        """One of them spoilt it for all: each is tried alone, and those that fail are left out."""
        if len(members) == 1:
            super()._blame(members, error)
            return
        for member in members:
            try:
                Unit([self._part(member)], self._lanes.of(member.name))
            except Exception as own:
                super()._blame([member], own)
        if not any(member.name in self.uncapturable for member in members):
            super()._blame(members, error)
