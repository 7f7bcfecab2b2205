"""The time of one training step: each model by a plain loop of its own, as a CUDA graph of its own, or packed."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from hocket.runtimes.packing.mode_choice import Measurements
from hocket.runtimes.packing.pack import Pack
from hocket.runtimes.packing.training import Training
from hocket_reproductions.pack.setups import Setup

AT_LEAST = 3  # steps of a figure


def device_here() -> str:
    """The device that there is."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def one_thread() -> None:
    """On a CPU one thread is faster for small tensors, and other processes disturb it less."""
    torch.set_num_threads(1)


def device_named(device: str) -> str:
    """What it is, for a table."""
    if device == "cuda":
        return torch.cuda.get_device_name()
    threads = torch.get_num_threads()
    return f"CPU, {threads} thread{'s' if threads > 1 else ''}"


def wait(device: str) -> None:
    """Wait until the device has finished."""
    if device == "cuda":
        torch.cuda.synchronize()


def clean(device: str) -> None:
    """Free the memory of earlier measurements."""
    gc.collect()
    if device == "cuda":
        torch.cuda.synchronize()
        torch.cuda.empty_cache()


def clock(device: str) -> Callable[[], float]:
    """Seconds on a GPU; on a CPU the CPU time of this process, which other processes do not disturb."""
    return time.perf_counter if device == "cuda" else time.process_time


def timed(step: Callable[[], None], device: str, budget_s: float) -> float:
    """Seconds a call, over as many calls as fit the budget; the smallest of three rounds, since noise only adds."""
    now = clock(device)
    for _ in range(2):
        step()
    wait(device)
    began = now()
    step()
    wait(device)
    once = max(now() - began, 1e-6)
    calls = max(AT_LEAST, min(300, int(budget_s / 3 / once)))
    rounds = 3 if once * calls * 3 < 2 * budget_s else 1
    found = []
    for _ in range(rounds):
        began = now()
        for _ in range(calls):
            step()
        wait(device)
        found.append((now() - began) / calls)
    return min(found)


class Alone:
    """One model, trained by a plain PyTorch loop. Without preprocessing, one ready batch is copied in each step."""

    def __init__(self, setup: Setup, device: str, seed: int = 0) -> None:
        self.model = setup.model(seed).to(device)
        self.optimiser = setup.optimiser_of(self.model)
        self.loss = nn.CrossEntropyLoss()
        self.device = device
        self._batches = endless(setup.loader()) if setup.preprocess else None
        self._ready: list[Tensor] = []
        self._static: list[Tensor] = []
        self._graph: torch.cuda.CUDAGraph | None = None
        if self._batches is None:
            self._ready = [t.pin_memory() if device == "cuda" else t for t in next(iter(setup.loader()))]
            self._static = [t.to(device) for t in self._ready]

    def capture(self) -> Alone:
        """The whole step as a CUDA graph."""
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        with torch.cuda.stream(side):
            for _ in range(3):
                self._train(self._static)
        torch.cuda.synchronize()
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._train(self._static)
        return self

    def bring(self) -> list[Tensor]:
        """The next batch on the device."""
        if self._batches is not None:
            return [t.to(self.device, non_blocking=True) for t in next(self._batches)]
        if self.device == "cuda":
            for there, here in zip(self._static, self._ready, strict=True):
                there.copy_(here, non_blocking=True)
        return self._static

    def step(self, batch: list[Tensor] | None = None) -> None:
        """One step, with its own next batch unless it is given one."""
        batch = self.bring() if batch is None else batch
        if self._graph is not None:
            self._graph.replay()
        else:
            self._train(batch)

    def _train(self, batch: list[Tensor]) -> None:
        self.optimiser.zero_grad(set_to_none=True)
        self.loss(self.model(batch[0]), batch[1]).backward()
        self.optimiser.step()


def endless(batches: DataLoader[Any]) -> Iterator[Any]:
    """Epoch after epoch."""
    while True:
        yield from batches


def in_turn_s(setup: Setup, n: int, device: str, budget_s: float, graphs: bool = False) -> float:
    """n equal models in one process, one after another in each step on one batch that is copied once; plain PyTorch."""
    clean(device)
    models = [Alone(setup, device, seed) for seed in range(n)]
    if graphs:
        for model in models:
            model.capture()

    def step() -> None:
        batch = models[0].bring()
        for model in models:
            model.step(batch)

    return timed(step, device, budget_s)


