"""Whatever a file or a text holds, a reader gives a value or a WorkloadError of one line."""

import gzip
import tempfile
from collections.abc import Callable
from math import isfinite
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hocket.workloads import (
    Workload,
    WorkloadError,
    cluster_text,
    load,
    parse_cluster,
    parse_speeds,
    parse_switching,
)
from hocket.workloads.csv_table import _by_csv, _regular

VALID = {
    "philly": (b"job_idx,submit_s,num_gpus,wall_run_s,vc\n0,0,1,3613033,\n1,266,8,0,6214e9\n2,266.5,2,10,11cb48\n"),
    "pollux": (
        b"workload,name,time,application,num_replicas,batch_size\n"
        b"workload-1,cifar10-0,107,cifar10,6,2048\nworkload-1,ncf-2,135,ncf,1,32768\n"
    ),
    "muri": (
        b"job_id,num_gpu,submit_time,iterations,model_name,duration,priority\n"
        b"0,4,0,10,bert,927475000,0\n1,2,1456000,10,vgg,1000,1\n"
    ),
    "csv": (
        b"id,submit_s,run_s,gpus,sizes,owner,criterion,epochs,quality,speed,deadline_s,gpu_kinds\n"
        b'a,0,2h,2,1;2;4,ann,acc >= 90% within 2h,3,0.5;0.7;0.9,law:0.05,1h,v100\n"b",5,1,,,,,,,,,\n'
    ),
    "toml": b"""
name = "two teams"
[costs]
prepare_s = 20
[[nodes]]
count = 2
gpus = 4
gpu_kind = "v100"
cores = 32.5
[[owners]]
id = "vision"
max_gpus = 6
[[jobs]]
id = "resnet"
owner = "vision"
submit_s = 0
run_s = "2h"
gpus = 2
sizes = [1, 2, 4]
speed = [1, 1.9, 3.5]
epochs = 30
quality = { start = 0.1, final = 0.93, half_epochs = 4 }
criterion = "acc >= 90% within 3h"
kinds = { p100 = 0.5 }
tasks = [{ id = "x", gpus = 1 }]
edges = [{ source = "x", target = "x", mib = 1 }]
[[faults]]
node = "n001"
at_s = 600
back_s = 1200
""",
}
GAVEL = (
    b'{"v100": {"(\'LM\', 1)": {"null": 10.0}, "(\'LM\', 2)": {"null": 18.0}},'
    b' "v100_unconsolidated": {"(\'LM\', 2)": {"null": 9}}, "k80": {"(\'LM\', 1)": {"null": 2.5}}}'
)
# What real files go wrong with, put in where something else was.
TROUBLE = [
    b"",
    b"-1",
    b"nan",
    b"inf",
    b"1e999",
    b"0",
    b'"',
    b"'",
    b",",
    b"\n",
    b"\r",
    b"\0",
    b"\xff",
    b";",
    b"=",
    b"[",
]
TROUBLE += [
    b"9" * 5000,
    b"0x" + b"f" * 5000,
    b"1_0",
    "٣".encode(),
    b"true",
    b"{}",
    b"[[jobs]]\n",
    b"1979-05-27",
]
READERS = sorted(VALID)
# The valid files have at most one job of each id, so this many edits still leave most of a file as it was.
EDITS = st.lists(
    st.tuples(st.integers(0, 10**6), st.integers(0, 12), st.sampled_from(TROUBLE) | st.binary(max_size=4)),
    min_size=1,
    max_size=4,
)


def edited(content: bytes, edits: list[tuple[int, int, bytes]]) -> bytes:
    for at, length, new in edits:
        start = at % (len(content) + 1)
        content = content[:start] + new + content[start + length :]
    return content


def is_one_line(error: WorkloadError) -> None:
    assert len(str(error).splitlines()) == 1


def names(error: WorkloadError, path: Path) -> None:
    assert str(path) in str(error)


