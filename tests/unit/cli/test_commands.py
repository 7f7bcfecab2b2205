"""Commands as users type them, within this process."""

from __future__ import annotations

import csv
import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from tests.unit.cli.typed import hocket, refused

from hocket.control.journal import SqliteJournal, open_to_read
from hocket.model.event import PastJobsGiven

# Not reproducible: how long things took, and how much memory the process has used.
TIMES = ("cpu_s", "peak_rss_mib", "decision_ms_mean", "decision_ms_p99")

STUCK = """
cluster = "2x4"
[[owners]]
id = "small"
max_gpus = 1
[[jobs]]
id = "fits"
owner = "small"
submit_s = 0
run_s = 10
[[jobs]]
id = "over-quota"
owner = "small"
submit_s = 0
run_s = 10
gpus = 2
[[jobs]]
id = "wide"
submit_s = 0
run_s = 10
gpus = 8
[[faults]]
node = "n001"
at_s = 5
"""


def told(*args: str) -> dict[str, Any]:
    result = hocket(*args)
    assert result.exit_code == 0, result.stderr
    found: dict[str, Any] = json.loads(result.stdout)  # one object and nothing else
    return found


def test_simulate_prints_one_object_that_is_the_same_but_for_times() -> None:
    args = ("simulate", "demo", "--policy", "las", "--seed", "3", "--beliefs", "noisy:0.3", "--noise", "0.1", "--json")
    first, second = told(*args), told(*args)
    assert all(first.pop(name) >= 0 and second.pop(name) >= 0 for name in TIMES)
    assert first == second
    assert (first["policy"], first["workload"], first["seed"], first["beliefs"]) == ("las", "demo", 3, "noisy:0.3")
    assert first["jobs"] == first["finished"] == 61


def test_simulate_begins_with_past_jobs_from_a_file(tmp_path: Path) -> None:
    past = tmp_path / "past.jsonl"
    past.write_text('{"model": "resnet", "metric": "acc", "points": [[1, 0.4], [2, 0.5]], "unit_s": 30}\n')
    journal = tmp_path / "run.db"
    args = ("simulate", "burst?jobs=3", "--cluster", "1x1", "--history", str(past))
    assert hocket(*args, "--policy", "rotary", "--journal", str(journal)).exit_code == 0
    kept = open_to_read(journal)
    given = [e.jobs for cycle in kept for e in cycle.events if isinstance(e, PastJobsGiven)]
    kept.close()
    assert [[job.model for job in jobs] for jobs in given] == [["resnet"]]
    assert "policy 'fifo' does not look at past jobs" in hocket(*args, "--policy", "fifo").stderr
    past.write_text('{"model": "resnet", "unit_s": 30}\n{"metric": "acc", "points": [[1, 40]]}\n')
    said = refused(*args, "--policy", "rotary")
    assert "past.jsonl, line 2: points: acc at 1 must be a share from 0 to 1, not 40 (in percent?)" in said


def test_simulate_prints_a_table_for_people() -> None:
    result = hocket("simulate", "demo", "--policy", "fifo")
    assert result.exit_code == 0
    assert "61 finished" in result.stdout


def test_what_the_command_line_says_reaches_the_run() -> None:
    args = ("simulate", "burst?jobs=8", "--policy", "fifo", "--cluster", "1x8", "--json")
    plain, costly = told(*args), told(*args, "--switching", "start=60")
    assert plain["overhead_share"] == 0
    assert costly["overhead_share"] > 0
    las = told("simulate", "demo", "--policy", "las:promote=3", "--param", "levels_gpu_s=[10, 20]", "--json")
    assert las["params"] == {"levels_gpu_s": [10, 20], "promote": 3, "priority": True, "lend": True, "restart_s": 30.0}


def test_until_stops_the_clock_and_leaves_jobs_without_complaint() -> None:
    summary = told("simulate", "demo", "--policy", "fifo", "--until", "1h", "--json")
    assert summary["unfinished"] > 0
    assert summary["makespan_s"] <= 3600


