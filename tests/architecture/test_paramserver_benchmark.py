"""`benchmarks.paramserver` measures what the runtime does, and lists what it has."""

from __future__ import annotations

import pytest
from benchmarks.paramserver import kernels, pull_push
from benchmarks.paramserver.__main__ import main


def test_pull_and_push_are_measured_and_nothing_is_lost_on_the_way() -> None:
    times = pull_push.run(400_000, 3, 1, 2)  # It fails if an update is lost.
    assert times.push_s > 0
    found = {
        "bytes": 400_000, "memcpy_ms": 2.0, "socket_ms": 3.0, "within_a_host": {"1": pull_push._shown(times)},
        "two_hosts": {"pull_ms": 5.0, "push_ms": 7.0},
    }  # fmt: skip
    shown = "\n".join(pull_push.text(found))
    assert "within a host, 1 worker" in shown
    assert "5.0      7.0     12.0      6.00" in shown
    assert "6.0 ms for what two hosts send" in shown


def test_kernels_are_shown_beside_what_was_measured_before() -> None:
    solver = {"name": "mlr", "theirs_s": 2.0, "ours_s": 4.0, "their_objective": 1.0, "our_objective": 1.001}
    found = {
        "lda": [{"what": "20 topics", "millions_a_second": 12.2}],
        "nmf": [{"what": "rank 8", "millions_a_second": 20.0}],
        "lda_peers": [{"name": "scikit-learn", "millions_a_second": 0.1, "ratio": 122.0}],
        "solvers": [solver],
    }
    shown = "\n".join(kernels.text(found))
    assert "lda, 20 topics  12.2" in shown
    assert "0.50" in shown


def test_an_unknown_measurement_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["nothing"])
    assert "there is no measurement 'nothing'; there are: pull_push, kernels" in capsys.readouterr().err
