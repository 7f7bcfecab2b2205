"""Training on one host: what is computed does not depend on workers, and what is wrong with updates is said."""

import json
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.unit.runtimes.paramserver.least_squares import (
    TRUTH,
    LeastSquares,
    SparseLeastSquares,
    dense_blocks,
    sparse_blocks,
    trained,
)
from tests.unit.runtimes.paramserver.turns import LeaveAfter

from hocket.runtimes.paramserver.algorithm import Algorithm, Array, DataBlock, TrainingError
from hocket.runtimes.paramserver.host_group import HostGroup
from hocket.runtimes.paramserver.model_shard import ModelShard, Update
from hocket.runtimes.paramserver.pull_plan import ArrayLayout
from hocket.runtimes.paramserver.training import EpochEnd, Paused
from hocket.runtimes.paramserver.worker_pool import WorkerPool


@pytest.mark.parametrize(("algorithm", "blocks"), [(LeastSquares, dense_blocks), (SparseLeastSquares, sparse_blocks)])
def test_training_finds_the_truth_and_is_the_same_to_the_last_bit_with_any_number_of_workers(
    algorithm: type[Algorithm], blocks: Any
) -> None:
    one, four = (trained(algorithm(), blocks(), workers=n, epochs=300, batch=3) for n in (1, 4))
    np.testing.assert_allclose(one.model["weights"], TRUTH, atol=1e-4)
    assert (one.model["weights"] == four.model["weights"]).all()
    assert one.objective == four.objective
    assert one.objective is not None
    assert one.objective < 1e-4
    assert (one.epochs, one.iterations) == (300, 600)


def test_workers_of_an_iteration_see_the_same_version_of_the_model() -> None:
    seen: list[tuple[str, float]] = []

    class Watching(LeastSquares):
        def compute(self, block: DataBlock, params: Mapping[str, Array]) -> Mapping[str, Array]:
            seen.append((block.name, float(params["weights"].sum())))
            return super().compute(block, params)

    trained(Watching(), dense_blocks(4), batch=2, epochs=1)
    values = dict(seen)
    assert values["block 0"] == values["block 1"] != values["block 2"] == values["block 3"]


def test_params_cannot_be_changed_by_mistake() -> None:
    class Changing(LeastSquares):
        def compute(self, block: DataBlock, params: Mapping[str, Array]) -> Mapping[str, Array]:  # noqa: ARG002
            params["weights"][...] = 0
            return {}

    for blocks in (dense_blocks(), dense_blocks(1)):
        with pytest.raises(ValueError, match="read-only"):
            trained(Changing(), blocks)


def test_servers_may_apply_updates_by_a_rule_of_their_own_also_to_some_rows() -> None:
    class Halving(SparseLeastSquares):
        """Only rows that a block is about are touched; `counts` is never pulled."""

        def init(self, rng: np.random.Generator) -> Mapping[str, Array]:
            return {**super().init(rng), "counts": np.zeros(len(TRUTH), np.int64)}

        def apply(self, values: Mapping[str, Array], updates: Mapping[str, Array], iteration: int) -> None:
            assert list(updates) == ["weights"]
            values["weights"][...] += updates["weights"] / 2
            values["counts"][...] += iteration

    found = trained(Halving(), sparse_blocks()[:2], batch=1, epochs=2, workers=2)
    # Blocks are about rows 0 and 2 (iterations 1 and 3), and 1 and 3 (iterations 2 and 4).
    assert found.model["counts"].tolist() == [4, 6, 4, 6, 0, 0]
    start = LeastSquares().init(np.random.default_rng(0))["weights"]
    assert (found.model["weights"][4:] == start[4:]).all()
    assert (found.model["weights"][:4] != start[:4]).all()


