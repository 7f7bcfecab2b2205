"""`benchmarks.rotary` keeps all jobs live while it times decisions."""

from benchmarks.rotary import decisions


def test_decisions_of_every_policy_are_timed_while_all_jobs_are_live() -> None:
    found = decisions(jobs=60, times=20)  # asserts that none has ended, though jobs report again
    assert len(found) == 7
    assert all(decision.median_ms > 0 for decision in found)
