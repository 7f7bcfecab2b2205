"""A workload in TOML: what it can say, and how it is refused."""

import pytest

from hocket.model.criterion import parse
from hocket.model.job import Kind, Owner
from hocket.model.view import Costs
from hocket.workloads import Fault, WorkloadError, check_faults, load, parse_cluster
from hocket.workloads.toml_file import __doc__ as documented

JOB = '[[jobs]]\nid = "a"\nsubmit_s = 0\nrun_s = 60\n'


@pytest.fixture
def toml(tmp_path):
    def read(text: str):
        path = tmp_path / "work.toml"
        path.write_text(text)
        return load(str(path))

    return read


@pytest.fixture
def refused(toml, tmp_path):
    def read(text: str) -> str:
        with pytest.raises(WorkloadError) as caught:
            toml(text)
        message = str(caught.value)
        assert "\n" not in message
        assert message.startswith(str(tmp_path / "work.toml"))
        return message.removeprefix(str(tmp_path / "work.toml")).strip()

    return read


def test_the_documented_example_is_true(toml):
    example = "\n".join(line[4:] for line in (documented or "").splitlines() if line.startswith("    "))
    workload = toml(example)
    assert workload.name == "two teams"
    assert [n.id for n in workload.nodes] == ["n000", "n001"]
    assert workload.owners == (Owner("vision", max_gpus=6),)
    assert workload.faults == (Fault(600.0, "n001", 1200.0),)
    (only,) = workload.submissions
    assert only.job.criterion == parse("acc >= 90% within 3h")
    assert only.truth.costs == Costs(prepare_s=20.0)
    assert (only.truth.run_s, only.truth.reference_size, only.truth.epochs) == (7200.0, 2, 30)
    assert only.truth.quality is not None
    assert only.truth.quality.at(4).mean == pytest.approx(0.515)


def test_a_file_without_a_name_is_called_by_its_spec(toml, tmp_path):
    assert toml(JOB).name == str(tmp_path / "work.toml")


def test_nodes_may_have_names_cores_memory_and_network(toml):
    workload = toml(
        JOB + '[[nodes]]\nid = "big"\ngpus = 8\ngpu_kind = "v100"\ngpu_mem_mib = 16000\ncores = 64\n'
        "mem_mib = 1000\nnet_mbps = 25\n[[nodes]]\ncount = 2\ncores = 4.5\n"
    )
    big, *small = workload.nodes
    assert (big.id, big.gpus, big.gpu_kind, big.gpu_mem_mib, big.cores) == ("big", 8, "v100", 16000.0, 64.0)
    assert [(n.id, n.gpus, n.cores) for n in small] == [("n001", 0, 4.5), ("n002", 0, 4.5)]


def test_a_workload_file_serves_as_a_cluster_too(toml, tmp_path):
    nodes = toml(JOB + "[[nodes]]\ncount = 2\ngpus = 4\n").nodes
    assert parse_cluster(str(tmp_path / "work.toml")) == nodes


def test_a_file_without_nodes_is_no_cluster(toml, tmp_path):
    toml(JOB)
    with pytest.raises(WorkloadError, match="must have"):
        parse_cluster(str(tmp_path / "work.toml"))


def test_a_job_may_have_costs_kinds_crashes_and_phases_of_its_own(toml):
    (only,) = toml(
        "[costs]\nprepare_s = 9\nstop_s = 1\n"
        + JOB
        + 'kinds = { p100 = 0.6 }\nspread = 0.8\ncrashes_s = [10, "20s"]\ncosts = { prepare_s = "2m" }\n'
        'comp_s = 0.3\ncomm_s = 0.1\nkind = "parameter-server"\n'
    ).submissions
    truth = only.truth
    assert truth.costs == Costs(prepare_s=120.0, stop_s=1.0)
    assert (truth.kinds, truth.spread, truth.crashes_s) == ({"p100": 0.6}, 0.8, (10.0, 20.0))
    assert (truth.comp_s, truth.comm_s, only.job.kind) == (0.3, 0.1, Kind.PARAMETER_SERVER)


