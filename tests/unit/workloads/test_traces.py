"""The readers of published traces: what a row means, which rows are chosen, and how bad ones are refused."""

import gzip
from pathlib import Path

import pytest

from hocket.workloads import WorkloadError, at_load, load
from hocket.workloads.csv_table import _by_csv, _regular

HEADER = "job_idx,submit_s,submit_ts,num_gpus,wall_run_s,vc\n"
PHILLY = HEADER + "7,0,x,1,100,a\n8,10,x,8,0,\n9,30,x,2,50.5,b\n"
POLLUX = (
    "workload,name,time,application,num_replicas,batch_size\n"
    "workload-1,cifar10-0,107,cifar10,4,2048\n"
    "workload-2,ncf-1,110,ncf,1,32768\n"
)
MURI = (
    "job_id,num_gpu,submit_time,iterations,model_name,duration,priority\n"
    "0,4,0,10,bert,927475000,0\n1,2,1456000,10,vgg,1000,1\n"
)


@pytest.fixture
def philly(tmp_path: Path):
    """Writes a Philly table and gives its path."""

    def write(text: str | bytes, name: str = "philly.csv") -> str:
        path = tmp_path / name
        data = text.encode() if isinstance(text, str) else text
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return str(path)

    return write


def refusal(spec: str) -> str:
    with pytest.raises(WorkloadError) as caught:
        load(spec)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_a_philly_row_is_a_rigid_job_of_its_virtual_cluster(philly):
    path = philly(PHILLY, "philly.csv.gz")
    workload = load(f"philly:{path}")
    assert workload.name == f"philly:{path}"
    first, second, third = workload.submissions
    assert (first.job.id, first.job.owner, first.job.sizes, first.at_s) == ("7", "a", (1,), 0.0)
    assert (second.truth.run_s, second.truth.reference_size, second.job.owner) == (0.0, 8, "")
    assert (third.truth.run_s, third.at_s) == (50.5, 30.0)
    assert third.job.demand.gpus == 1


def test_equal_sizes_and_owners_are_one_object(philly):
    rows = "".join(f"{n},{n},x,8,5,team\n" for n in range(5))
    jobs = [s.job for s in load(f"philly:{philly(HEADER + rows)}").submissions]
    assert len({id(j.sizes) for j in jobs}) == 1
    assert len({id(j.owner) for j in jobs}) == 1


def test_submissions_come_in_the_order_of_their_time(philly):
    workload = load(f"philly:{philly(HEADER + 'b,5,x,1,1,' + chr(10) + 'a,3,x,1,1,' + chr(10))}")
    assert [s.job.id for s in workload.submissions] == ["a", "b"]


@pytest.mark.parametrize(
    ("options", "ids"),
    [
        ("first=2", ["7", "8"]),
        ("vc=b", ["9"]),
        ("vc=", ["8"]),
        ("vc=a;b", ["7", "9"]),
        ("vc=a;b&first=1", ["7"]),
        ("from=10&to=30", ["8"]),
        ("from=10", ["8", "9"]),
        ("to=30s", ["7", "8"]),
    ],
)
def test_options_choose_jobs(philly, options, ids):
    assert [s.job.id for s in load(f"philly:{philly(PHILLY)}?{options}").submissions] == ids


def test_times_count_from_the_beginning_of_the_window(philly):
    assert [s.at_s for s in load(f"philly:{philly(PHILLY)}?from=10").submissions] == [0.0, 20.0]


def test_scaling_arrivals_leaves_run_times_alone(philly):
    path = philly(PHILLY)
    dense = load(f"philly:{path}?scale-arrivals=0.5")
    assert [s.at_s for s in dense.submissions] == [0.0, 5.0, 15.0]
    assert [s.truth for s in dense.submissions] == [s.truth for s in load(f"philly:{path}").submissions]


def test_elastic_jobs_may_run_at_powers_of_two_up_to_twice_their_size(philly):
    jobs = load(f"philly:{philly(PHILLY)}?elastic").submissions
    assert [s.job.sizes for s in jobs] == [(1, 2), (1, 2, 4, 8, 16), (1, 2, 4)]
    speed = jobs[1].truth.speed
    assert speed is not None
    assert speed.at(8).mean == 1.0
    assert speed.at(16).mean < 2.0


def test_limit_keeps_the_first_jobs(philly):
    assert len(load(f"philly:{philly(PHILLY)}", limit=2).submissions) == 2


