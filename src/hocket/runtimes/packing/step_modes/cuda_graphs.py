"""Captured steps: each model's whole step as CUDA graph work on a stream of its own, replayed by one launch.

`CudaGraphs` captures one graph per model and replays them side by side; `OneCudaGraph` captures one for all, with a
branch per model. Random draws stay each model's own: a graph keeps the generators that it was captured with.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim.lr_scheduler import ReduceLROnPlateau

from hocket.runtimes.packing.member import Member
from hocket.runtimes.packing.rng_state import WATCHED_STEPS, python_numpy_states, same_states, set_python_numpy_states
from hocket.runtimes.packing.step_modes.captured_optimiser import CapturedOptimiser, as_made
from hocket.runtimes.packing.step_modes.step_mode import OneByOne
from hocket.runtimes.packing.step_modes.streams import CaptureStream, CaptureStreams
from hocket.runtimes.packing.tensors import leaves, mapped, shape

WARM_STEPS = (
    WATCHED_STEPS  # eager ones before a capture: libraries choose their algorithms, optimisers make their state
)

DRAWS = "draws random numbers on the host"
CACHED_SHARE = 0.25  # of the device's memory


class StaticInput:
    """A batch at a fixed place, from which captured steps read. Models that see the same batches share it."""

    def __init__(self, value: Any, token: object) -> None:
        self.value = mapped(value, lambda tensor: tensor.clone())
        self.tensors = [leaf for leaf in leaves(self.value) if isinstance(leaf, Tensor)]
        self.token = token
        self.filled_in = -1  # in which round

    def fill(self, value: Any, token: object, round_: int, copies: GroupedCopies) -> bool:
        """Schedule a copy of this batch to here; False if another model's batch is copied here in this round."""
        if self.filled_in == round_:
            return token is not None and token == self.token
        copies.add(self.tensors, [leaf for leaf in leaves(value) if isinstance(leaf, Tensor)])
        self.token, self.filled_in = token, round_
        return True


class GroupedCopies:
    """Copies to be made: those of one type by one call."""

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


class CapturedModel:
    """One model's part of a captured graph."""

    def __init__(self, member: Member, inputs: list[StaticInput], stream: torch.cuda.Stream, exact: bool) -> None:
        self.member, self.inputs, self.stream = member, inputs, stream
        self.optimiser = CapturedOptimiser(member, exact)
        self.loss: Tensor | None = None
        self._gradients: list[Tensor | None] = []

    def record(self) -> None:
        """Issue the step's work; called during a capture."""
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
            member.rng.install()
            try:
                member.update()
            finally:
                member.rng.read_back()
        else:
            self.optimiser.count()
        assert self.loss is not None
        member.done(self.loss)


class CapturedGraph:
    """A captured graph and the models in it."""

    def __init__(self, parts: list[CapturedModel], capture_stream: CaptureStream) -> None:
        self.parts, self.stream = parts, capture_stream.stream
        self._done = torch.cuda.Event()  # type: ignore[no-untyped-call]
        self._graph = torch.cuda.CUDAGraph()
        try:
            self._capture(capture_stream)
        except Exception:
            capture_stream.forget()  # A capture that broke may have left its memory unusable.
            raise

    def _capture(self, capture_stream: CaptureStream) -> None:
        """Record the work; nothing is computed."""
        torch.cuda.synchronize(self.stream.device)
        pool = capture_stream.pool()
        members = [part.member for part in self.parts]
        generators = [m.rng.cuda.get_state() for m in members if m.rng.cuda is not None]
        before = torch.default_generator.get_state()
        for member in members:
            if member.rng.cuda is not None:
                self._graph.register_generator_state(member.rng.cuda)
        began = False
        try:
            with torch.cuda.stream(self.stream):
                members[0].rng.install()
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
                member.rng.replace_cuda(state)
                member.optimiser.zero_grad(set_to_none=True)
            raise
        finally:
            torch.default_generator.set_state(before)

    def _branch(self, part: CapturedModel, host: Tensor) -> None:
        part.member.rng.install()
        torch.default_generator.set_state(host)
        part.stream.wait_stream(self.stream)
        foreign = python_numpy_states()
        with torch.cuda.stream(part.stream):
            part.record()
        if not same_states(python_numpy_states(), foreign):
            set_python_numpy_states(foreign)
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
        torch.cuda.set_stream(self.stream)  # The caller restores its stream: a context for each graph would be slow.
        self._graph.replay()
        self._done.record(self.stream)
        return self._done