def test_a_run_leaves_a_journal_a_table_of_jobs_and_figures(tmp_path: Path) -> None:
    journal, jobs, plots = tmp_path / "run.db", tmp_path / "jobs.csv", tmp_path / "plots"
    args = ("--journal", str(journal), "--jobs-csv", str(jobs), "--plots", str(plots))
    summary = told("simulate", "demo", "--policy", "fifo", *args, "--json")
    rows = list(csv.DictReader(jobs.read_text().splitlines()))
    assert len(rows) == 61
    mean_s = sum(float(r["jct_s"]) for r in rows) / 61
    assert mean_s == pytest.approx(summary["jct_mean_s"])
    kept = SqliteJournal(journal)
    assert kept.header.policy == "fifo"
    assert sum(c.plan is not None for c in kept) == summary["decisions"]
    kept.close()
    assert {p.name for p in tmp_path.iterdir()} == {"run.db", "jobs.csv", "plots"}  # nothing half-written
    assert len(list(plots.iterdir())) == 8


def test_jobs_go_to_stdout_and_the_summary_out_of_their_way() -> None:
    done = hocket("simulate", "demo", "-p", "fifo", "--jobs-csv", "-")
    assert done.exit_code == 0
    assert len(list(csv.DictReader(done.stdout.splitlines()))) == 61
    assert "job completion time" in done.stderr
    said = refused("simulate", "demo", "-p", "fifo", "--jobs-csv", "-", "--json")
    assert "--jobs-csv - and --json must not both be given" in said


def test_seeds_that_change_nothing_have_no_interval(tmp_path: Path) -> None:
    jobs = tmp_path / "mine.csv"
    jobs.write_text("id,submit_s,run_s,gpus\na,0,100,1\nb,5,50,1\nc,6,70,1\n")
    words = "all 2 seeds gave the same results: nothing in this run is random, one seed is enough"
    alike = hocket("compare", str(jobs), "fifo", "las", "--cluster", "1x1", "--seeds", "2").stdout
    assert words in alike
    assert "±" not in alike
    noisy = hocket("compare", str(jobs), "fifo", "--cluster", "1x1", "--seeds", "2", "--noise", "0.3").stdout
    assert words not in noisy
    assert "±" in noisy


def test_a_journal_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    path.write_bytes(b"precious")
    message = refused("simulate", "demo", "--policy", "fifo", "--journal", str(path))
    assert "exists already" in message
    assert path.read_bytes() == b"precious"


def test_jobs_that_nothing_will_happen_to_are_named_and_the_exit_code_is_3(tmp_path: Path) -> None:
    workload = tmp_path / "stuck.toml"
    workload.write_text(STUCK)
    result = hocket("simulate", str(workload), "--policy", "fifo", "--json")
    assert result.exit_code == 3
    assert json.loads(result.stdout)["unfinished"] == 1
    assert result.stderr.startswith("hocket: unfinished: 'wide' is waiting: ")


def test_a_comparison_over_seeds_says_which_seed_left_jobs(tmp_path: Path) -> None:
    workload = tmp_path / "stuck.toml"
    workload.write_text(STUCK)
    result = hocket("compare", str(workload), "fifo", "--seeds", "2")
    assert result.exit_code == 3
    said = result.stderr.splitlines()
    assert [line.partition(" 1 unfinished: 'wide'")[0] for line in said] == [
        "hocket: fifo, seed 0:",
        "hocket: fifo, seed 1:",
    ]


@pytest.mark.parametrize("command", [("simulate", "--policy", "fifo"), ("compare", "fifo", "las")])
def test_a_run_whose_jobs_were_all_refused_says_so_with_exit_code_3(tmp_path: Path, command: tuple[str, ...]) -> None:
    (tmp_path / "jobs.csv").write_text("id,submit_s,run_s,gpus\na,0,60,99\nb,0,60,99\n")
    result = hocket(command[0], str(tmp_path / "jobs.csv"), *command[1:], "--cluster", "1x8")
    assert result.exit_code == 3
    assert "every job was refused (2): job 'a': sizes must fit the cluster" in result.stderr