def test_at_load_fills_the_given_share_of_a_cluster(philly):
    workload = at_load(load(f"philly:{philly(PHILLY)}"), gpus=4, load=0.9)
    work = sum(s.truth.run_s * s.truth.reference_size for s in workload.submissions)
    assert work / (4 * workload.submissions[-1].at_s) == pytest.approx(0.9)


def test_at_load_refuses_work_that_all_comes_at_once():
    with pytest.raises(WorkloadError, match="load must be above 0"):
        at_load(load("burst?jobs=5"), gpus=4, load=0.9)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("1,5,x,-3,4,", "line 5: num_gpus must be a whole number from 1 up, not '-3'"),
        ("1,5,x,0,4,", "line 5: num_gpus must be a whole number from 1 up, not '0'"),
        ("1,5,x,1.5,4,", "line 5: num_gpus must be a whole number from 1 up, not '1.5'"),
        ("1,5,x,1_0,4,", "line 5: num_gpus must be a whole number from 1 up, not '1_0'"),
        ("1,5,x,,4,", "line 5: num_gpus must be a whole number from 1 up, and is missing"),
        (
            "1,5,x,99999999,4,",
            "line 5: num_gpus must be a whole number from 1 up, at most 1000000, not '99999999'",
        ),
        ("1,5,x,1,nan,", "line 5: wall_run_s must be a finite number of seconds from 0 up"),
        ("1,5,x,1,inf,", "line 5: wall_run_s must be a finite number of seconds from 0 up"),
        ("1,5,x,1,-1,", "line 5: wall_run_s must be a finite number of seconds from 0 up"),
        ("1,5,x,1,1e99,", "at most 4e+09, not '1e99'"),
        ("1,soon,x,1,4,", "line 5: submit_s must be a finite number of seconds from 0 up"),
        ("a/b,5,x,1,4,", "line 5: job_idx must be 1 to 200 printable characters without '/', not 'a/b'"),
        (",5,x,1,4,", "line 5: job_idx must be 1 to 200 printable characters without '/', and is missing"),
        ("8,5,x,1,4,", "line 5: job_idx must be unique, and line 3 has '8' too"),
        ("1,5,x,1,4", "line 5: the row must have 6 fields as its header, not 5"),
        ("1,5,x,1,4,a,b", "line 5: the row must have 6 fields as its header, not 7"),
        ('1,5,"x,1,4,', "line 5: the line must be CSV, but: unexpected end of data"),
    ],
)
def test_a_bad_row_is_refused_with_line_field_rule_and_value(philly, row, message):
    path = philly(PHILLY + row + "\n")
    found = refusal(f"philly:{path}")
    assert found.startswith(f"{path} line 5: ")
    assert message in found


def test_lines_count_blank_and_quoted_ones(philly):
    text = HEADER + '\n"7",0,"two\nlines",1,1,a\n8,0,x,-1,1,a\n'
    assert "line 5: num_gpus" in refusal(f"philly:{philly(text)}")


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_line_endings_and_byte_order_marks_do_not_matter(philly, ending, mark):
    text = mark + PHILLY.replace("\n", ending)
    assert len(load(f"philly:{philly(text)}").submissions) == 3


def test_quotes_do_not_change_the_meaning(philly):
    quoted = PHILLY.replace("8,10", '"8","10"')
    assert load(f"philly:{philly(quoted)}").submissions == load(f"philly:{philly(PHILLY)}").submissions


def test_splitting_a_regular_table_agrees_with_the_csv_module():
    assert _regular(PHILLY) == _by_csv("", PHILLY)
    assert _regular(PHILLY + "1,2\n") is None
    assert _regular("a,b\n1\n2,3,4\n") is None


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file must not be empty"),
        (b" \n\n", "the file must not be empty"),
        (HEADER.encode(), "the file must have a job after its header"),
        (PHILLY.encode().replace(b",x,", b",\xff,", 1), "line 2: the text must be UTF-8, not b'\\xff'"),
        (
            PHILLY.replace("num_gpus", "num_gpu").encode(),
            "must have the column 'num_gpus' (is it 'num_gpu'?)",
        ),
        (PHILLY.replace("submit_ts", "vc").encode(), "line 1: the column 'vc' must be given only once"),
    ],
)
def test_a_bad_file_is_refused(philly, content, message):
    path = philly(content)
    found = refusal(f"philly:{path}")
    assert found.startswith(path)
    assert message in found


