"""A job that is resized in its process has no new run: its runs are numbered by its starts."""

from __future__ import annotations

import pytest

from hocket.control.controller import Controller
from hocket.control.journal import MemoryJournal
from hocket.control.ports import Header
from hocket.model.action import Resize
from hocket.model.event import EpochEnded, JobResized, JobStarted, JobSubmitted
from hocket.model.job import Job, Kind
from hocket.model.plan import Plan
from hocket.model.resources import Demand, Node
from hocket.model.snapshot import Snapshot, empty_snapshot
from hocket.policies import find
from hocket.policies.kit.draft import Draft


@pytest.mark.parametrize(("in_place", "starts"), [(True, 1), (False, 2)])
def test_only_another_process_counts_as_a_start(in_place: bool, starts: int) -> None:
    def decide(snapshot: Snapshot) -> Plan:
        draft, view = Draft(snapshot), snapshot.jobs["q"]
        if not view.partitions:
            draft.start(view, "starts", 1)
        elif view.epoch and draft.size_of(view) == 1:
            draft.resize(view, 2, "is resized")
        return draft.plan()

    nodes = (Node("n", cores=4.0),)
    order, journal = find("fifo").bound().order, MemoryJournal(Header("fifo", nodes=nodes))
    controller = Controller(empty_snapshot(nodes), decide, order, journal)
    query = Job("q", kind=Kind.QUERY, sizes=(1, 2), demand=Demand(cores=1.0))
    controller.cycle(0.0, [JobSubmitted(0.0, query)])
    controller.cycle(1.0, [JobStarted(1.0, "q", attempt=1)])
    (action,) = controller.cycle(2.0, [EpochEnded(2.0, "q", 1, {})])
    assert isinstance(action, Resize)
    controller.cycle(3.0, [JobResized(3.0, "q", in_place=in_place)])
    view = controller.snapshot.jobs["q"]
    assert (view.size, view.starts) == (2, starts)
