"""Clusters in words."""

import pytest

from hocket.workloads import WorkloadError, cluster_text, parse_cluster


def test_nodes_are_numbered_over_all_groups():
    nodes = parse_cluster("2x8:v100+1x4:p100")
    assert [(n.id, n.gpus, n.gpu_kind) for n in nodes] == [
        ("n000", 8, "v100"),
        ("n001", 8, "v100"),
        ("n002", 4, "p100"),
    ]


def test_ids_have_as_many_digits_as_the_last_one_needs():
    nodes = parse_cluster("1500x1")
    assert (nodes[0].id, nodes[-1].id) == ("n0000", "n1499")
    assert sorted(n.id for n in nodes) == [n.id for n in nodes]


@pytest.mark.parametrize("text", ["309x8", "8x8:v100+8x8:p100", "229x8+321x2", "1x1:rtx-4090"])
def test_printing_a_cluster_gives_its_text(text):
    assert cluster_text(parse_cluster(text)) == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "at column 1 expected a number of nodes from 1 to 100000, found the end"),
        ("0x8", "at column 1 expected a number of nodes from 1 to 100000, found '0x8'"),
        ("-1x8", "at column 1 expected a number of nodes"),
        ("8", "at column 2 expected 'x' and a number of GPUs, found the end"),
        ("8x", "at column 3 expected a number of GPUs from 1 to 1024, found the end"),
        ("8x9999", "at column 3 expected a number of GPUs from 1 to 1024, found '9999'"),
        ("8x8:", "at column 5 expected a GPU kind such as v100, found the end"),
        ("8x8 ", "at column 4 expected ':' and a GPU kind, '+' or the end, found ' '"),
        ("8x8:v100,", "at column 9 expected '+' or the end, found ','"),
        ("8x8+x2", "at column 5 expected a number of nodes from 1 to 100000, found 'x2'"),
        ("90000x8+90000x8", "there must be at most 100000 nodes, not 180000"),
        ("100000x1024", "nodes times the GPUs of the largest must be at most 1000000, not 102400000"),
        ("999x1+1x1024", "nodes times the GPUs of the largest must be at most 1000000, not 1024000"),
    ],
)
def test_a_bad_text_is_refused_at_its_position(text, message):
    with pytest.raises(WorkloadError) as caught:
        parse_cluster(text)
    assert str(caught.value).startswith(f"cluster {text!r}: {message}")


@pytest.mark.parametrize("text", ["100000x8", "12500x8+1000x64", "976x1024"])
def test_clusters_of_a_hundred_thousand_gpus_and_more_are_read(text):
    assert sum(node.gpus for node in parse_cluster(text)) >= 100_000


def test_a_cluster_file_of_too_many_gpus_is_refused(tmp_path):
    path = tmp_path / "cluster.toml"
    path.write_text("[[nodes]]\ncount = 1000\ngpus = 1\n[[nodes]]\ngpus = 1000\n")
    with pytest.raises(WorkloadError, match="nodes times the GPUs of the largest must be at most 1000000, not 1001000"):
        parse_cluster(str(path))


def test_a_bad_cluster_file_is_refused_with_its_line(tmp_path):
    path = tmp_path / "cluster.toml"
    path.write_text("[[nodes]]\ncount = 4\ngpu = 8\n")
    with pytest.raises(WorkloadError, match=r"line 3: node number 1: unknown key 'gpu' \(did you mean 'gpus'\?\)"):
        parse_cluster(str(path))
