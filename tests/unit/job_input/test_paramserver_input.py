"""Training on parameter servers as a job: its kind by its command, its size in machines."""

from __future__ import annotations

import pytest

from hocket.job_input.read_job import FieldProblem, read_remote_job
from hocket.model.job import Kind

NMF = ["hocket", "paramserver", "nmf", "--data", "/ratings.txt"]


def job(**said: object):
    return read_remote_job({"command": NMF, **said}).job


def test_the_command_says_what_it_is_and_its_size_is_machines_without_gpus():
    plain = job()
    assert (plain.kind, plain.sizes, plain.demand.gpus, plain.demand.cores) == (Kind.PARAMETER_SERVER, (1,), 0, 1.0)
    wide = job(hosts="1-4", cpus=2, mem="3G")
    assert (wide.sizes, wide.demand.gpus, wide.demand.cores, wide.demand.mem_mib) == ((1, 2, 3, 4), 0, 2.0, 3 * 1024)
    assert job(command=["/opt/bin/hocket", *NMF[1:]]).command == tuple(NMF)


def test_so_does_kind_or_hosts_for_a_program_of_ones_own():
    own = {"command": ["python", "train.py"]}
    assert job(**own).kind is Kind.TRAINING
    assert (job(**own, hosts=2).kind, job(**own, hosts=2).sizes) == (Kind.PARAMETER_SERVER, (2,))
    by_kind = job(**own, kind="parameter-server")
    assert (by_kind.sizes, by_kind.demand.gpus) == ((1,), 0)
    with_gpus = job(**own, kind="parameter-server", gpus="2,4", replica_gpus=2)
    assert (with_gpus.sizes, with_gpus.demand.gpus) == ((1, 2), 2)


@pytest.mark.parametrize(
    ("said", "field", "rule"),
    [
        ({"hosts": 0}, "hosts", "counts from 1 up, not 0"),
        ({"hosts": 2, "gpus": 2}, "hosts", "without gpus"),
        ({"hosts": 2, "kind": "training"}, "hosts", "of kind 'parameter-server' only, not 'training'"),
        ({"kind": "model"}, "kind", "training, query or parameter-server, not 'model'"),
    ],
)
def test_what_cannot_be_is_refused(said, field, rule):
    with pytest.raises(FieldProblem, match=rule) as refused:
        job(**said)
    assert refused.value.field == field
