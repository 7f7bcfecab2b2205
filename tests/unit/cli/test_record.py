"""`hocket simulate --record` leaves what was decided and what came of it, also when it is interrupted."""

import json

import numpy as np
import pytest
from tests.unit.cli.typed import hocket

from hocket.control.ports import Header
from hocket.policies import find
from hocket.reports.decision_record import DecisionRecord

STOPPED = ("early-stopped", "attained", "hopeless")


def columns(path):
    with np.load(path) as file:
        return dict(file)


def test_a_run_records_the_outcome_of_all_its_jobs(tmp_path):
    assert hocket("simulate", "mlfs?jobs=12", "--policy", "mlfs_c", "--record", str(tmp_path)).exit_code == 0
    jobs, rows = columns(tmp_path / "jobs.npz"), columns(tmp_path / "rows.npz")
    assert len(jobs["id"]) == len(jobs["ended_s"]) == 12
    assert (jobs["ended_s"] > jobs["submitted_s"]).all()
    assert set(jobs["goal_met"].tolist()) <= {0, 1}
    ended = set(jobs["number"][np.isin(jobs["verdict"], STOPPED)].tolist())
    assert ended
    assert ended == set(rows["job"][rows["ends"] == 1].tolist())


def test_the_knobs_of_the_policy_within_a_layer_are_recorded_too(tmp_path):
    params = ("--param", 'inner_params={"p_s": 0.4}')
    assert hocket("simulate", "mlfs?jobs=2", "--policy", "mlfs_c", *params, "--record", str(tmp_path)).exit_code == 0
    told = json.loads((tmp_path / "about.json").read_text())["params"]
    assert told["inner"] == "mlf_h"
    assert told["inner_params"] == find("mlf_h").bound({"p_s": 0.4}).settings


@pytest.mark.parametrize("is_older", [False, True])
def test_what_was_decided_until_an_interrupt_is_recorded(tmp_path, monkeypatch, is_older):
    if is_older:
        DecisionRecord(Header("older")).write(tmp_path)
    add = DecisionRecord.add

    def until_ten(record, *of):
        add(record, *of)
        if len(record) == 10:
            raise KeyboardInterrupt

    monkeypatch.setattr(DecisionRecord, "add", until_ten)
    found = hocket("simulate", "mlfs?jobs=30", "--policy", "mlf_h", "--record", str(tmp_path))
    assert found.exit_code == 130
    about = json.loads((tmp_path / "about.json").read_text())
    assert (about["policy"], about["decisions"]) == ("mlf_h", 10)
    assert len(columns(tmp_path / "decisions.npz")["at_s"]) == 10
    assert "" in columns(tmp_path / "jobs.npz")["verdict"].tolist()  # Not all of them are over.