def test_what_a_block_returns_is_not_changed_by_later_blocks_and_may_be_the_model_itself() -> None:
    class Same(LeastSquares):
        """Iterations of two blocks and of one take turns."""

        def compute(self, block: DataBlock, params: Mapping[str, Array]) -> Mapping[str, Array]:
            if block.name == "block 2":
                return {"weights": params["weights"]}
            return {"weights": block.data["constant"]}

        def apply(self, values: Mapping[str, Array], updates: Mapping[str, Array], iteration: int) -> None:  # noqa: ARG002
            values["weights"][...] *= 10
            values["weights"][...] += updates["weights"]

    blocks = [DataBlock(block.name, {**block.data, "constant": np.ones(6)}) for block in dense_blocks(3)]
    found = trained(Same(), blocks, batch=2, epochs=3, objective_every=0)
    expected = LeastSquares().init(np.random.default_rng(0))["weights"]
    for _ in range(3):
        expected = (expected * 10 + 2) * 11
    np.testing.assert_allclose(found.model["weights"], expected)
    assert all((block.data["constant"] == 1).all() for block in blocks)


def test_it_reports_epochs_and_stops_at_its_target() -> None:
    reports: list[tuple[Any, Any]] = []
    ends: list[EpochEnd] = []
    found = trained(
        LeastSquares(), dense_blocks(), epochs=500, batch=2, target=0.5, objective_every=2, on_epoch=ends.append,
        report=lambda epoch=None, **more: reports.append((epoch, more)),
    )  # fmt: skip
    assert found.objective is not None
    assert found.objective <= 0.5
    assert found.epochs < 500
    epochs = [(epoch, more) for epoch, more in reports if epoch is not None]
    assert [epoch for epoch, _more in epochs] == list(range(1, found.epochs + 1))
    assert epochs[-1][1] == {"step": found.iterations, "objective": found.objective}
    assert [end.objective is None for end in ends[:4]] == [True, False, True, False]
    assert ends[-2].objective is None
    assert all(end.objective > 0.5 for end in ends[:-1] if end.objective is not None)


def test_phases_take_turns_and_none_waits_for_another_host_meanwhile() -> None:
    turns = LeaveAfter(99)
    trained(LeastSquares(), dense_blocks(2), epochs=1, objective_every=0, turns=turns)
    assert turns.phases == ["comm", "/comm", "comp", "/comp", "comm", "/comm"]


# -- pause and resume ----------------------------------------------------------------------------------------


def test_what_a_checkpoint_ends_with_is_reported_again_since_its_report_may_be_lost(tmp_path: Path) -> None:
    reports: list[tuple[Any, Any]] = []
    given = {"epochs": 4, "objective_every": 2, "checkpoint": tmp_path}
    with pytest.raises(Paused):
        trained(LeastSquares(), dense_blocks(), **given, turns=LeaveAfter(3))
    whole = trained(LeastSquares(), dense_blocks(), **given, report=lambda epoch=None, **m: reports.append((epoch, m)))
    assert [epoch for epoch, _more in reports] == [3, 4]
    assert reports[0][1] == {"step": 3}  # Its objective is of the epoch before.
    again = trained(LeastSquares(), dense_blocks(), **given, report=lambda epoch=None, **m: reports.append((epoch, m)))
    assert reports[2:] == [(4, {"step": 4, "objective": whole.objective})]
    assert again.objective == whole.objective


def test_a_job_that_is_paused_and_resumed_with_other_workers_ends_as_one_that_was_not(tmp_path: Path) -> None:
    undisturbed = trained(LeastSquares(), dense_blocks(), epochs=6, batch=2)
    folder = tmp_path / "checkpoint"
    for leaves, workers in ((4, 1), (11, 4)):
        with pytest.raises(Paused) as left:
            trained(
                LeastSquares(), dense_blocks(), epochs=6, batch=2, workers=workers, checkpoint=folder,
                turns=LeaveAfter(leaves),
            )  # fmt: skip
        assert left.value.code == 143
        assert [path.name for path in folder.iterdir()] == [f"iteration-{leaves:09d}"]
    blocks = dense_blocks()
    found = trained(LeastSquares(), blocks, epochs=6, batch=2, workers=3, checkpoint=folder)
    assert (found.model["weights"] == undisturbed.model["weights"]).all()
    assert found.objective == undisturbed.objective
    assert [float(block.state["seen"][0]) for block in blocks] == [6.0] * 5
    again = trained(LeastSquares(), dense_blocks(), epochs=6, batch=2, checkpoint=folder)
    assert again.iterations == found.iterations  # It has nothing left to do.
    assert again.objective == found.objective


