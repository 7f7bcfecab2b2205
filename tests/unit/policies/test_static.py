"""Fixed sizes: where jobs without GPUs are put."""

from hocket.model.event import JobSubmitted
from hocket.model.resources import Node
from hocket.policies import find
from hocket.policies.registry import as_recorded
from hocket.testing.builders import job
from hocket.testing.harness import Harness

# The first has a GPU, and is where jobs are put if nothing speaks against it.
NODES = [Node("with", 1, cores=4.0, mem_mib=100.0), Node("without", 0, cores=4.0, mem_mib=100.0)]


def placed(*jobs, settings=None):
    h = Harness.of(find("static").bound(settings or {}), NODES)
    h.tell(*(JobSubmitted(0.0, j) for j in jobs))
    return {p.id: {s.node: s.cores for s in p.slices} for p in h.snapshot.partitions.values()}


def cores(name, n, size=1):
    return job(name, size, gpus=0, cores=n)


def test_a_job_without_gpus_leaves_the_cores_beside_gpus_to_jobs_with_gpus():
    assert placed(cores("a", 3), job("b", 1, gpus=1, cores=3)) == {"a": {"without": 3.0}, "b": {"with": 3.0}}


def test_what_does_not_fit_elsewhere_goes_beside_gpus():
    assert placed(cores("a", 1, size=6)) == {"a": {"without": 4.0, "with": 2.0}}
    assert placed(cores("a", 3), cores("b", 3)) == {"a": {"without": 3.0}, "b": {"with": 3.0}}
    assert placed(cores("a", 3), cores("b", 3), cores("c", 3)).keys() == {"a", "b"}


def test_a_job_that_may_not_be_spread_is_not():
    assert placed(job("a", 6, gpus=0, cores=1, max_nodes=1)) == {}
    whole = placed(cores("a", 3), job("b", 2, gpus=0, cores=1, max_nodes=1))
    assert whole == {"a": {"without": 3.0}, "b": {"with": 2.0}}


def test_journals_of_before_are_decided_as_they_were():
    before = as_recorded("static", {"size": "smallest", "models": ""})
    assert placed(cores("a", 3), settings=before) == {"a": {"with": 3.0}}
