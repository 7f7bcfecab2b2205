"""Charts hold what they should, and figures are the same bytes each time."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
from msgspec.structs import replace
from rich.console import Console

from hocket.executors.simulated import simulate
from hocket.model.job import Job
from hocket.model.resources import Demand, Node
from hocket.policies.registry import find
from hocket.reports import figure_style
from hocket.reports.account import Account, account
from hocket.reports.comparison import ComparedRun, compared_run
from hocket.reports.formatting import axis_unit, format_duration, format_number
from hocket.reports.plots import chart, plot_comparison, plot_run
from hocket.reports.summary import summarise
from hocket.reports.table import comparison_table, summary_table
from hocket.workloads import Submission, Truth, Workload, load


def run(workload: Workload, policy: str = "fifo") -> Account:
    simulation = simulate(workload, workload.nodes, find(policy).bound())
    return account(simulation.journal.header, simulation.journal)


def compared(*policies: str, seeds: int = 1) -> list[ComparedRun]:
    outcomes = []
    for policy in policies:
        for seed in range(seeds):
            accounted = run(load("demo", seed=seed), policy)
            outcomes.append(compared_run(policy, accounted, summarise(accounted)))
    return outcomes


def printed(table: object, width: int = 200) -> str:
    out = StringIO()
    Console(width=width, file=out).print(table)
    return out.getvalue()


@pytest.fixture(scope="module")
def demo() -> Account:
    return run(load("demo"), "las")


def test_a_chart_has_a_row_a_gpu_and_a_bar_for_every_gpu_of_a_stay(demo: Account) -> None:
    found = chart(demo)
    assert len(found.rows) == 16
    assert found.rows[0] == "n000:0"
    assert len(found.bars) == sum(s.partition.gpus for s in demo.spans)
    assert (found.hidden_rows, found.hidden_bars) == (0, 0)


def test_a_chart_of_too_much_says_what_it_leaves_out(demo: Account) -> None:
    found = chart(demo, max_rows=8, max_bars=20)
    assert (len(found.rows), found.hidden_rows) == (8, 8)
    assert len(found.bars) <= 20
    assert found.hidden_bars > 0


def test_tenants_of_a_node_without_gpus_stand_in_lanes() -> None:
    demand = Demand(cores=2)
    jobs = tuple(Submission(0.0, Job(n, demand=demand), Truth(10.0)) for n in ("a", "b"))
    found = chart(run(Workload("cores", jobs, (Node("n0", cores=4),))))
    assert found.rows == ("n0",)
    assert sorted((b.low, b.high) for b in found.bars) == [(0.0, 0.5), (0.5, 1.0)]


ONE = Submission(0.0, Job("a", demand=Demand(gpus=1)), Truth(100.0))


@pytest.fixture(scope="module")
def failing() -> Account:
    """Twelve jobs of several sizes for four GPUs; a run of one of them fails."""
    sizes = (1, 2, 1, 4, 1, 2, 1, 1, 2, 1, 4, 1)
    jobs = [Submission(20.0 * n, Job(f"job-{n}", sizes=(size,)), Truth(90.0)) for n, size in enumerate(sizes)]
    crashes = replace(ONE, truth=Truth(100.0, crashes_s=(40.0,)))
    found = run(Workload("twelve", (crashes, *jobs[1:]), (Node("n0", gpus=2), Node("n1", gpus=2))))
    assert found.failed == ((0, 40.0),)
    return found


@pytest.fixture(scope="module")
def drawn(failing: Account, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The figures of that run."""
    return plot_run(failing, tmp_path_factory.mktemp("drawn"))


@pytest.mark.slow
def test_figures_of_one_run_are_the_same_each_time(failing: Account, drawn: list[Path], tmp_path: Path) -> None:
    again = plot_run(failing, tmp_path / "again")
    assert sorted(p.name for p in drawn) == sorted(
        f"{name}.{kind}" for name in ("jct", "utilisation", "queue", "gantt") for kind in ("png", "svg")
    )
    assert [p.name for p in drawn] == [p.name for p in again]
    assert [p.read_bytes() for p in drawn] == [p.read_bytes() for p in again]
    assert sorted((tmp_path / "again").iterdir()) == sorted(again)  # and nothing half-written beside them