def test_a_job_that_its_owners_quota_can_never_have_room_for_is_refused(tmp_path: Path) -> None:
    workload = tmp_path / "stuck.toml"
    workload.write_text(STUCK)
    result = hocket("simulate", str(workload), "--policy", "fifo")
    assert "job 'over-quota': sizes must fit its owner's quota" in result.stdout


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("simulate", "demo", "--policy", "fiffo"), "policy 'fiffo' is unknown; did you mean 'fifo'?"),
        (
            ("simulate", "demo", "--policy", "las", "--param", "promot=3"),
            "unknown parameter 'promot'; did you mean 'promote'?",
        ),
        (("simulate", "demo", "--policy", "las", "--param", "promote"), "NAME=VALUE"),
        (("simulate", "demo", "--policy", "las", "--param", "levels_gpu_s=[1"), "JSON"),
        (
            ("simulate", "demo", "--policy", "las", "--param", "promote=-1"),
            "policy 'las': promote: expected a number from 0 up, not \"-1\" "
            "(its parameters: lend, restart_s, priority, levels_gpu_s, promote)",
        ),
        (("simulate", "demo", "--policy", "fifo", "--seed", "-1"), "not '-1' (see"),
        (("compare", "demo", "fifo", "--seeds=0"), "not '0' (see"),
        (("simulate", "dem", "--policy", "fifo"), "did you mean 'demo'?"),
        (("simulate", "nope.csv", "--policy", "fifo", "--cluster", "1x1"), "nope.csv"),
        (("simulate", "burst", "--policy", "fifo"), "--cluster"),
        (("simulate", "demo", "--policy", "fifo", "--cluster", "4y4"), "cluster"),
        (("simulate", "demo", "--policy", "fifo", "--beliefs", "wild"), "beliefs must be learned"),
        (("simulate", "demo", "--policy", "fifo", "--beliefs", "noisy:100"), "a relative error from 0 to 10"),
        (("simulate", "demo", "--policy", "fifo", "--noise", "nan"), "noise"),
        (("compare", "demo", "fifo", "las", "--noise", "3.1"), "--noise must be a number from 0 to 3, not 3.1"),
        (("simulate", "demo", "--policy", "fifo", "--until", "inf"), "--until must be a time such as"),
        (("compare", "demo", "fifo", "las", "--until", "-3"), "--until must be a time such as"),
        (("simulate", "demo", "--policy", "fifo", "--switching", "start"), "switching"),
        (("simulate", "demo", "--policy", "fifo", "--speeds", "magic"), "speeds"),
        (("simulate", "demo", "--policy", "fifo", "--jobs-csv", "/nowhere/jobs.csv"), "/nowhere/jobs.csv"),
        (("simulate", "demo", "--policy", "fifo", "--journal", "/tmp"), "must be a file"),
        (("simulate", "demo", "--policy", "fifo", "--plots", "/dev/null"), "must be a folder, and it is a file"),
        (("compare", "demo", "fifo", "--plots", "/dev/null/x"), "must be a folder, and '/dev/null' is a file"),
        (("simulate", "demo", "--policy", "fifo", "--record", "/proc/x"), "'/proc' is not: "),
        (("simulate", "demo", "--policy", "fifo", "--jobs-csv", "/proc/x"), "'/proc' is not: "),
        (("simulate", "demo"), "--policy"),
        (("simulate", "demo", "--polcy", "fifo"), "--policy"),
        (("simulte", "demo"), "simulate"),
        (("compare", "demo", "fifo", "lsa"), "policy 'lsa' is unknown"),
        (("policies", "fiffo"), "did you mean 'fifo'?"),
    ],
)
def test_bad_input_is_refused_in_one_line(args: tuple[str, ...], words: str) -> None:
    assert words in refused(*args)


TWO_JOBS = "id,submit_s,run_s,gpus\na,0,60,99\nb,0,60,1\n"


def test_what_is_read_is_not_written_over(tmp_path: Path) -> None:
    jobs = tmp_path / "jobs.csv"
    jobs.write_text(TWO_JOBS)
    (tmp_path / "link.csv").symlink_to(jobs)
    for spec in (str(jobs), f"csv:{jobs}?first=1"):
        for out in (jobs, tmp_path / "link.csv"):
            said = refused("simulate", spec, "-p", "fifo", "--cluster", "1x8", "--jobs-csv", str(out))
            assert f"--jobs-csv '{out}' must be another file than '{spec}', which is read" in said
    assert jobs.read_text() == TWO_JOBS


def test_a_link_and_a_pipe_are_written_to_and_not_replaced(tmp_path: Path) -> None:
    target, link, pipe = tmp_path / "target.csv", tmp_path / "link.csv", tmp_path / "pipe"
    target.write_text("old")
    link.symlink_to(target)
    os.mkfifo(pipe)
    end = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    for out in (link, pipe):
        assert hocket("simulate", "demo", "-p", "fifo", "--until", "1h", "--jobs-csv", str(out)).exit_code in (0, 3)
    assert link.is_symlink()
    assert target.read_text().startswith("id,")
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert os.read(end, 3) == b"id,"
    os.close(end)


