"""What jobs use, as it is shown: of all nodes together, at last and over time."""

from itertools import pairwise

from hocket.agent.protocol import RunKey
from hocket.executors.agents.usage_reports import UsageReports

FIRST, SECOND = RunKey("a", 1), RunKey("a", 2)


def test_the_nodes_of_a_run_count_together() -> None:
    usage = UsageReports()
    usage.add(FIRST, "n0", {"cores": 1.0, "gpu": 0.5, "gpu_mem_mib": 100.0, "host": "x"}, 1.0)
    usage.add(FIRST, "n1", {"cores": 2.0, "gpu": 1.0, "gpu_mem_mib": 300.0}, 2.0)
    usage.add(FIRST, "n0", {"cores": 3.0, "gpu": 0.7, "gpu_mem_mib": 100.0}, 3.0)
    assert usage.last("a") == {"cores": 5.0, "gpu": 0.85, "gpu_mem_mib": 400.0}
    assert [moment["cores"] for moment in usage.over_time("a")] == [1.0, 3.0, 5.0]


def test_the_next_attempt_does_not_count_what_the_last_one_used() -> None:
    usage = UsageReports()
    usage.add(FIRST, "n0", {"cores": 4.0}, 1.0)
    usage.add(SECOND, "n1", {"cores": 1.0}, 2.0)
    assert usage.last("a") == {"cores": 1.0}
    assert [moment["cores"] for moment in usage.over_time("a")] == [4.0, 1.0], "its course is that of the job"
    usage.forget("a")
    assert (usage.last("a"), usage.over_time("a")) == ({}, [])


def test_a_long_course_is_kept_in_bounded_room_over_all_its_time() -> None:
    usage = UsageReports()
    for at in range(0, 50_000, 5):
        usage.add(FIRST, "n0", {"cores": float(at)}, float(at))
    kept = [moment["at_s"] for moment in usage.over_time("a")]
    assert 100 < len(kept) <= 241
    assert (kept[0], kept[-1] > 49_000) == (0.0, True)
    gaps = [later - earlier for earlier, later in pairwise(kept)]
    assert max(gaps) < 5 * min(gaps), "it is thinned evenly"
    assert usage.last("a") == {"cores": 49_995.0}
