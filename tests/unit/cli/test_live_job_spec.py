"""What users say about a job, and the JobSpec that it means."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from hocket.cli.live.toml_jobs import jobs_in
from hocket.cli.terminal.errors import InputError
from hocket.job_input.read_job import NAMES, FieldProblem, carried, read_job
from hocket.model.job_spec import JobSpec

SHELL = {
    "PATH": "/bin",
    "HOME": "/home/ann",
    "LC_ALL": "C",
    "SECRET": "s3cret",
    "CONDA_PREFIX": "/c",
    "HOCKET_JOB": "x",
}


def spec(**said: Any) -> dict[str, Any]:
    return read_job({"command": ["true"]} | said, "/here", SHELL, lambda _folder: "ab" * 32).spec


def problem(**said: Any) -> str:
    with pytest.raises(FieldProblem) as found:
        spec(**said)
    return str(found.value)


def test_all_that_can_be_said_is_sent_under_the_names_of_the_api() -> None:
    found = spec(
        name="resnet", command="python train.py --lr '0.1 0.2'", owner="ann", gpus="2,4", replica_gpus=2, cpus="1.5",
        mem="8G", gpu_kind=["a100,h100", "v100"], gpu_mem="40G", max_nodes=1, priority="-2", weight="2", urgency=3,
        until="ACC MIN 92% WITHIN 2 HOURS", deadline="6h", time="2h30m", after=["first"], array="0-9", retries="1",
        after_any=["second"],
        backoff="5s", resume=["python", "train.py", "--resume"], signal="usr1", checkpoint_signal="SIGUSR2", grace="1m",
        warm=True, progress="json:metrics.jsonl", hang="10m", log_size="128M", model="resnet50", cwd="sub",
        env=["A=b=c"],
    )  # fmt: skip
    assert found.pop("env") == {"PATH": "/bin", "HOME": "/home/ann", "LC_ALL": "C", "CONDA_PREFIX": "/c", "A": "b=c"}
    assert found == {
        "id": "resnet", "command": ["python", "train.py", "--lr", "0.1 0.2"], "owner": "ann", "sizes": [1, 2],
        "gpus": 2,
        "cores": 1.5, "mem_mib": 8192.0, "gpu_kinds": ["a100", "h100", "v100"], "gpu_mem_mib": 40960.0, "max_nodes": 1,
        "priority": -2, "weight": 2.0, "urgency": 3, "until": "acc >= 92% within 2h", "deadline_s": 21600.0,
        "limit_s": 9000.0, "after": ["first"], "after_any": ["second"], "array": 10, "retries": 1, "backoff_s": 5.0,
        "resume": ["python", "train.py", "--resume"], "stop_signal": "SIGUSR1", "checkpoint_signal": "SIGUSR2",
        "grace_s": 60.0, "warm": True, "progress": {"kind": "json", "file": "metrics.jsonl"}, "hang_s": 600.0,
        "log_mib": 128.0, "model": "resnet50", "cwd": "/here/sub",
    }  # fmt: skip


def test_every_field_of_the_api_can_be_said() -> None:
    said = spec(**{name: value for name, value in _EXAMPLES.items() if name != "command"})
    assert set(said) == {field.name for field in msgspec.structs.fields(JobSpec)}
    assert set(_EXAMPLES) | {"env", "export_all", "replica_gpus", "gpus", "cwd", "hosts", *_OF_QUERIES} == set(NAMES)


_OF_QUERIES = ("query", "data", "threads", "engine", "master")
_EXAMPLES: dict[str, Any] = {
    "kind": "training",
    "secret": ["SECRET"],
    "name": "x", "command": "true", "owner": "ann", "cpus": 1, "mem": 1, "gpu_kind": "a", "gpu_mem": 1, "max_nodes": 1,
    "priority": 1, "weight": 1, "urgency": 1, "until": "for 2h", "target": "acc >= 0.9",
    "stop": "optstop", "may_lower": "required",
    "deadline": 1, "time": 1, "after": "y", "after_any": "z", "array": 2, "preempt": "never", "min_run": 1,
    "checkpoint": "model.pt", "continues": "w",
    "retries": 1, "backoff": 0, "resume": "true", "signal": "TERM", "checkpoint_signal": "USR1", "grace": 0,
    "warm": False, "progress": "none", "hang": 0, "log_size": 1, "model": "m", "traits": ["lr=0.1"],
    "notify": "https://hooks.example.org/x", "working_dir": ".", "pip": "numpy",
}  # fmt: skip


def test_a_job_without_gpus_has_one_replica() -> None:
    found = spec(gpus="0", cpus="2")
    assert (found["sizes"], found["gpus"], found["cores"]) == ([1], 0, 2.0)
    assert spec(gpus="0")["cores"] == 1.0  # It has to ask for something.


def test_a_process_may_use_several_gpus() -> None:
    assert spec(replica_gpus=4) | {"env": {}} == spec(gpus=4, replica_gpus="4") | {"env": {}}
    assert problem(gpus="2,3", replica_gpus=2) == "gpus must be multiples of replica_gpus (2), not 3"
    assert problem(replica_gpus=0) == "replica_gpus must be a count from 1 up, not 0"


@pytest.mark.parametrize(
    ("text", "config"),
    [
        ("json:m.jsonl", {"kind": "json", "file": "m.jsonl"}),
        ("json", {"kind": "json"}),
        ("csv:runs/log.csv", {"kind": "csv", "file": "runs/log.csv"}),
        ("tensorboard:runs", {"kind": "tensorboard", "folder": "runs"}),
        (r"pattern:ep:(?P<epoch>\d+)", {"kind": "stdout", "patterns": [r"ep:(?P<epoch>\d+)"]}),
        ("none", {"kind": "report"}),
        ("stdout", {"kind": "stdout"}),
        ({"kind": "csv", "file": "a.csv", "epoch": "step"}, {"kind": "csv", "file": "a.csv", "epoch": "step"}),
    ],
)
def test_progress_is_read_in_the_way_that_is_said(text: object, config: dict[str, Any]) -> None:
    assert spec(progress=text)["progress"] == config


def test_traits_are_numbers_or_texts_by_name() -> None:
    found = spec(model="m", traits=["dataset=cifar10", "batch_size=128", "learning_rate=1e-3", "tag=a=b"])
    assert found["traits"] == {"dataset": "cifar10", "batch_size": 128.0, "learning_rate": 0.001, "tag": "a=b"}
    assert spec(model="m", traits={"dataset": "cifar10", "batch_size": 128})["traits"] == {
        "dataset": "cifar10", "batch_size": 128.0,
    }  # fmt: skip


def test_jobs_are_alike_by_their_program_if_nothing_else_is_said() -> None:
    assert spec(command="python -u runs/train.py --lr 3")["traits"] == {"program": "train.py"}
    assert spec(command="torchrun --nproc-per-node 2 train.py")["traits"] == {"program": "train.py"}
    assert spec(command="python -m torch.distributed.run --tee 3 -m my.train")["traits"] == {"program": "my.train"}
    assert spec(command="/opt/bin/trainer --fast")["traits"] == {"program": "trainer"}
    assert "traits" not in spec(command="python train.py", model="resnet")


def test_queries_are_alike_by_their_text_and_their_data() -> None:
    one = spec(command=[], query="SELECT count(*)  FROM t", data="/d")["traits"]
    assert one["data"] == "/d"
    assert spec(command=[], query="SELECT count(*) FROM\n t", data="/d")["traits"] == one
    other = spec(command=[], query="SELECT sum(x) FROM t", data="/d", traits=["data=small"])["traits"]
    assert other["query"] != one["query"]
    assert other["data"] == "small"  # What is said goes first.


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"target": "acc >= 0.9", "stop": "never"}, "stop must be fixed, optstop or required, not 'never'"),
        ({"may_lower": "required"}, "may_lower must be fixed for a job without a goal"),
        ({"target": "acc > 1"}, "target: at column 5"),
        ({"target": "for 3s"}, "target must be a goal such as 'acc >= 90%', not 'for 3s'"),
        ({"progress": "csv"}, "progress.file must be given with kind 'csv'"),
        ({"progress": "pattern:x"}, "progress.patterns[0] must be a pattern with named groups"),
        ({"progress": "stdout:x"}, "progress must be 'stdout' alone"),
        ({"progress": "jsn:x"}, "progress"),
        ({"mem": "much"}, "mem must be an amount of memory such as 512M or 8G, not 'much'"),
        ({"name": "a/b"}, "name must be 1 to 200 printable characters without '/', not 'a/b'"),
        ({"name": ""}, "name must be a text"),
        ({"weight": 0}, "weight"),
        ({"signal": "KILL"}, "signal must be a signal that can be caught, not 'SIGKILL'"),
        ({"signal": "NOPE"}, "signal must be a signal that can be caught"),
        ({"name": "a", "after": "a"}, "after must name other jobs"),
        ({"name": "a", "after_any": "a"}, "after_any must name other jobs"),
        ({"command": []}, "command must say what to run, and is missing"),
        ({"command": "echo 'x"}, "command must be a line whose quotes are closed"),
        ({"command": ["echo", 1]}, "command must be a list of words"),
        ({"env": ["NOT_SET"]}, "env must be NAME=VALUE or the name of a variable that is set, and 'NOT_SET' is not"),
        ({"env": ["=x"]}, "env must be NAME=VALUE"),
        ({"env": {"A": 1}}, "env must be texts by name, and 'A' is none"),
        ({"warm": "yes"}, "warm must be true or false, not 'yes'"),
        ({"cwd": 3}, "cwd must be a path, not 3"),
        ({"retries": "-1"}, "retries"),
        ({"traits": ["lr"]}, "traits must be NAME=VALUE, or a table of numbers and texts, not ['lr']"),
        ({"traits": {"lr": True}}, "traits must be NAME=VALUE, or a table of numbers and texts, not {'lr': True}"),
        ({"traits": ["lr=nan"]}, "traits must be finite numbers or texts, and 'lr' is nan"),
        ({"traits": ["a b=1"]}, "traits"),
    ],
)
def test_what_breaks_a_rule_is_refused_with_field_rule_and_value(said: dict[str, Any], message: str) -> None:
    assert message in problem(**said)


def test_a_criterion_is_refused_at_the_position_where_it_goes_wrong() -> None:
    with pytest.raises(FieldProblem) as found:
        spec(until="acc > 92%")
    assert (found.value.text, found.value.position) == ("acc > 92%", 4)


def test_the_shell_gives_what_finds_programs_and_keeps_its_secrets() -> None:
    assert "SECRET" not in spec()["env"]
    assert spec(env=["SECRET"])["env"]["SECRET"] == "s3cret"
    assert spec(export_all=True)["env"]["SECRET"] == "s3cret"
    assert "HOCKET_JOB" not in spec(export_all=True)["env"], "a job's own, and not of the one that submits it"
    assert carried({"BASH_FUNC_x%%": "() { :; }", "LANG": "\udcff"}, everything=True) == {}


# -- files --------------------------------------------------------------------------------------------------


def in_file(tmp_path: Path, text: str) -> list[tuple[str, dict[str, Any]]]:
    path = tmp_path / "jobs.toml"
    path.write_text(text)
    return list(jobs_in(path))


def test_a_file_holds_one_job_or_several(tmp_path: Path) -> None:
    ((where, one),) = in_file(tmp_path, 'name = "a"\ncommand = "true"\ngpus = [1, 2]\n[env]\nK = "v"')
    assert where == str(tmp_path / "jobs.toml")
    assert one == {"name": "a", "command": "true", "gpus": [1, 2], "env": {"K": "v"}}
    several = in_file(
        tmp_path,
        'owner = "ann"\nenv = {A = "1", B = "1"}\n[[job]]\nname = "a"\ncommand = ["true"]\nenv = {B = "2"}\n'
        '[[job]]\ngpu-mem = "8G"\nowner = "bob"\n',
    )
    assert [said for _, said in several] == [
        {"owner": "ann", "env": {"A": "1", "B": "2"}, "name": "a", "command": ["true"]},
        {"owner": "bob", "env": {"A": "1", "B": "1"}, "gpu_mem": "8G"},
    ]
    assert [where.removeprefix(f"{tmp_path}/") for where, _ in several] == [
        "jobs.toml: job 1 ('a')",
        "jobs.toml: job 2",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gpuz = 1", "jobs.toml: unknown key 'gpuz'; did you mean 'gpus'?"),
        ("[[job]]\nname = 'a'\ncores = 1", "jobs.toml: job 1 ('a'): unknown key 'cores'; did you mean 'cpus'?"),
        ("[[jobs]]\nname = 'a'", "jobs.toml: unknown key 'jobs'; did you mean 'job'?"),
        ("[[job]]\nzzz = 1", "jobs.toml: job 1: unknown key 'zzz'; there are name, owner, kind, command"),
        ("job = 3", "jobs.toml: job must be [[job]] tables"),
        ("gpu-mem = 1\ngpu_mem = 2", "jobs.toml: 'gpu_mem' must be said once"),
        ("name = ", "jobs.toml: must be TOML: "),
    ],
)
def test_unknown_keys_are_refused_with_file_and_key(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError) as found:
        in_file(tmp_path, text)
    assert message in str(found.value)


SQL = "SELECT shop,\n  sum(price) FROM sold GROUP BY 1"


def query_spec(**said: Any) -> dict[str, Any]:
    return read_job({"query": SQL, "data": "sales/", **said}, "/here", SHELL).spec


def test_a_query_is_a_job_whose_size_is_threads() -> None:
    found = query_spec(threads="1-4", mem="2G", until="acc >= 95% within 1h")
    assert found["kind"] == "query"
    assert found["command"] == ["hocket", "query", SQL, "--data", "sales/", "--until", "acc >= 0.95"]
    assert found["until"] == "acc >= 95% within 1h"
    assert (found["sizes"], found["gpus"], found["cores"], found["mem_mib"]) == ([1, 2, 3, 4], 0, 1, 2048.0)
    assert (found["preempt"], found["max_nodes"], found["progress"]) == ("always", 1, {"kind": "report"})
    assert "query" not in found
    assert query_spec()["sizes"] == [1]
    by_spark = query_spec(engine="spark", master="spark://hub:7077")
    assert by_spark["command"] == [
        "hocket", "query", SQL, "--data", "sales/", "--engine", "spark", "--master", "spark://hub:7077",
    ]  # fmt: skip
    assert query_spec(preempt="never", cpus=2)["preempt"] == "never"


def test_the_command_of_a_query_makes_the_job_one() -> None:
    said = ["/opt/venv/bin/hocket", "query", SQL, "--data", "d", "--exact"]
    found = read_job({"command": said, "threads": 2}, "/here", SHELL).spec
    assert (found["kind"], found["sizes"]) == ("query", [2])
    assert found["command"] == ["hocket", "query", SQL, "--data", "d", "--exact"]
    assert "kind" not in spec(command=["hocket", "simulate", "demo"])


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ({"query": SQL}, "data must say where the tables of the query are, and is missing"),
        ({"data": "d"}, "data must stand with query"),
        ({"engine": "spark", "command": ["true"]}, "engine must stand with query"),
        ({"query": SQL, "data": "d", "engine": "flink"}, "engine must be duckdb or spark, not 'flink'"),
        ({"query": SQL, "data": "d", "engine": "spark"}, "master must say where Spark is, and is missing"),
        ({"query": SQL, "data": "d", "master": "local[2]"}, "master must stand with engine spark"),
        ({"query": SQL, "data": "d", "command": ["true"]}, "query must stand without a command, and there is one"),
        ({"query": SQL, "data": "d", "gpus": 1}, "gpus must not be said of a query: its size is threads"),
        ({"query": SQL, "data": "d", "threads": 0}, "threads must be counts from 1 up, not 0"),
        ({"query": " ", "data": "d"}, "query must be a text"),
        ({"command": ["true"], "threads": 2}, "threads must be said of a query only"),
        ({"command": ["true"], "kind": "model"}, "kind must be training, query or parameter-server, not 'model'"),
        ({"command": ["true"], "kind": "query"}, "command must begin with 'hocket query' where kind is 'query'"),
    ],
)
def test_what_is_said_of_a_query_must_fit_together(said: dict[str, Any], told: str) -> None:
    with pytest.raises(FieldProblem) as found:
        read_job(said, "/here", SHELL)
    assert told in str(found.value)


def test_secrets_are_of_the_shell_or_of_files(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("of-a-file\n")
    found = read_job({"command": ["true"], "secret": ["SECRET", "KEY=@key"]}, str(tmp_path), SHELL)
    assert found.spec["secrets"] == {"SECRET": "s3cret", "KEY": "of-a-file"}
    assert found.job.launch is not None
    assert found.job.launch.secrets == ("KEY", "SECRET")
    assert "s3cret" not in repr(found.job)
    assert "SECRET" not in spec(secret="SECRET", export_all=True)["env"], "a secret is no plain variable too"


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (["A=the-value"], "secret must be NAME or NAME=@FILE, and 'A' has a value: others can see"),
        (["NOT_SET"], "secret must be NAME=@FILE or the name of a variable that is set, and 'NOT_SET' is not"),
        (["A=@nowhere"], "secret must be in a file that can be read, and '/here/nowhere' cannot: No such file"),
        (["A=@/bin"], "'/bin' cannot: Is a directory"),
        ({"A": "the-value"}, "secret must be a list of NAME or NAME=@FILE"),
        (["HOCKET_JOB"], "'HOCKET_JOB' is set for each run"),
    ],
)
def test_what_is_wrong_with_a_secret_is_said_without_its_value(said: Any, words: str) -> None:
    assert words in (found := problem(secret=said))
    assert "the-value" not in found