def test_a_job_may_have_a_task_graph(toml):
    (only,) = toml(
        JOB + 'tasks = [{ id = "x", gpus = 1, share = 0.4 }, { id = "ps", is_parameter_server = true }]\n'
        'edges = [{ source = "x", target = "ps", mib = 3 }]\n'
    ).submissions
    assert only.job.tasks is not None
    assert [t.id for t in only.job.tasks.tasks] == ["x", "ps"]
    assert only.job.tasks.tasks[1].is_parameter_server
    assert only.job.tasks.edges[0].mib == 3.0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[jobs]\n", "line 1: the file must be TOML, but at column 7:"),
        ("x = " + "[" * 5000, ": the file must be TOML, but is nested too deeply"),
        ("name = 'empty'\n", ": the file must have a job in [[jobs]], and has none"),
        ("jobs = 3\n", "line 1: jobs must be a list of tables, not 3"),
        ("costs = 3\n" + JOB, "line 1: costs must be a table, not 3"),
        ("[costs]\nstop = 3\n" + JOB, "line 2: [costs]: unknown key 'stop' (did you mean 'stop_s'?)"),
        ("nmae = 'x'\n" + JOB, "line 1: unknown key 'nmae' (did you mean 'name'?)"),
        (JOB + "[[job]]\n", "line 5: unknown key 'job' (did you mean 'jobs'?)"),
        (JOB + "gpu = 3\n", "line 5: job 'a': unknown key 'gpu' (did you mean 'gpus'?)"),
        (JOB + "\ngpus = -3\n", "line 6: job 'a': gpus must be a whole number from 0 up, not -3"),
        (JOB + "gpus = true\n", "line 5: job 'a': gpus must be a whole number from 0 up, not True"),
        (JOB + "gpus = '2'\n", "line 5: job 'a': gpus must be a whole number from 0 up, not '2'"),
        (JOB + "gpus = 0x" + "f" * 5000, "line 5: job 'a': gpus must be a whole number from 0 up, at most"),
        (JOB + "weight = nan\n", "line 5: job 'a': weight must be a finite number above 0, not nan"),
        (JOB + "sizes = 4\n", "line 5: job 'a': sizes must be a list, not 4"),
        (JOB + "warm = 'yes'\n", "line 5: job 'a': warm must be true or false, not 'yes'"),
        (JOB + "criterion = 3\n", "line 5: job 'a': criterion must be a text such as"),
        (JOB + "criterion = 'for ever'\n", "line 5: job 'a': criterion must follow its grammar: criterion"),
        (
            JOB + "kinds = { v100 = 0 }\n",
            "line 5: job 'a': kinds: v100 must be a finite number above 0, not 0",
        ),
        (JOB + "tasks = [{ id = 'x', gpu = 1 }]\n", "line 5: job 'a': tasks number 1: unknown key 'gpu'"),
        (JOB + "edges = [{ source = 'x', target = 'y' }]\n", "line 5: job 'a': edges must come with tasks"),
        (JOB + JOB, "line 6: job 'a': id must be unique, and another job has 'a' too"),
        (
            JOB.replace("60", '"1 week"'),
            "line 4: job 'a': run_s must be a finite number of seconds from 0 up",
        ),
        (
            JOB.replace("run_s = 60", ""),
            "line 1: job 'a': run_s must be a finite number of seconds from 0 up",
        ),
        (JOB.replace('id = "a"', ""), "line 1: job number 1: id must be 1 to 200 printable characters"),
        ("cluster = '4y4'\n" + JOB, "line 1: cluster must follow its grammar: cluster '4y4': at column 2"),
        ("cluster = '4x4'\n[[nodes]]\n" + JOB, "line 1: cluster must not be given together with [[nodes]]"),
        (
            "[[nodes]]\nid='x'\n[[nodes]]\nid='x'\n" + JOB,
            "line 1: nodes must have distinct ids, and 'x' is there twice",
        ),
        (
            "[[nodes]]\nid='x'\ncount=2\n" + JOB,
            "line 3: node 'x': count must be 1 for a node with an id, not 2",
        ),
        ("[[owners]]\nid='o'\n[[owners]]\nid='o'\n" + JOB, "line 4: owner 'o': id must be unique"),
        (
            "[[faults]]\nnode='n0'\nat_s=9\nback_s=5\n" + JOB,
            "line 4: fault number 1: back_s must be after at_s",
        ),
        (
            "cluster='2x1'\n[[faults]]\nnode='n002'\nat_s=9\n" + JOB,
            "line 3: fault number 1: node must be a node of the file's cluster, not 'n002'",
        ),
    ],
)
def test_a_bad_file_is_refused_with_line_object_rule_and_value(refused, text, message):
    assert refused(text).startswith(message)


def test_no_line_is_told_when_headers_do_not_add_up(refused):
    text = 'kept = """\n[[jobs]]\n"""\n' + JOB + "gpu = 3\n"
    assert refused(text).startswith(": job 'a': unknown key 'gpu'")


def test_toml_takes_no_options(toml, tmp_path):
    toml(JOB)
    with pytest.raises(WorkloadError, match="unknown option 'first'"):
        load(f"{tmp_path / 'work.toml'}?first=3")


FAULT = "[[faults]]\nnode = 'n000'\nat_s = {}\nback_s = {}\n"


@pytest.mark.parametrize(
    ("faults", "message"),
    [
        (FAULT.format(10, 50) + FAULT.format(20, 30), "from 10 until 50"),
        (FAULT.format(20, 30) + FAULT.format(10, 50), "from 20 until 30"),
        (FAULT.format(10, 20) + FAULT.format(10, 20), "from 10 until 20"),
        ("[[faults]]\nnode = 'n000'\nat_s = 10\n" + FAULT.format(20, 30), "from 10 on"),
    ],
)
def test_a_node_is_not_lost_while_it_is_away(refused, faults, message):
    assert f"fault number 2: node must not be lost while it is away: 'n000' is, by another fault, {message}" in refused(
        JOB + faults
    )


def test_a_node_may_be_lost_again_once_it_is_back(toml):
    faults = FAULT.format(50, 60) + FAULT.format(10, 50) + FAULT.replace("n000", "n001").format(20, 30)
    assert [(f.node, f.at_s) for f in toml(faults + JOB).faults] == [("n000", 10.0), ("n001", 20.0), ("n000", 50.0)]


def test_a_cluster_must_have_the_nodes_that_fail(toml):
    workload = toml("[[faults]]\nnode = 'n009'\nat_s = 9\n" + JOB)
    check_faults(workload, parse_cluster("10x1"))
    with pytest.raises(WorkloadError, match="a fault must be of a node of the cluster, not 'n009'"):
        check_faults(workload, parse_cluster("4x1"))
