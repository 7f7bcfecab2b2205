"""Targets and permissions in workload files."""

import pytest

from hocket.model.criterion import parse
from hocket.model.job import Stop
from hocket.workloads import load
from hocket.workloads.errors import WorkloadError

HEAD = 'cluster = "1x1"\n[[jobs]]\nid = "a"\nsubmit_s = 0\nrun_s = 10\n'


def read(folder, lines):
    path = folder / "w.toml"
    path.write_text(HEAD + lines)
    return load(f"toml:{path}").submissions[0].job


def test_a_target_and_what_may_stop_a_job_are_read_from_toml(tmp_path):
    found = read(tmp_path, 'target = "acc >= 90% within 80 epochs"\nstop = "optstop"\nmay_lower = "required"\n')
    assert found.target == parse("acc >= 90% within 80 epochs")
    assert (found.stop, found.may_lower) == (Stop.OPTSTOP, Stop.REQUIRED)


def test_a_csv_has_them_as_columns(tmp_path):
    path = tmp_path / "w.csv"
    path.write_text("id,submit_s,run_s,target,stop,may_lower\na,0,10,acc >= 90%,required,\nb,0,10,,,\n")
    a, b = (s.job for s in load(f"csv:{path}").submissions)
    assert (a.target, a.stop, a.may_lower) == (parse("acc >= 90%"), Stop.REQUIRED, Stop.FIXED)
    assert (b.target, b.stop) == (None, Stop.FIXED)


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ('target = "for 2h"', "target must be a goal such as 'acc >= 90% within 80 epochs', not 'for 2h'"),
        ('target = "acc > 90%"', "target must follow its grammar"),
        ("target = 3", "target must be a text"),
        ('stop = "soon"', "stop must be fixed, optstop or required, not 'soon'"),
        ('may_lower = "no"', "may_lower must be fixed, optstop or required, not 'no'"),
    ],
)
def test_what_is_none_of_that_is_refused_with_its_field(tmp_path, lines, problem):
    with pytest.raises(WorkloadError, match="line") as found:
        read(tmp_path, lines + "\n")
    assert problem in str(found.value)