def test_signals_are_heeded_at_the_end_of_an_iteration(tmp_path: Path) -> None:
    class Signalled(LeastSquares):
        def compute(self, block: DataBlock, params: Mapping[str, Array]) -> Mapping[str, Array]:
            found = super().compute(block, params)
            if block.state["seen"][0] in (3, 5):
                os.kill(os.getpid(), signal.SIGUSR1 if block.state["seen"][0] == 3 else signal.SIGTERM)
            return found

    before = signal.getsignal(signal.SIGTERM)
    saved: list[list[str]] = []
    with pytest.raises(Paused):
        trained(
            Signalled(), dense_blocks(1), epochs=9, checkpoint=tmp_path, checkpoint_every_s=1e9,
            on_epoch=lambda _end: saved.append([path.name for path in tmp_path.iterdir()]),
        )  # fmt: skip
    # One is saved after the first iteration, so that the job can be preempted.
    assert saved == [
        [],
        ["iteration-000000001"],
        ["iteration-000000001"],
        ["iteration-000000003"],
        ["iteration-000000003"],
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["iteration-000000005"]
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_signal_that_comes_while_hosts_agree_whether_to_save_is_heeded_after_the_next_iteration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, saved = HostGroup.exchange, []  # type: ignore[var-annotated]

    def exchange(group: HostGroup, point: str, said: Any, last: Any = None) -> list[Any]:
        if point == "ended 3":
            os.kill(os.getpid(), signal.SIGUSR1)
        return plain(group, point, said, last)

    monkeypatch.setattr(HostGroup, "exchange", exchange)
    trained(
        LeastSquares(), dense_blocks(1), epochs=6, checkpoint=tmp_path, checkpoint_every_s=1e9,
        on_epoch=lambda _end: saved.append([path.name for path in tmp_path.iterdir()]),
    )  # fmt: skip
    assert saved[3:5] == [["iteration-000000001"], ["iteration-000000004"]]


# -- what is refused -----------------------------------------------------------------------------------------


class Giving(LeastSquares):
    def __init__(self, updates: Any, only: str = "block 1") -> None:
        self.updates, self.only = updates, only

    def compute(self, block: DataBlock, params: Mapping[str, Array]) -> Any:
        return self.updates if block.name == self.only else super().compute(block, params)


@pytest.mark.parametrize(
    ("updates", "why"),
    [
        ({"weights": np.zeros(5)}, r"update of 'weights' has shape \(5,\); it must be \(6,\)"),
        ({"weights": np.array([0, 1, np.nan, 0, 0, 0])}, "update of 'weights' has a NaN or an infinite value"),
        ({"weights": np.array([0, 1, -np.inf, 0, 0, 0])}, "update of 'weights' has a NaN or an infinite value"),
        ({"weights": np.zeros(6, complex)}, "update of 'weights' is complex128; the array is float64"),
        ({"weight": np.zeros(6)}, "update of 'weight'; the block needs weights"),
        (None, r"compute\(\) gave NoneType"),
    ],
)
def test_a_bad_update_fails_with_the_name_of_its_block(updates: Any, why: str) -> None:
    with pytest.raises(TrainingError, match=f"^block 'block 1': {why}"):
        trained(Giving(updates), dense_blocks())


@pytest.mark.parametrize("blocks", [1, 3])
def test_an_update_that_is_too_large_for_the_arrays_type_fails_with_the_name_of_its_block(blocks: int) -> None:
    class Single(Giving):
        def init(self, rng: np.random.Generator) -> Mapping[str, Array]:
            return {name: array.astype(np.float32) for name, array in super().init(rng).items()}

    with pytest.raises(TrainingError, match=r"^block 'block 0': update of 'weights' has a NaN or an infinite value"):
        trained(Single({"weights": np.full(6, 1e300)}, "block 0"), dense_blocks(blocks), epochs=1, objective_every=0)


def test_large_updates_whose_sum_overflows_are_no_error() -> None:
    found = trained(
        Giving({"weights": np.full(6, 1e308)}, only="block 0"), dense_blocks(1), epochs=1, objective_every=0
    )
    assert (found.model["weights"] > 1e307).all()


@pytest.mark.parametrize(
    ("model", "why"),
    [
        ({}, "no arrays"),
        ({"a": np.zeros((0, 3))}, r"array 'a' has shape \(0, 3\)"),
        ({"a": np.float64(3)}, r"array 'a' has shape \(\)"),
        ({"a/b": np.zeros(3)}, "array 'a/b' must be named by letters"),
        ({"a": np.array(["x"])}, "array 'a' has type <U1"),
        ({"a": np.array([np.nan])}, "array 'a' has a NaN"),
    ],
)
def test_a_model_that_cannot_be_kept_is_refused(model: Any, why: str) -> None:
    class Starting(LeastSquares):
        def init(self, rng: np.random.Generator) -> Mapping[str, Array]:  # noqa: ARG002
            found: Mapping[str, Array] = model
            return found

    with pytest.raises(TrainingError, match=why):
        trained(Starting(), dense_blocks())


@pytest.mark.parametrize(
    ("needs", "why"),
    [
        ({"weight": None}, "needs array 'weight'; the model has weights"),
        ({"weights": np.array([2, 1])}, "not sorted, come twice, or are not within 0 and 5"),
        ({"weights": np.array([1, 1])}, "not sorted, come twice"),
        ({"weights": np.array([1, 6])}, "not within 0 and 5"),
        ({"weights": np.array([-1, 2])}, "not within 0 and 5"),
        ({"weights": np.array([0.5])}, "by a list of row numbers, not float64"),
    ],
)
def test_rows_that_are_not_there_are_refused(needs: Any, why: str) -> None:
    class Needing(LeastSquares):
        def needs(self, block: DataBlock) -> Mapping[str, Array | None]:  # noqa: ARG002
            found: Mapping[str, Array | None] = needs
            return found

    with pytest.raises(TrainingError, match=why):
        trained(Needing(), dense_blocks())


def test_an_objective_that_is_no_number_names_its_block() -> None:
    class Wild(LeastSquares):
        def objective(self, block: DataBlock, params: Mapping[str, Array]) -> float:  # noqa: ARG002
            return float("nan") if block.name == "block 3" else 0.0

    with pytest.raises(TrainingError, match="block 'block 3': the objective is nan"):
        trained(Wild(), dense_blocks())


@pytest.mark.parametrize(
    ("options", "why"),
    [({"workers": 0}, "workers must be at least 1, not 0"), ({"batch": 0}, "batch"), ({"epochs": 0}, "epochs")],
)
def test_options_are_checked(options: dict[str, int], why: str) -> None:
    with pytest.raises(TrainingError, match=why):
        trained(LeastSquares(), dense_blocks(), **options)
    with pytest.raises(TrainingError, match="blocks must be at least 1, not 0"):
        trained(LeastSquares(), [])


# -- checkpoints that do not fit -----------------------------------------------------------------------------


def test_a_checkpoint_of_other_training_is_refused(tmp_path: Path) -> None:
    trained(LeastSquares(), dense_blocks(), epochs=1, checkpoint=tmp_path)

    class Wider(LeastSquares):
        def init(self, rng: np.random.Generator) -> Mapping[str, Array]:  # noqa: ARG002
            return {"weights": np.zeros(7)}

    Wider.__name__ = "LeastSquares"
    for algorithm, blocks, options, why in (
        (SparseLeastSquares(), sparse_blocks()[:5], {}, "algorithm LeastSquares, this .* SparseLeastSquares"),
        (LeastSquares(), dense_blocks(4), {}, "of blocks 5, this training has blocks 4"),
        (LeastSquares(), dense_blocks(), {"seed": 3}, "of seed 0, this training has seed 3"),
        (Wider(), dense_blocks(), {}, r"'weights' is float64 \(7,\), in the checkpoint float64 \(6,\)"),
    ):
        with pytest.raises(TrainingError, match=why):
            trained(algorithm, blocks, checkpoint=tmp_path, **options)


def test_a_damaged_checkpoint_is_named(tmp_path: Path) -> None:
    trained(LeastSquares(), dense_blocks(), epochs=1, checkpoint=tmp_path)
    (saved,) = tmp_path.iterdir()
    array = saved / "weights.npy"
    whole = array.read_bytes()
    array.write_bytes(whole[:-8])
    with pytest.raises(TrainingError, match=r"weights\.npy' cannot be read"):
        trained(LeastSquares(), dense_blocks(), checkpoint=tmp_path)
    array.write_bytes(whole)
    manifest = saved / "manifest.json"
    told = json.loads(manifest.read_bytes())
    manifest.write_text(json.dumps({**told, "format": 9}))
    with pytest.raises(TrainingError, match="has format 9; this version reads 1"):
        trained(LeastSquares(), dense_blocks(), checkpoint=tmp_path)
    manifest.write_text("{")
    with pytest.raises(TrainingError, match="iteration-000000001' cannot be read"):
        trained(LeastSquares(), dense_blocks(), checkpoint=tmp_path)


def test_half_a_checkpoint_is_not_looked_at_and_a_failed_one_leaves_the_last(tmp_path: Path) -> None:
    with pytest.raises(Paused):
        trained(LeastSquares(), dense_blocks(), checkpoint=tmp_path, turns=LeaveAfter(2))
    left = tmp_path / "iteration-000000009.part"  # by a process that was killed
    left.mkdir()
    (left / "weights.npy").touch()

    class Odd(LeastSquares):
        def compute(self, block: DataBlock, params: Mapping[str, Array]) -> Mapping[str, Array]:
            block.state["odd"] = np.array([object()])
            return super().compute(block, params)

    Odd.__name__ = "LeastSquares"
    with pytest.raises(TrainingError, match="block 0: state 'odd' is no array of numbers"):
        trained(Odd(), dense_blocks(), checkpoint=tmp_path)
    found = trained(LeastSquares(), dense_blocks(), checkpoint=tmp_path)
    assert found.iterations == 5
    assert [path.name for path in tmp_path.iterdir()] == ["iteration-000000005"]


def test_a_checkpoint_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(TrainingError, match=r"file/checkpoint/iteration-000000001' cannot be written: Not a directory"):
        trained(LeastSquares(), dense_blocks(), checkpoint=tmp_path / "file" / "checkpoint")


class Squared(LeastSquares):
    """Its server's own rule is not linear, so each row must be changed once, by the sum of what all hosts pushed."""

    def apply(self, values: Any, updates: Any, _iteration: int) -> None:
        values["a"][:] += updates["a"] ** 2


def test_a_servers_own_rule_is_given_each_row_once() -> None:
    shard, pool = ModelShard({"a": ArrayLayout(12, (), np.dtype(float))}, 0, 2, frozenset()), WorkerPool(1)
    shard.values["a"][:] = 0.5
    shard.stage(1, "a", Update(np.array([1, 4]), np.array([10.0, 20.0])))
    shard.apply({"a": Update(np.array([1, 2, 5]), np.array([1.0, 2.0, 3.0]))}, Squared(), pool)
    pool.close()
    assert shard.values["a"].tolist() == [0.5, 121.5, 4.5, 0.5, 400.5, 9.5]
