"""Commands that talk to a controller, as users type them, against a stand-in that speaks the API over HTTP."""

from __future__ import annotations

import json
import os
import socket
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.unit.cli.typed import completed, hocket, refused

from hocket.cli import options


def done(*args: str) -> str:
    result = hocket(*args)
    assert result.exit_code == 0, result.stderr or result.exception
    return str(result.stdout)


# -- finding the controller ---------------------------------------------------------------------------------


LINES = "jobs|show x|why x|logs x|top|stop x|down|submit -- true|owners|owners set x --weight 2"


@pytest.mark.parametrize("line", LINES.split("|"))
def test_without_a_controller_every_command_says_how_to_start_one(home: Path, line: str) -> None:
    args = line.split()
    assert refused(*args) == f"hocket: no controller answers at {home}; start one with 'hocket up'\n"
    (home / "url").write_text("http://127.0.0.1:1")  # A port on which nothing may listen.
    (home / "token").write_text("t")
    assert refused(*args) == "hocket: no controller answers at http://127.0.0.1:1; start one with 'hocket up'\n"


def test_a_controller_that_hangs_up_is_named_by_where_it_was(home: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        (home / "url").write_text(url)
        (home / "token").write_text("t")
        thread = threading.Thread(target=lambda: server.accept()[0].close())
        thread.start()
        said = refused("jobs")
        thread.join()
    assert said.startswith(f"hocket: no controller answers at {url} (")
    assert said.endswith("; start one with 'hocket up'\n")


def test_how_long_a_command_waits_for_an_answer_can_be_set(home: Path, monkeypatch: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        (home / "url").write_text(f"http://127.0.0.1:{silent.getsockname()[1]}")
        (home / "token").write_text("t")
        monkeypatch.setenv("HOCKET_TIMEOUT", "0.1")
        assert "did not answer within 0.1 s (HOCKET_TIMEOUT sets it)" in refused("jobs")
        for wrong in ("soon", "0", "-1", "nan", "1e9"):
            monkeypatch.setenv("HOCKET_TIMEOUT", wrong)
            assert f"HOCKET_TIMEOUT is a number of seconds, up to a day, not '{wrong}'" in refused("jobs")


def test_the_home_is_an_option_a_variable_or_in_the_users_own(
    controller: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    assert done("jobs", "--json") == '{"jobs": []}\n'
    assert str(tmp_path / "other") in refused("jobs", "--home", str(tmp_path / "other"))
    monkeypatch.delenv("HOCKET_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert str(tmp_path / ".hocket") in refused("jobs")
    os.rename(controller.home, tmp_path / ".hocket")
    assert done("jobs", "--json") == '{"jobs": []}\n'


def test_a_unix_socket_serves_as_well(unix_controller: Any) -> None:
    unix_controller.add("a")
    assert json.loads(done("jobs", "--json"))["jobs"][0]["id"] == "a"
    assert done("submit", "-n", "b", "--", "true") == "b\n"


def test_a_wrong_token_and_damaged_files_are_said(controller: Any) -> None:
    token = controller.home / "token"
    token.write_text("wrong")
    assert f"does not accept the token in {token}" in refused("jobs")
    token.write_text("")
    assert f"{token} must hold one line" in refused("jobs")
    token.write_text("x")
    (controller.home / "url").write_text("gopher://x")
    assert "must be http://HOST:PORT, https://HOST:PORT or unix:///PATH, not 'gopher://x'" in refused("jobs")


def test_what_the_controller_refuses_is_said_in_its_own_words(controller: Any) -> None:
    controller.answer = lambda *_: (503, {"error": "the journal cannot be written: disk full"}, {})
    assert refused("submit", "--", "true") == "hocket: the journal cannot be written: disk full\n"
    controller.answer = lambda *_: (500, b"<html>", {})
    assert "answered 500: <html>" in refused("jobs")


# -- submit -------------------------------------------------------------------------------------------------


def test_a_command_line_is_sent_as_a_list_and_its_name_printed(
    controller: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("API_KEY", "s3cret")
    line = (
        "submit",
        "--gpus",
        "1,2,4",
        "--env",
        "API_KEY",
        "--owner",
        "bob",
        "--",
        "python",
        "t.py",
        "--gpus",
        "$HOME",
        "--",
    )
    assert done(*line) == "train-1\n"
    (body,) = controller.calls("POST", "/v1/jobs")
    (spec,) = body["jobs"]
    assert spec["command"] == ["python", "t.py", "--gpus", "$HOME", "--"]
    assert (spec["sizes"], spec["owner"], spec["cwd"]) == ([1, 2, 4], "bob", str(tmp_path))
    assert spec["env"]["API_KEY"] == "s3cret"


def test_what_may_end_a_job_can_be_said_on_the_command_line() -> None:
    goal, levels = ("--target", "acc >= 91% within 80 epochs"), ("--stop", "optstop", "--may-lower", "required")
    (told,) = json.loads(done("submit", "--dry-run", *goal, *levels, "--", "true"))["jobs"]
    assert (told["target"], told["stop"], told["may_lower"]) == (goal[1], "optstop", "required")


def test_a_dry_run_prints_what_would_be_sent(controller: Any) -> None:
    told = json.loads(done("submit", "--dry-run", "-n", "a", "--time", "2h", "--", "true"))
    assert (told["jobs"][0]["id"], told["jobs"][0]["limit_s"]) == ("a", 7200.0)
    assert controller.seen == []


def test_json_holds_the_names(controller: Any) -> None:
    assert not controller.jobs
    assert json.loads(done("submit", "--json", "-n", "s", "--array", "0-2", "--", "true")) == {
        "jobs": [{"id": "s-0"}, {"id": "s-1"}, {"id": "s-2"}]
    }


def test_a_bad_criterion_is_refused_with_a_caret_before_anything_is_sent(controller: Any) -> None:
    result = hocket("submit", "--until", "acc >= much", "--", "true")
    assert result.exit_code == 2
    first, text, caret = result.stderr.splitlines()
    assert first == "hocket: --until: at column 8 expected a finite number or percentage, found 'much'"
    assert text[caret.index("^")] == "m"
    assert controller.seen == []


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((), "submit needs a file of jobs, or a command behind two dashes"),
        (("python", "train.py"), "put a command behind two dashes: hocket submit -- python"),
        (("nowhere.toml",), "nowhere.toml: No such file or directory"),
        (("a.toml", "--", "true"), "give files or a command behind --, not both"),
        (("--",), "command must say what to run"),
        (("--mem", "much", "--", "true"), "--mem must be an amount of memory such as 512M or 8G, not 'much'"),
        (("--gpu-mem", "x", "--", "true"), "--gpu-mem must be an amount of memory"),
        (("--gups", "1", "--", "true"), "--gups"),
        (("--env", "NOT_SET_ANYWHERE", "--", "true"), "--env must be NAME=VALUE or the name of a variable"),
    ],
)
def test_what_cannot_be_submitted_is_refused_in_one_line(controller: Any, args: tuple[str, ...], message: str) -> None:
    assert message in refused("submit", *args)
    assert controller.seen == []


def test_files_hold_many_jobs_and_go_out_in_batches(controller: Any, tmp_path: Path) -> None:
    path = tmp_path / "sweep.toml"
    path.write_text("".join(f"[[job]]\nname = 'j{n}'\ncommand = 'true'\ncwd = 'sub'\n" for n in range(250)))
    assert done("submit", str(path), "--owner", "team").splitlines() == [f"j{n}" for n in range(250)]
    batches = [body["jobs"] for body in controller.calls("POST", "/v1/jobs")]
    assert [len(batch) for batch in batches] == [100, 100, 50]
    assert {(spec["owner"], spec["cwd"]) for batch in batches for spec in batch} == {("team", str(tmp_path / "sub"))}


def test_a_mistake_in_the_last_job_of_a_file_keeps_all_of_it_back(controller: Any, tmp_path: Path) -> None:
    path = tmp_path / "jobs.toml"
    path.write_text("[[job]]\nname = 'a'\ncommand = 'true'\n[[job]]\nname = 'b'\ncommand = 'true'\nuntil = 'acc >'\n")
    result = hocket("submit", str(path))
    assert result.exit_code == 2
    assert f"{path}: job 2 ('b'): until: at column 5" in result.stderr
    path.write_text("[[job]]\nname = 'a'\ncommand = 'true'\n[[job]]\nname = 'a'\ncommand = 'true'\n")
    assert "'a' stands for several" in refused("submit", str(path))
    assert controller.seen == []


@pytest.mark.parametrize(
    ("second", "message"),
    [
        ("name = 'live'", "job 'live': name must be that of no live job, and there is one (waiting)"),
        ("name = 'again'", "job 'again': name must be that of no live job, and there is one (running)"),
        ("name = 'b'\nafter = 'again~2'\ngpus = 5", "job 'b': sizes must fit the cluster"),
        ("name = 'b'\nafter = 'olt'", "job 'b': after: there is no job 'olt'; did you mean 'old'?"),
        ("name = 'b'\ngpus = 5", "job 'b': sizes must fit the cluster; its smallest needs 5 GPUs"),
        ("name = 'b'\nafter = 'x-*'", "after must name jobs, and no live one matches 'x-*'"),
        ("name = 'b'\nafter_any = 'olt'", "job 'b': after_any: there is no job 'olt'; did you mean 'old'?"),
        ("name = 'b'\nafter_any = 'x-*'", "after_any must name jobs, and no live one matches 'x-*'"),
    ],
)
def test_of_several_jobs_none_is_sent_if_one_would_be_refused(
    controller: Any, tmp_path: Path, second: str, message: str
) -> None:
    controller.add("old", "finished")
    controller.add("live")
    controller.add("again", "finished")
    controller.add("again~2", "running")
    path = tmp_path / "jobs.toml"
    path.write_text(f"[[job]]\nname = 'a'\ncommand = 'true'\n[[job]]\ncommand = 'true'\n{second}\n")
    assert message in refused("submit", str(path))
    assert not controller.calls("POST", "/v1/jobs")


def test_what_is_refused_all_the_same_takes_the_others_back(controller: Any, tmp_path: Path) -> None:
    controller.refuse = {"b": "job 'b': quota"}
    path = tmp_path / "jobs.toml"
    path.write_text("[[job]]\nname = 'a'\ncommand = 'true'\n[[job]]\nname = 'b'\ncommand = 'true'\n")
    assert "job 'b': quota; nothing is submitted, 1 that had been accepted were stopped" in refused("submit", str(path))
    assert controller.jobs["a"]["state"] == "stopped"


def test_after_takes_patterns_of_live_jobs_and_of_those_submitted_before(controller: Any, tmp_path: Path) -> None:
    controller.add("sweep-0")
    controller.add("sweep-1", "running")
    controller.add("sweep-2", "failed")
    done("submit", "-n", "last", "--after", "sweep-*", "--", "true")
    assert controller.specs["last"]["after"] == ["sweep-0", "sweep-1"]
    done("submit", "-n", "report", "--after-any", "sweep-*", "--after", "last", "--", "true")
    assert controller.specs["report"]["after_any"] == ["sweep-0", "sweep-1"]
    assert controller.specs["report"]["after"] == ["last"]
    path = tmp_path / "jobs.toml"
    path.write_text(
        "[[job]]\nname = 'z'\ncommand = 'true'\narray = 2\n[[job]]\nname='y'\ncommand='true'\nafter=['z-*']\n"
    )
    done("submit", str(path))
    assert controller.specs["y"]["after"] == ["z-0", "z-1"]


@pytest.mark.parametrize(
    ("states", "code"),
    [
        (["finished", "attained"], 0),
        (["finished", "failed"], 1),
        (["finished", "stopped"], 3),
        (["overran", "missed"], 3),
        (["finished", "missed"], 5),
        (["failed", "missed"], 1),
    ],
)
def test_waiting_ends_with_a_code_that_tells_how_it_went(controller: Any, states: list[str], code: int) -> None:
    def end() -> None:
        for n, state in enumerate(states):
            controller.add(f"s-{n}", state, reason="because")

    controller.on["/v1/jobs"] = lambda: len(controller.calls("GET", "/v1/jobs")) == 3 and end()
    result = hocket("submit", "-n", "s", "--array", "2", "--wait", "--", "true")
    assert result.exit_code == code, result.stderr
    assert result.stdout == "s-0\ns-1\n"
    said = result.stderr.splitlines()
    assert [line.split()[:2] for line in said] == [
        [f"s-{n}", state + ":" * (code > 0 and state != "finished")] for n, state in enumerate(states)
    ]


def test_waiting_says_once_how_a_job_ended(controller: Any) -> None:
    controller.on["/v1/jobs"] = lambda: controller.jobs["late"].update(
        state="overran", reason="overran: its time limit is 1 s", ended_s=1.0
    )
    assert hocket("submit", "--wait", "-n", "late", "--", "true").stderr == "late overran: its time limit is 1 s\n"


def test_waiting_survives_a_controller_that_comes_back(controller: Any) -> None:
    url = controller.home / "url"
    there = url.read_text()

    def say(where: str) -> None:
        (controller.home / "new").write_text(where)
        os.rename(controller.home / "new", url)  # As a controller does: a reader finds a whole file.

    def go_away() -> None:
        if len(controller.calls("GET", "/v1/jobs")) == 1:
            say("http://127.0.0.1:1")
            controller.answer = lambda *_: (401, {"error": "another token"}, {})
            threading.Timer(0.3, come_back).start()

    def come_back() -> None:
        del controller.answer
        controller.add("a", "finished")
        say(there)

    controller.on["/v1/jobs"] = go_away
    assert json.loads(done("submit", "-n", "a", "--wait", "--json", "--", "true")) == {
        "jobs": [{"id": "a", "state": "finished"}]
    }


# -- jobs, show, why ----------------------------------------------------------------------------------------


def test_jobs_lists_what_runs_before_what_waits_and_what_is_over_last(controller: Any) -> None:
    controller.add("over", "failed", reason="exit code 1\x1b[31m")
    controller.add("queued", reason="waits: there is no room for it")
    controller.add(
        "first", "running", gpus=["n0:0", "n0:1", "n0:3"], until="acc >= 90%", metrics={"acc": 0.45}, epoch=3
    )
    lines = done("jobs").splitlines()
    assert [line.split()[0] for line in lines] == ["job", "first", "queued"]
    assert "n0:0-1,3" in lines[1]
    assert "acc=0.45" in lines[1]
    every = done("jobs", "--all")
    assert every.splitlines()[3].split()[:3] == ["over", "ann", "failed"]
    assert "\x1b" not in every
    assert [line.split()[0] for line in done("jobs", "--state", "failed,waiting").splitlines()] == [
        "job",
        "queued",
        "over",
    ]
    assert done("jobs", "--owner", "nobody").count("\n") == 1
    assert json.loads(done("jobs", "--state", "running", "--json"))["jobs"][0]["metrics"] == {"acc": 0.45}
    assert "did you mean 'running'?" in refused("jobs", "--state", "runing")


def test_show_tells_all_but_the_values_of_variables(controller: Any) -> None:
    controller.add("a", "running", until="acc >= 90%", metrics={"acc": 0.45}, attempts=2, gpus=["n0:0"])
    controller.specs["a"] = {"command": ["python", "a b.py"], "env": {"API_KEY": "s3cret"}}
    page, told = done("show", "a"), done("show", "a", "--json")
    assert "python 'a b.py'" in page
    assert "50%" in page
    assert "API_KEY" in page
    assert json.loads(told)["job"]["env"] == ["API_KEY"]
    assert "s3cret" not in page + told


def test_show_calls_what_was_submitted_as_its_user_did(controller: Any) -> None:
    controller.add("a")
    controller.specs["a"] = {
        "command": ["true"], "sizes": [1, 2], "gpus": 2, "cores": 1.5, "mem_mib": 8192.0, "deadline_s": 90.0,
        "limit_s": None, "stop": "fixed", "target": "acc >= 90%", "stop_signal": "SIGUSR1", "log_mib": 64.0,
    }  # fmt: skip
    told = done("show", "a").split("as submitted\n", 1)[1].splitlines()
    deadline = next(line for line in told if line.startswith("deadline"))
    assert deadline.endswith("(1.50 min after submission)")
    told.remove(deadline)
    assert [line.split(maxsplit=1) for line in told] == [
        ["command", "true"], ["gpus", "2,4"], ["replica_gpus", "2"], ["cpus", "1.5"], ["mem", "8192M"],
        ["target", "acc >= 90%"], ["signal", "SIGUSR1"], ["log_size", "64M"],
    ]  # fmt: skip


def test_show_tells_every_attempt_with_where_it_ran_and_how_it_ended(controller: Any) -> None:
    controller.add("a", "running", attempts=2)
    first = {
        "number": 1,
        "nodes": ["n0"],
        "size": 2,
        "started_s": 100.0,
        "ended_s": 190.0,
        "how": "failed: exit code 3",
    }
    never = {"number": 2, "nodes": ["n0"], "size": 2, "started_s": None, "ended_s": 191.0, "how": "failed: it was lost"}
    last = {"number": 3, "nodes": ["n0", "n1"], "size": 4, "started_s": 200.0, "ended_s": None, "how": ""}
    controller.more = {"attempt_list": [first, never, last]}
    told = done("show", "a").split("attempts\n", 1)[1].splitlines()
    assert told[0].endswith("on n0 at size 2 for 1.50 min: failed: exit code 3")
    assert told[1] == "2    never ran on n0 at size 2: failed: it was lost"
    assert told[2].endswith("on n0, n1 at size 4: runs")


@pytest.mark.parametrize("command", ["show", "why", "logs"])
def test_an_unknown_job_is_refused_with_the_nearest(controller: Any, command: str) -> None:
    controller.add("resnet")
    assert refused(command, "resnt") == "hocket: there is no job 'resnt'; did you mean 'resnet'?\n"
    assert refused(command, "zzz") == "hocket: there is no job 'zzz'; see `hocket jobs --all`\n"


def test_why_tells_the_reason_what_it_waits_for_and_when(controller: Any) -> None:
    controller.add("a/b?c=d", reason="waits: 'x' goes first")  # No such name is accepted, and none breaks the address.
    page = done("why", "a/b?c=d")
    assert "now        waits: 'x' goes first" in page
    assert "waits for  2 GPUs" in page
    assert "in about 1.50 min" in page
    assert "submitted" in page
    assert json.loads(done("why", "a/b?c=d", "--json"))["expected_s"] == 90


def test_why_does_not_speak_of_those_that_run_where_a_job_is_held(controller: Any) -> None:
    controller.add("held", "held", reason="paused by ann")
    controller.why = {"waits_for": "its user to resume it: hocket resume held", "expected_s": None}
    page = done("why", "held")
    assert "waits for  its user to resume it: hocket resume held" in page
    assert "expected" not in page


def test_submit_prints_each_warning_of_the_controller_once(controller: Any) -> None:
    controller.warnings = ["--priority has no effect under policy 'las'"]
    result = hocket("submit", "-n", "a", "--priority", "3", "--", "true")
    assert (result.stdout, result.stderr) == ("a\n", f"hocket: warning: {controller.warnings[0]}\n")


def test_why_says_of_what_the_time_is_unknown(controller: Any) -> None:
    controller.add("queued", reason="waits: 'x' goes first")
    controller.why = {"waits_for": "16 GiB of memory", "short_of": ["mem_mib"], "expected_s": None}
    assert "expected   unknown: nothing is known of how long running jobs will take" in done("why", "queued")
    controller.why |= {"waits_for": "its turn", "short_of": []}
    assert "expected   unknown: the policy decides" in done("why", "queued")


def test_show_says_what_a_job_waits_for(controller: Any) -> None:
    controller.add("queued", reason="waits: 'x' goes first")
    controller.more = {"waits_for": "16 GiB of memory on one node: n0 has 9.5 GiB free"}
    assert "waits for   16 GiB of memory on one node: n0 has 9.5 GiB free" in done("show", "queued")


def test_top_prints_once_where_there_is_no_terminal(controller: Any) -> None:
    controller.add("first", "running", gpus=["n0:1"], until="for 10s", ran_s=5.0)
    controller.add("queued")
    controller.nodes[0]["gpus"][1]["job"] = "first"
    controller.nodes.append({"id": "n1", "up": False, "gpus": [], "cores": 1, "mem_mib": 1})
    page = done("top")
    assert "las decides" in page
    assert "1 first" in page
    assert "away" in page
    assert " 50%" in page
    assert page.index("first") < page.index("queue")
    assert set(json.loads(done("top", "--json"))) == {"status", "nodes", "jobs"}


# -- requests and down ----------------------------------------------------------------------------------------


def test_requests_take_names_patterns_and_all_of_an_owner(controller: Any) -> None:
    for name in ("sweep-0", "sweep-1", "other"):
        controller.add(name, "running")
    controller.add("bobs", "running", owner="bob")
    controller.add("sweep-2", "finished")
    assert done("pause", "sweep-*", "sweep-0") == "sweep-0 pausing\nsweep-1 pausing\n"
    assert done("resume", "other") == "other waiting\n"
    assert json.loads(done("stop", "--all", "--owner", "bob", "--json")) == {
        "jobs": [{"id": "bobs", "state": "stopped"}]
    }
    assert done("stop", "--all").count("stopped") == 3
    assert done("stop", "--all") == ""
    assert hocket("stop", "--all", "--owner", "bob").stderr == "hocket: no live jobs of 'bob'\n"


def test_a_request_is_one_call_for_however_many_jobs(controller: Any) -> None:
    for n in range(300):
        controller.add(f"j{n}", "running")
    assert done("stop", "--all").count("stopped") == 300
    assert [(method, path) for method, path, _ in controller.seen] == [("POST", "/v1/job-requests")]


def test_a_request_for_an_unknown_job_is_refused_before_any_is_carried_out(controller: Any) -> None:
    controller.add("a", "running")
    assert "there is no job 'b'" in refused("stop", "a", "b")
    assert "not both" in refused("stop", "a", "--all")
    assert "give the names of jobs" in refused("stop")
    assert controller.jobs["a"]["state"] == "running"


def test_what_one_job_cannot_do_does_not_keep_the_others(controller: Any) -> None:
    controller.add("a", "finished")
    controller.add("b", "running")
    result = hocket("stop", "a", "b")
    assert (result.exit_code, result.stdout) == (2, "b stopped\n")
    assert result.stderr == "hocket: job 'a' is over\n"


def test_down_names_the_jobs_that_lose_what_they_do_not_save_now(controller: Any) -> None:
    controller.add("saved", "running", saved_s=1000.0)
    controller.add("unsaved", "running")
    controller.add("queued")
    for n in range(4):
        controller.add(f"j{n}", "running", saved_s=2000.0 + n)
    first, second, *others, last = done("down", "--grace", "20s").splitlines()
    assert first == "unsaved has not saved its state yet; it has 20s to save it now"
    assert second.startswith("saved saved its state last at 1970-01-01 ")
    assert [line.split()[0] for line in others] == ["j0", "j1", "j2", "and"]
    assert (others[-1], last) == ("and 1 more running job", f"the controller in {controller.home} is down")


def test_down_tells_the_same_as_json(controller: Any) -> None:
    controller.add("unsaved", "running")
    told = json.loads(done("down", "--json"))
    assert told == {"down": True, "home": str(controller.home), "running": [{"id": "unsaved", "saved_s": None}]}


def test_submit_takes_the_word_of_up_for_cores() -> None:
    (told,) = json.loads(done("submit", "--dry-run", "--cores", "2", "--", "true"))["jobs"]
    assert told["cores"] == 2.0


def test_down_waits_until_the_controller_is_gone(controller: Any) -> None:
    assert done("down", "--grace", "1m") == f"the controller in {controller.home} is down\n"
    assert controller.calls("POST", "/v1/down") == [{"grace_s": 60.0}]
    assert "--grace must be a time" in refused("down", "--grace", "soon")


# -- completion ---------------------------------------------------------------------------------------------


def test_names_of_jobs_are_completed_from_the_controller(controller: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(options, "_PATIENCE_S", 60.0)  # A shell has less; a test has time.
    controller.add("resnet-1", "running")
    controller.add("resnet-2", "failed")
    assert completed("stop", "res") == ["resnet-1"]
    assert completed("logs", "res") == ["resnet-1", "resnet-2"]
    assert completed("submit", "--after", "resnet-1") == ["resnet-1"]
    assert "--until" in completed("submit", "--un")


def test_without_a_controller_completion_is_silent(home: Path) -> None:
    assert completed("stop", "res") == []
    (home / "url").write_text("http://127.0.0.1:1")
    assert completed("stop", "res") == []


def test_a_dry_run_shows_the_names_of_secrets_only(controller: Any) -> None:
    shown = json.loads(hocket("submit", "--dry-run", "--secret", "KEY", "--", "true", KEY="s3cret").stdout)
    assert shown["jobs"][0]["secrets"] == {"KEY": "…"}
    assert controller.jobs == {}