def read_as(name: str, content: bytes, read: Callable[[str], object]) -> object:
    """What a reader makes of a file with this content: its value, or None if it is refused properly."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(content)
        try:
            return read(str(path))
        except WorkloadError as error:
            is_one_line(error)
            names(error, path)
            return None


def is_sound(workload: Workload) -> None:
    """What the simulator takes for granted."""
    assert workload.submissions
    times = [s.at_s for s in workload.submissions]
    assert times == sorted(times)
    assert len({s.job.id for s in workload.submissions}) == len(times)
    for s in workload.submissions:
        assert 0 <= s.at_s <= 4e9
        assert 0 <= s.truth.run_s <= 4e9
        assert s.job.sizes == tuple(sorted(set(s.job.sizes)))
        assert s.job.sizes[0] >= 1
        assert s.truth.reference_size in s.job.sizes
        points = s.truth.speed.points if s.truth.speed is not None else ()
        assert all(isfinite(p.mean) and p.mean > 0 for p in points)


@pytest.mark.parametrize("reader", READERS)
def test_the_valid_files_are_valid(reader):
    workload = read_as("file", VALID[reader], lambda p: load(f"{reader}:{p}"))
    assert isinstance(workload, Workload)
    is_sound(workload)


@settings(max_examples=60, deadline=None)
@given(reader=st.sampled_from(READERS), content=st.binary(max_size=300), packed=st.booleans())
@example(reader="csv", content=b"\x1f\x8b", packed=False)
@example(reader="toml", content=b"[" * 3000, packed=False)
def test_arbitrary_bytes_are_read_or_refused(reader, content, packed):
    data = gzip.compress(content) if packed else content
    workload = read_as("file", data, lambda p: load(f"{reader}:{p}"))
    if workload is not None:
        assert isinstance(workload, Workload)
        is_sound(workload)


@pytest.mark.parametrize("reader", READERS)
@settings(max_examples=100, deadline=None)
@given(edits=EDITS)
def test_a_damaged_file_is_read_or_refused(reader, edits):
    workload = read_as("file", edited(VALID[reader], edits), lambda p: load(f"{reader}:{p}"))
    if workload is not None:
        assert isinstance(workload, Workload)
        is_sound(workload)


@settings(max_examples=80, deadline=None)
@given(reader=st.sampled_from(READERS), edits=EDITS, cut=st.integers(0, 10**6))
def test_a_damaged_gz_is_read_or_refused(reader, edits, cut):
    packed = edited(gzip.compress(VALID[reader]), edits)
    read_as("file.gz", packed[: cut % (len(packed) + 1)], lambda p: load(f"{reader}:{p}"))


@settings(max_examples=150, deadline=None)
@given(edits=EDITS)
def test_damaged_profiles_are_read_or_refused(edits):
    speeds = read_as("gavel.json", edited(GAVEL, edits), lambda p: parse_speeds(f"gavel:{p}"))
    if speeds is not None:
        is_sound(speeds.apply(load("burst?jobs=5&elastic")))


@settings(max_examples=120, deadline=None)
@given(content=st.binary(max_size=200) | EDITS.map(lambda e: edited(b"[[nodes]]\ncount = 2\ngpus = 4\n", e)))
def test_cluster_files_are_read_or_refused(content):
    nodes = read_as("cluster.toml", content, parse_cluster)
    assert nodes is None or len({n.id for n in nodes}) == len(nodes) > 0


SPECS = [
    "philly:x?first=3",
    "poisson?jobs=20&gap=60&elastic",
    "window?jobs=4&over=9",
    "burst?gpus=1:2;4",
    "demo",
]


@settings(max_examples=150, deadline=None)
@given(
    spec=st.text(max_size=30)
    | st.tuples(st.sampled_from(SPECS), EDITS).map(lambda t: edited(t[0].encode(), t[1]).decode(errors="replace"))
)
def test_a_spec_is_read_or_refused(spec):
    # Jobs are limited here, not in the product: a fuzzer soon finds `jobs=2000000`.
    if any(len(run) > 3 for run in "".join(c if c.isdecimal() else " " for c in spec).split()):
        return
    try:
        is_sound(load(spec))
    except WorkloadError as error:
        is_one_line(error)


@settings(max_examples=120, deadline=None)
@given(text=st.text(max_size=30) | EDITS.map(lambda e: edited(b"prepare=20,start=10s", e).decode(errors="replace")))
def test_switching_and_speeds_are_read_or_refused(text):
    for read in (parse_switching, parse_speeds):
        try:
            read(text)
        except WorkloadError as error:
            is_one_line(error)


KINDS = st.none() | st.from_regex(r"[A-Za-z][A-Za-z0-9_.-]{0,8}", fullmatch=True)


@given(st.lists(st.tuples(st.integers(1, 200), st.integers(1, 1024), KINDS), min_size=1, max_size=4))
def test_a_cluster_survives_printing_and_parsing(groups):
    text = "+".join(f"{n}x{gpus}" + (f":{kind}" if kind else "") for n, gpus, kind in groups)
    if text.endswith(".toml"):
        return
    nodes = parse_cluster(text)
    assert [(n.gpus, n.gpu_kind) for n in nodes] == [(g, k or "") for n, g, k in groups for _ in range(n)]
    assert parse_cluster(cluster_text(nodes)) == nodes
    assert sorted({n.id for n in nodes}) == [n.id for n in nodes]


@given(st.text(max_size=40) | EDITS.map(lambda e: edited(b"8x8:v100+8x8", e).decode(errors="replace")))
def test_a_cluster_text_is_read_or_refused(text):
    try:
        assert parse_cluster(text)
    except WorkloadError as error:
        is_one_line(error)


CELLS = st.text(st.characters(codec="utf-8", exclude_characters='",\r\n\0'), max_size=5)


@given(st.integers(1, 4).flatmap(lambda w: st.lists(st.lists(CELLS, min_size=w, max_size=w), min_size=1, max_size=5)))
def test_splitting_a_table_at_once_agrees_with_the_csv_module(rows):
    text = "\n".join(",".join(row) for row in rows)
    try:
        expected = _by_csv("", text)
    except WorkloadError:
        expected = None
    found = _regular(text)
    assert found is None or found == expected