class CudaGraphs:
    """A captured graph a model, replayed side by side on streams of their own."""

    name = "graphs"
    joins_cheaply = True

    def __init__(self, exact: bool, streams: CaptureStreams) -> None:
        self.uncapturable: dict[str, str] = {}  # by model: why
        self.exact = exact
        self._solo = OneByOne()
        self._streams = streams
        self._filled = torch.cuda.Event()  # type: ignore[no-untyped-call]
        self._seen: dict[tuple[object, ...], int] = {}  # eager steps by model and shape
        self._graphs: dict[tuple[object, ...], CapturedGraph] = {}
        self._inputs: list[StaticInput] = []
        self._captured: set[tuple[str, str]] = set()  # kinds of models that could be
        self._round = 0
        self._copies = GroupedCopies()

    def refuses(self, member: Member) -> str | None:
        """Why a model cannot be captured."""
        if member.device.type != "cuda":
            return "graphs can be captured only on CUDA devices"
        if member.solo_only is not None:
            return member.solo_only
        if isinstance(member.schedule, ReduceLROnPlateau):
            return "its schedule needs every loss"
        return None

    def step(self, members: Sequence[Member]) -> dict[str, Exception]:
        """Replay what is captured, capture what is warm, and step the rest one by one."""
        self._round += 1
        ready: list[tuple[Member, tuple[object, ...]]] = []
        eager: list[Member] = []
        for member in members:
            key: tuple[object, ...] = (member.name, *(b.shape for b in member.batches()))
            self._seen[key] = self._seen.get(key, 0) + 1
            if member.rng.swaps_python_numpy and member.step >= WATCHED_STEPS:
                self.uncapturable[member.name] = DRAWS
            if (
                member.has_all_batches
                and self._seen[key] > self._warm_steps(member)
                and member.name not in self.uncapturable
            ):
                ready.append((member, key))
            else:
                eager.append(member)
        graphs: list[CapturedGraph] = []
        for key, group in self._grouped(ready):
            graph = self._graph_of(key, group)
            if graph is None:
                eager += group
            else:
                graphs.append(graph)
        self._replay(graphs)
        return self._eager(eager)

    def _warm_steps(self, member: Member) -> int:
        """One step initialises the libraries on its stream, if no such model draws on the host."""
        return (
            WARM_STEPS if member.rng.swaps_python_numpy and (member.layers, member.shapes) not in self._captured else 1
        )

    def _grouped(self, ready: list[tuple[Member, tuple[object, ...]]]) -> list[tuple[tuple[object, ...], list[Member]]]:
        return [(key, [member]) for member, key in ready]

    def _graph_of(self, key: tuple[object, ...], members: list[Member]) -> CapturedGraph | None:
        """The captured graph of these models, filled with their batches; None if there is none for this step."""
        graph = self._graphs.get(key)
        if graph is not None and not graph.stale() and self._fill(graph):
            return graph
        self._graphs.pop(key, None)
        parts: list[CapturedModel] = []
        try:
            for member in members:
                parts.append(self._part(member))
            self._make_room(members[0].device)
            graph = CapturedGraph(parts, self._streams.of(members[0].name if len(members) == 1 else ""))
        except Exception as error:
            self._blame(members, error)
            return None
        self._graphs[key] = graph
        self._captured.update((m.layers, m.shapes) for m in members)
        return graph

    def _make_room(self, device: torch.device) -> None:
        """Free memory that is reserved for eager steps: a capture could neither use it nor free it."""
        idle = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        if idle > CACHED_SHARE * torch.cuda.get_device_properties(device).total_memory:
            torch.cuda.synchronize(device)
            self._streams.forget_spare()
            torch.cuda.empty_cache()

    def _blame(self, members: list[Member], error: Exception) -> None:
        for member in members:
            said = str(error).splitlines()
            self.uncapturable[member.name] = said[0] if said else type(error).__name__
            self._drop(member)

    def _part(self, member: Member) -> CapturedModel:
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
                found = StaticInput(batch.value, batch.token)
                found.fill(batch.value, batch.token, self._round, self._copies)
                self._inputs.append(found)
            inputs.append(found)
        return CapturedModel(member, inputs, self._streams.of(member.name).stream, self.exact)

    def _fill(self, graph: CapturedGraph) -> bool:
        return all(
            there.fill(batch.value, batch.token, self._round, self._copies)
            for part in graph.parts
            for there, batch in zip(part.inputs, part.member.batches(), strict=True)
        )

    def _replay(self, graphs: list[CapturedGraph]) -> None:
        self._copies.make()
        if not graphs:
            return
        for graph in graphs:
            graph.refresh()
        if len(graphs) == 1:  # Nothing runs beside it: it runs on the stream that copied its input.
            graphs[0].replay()
        else:
            main = torch.cuda.current_stream(graphs[0].stream.device)
            self._filled.record(main)
            try:
                ends = [graph.replay_after(self._filled) for graph in graphs]
            finally:
                torch.cuda.set_stream(main)
            for ended in ends:
                main.wait_event(ended)
        for graph in graphs:
            for part in graph.parts:
                part.finish()

    def _eager(self, members: list[Member]) -> dict[str, Exception]:
        if not members:
            return {}
        # On one side stream for all: warm-up before a capture needs one, and each stream has memory of its own.
        stream, main = self._streams.of("").stream, torch.cuda.current_stream(members[0].device)
        stream.wait_stream(main)
        with torch.cuda.stream(stream):
            failed = self._solo.step(members)
        main.wait_stream(stream)
        return failed

    def _drop(self, member: Member) -> None:
        """Drop the graphs that contain it."""
        for key in [k for k, graph in self._graphs.items() if any(p.member is member for p in graph.parts)]:
            del self._graphs[key]
        as_made(member)

    def is_warm(self, members: Sequence[Member]) -> bool:
        """Whether the next step of all that can be captured is made by a graph."""
        return all(
            member.name in self.uncapturable
            or self._seen.get((member.name, *(b.shape for b in member.batches())), 0) >= self._warm_steps(member)
            for member in members
        )

    def release(self, member: Member) -> None:
        """Its graphs are dropped, and its optimiser is as the user made it."""
        self._drop(member)
        used = {id(i) for graph in self._graphs.values() for part in graph.parts for i in part.inputs}
        self._inputs = [i for i in self._inputs if id(i) in used]
        self._seen = {key: n for key, n in self._seen.items() if key[0] != member.name}
        self._streams.give_back(member.name)
        self.uncapturable.pop(member.name, None)


class OneCudaGraph(CudaGraphs):
    """One captured graph for all, with a branch and a stream for each model; captured again when the models change."""

    name = "graph"
    joins_cheaply = False

    def _grouped(self, ready: list[tuple[Member, tuple[object, ...]]]) -> list[tuple[tuple[object, ...], list[Member]]]:
        return [(tuple(key for _, key in ready), [member for member, _ in ready])] if ready else []

    def _blame(self, members: list[Member], error: Exception) -> None:
        """The capture failed: each model is tried alone, and those that fail are left out."""
        if len(members) == 1:
            super()._blame(members, error)
            return
        for member in members:
            try:
                CapturedGraph([self._part(member)], self._streams.of(member.name))
            except Exception as own:
                super()._blame([member], own)
        if not any(member.name in self.uncapturable for member in members):
            super()._blame(members, error)
