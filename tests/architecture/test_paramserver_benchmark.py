"""`benchmarks.paramserver` measures what the runtime does, and lists what it has."""

from __future__ import annotations

import pytest
from benchmarks.paramserver import kernels, pull_push, spill
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


def test_a_share_on_disk_that_is_found_is_compared_with_the_fixed_ones_that_fit() -> None:
    def run(alpha: float | None, epoch_ms: float, kept: bool = True) -> dict[str, object]:
        return {
            "alpha": alpha,
            "epoch_ms": epoch_ms,
            "least": 0.4,
            "most": 0.5,
            "peak_mib": 200.0,
            "kept": kept,
            "killed": False,
        }

    runs = [run(None, 210), run(0.0, 100, kept=False), run(0.5, 200), run(1.0, 300)]
    shown = "\n".join(spill.text({"blocks": 4, "block_mib": 2, "mem_mib": 250, "steady": runs}))
    assert "0.0    100  0.40-0.50  200  not kept: it does not fit" in shown
    assert "found while it ran: 1.05 × the time of the best fixed one that fits, 0.5" in shown
    assert spill.verdict(runs[:2]) == "no fixed α fits"


def test_an_unknown_measurement_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["nothing"])
    assert (
        "there is no measurement 'nothing'; there are: pull_push, kernels, link, regroup, spill"
        in capsys.readouterr().err
    )
