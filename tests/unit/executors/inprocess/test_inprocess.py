"""The in-process executor on its port: every action, and what is told of it."""

from __future__ import annotations

from itertools import count, pairwise
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from hocket.executors.inprocess.executor import InProcessExecutor
from hocket.executors.inprocess.model_factory import OTHERS, STEP_S, Stretch
from hocket.model.action import Checkpoint, End, Move, Pause, Prepare, Resize, Resume, Start, Store
from hocket.model.event import (
    EpochEnded,
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
from hocket.model.partition import Holding, Partition, Sharing, Slice, Tenant
from hocket.model.view import Tier
from hocket.pack import Pack, Refused, Training

DATA = TensorDataset(torch.randn(64, 4), torch.randint(3, (64,)))


class ModelFactory:
    """Small models; "t1@2" trains model t1 to step 20."""

    def __init__(self, breaks: str = "") -> None:
        self.made: list[str] = []
        self._breaks = breaks

    def stretch(self, job: str) -> Stretch:
        model, _, units = job.partition("@")
        return Stretch(model, int(units) * 10, int(units))

    def training(self, job: str) -> Training:
        self.made.append(job)
        if job == self._breaks:
            raise Refused("it cannot be made")
        torch.manual_seed(0)
        model = nn.Linear(4, 3)
        optimiser = torch.optim.SGD(model.parameters(), 0.1)
        loader = DataLoader(DATA, 8, shuffle=True)
        return Training(self.stretch(job).model, model, optimiser, loader, 1 << 30, loss=nn.CrossEntropyLoss())

    def metrics(self, _job: str, module: nn.Module) -> dict[str, float]:
        return {"sum": float(sum(p.double().sum() for p in module.parameters()))}


class World:
    """An executor and a clock that goes on a little whenever it is looked at."""

    def __init__(self, folder: Path | None = None, breaks: str = "", tick_s: float = 0.03, **options) -> None:
        self.seconds, self.tick_s = 0.0, tick_s  # With 0.03, a burst of training is seven steps long.
        self.workshop = ModelFactory(breaks)
        options = {"mode": "turn", "checkpoint_s": 1e9, **options}
        self.executor = InProcessExecutor(self.workshop, self.now_s, checkpoints=folder, **options)

    def now_s(self) -> float:
        self.seconds += self.tick_s
        return self.seconds

    def do(self, *actions) -> list:
        self.executor.apply(actions)
        moment = self.executor.wait(None)
        return list(moment[1]) if moment is not None else []


def begin(kind, job: str, partition: str = "p") -> Start | Resume:
    slices = (Slice("cpu", (), 1.0),)
    whole = Partition(partition, slices, (Tenant(job, (1,)),), Sharing.PACKED)
    return kind(job, "", Holding(partition, slices, (1,)), whole)


def kinds(events: list) -> list[tuple[type, str]]:
    return [(type(e), e.job) for e in events]


def test_a_stretch_starts_is_trained_judged_and_over() -> None:
    world = World()
    assert kinds(world.do(begin(Start, "a@1"), begin(Start, "b@2"))) == [(JobStarted, "a@1"), (JobStarted, "b@2")]
    first = world.do()
    assert kinds(first) == [(EpochEnded, "a@1"), (JobEnded, "a@1")]
    assert first[0].epoch == 1
    assert first[0].metrics.keys() >= {"loss", "sum", STEP_S, OTHERS}
    assert first[0].metrics[OTHERS] == 1
    assert kinds(world.do()) == [(EpochEnded, "b@2"), (JobEnded, "b@2")]
    assert world.executor.wait(None) is None, "nothing more will come"


def test_time_that_was_passed_over_is_past_for_all_that_follows() -> None:
    world = World()
    assert world.executor.wait(1000.0) == (1000.0, ())
    assert world.seconds < 1
    assert world.executor.now_s() > 1000
    (started,) = world.do(begin(Start, "a@1"))
    assert started.at_s > 1000


def sum_after(*jobs: str, folder: Path | None = None) -> float:
    world = World(folder)
    for job in jobs:
        world.do(begin(Start, job))
        events = world.do()
    return events[0].metrics["sum"]


def test_a_later_stretch_goes_on_where_the_model_stands(tmp_path: Path) -> None:
    whole = sum_after("a@3")
    assert sum_after("a@1", "a@3") == whole
    sum_after("a@1", folder=tmp_path)
    assert sum_after("a@3", folder=tmp_path) == whole, "also in another process, from the disk"


def test_a_stretch_that_was_over_before_the_kill_is_judged_and_not_trained(tmp_path: Path) -> None:
    whole = sum_after("a@2", folder=tmp_path)
    world = World(tmp_path)
    steps = []
    world.executor._stepped = steps.append
    world.do(begin(Start, "a@2"))
    assert world.do()[0].metrics["sum"] == whole
    assert steps == []


def test_paused_and_resumed_a_model_is_as_if_it_had_gone_on() -> None:
    whole = sum_after("a@3")
    world = World()
    world.do(begin(Start, "a@3"))
    world.executor._train("p")
    assert kinds(world.do(Pause("a@3"))) == [(JobPaused, "a@3")]
    assert world.executor.wait(None) is None
    assert kinds(world.do(begin(Resume, "a@3"))) == [(JobStarted, "a@3")]
    assert world.do()[0].metrics["sum"] == whole


def test_moved_to_another_pack_it_goes_on() -> None:
    world = World()
    world.do(begin(Start, "a@2"), begin(Start, "b@2"))
    assert kinds(world.do(begin(Move, "a@2", "q"))) == [(JobMoved, "a@2")]
    assert len(world.executor._packs) == 2
    assert {job for _kind, job in kinds(world.do() + world.do())} == {"a@2", "b@2"}


def test_an_ended_model_is_gone_and_its_companion_goes_on() -> None:
    world = World()
    world.do(begin(Start, "a@2"), begin(Start, "b@2"))
    assert world.do(End("a@2", "stopped")) == [JobEnded(pytest.approx(world.seconds, abs=1.0), "a@2", "stopped")]
    assert kinds(world.do()) == [(EpochEnded, "b@2"), (JobEnded, "b@2")]


def test_the_smaller_actions_are_answered(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.do(begin(Start, "a@9"))
    world.executor._train("p")
    answers = world.do(Checkpoint("a@9", Tier.DISK), Prepare("x@1"), Store("y@1", Tier.DISK), begin(Resize, "a@9"))
    assert [type(e) for e in answers] == [JobCheckpointed, JobPrepared, StateStored, JobResized]
    assert (tmp_path / "a.pt").exists()


def test_models_are_saved_every_so_often(tmp_path: Path) -> None:
    world = World(tmp_path, checkpoint_s=0.5)
    world.do(begin(Start, "a@999"))
    assert kinds(world.do()) == [(JobCheckpointed, "a@999")]
    assert (tmp_path / "a.pt").exists()


def test_saving_that_takes_long_is_done_rarely(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path, tick_s=0.3, checkpoint_s=0.5)
    put = world.executor.checkpoints.put

    def slowly(member, reason) -> None:
        world.seconds += 3
        put(member, reason)

    monkeypatch.setattr(world.executor.checkpoints, "put", slowly)
    world.do(begin(Start, "a@999"))
    times_s = [world.do()[0].at_s for _ in range(3)]
    assert all(later - sooner >= 20 * 3 for sooner, later in pairwise(times_s))


def test_stopped_it_saves_all_models_and_says_so() -> None:
    world = World()
    world.do(begin(Start, "a@5"), begin(Start, "b@5"))
    world.executor._train("p")
    world.executor.stop()
    assert kinds(world.do()) == [(JobCheckpointed, "a@5"), (JobCheckpointed, "b@5")]
    assert world.executor.wait(None) is None


def test_a_model_that_cannot_be_made_fails_alone() -> None:
    world = World(breaks="a@1")
    events = world.do(begin(Start, "a@1"), begin(Start, "b@1"))
    assert kinds(events) == [(JobFailed, "a@1"), (JobStarted, "b@1")]
    assert events[0].final
    assert events[0].reason == "it cannot be made"
    assert kinds(world.do()) == [(EpochEnded, "b@1"), (JobEnded, "b@1")]


def test_one_that_finds_no_room_starts_when_another_has_left() -> None:
    world = World(memory_mib=100.0)
    assert world.executor.need_mib("a@1") > 0
    need = world.executor._scales.predict(world.workshop.training("a@1"))
    world = World(memory_mib=(need.peak + need.stays / 2) / 2**20)
    assert kinds(world.do(begin(Start, "a@1"), begin(Start, "b@1"))) == [(JobStarted, "a@1")]
    later = world.do()
    assert (JobStarted, "b@1") in kinds(later)
    assert (JobEnded, "a@1") in kinds(later)
    assert kinds(world.do()) == [(EpochEnded, "b@1"), (JobEnded, "b@1")]


def test_a_model_is_made_once_if_it_was_weighed_before() -> None:
    world = World(memory_mib=100.0)
    world.executor.need_mib("a@1")
    world.do(begin(Start, "a@1"))
    assert world.workshop.made == ["a@1"]


def test_of_models_that_were_weighed_only_so_many_are_kept_as_memory_has_room_for() -> None:
    world = World(memory_mib=100.0)
    one = sum(p.numel() * p.element_size() for p in world.workshop.training("z@1").module.parameters())
    world.executor._waiting.most = 64 * 2  # CUDA's allocator rounds up, and so does the dry run
    assert one <= 128
    for name in "abcd":
        assert world.executor.need_mib(f"{name}@1") > 0
    assert len(world.executor._built) < 4, "all models that wait are held in memory"
    world.workshop.made.clear()
    ends = kinds(world.do(*(begin(Start, f"{name}@1") for name in "abcd")) + world.do())
    assert {job for kind, job in ends if kind is JobEnded} == {f"{name}@1" for name in "abcd"}
    assert world.workshop.made, "those that were not kept are made again"
    assert world.executor._waiting.taken == 0


def test_of_a_model_that_fails_no_good_state_is_kept() -> None:
    world = World()
    world.do(begin(Start, "a@1"), begin(Start, "b@1"))
    assert all(not pack._last_good for pack in world.executor._packs.values())


def test_a_timer_comes_while_models_train() -> None:
    world = World()
    world.do(begin(Start, "a@1000"))
    until_s = world.seconds + 0.5
    moment = world.executor.wait(until_s)
    assert moment is not None
    assert moment[0] >= until_s
    assert list(moment[1]) == []


def test_steps_beside_others_and_steps_in_turn_are_measured_by_one_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a machine where others are at work seems to slow packs down, and nothing else."""
    ticks = count()
    monkeypatch.setattr(Pack, "clock_s", lambda _pack: next(ticks) * 7.0)
    world = World()
    world.do(begin(Start, "a@1"))
    (ended, _) = world.do()
    assert ended.metrics[STEP_S] * 10 % 7.0 == pytest.approx(0)


def test_time_goes_on_from_the_moment_until_which_nothing_ran() -> None:
    world = World()
    assert world.executor.wait(100.0) == (100.0, ()), "nothing can happen before"
    world.executor.apply([begin(Start, "a@1")])
    at_s, events = world.executor.wait(None)
    assert 100.0 <= events[0].at_s <= at_s < 101.0