def sequential_s(setups: Sequence[Setup], device: str, budget_s: float) -> float:
    """The paper's T_s(Seq): each model isolated, its step times added up."""
    found: dict[Setup, float] = {}
    for setup in dict.fromkeys(setups):
        clean(device)
        found[setup] = timed(Alone(setup, device).step, device, budget_s)
    return sum(found[setup] for setup in setups)


@dataclass(frozen=True)
class Packed:
    """What a pack of some models took."""

    step_s: float
    mode: str
    modes_s: dict[str, float]  # as far as the probe measured them
    load_s: float
    settle_s: float  # from the first step until the mode is chosen, warm and certified
    certificate: str  # the worst


def loaded(setups: Sequence[Setup], device: str, **options: Any) -> Pack:
    """A pack of these models, on the device."""
    pack = Pack(device, **options)
    for number, setup in enumerate(setups):
        model = setup.model(number)
        pack.load(
            Training(
                f"m{number}", model, setup.optimiser_of(model), setup.loader(), 1 << 30, loss=nn.CrossEntropyLoss(),
                seed=number,
            )
        )  # fmt: skip
    return pack


def settled(pack: Pack) -> None:
    """Step until the mode is chosen, captured and certified."""
    while pack.is_probing or not pack.steps:
        pack.step()
    for _ in range(6 if pack.device.type == "cuda" else 2):
        pack.step()


def packed(setups: Sequence[Setup], device: str, budget_s: float, **options: Any) -> Packed:
    """Through the public API, with data; without times of earlier packs."""
    clean(device)
    now = clock(device)
    began = now()
    pack = loaded(setups, device, remembered=Measurements(), **options)
    wait(device)
    on_device = now()
    settled(pack)
    wait(device)
    ready = now()
    step_s = timed(pack.step, device, budget_s)
    worst = max(pack.certificates.values(), key=lambda c: c.max_ulp, default=None)
    said = str(worst) if worst else "turn: bitwise"
    return Packed(step_s, pack.mode, pack.times_s(), on_device - began, ready - on_device, said)


STEPS = 12


@dataclass(frozen=True)
class PredictedPeak:
    """Of one pack, in MiB."""

    predicted_mib: float
    seen_mib: float | None  # None where no allocator can be asked


def measure_peak(setups: Sequence[Setup], device: str, mode: str = "turn") -> PredictedPeak:
    """Predicted for all of them before the first is loaded; seen over a few steps."""
    clean(device)
    if device == "cuda":
        torch._C._cuda_clearCublasWorkspaces()
    trainings = []
    for number, setup in enumerate(setups):
        model = setup.model(number)
        made = setup.optimiser_of(model)
        trainings.append(Training(f"m{number}", model, made, setup.loader(), STEPS, loss=nn.CrossEntropyLoss()))
    pack = Pack(device, mode=mode, keep_every=2, check_every=2)
    before = 0
    if device == "cuda":
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
    predicted = pack.memory.total(mode != "turn", [(t, pack.predict(t)) for t in trainings])
    for training in trainings:
        pack.load(training)
    for _ in pack.run():
        pass
    seen = None if device != "cuda" else (torch.cuda.max_memory_allocated() - before) / (1 << 20)
    return PredictedPeak(predicted / (1 << 20), seen)


@dataclass(frozen=True)
class Switching:
    """Seconds; an epoch is a number of steps."""

    steps: int
    sequence_s: float  # two models, one after the other: loaded, trained, taken off the device
    models_s: tuple[float, float]  # their training alone
    packed_s: float  # both in one pack, loading, probe and taking off included

    @property
    def overhead_s(self) -> float:
        """The paper's SwOH(2)."""
        return self.sequence_s - sum(self.models_s)


def measure_switching(setup: Setup, steps: int, device: str) -> Switching:
    """Two models of one kind for an epoch each."""
    clean(device)
    Alone(setup, device).step()  # One-time costs of the process are not part of a switch.
    clean(device)
    now = clock(device)
    trained: list[float] = []
    began = now()
    for seed in range(2):
        model = Alone(setup, device, seed)
        model.step()  # The first step makes the optimiser's state and lets libraries choose: part of the switch.
        wait(device)
        since = now()
        for _ in range(steps):
            model.step()
        wait(device)
        trained.append(now() - since)
        model.model.cpu()
        del model
        clean(device)
    sequence_s = now() - began
    began = now()
    pack = loaded([setup, setup], device)
    settled(pack)
    while pack.steps < steps:
        pack.step()
    for name in list(pack.members):
        pack.free(name)
    wait(device)
    return Switching(steps, sequence_s, (trained[0], trained[1]), now() - began)