def test_a_comparison_is_one_figure(tmp_path: Path) -> None:
    files = plot_comparison(compared("fifo", "las", seeds=2), tmp_path)
    assert [p.name for p in files] == ["compare.png", "compare.svg"]


@pytest.fixture
def only_svg(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where only the text of a figure is looked at, or that there is one: each takes time."""
    monkeypatch.setattr(figure_style, "KINDS", ("svg",))


@pytest.mark.usefixtures("only_svg")
def test_a_chart_marks_runs_that_failed_and_a_legend_names_only_what_is_drawn(
    drawn: list[Path], tmp_path: Path
) -> None:
    plot_run(run(Workload("one", (ONE,), (Node("n0", gpus=1),))), tmp_path)
    for folder, marked in ((drawn[0].parent, True), (tmp_path, False)):
        assert ("a run that failed or was killed" in (folder / "gantt.svg").read_text()) == marked
    queue = (tmp_path / "queue.svg").read_text()
    assert "running" in queue
    assert "waiting" not in queue
    assert "waiting" in (drawn[0].parent / "queue.svg").read_text()


@pytest.mark.usefixtures("only_svg")
def test_a_run_without_jobs_can_be_drawn(tmp_path: Path) -> None:
    assert plot_run(run(Workload("nothing", (), (Node("n0", gpus=1),))), tmp_path)


def test_a_comparison_marks_the_best_and_relates_to_the_first() -> None:
    text = printed(comparison_table(compared("fifo", "las")))
    fifo, las = (next(line for line in text.splitlines() if line.split()[:1] == [p]) for p in ("fifo", "las"))
    assert " 1.00 " in fifo
    assert "*" in las


def test_a_policy_that_left_jobs_unfinished_is_the_best_in_no_time() -> None:
    fifo, las = compared("fifo", "las")
    best = f"{las.summary.jct_mean_s / 3600:.3g} h*"
    assert best in printed(comparison_table([fifo, las]))
    stuck = replace(las, stuck=("'wide' is waiting: there is no room for it",))
    text = printed(comparison_table([fifo, stuck]))
    assert [time in text for time in (f"{fifo.summary.jct_mean_s / 3600:.2f} h*", best)] == [True, False]
    assert "not marked: times of policies that left jobs unfinished" in text
    assert "h*" not in printed(comparison_table([replace(fifo, stuck=stuck.stuck), stuck]))


@pytest.mark.parametrize("width", [80, 40])
def test_a_narrow_table_leaves_columns_out_and_says_so(width: int) -> None:
    table = comparison_table(compared("fifo", "las"), width=width)
    text = printed(table, width=width)
    assert "left out to save space" in " ".join(text.split())
    assert "…" not in text


def test_several_seeds_show_their_interval() -> None:
    assert "±" in printed(comparison_table(compared("fifo", seeds=2)))


def test_one_summary_names_its_numbers(demo: Account) -> None:
    text = printed(summary_table(summarise(demo, [0.001])))
    for word in ("61 finished", "makespan", "p99", "deadlines met", "goals reached", "overhead"):
        assert word in text


def test_times_are_spoken_in_three_digits() -> None:
    assert [format_duration(s) for s in (0.0, 0.5, 59.0, 90.0, 5400.0, 86400.0 * 40.5)] == [
        *("0 s", "0.5 s", "59 s", "1.50 min", "1.50 h", "40.5 d"),
    ]
    assert format_duration(None) == "–"
    assert format_number(12345.6) == "12,346"
    assert axis_unit(7200.0) == ("minutes", 60.0)
    assert axis_unit(4 * 86400.0) == ("days", 86400.0)
