"""Which jobs held which GPUs, and how many reports are kept of a job."""

from itertools import pairwise

from hocket.model.job import Job
from hocket.service import gpu_history as history_file
from hocket.service.gpu_history import GpuHistory
from hocket.service.record import Record
from hocket.service.thinned_curve import CurvePoint, ThinnedCurve
from hocket.service.tokens import Role, Token

ADMIN = Token("a", Role.ADMIN, "")


def ran(job, *, owner="ana", since_s=0.0, until_s=None, how="finished", gpus=("n:0",)):
    record = Record(1, Job(job, owner), since_s, gpus=list(gpus), size=1)
    record.started(since_s, 1)
    if until_s is not None:
        record.stopped(until_s, how)
        record.ended_s = until_s
    return record


def shown(history, since_s=0.0, live=(), token=ADMIN):
    return [(h.job, h.gpus, h.from_s, h.until_s, h.how) for h in history.since(since_s, live, token)]


def test_jobs_that_ended_before_and_since_and_live_ones_are_each_there_once():
    before = ran("before", until_s=10.0)
    history = GpuHistory(lambda _most: [before, ran("live")])
    history.add_changes([ran("since", until_s=20.0), ran("live"), before])
    expected = [("before", ["n:0"], 0.0, 10.0, "finished"), ("since", ["n:0"], 0.0, 20.0, "finished")]
    for _ in range(2):
        found = shown(history, live=[ran("live")])
        assert sorted(found) == sorted([*expected, ("live", ["n:0"], 0.0, None, "")])
    assert [h[0] for h in shown(history, 10.0)] == ["since"], "what ended by then is not asked for"


def test_an_attempt_without_gpus_or_a_start_holds_nothing():
    broken = Record(1, Job("broken", "ana"), 0.0, gpus=["n:0"])
    broken.failed(1.0, "failed: exit code 1")
    history = GpuHistory(lambda _most: [])
    assert shown(history, live=[broken, ran("cpu", gpus=())]) == []


def test_only_so_many_ended_jobs_are_remembered(monkeypatch):
    monkeypatch.setattr(history_file, "_MOST", 2)
    history = GpuHistory(lambda most: [ran("oldest", until_s=1.0), ran("old", until_s=2.0)][-most:])
    history.add_changes([ran("new", until_s=3.0)])
    assert [h[0] for h in shown(history)] == ["old", "new"]
    history.add_changes([ran("newest", until_s=4.0)])
    assert [h[0] for h in shown(history)] == ["new", "newest"]


def test_how_an_attempt_ended_is_between_its_owner_and_readers():
    history = GpuHistory(lambda _most: [])
    history.add_changes([ran("a", until_s=5.0, how="failed: exit code 3")])
    assert shown(history, token=Token("b", Role.USER, "", owner="bob"))[0][4] == ""
    assert shown(history, token=Token("a", Role.USER, "", owner="ana"))[0][4] == "failed: exit code 3"
    assert shown(history, token=Token("r", Role.READ, ""))[0][4] == "failed: exit code 3"


def test_a_curve_spans_all_reports_in_bounded_room():
    curve = ThinnedCurve()
    for n in range(10_000):
        curve.add(CurvePoint(float(n), n, 0, {"loss": 1.0}))
    times = [point.at_s for point in curve.points]
    assert len(times) <= 128
    assert times[0] == 0.0
    assert times[-1] >= 10_000 - 2 * curve.every
    gaps = {b - a for a, b in pairwise(times)}
    assert len(gaps) <= 2, "evenly spread"


def test_a_short_curve_is_whole():
    curve = ThinnedCurve()
    for n in range(100):
        curve.add(CurvePoint(float(n), n, 0, {}))
    assert [point.epoch for point in curve.points] == list(range(100))