def test_a_comparison_says_which_job_was_refused(tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").write_text(TWO_JOBS)
    result = hocket("compare", str(tmp_path / "jobs.csv"), "fifo", "las", "--cluster", "1x8")
    assert result.stdout.count("1 refused: job 'a': sizes must fit the cluster; its smallest needs 99 GPUs") == 1


def test_the_version_is_an_option_too() -> None:
    assert hocket("--version").stdout == hocket("version").stdout != ""


def test_policies_are_listed_with_what_they_do() -> None:
    listed = {p["name"]: p for p in told("policies", "--json")["policies"]}
    assert {"fifo", "las"} <= listed.keys()
    assert all(p["summary"] for p in listed.values())
    assert "Tiresias" in hocket("policies").stdout


def test_policies_are_advised_by_situation_as_in_the_documents() -> None:
    advice = told("policies", "--advise", "--json")["advice"]
    known = {p["name"] for p in told("policies", "--json")["policies"]}
    assert {name for each in advice for name in each["policies"]} <= known
    printed = " ".join(hocket("policies", "--advise").stdout.split())
    page = (Path(__file__).parents[3] / "docs" / "policies" / "README.md").read_text(encoding="utf-8")
    for each in advice:
        named = ", ".join(f"[{name}]({name}.md)" for name in each["policies"])
        assert f"| {each['situation']} | {named} | {each['why']} |" in page
        assert ", ".join(each["policies"]) in printed
    assert "hocket policies --advise" in hocket("policies").stdout


def test_one_policy_is_shown_with_its_parameters() -> None:
    shown = told("policies", "las", "--json")
    _lend, _restart, _priority, levels, promote = shown["parameters"]
    assert (levels["name"], levels["type"]) == ("levels_gpu_s", "tuple[float, ...]")
    assert promote["type"] == "float, ≥ 0"
    assert all(p["description"] for p in shown["parameters"])
    text = hocket("policies", "las").stdout
    assert "levels_gpu_s" in text
    assert "no parameters" in hocket("policies", "pack_none").stdout


def test_policies_say_which_options_of_a_job_they_use() -> None:
    listed = {p["name"]: p["reads"] for p in told("policies", "--json")["policies"]}
    assert listed["edf"] == ["deadline_s"]
    assert listed["mlfs_c"] == listed["mlf_h"] == ["urgency", "deadline_s"]
    assert "--deadline" in hocket("policies").stdout
    every = "of --priority, --urgency, --deadline, --weight it uses:"
    assert f"{every} --deadline\n" in hocket("policies", "edf").stdout
    assert f"{every} none\n" in hocket("policies", "round_robin").stdout
    assert f"{every} those of inner\n" in hocket("policies", "mlfs_c").stdout


def test_workloads_are_listed_with_how_they_are_written() -> None:
    names = {w["name"] for w in told("workloads", "--json")["workloads"]}
    assert {"demo", "philly", "csv", "toml", "poisson"} <= names
    assert "philly:" in hocket("workloads").stdout


def test_version() -> None:
    assert hocket("version").stdout.startswith("hocket ")
    assert "hocket" in told("version", "--json")


def test_hocket_alone_shows_its_commands() -> None:
    result = hocket()
    assert result.exit_code == 0
    assert "simulate" in result.stdout


@pytest.mark.parametrize("detach", [(), ("--detach",)])
def test_a_machine_declares_no_more_gpus_than_there_can_be(tmp_path: Path, detach: tuple[str, ...]) -> None:
    said = refused("up", "--home", str(tmp_path / "home"), "--gpus", "1025", *detach)
    assert said == "hocket: --gpus must be from 0 to 1024, not 1025\n"
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize("detach", [(), ("--detach",)])
@pytest.mark.parametrize("by_variable", [False, True])
def test_a_level_that_is_none_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_variable: bool, detach: tuple[str, ...]
) -> None:
    if by_variable:
        monkeypatch.setenv("HOCKET_LOG_LEVEL", "loud")
    option = () if by_variable else ("--log-level", "loud")
    said = refused("up", "--home", str(tmp_path / "home"), *option, *detach)
    assert "'--log-level'" in said
    assert "'loud' is not one of 'debug', 'info', 'warning', 'error'" in said
    assert not (tmp_path / "home").exists()
