"""Which runs take turns by phase tokens: those of parameter-server jobs, unless they are stacked."""

import pytest

from hocket.agent.protocol import RunKey
from hocket.executors.agents.launching import run_orders
from hocket.model.job import Job, Kind
from hocket.model.partition import Holding, Sharing
from hocket.model.phase_tokens import VARIABLE
from hocket.model.resources import Demand, Slice

TO = Holding("p", (Slice("n0", ()),), (1,))


@pytest.mark.parametrize(
    ("kind", "sharing", "takes_turns"),
    [
        (Kind.TRAINING, Sharing.ALONE, False),
        (Kind.PARAMETER_SERVER, Sharing.ALONE, True),
        (Kind.PARAMETER_SERVER, Sharing.INTERLEAVED, True),
        (Kind.PARAMETER_SERVER, Sharing.STACKED, False),
    ],
)
def test_a_run_takes_turns_by_its_kind_and_by_how_its_partition_is_shared(kind, sharing, takes_turns):
    job = Job("a", kind=kind, command=("true",))
    order = run_orders(job, RunKey("a", 1), TO, {}, sharing=sharing)["n0"]
    assert bool(order.spec.get("phase_tokens")) is takes_turns
    is_taken_away = kind is Kind.PARAMETER_SERVER and not takes_turns
    assert order.env.get(VARIABLE) == ("" if is_taken_away else None)


def test_a_run_is_told_how_much_memory_its_part_of_the_job_may_have():
    to = Holding("p", (Slice("n0", ()), Slice("n1", ())), (1, 2))
    orders = run_orders(Job("a", command=("true",), demand=Demand(mem_mib=500)), RunKey("a", 1), to, {})
    assert {node: order.env["HOCKET_MEM_MIB"] for node, order in orders.items()} == {"n0": "500", "n1": "1000"}
    assert "HOCKET_MEM_MIB" not in run_orders(Job("a", command=("true",)), RunKey("a", 1), TO, {})["n0"].env
