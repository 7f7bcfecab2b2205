"""What a job measures of its iterations is reported as means, each iteration once."""

import pytest

from hocket.agent.phase_measurements import PhaseMeasurements
from hocket.model.phase_tokens import IterationMeasured


def test_a_report_is_about_the_iterations_since_the_one_before():
    measured = PhaseMeasurements()
    reports = [
        measured.add(IterationMeasured(i, 1.0 * i, 2.0 * i, 3.0 * i, 0.4 * i, 0.1 * i), now_s=2.0 * i, shared_s=0.2 * i)
        for i in range(7)
    ]
    assert [i for i, report in enumerate(reports) if report is not None] == [3, 6]
    for report, mean in zip((reports[3], reports[6]), (2.0, 5.0), strict=True):
        assert report.iterations == 3
        assert (report.comp_s, report.comm_s) == pytest.approx((2.0 * mean, 4.0 * mean))
        assert report.link == pytest.approx(0.1)
        assert (report.meeting_s, report.shared_s) == pytest.approx((0.1 * mean, 0.2 * mean))