def test_a_truncated_gz_is_refused(philly):
    path = Path(philly(PHILLY * 100, "philly.csv.gz"))
    path.write_bytes(path.read_bytes()[:-20])
    assert "the gz must be whole, but ends early" in refusal(f"philly:{path}")


def test_a_damaged_gz_is_refused(philly):
    path = Path(philly(PHILLY, "philly.csv.gz"))
    data = bytearray(path.read_bytes())
    data[-6] ^= 0xFF
    path.write_bytes(bytes(data))
    assert "the gz must be whole, but is damaged" in refusal(f"philly:{path}")


def test_a_gz_of_several_members_is_read_whole(philly):
    path = Path(philly(HEADER, "philly.csv.gz"))
    path.write_bytes(path.read_bytes() + gzip.compress(PHILLY.removeprefix(HEADER).encode()))
    assert len(load(f"philly:{path}").submissions) == 3


def test_a_text_that_claims_to_be_gz_is_refused(tmp_path):
    (tmp_path / "plain.csv.gz").write_text(PHILLY)
    assert "a .gz file must be gzip" in refusal(f"philly:{tmp_path / 'plain.csv.gz'}")


def test_a_gz_bomb_is_refused(philly, monkeypatch):
    monkeypatch.setattr("hocket.workloads.files.MAX_BYTES", 1000)
    assert "at most 1000 bytes" in refusal(f"philly:{philly(PHILLY * 100, 'philly.csv.gz')}")


def test_paths_that_cannot_be_read_are_refused(tmp_path):
    assert "no such file" in refusal("philly:/nowhere/x.csv")
    assert "is a directory" in refusal(f"philly:{tmp_path}")
    assert "the path must name a file" in refusal("philly:a\0b.csv")
    assert "\\x00" in refusal("philly:a\0b.csv")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("fist=3", "unknown option 'fist' (did you mean 'first'?)"),
        ("first=0", "first must be a whole number from 1 up, not '0'"),
        ("vc=c", "vc must be one that the file has, not 'c'"),
        ("from=9000", "from and to must keep at least one job"),
        ("from=20&to=10", "to must be after from, which is 20, not 10"),
        ("first=1&first=2", "the option 'first' must be given only once"),
        ("elastic=perhaps", "elastic must be yes or no, not 'perhaps'"),
        ("scale-arrivals=-1", "scale-arrivals must be a finite number from 0 up"),
    ],
)
def test_a_bad_option_is_refused(philly, options, message):
    assert message in refusal(f"philly:{philly(PHILLY)}?{options}")


def test_a_pollux_job_gets_the_assumed_gpu_time_of_its_application(philly):
    path = philly(POLLUX, "pollux.csv")
    (only,) = load(f"pollux:{path}?workload=workload-1").submissions
    assert (only.job.id, only.job.model, only.job.sizes, only.at_s) == ("cifar10-0", "cifar10", (4,), 107.0)
    assert only.truth.run_s == 0.5 * 3600 / 4


def test_a_pollux_file_of_several_workloads_needs_a_choice(philly):
    path = philly(POLLUX, "pollux.csv")
    assert "workload must name one of the file, and is missing" in refusal(f"pollux:{path}")
    assert "did you mean 'workload-1'" in refusal(f"pollux:{path}?workload=workload1")


def test_an_unknown_pollux_application_is_refused_at_its_line(philly):
    path = philly(POLLUX.replace("ncf,", "ncg,"), "pollux.csv")
    assert f"{path} line 3: application must be" in refusal(f"pollux:{path}?workload=workload-2")


def test_muri_times_are_milliseconds(philly):
    first, second = load(f"muri:{philly(MURI, 'muri.csv')}").submissions
    assert (first.truth.run_s, first.job.sizes, first.job.model) == (927475.0, (4,), "bert")
    assert (second.at_s, second.job.priority) == (1456.0, 1)


def test_a_file_of_polluxs_repository_is_one_workload(philly):
    rows = POLLUX.replace("workload-1,", "").replace("workload-2,", "").replace("workload,", "", 1)
    path = philly(rows, "workload-1.csv")
    assert [s.job.id for s in load(f"pollux:{path}").submissions] == ["cifar10-0", "ncf-1"]
    assert "the option workload is for files with a column of that name" in refusal(f"pollux:{path}?workload=x")
