"""`POST /v1/jobs?check=true`: what would come of a submission, and nothing of it happens."""

import pytest


def checked(client, **said):
    """What came of checking a job that was described in words."""
    answer = client.post("/v1/jobs?check=true", {"options": [said]})
    assert answer.status == 200, answer.text
    (found,) = answer.json()["jobs"]
    return found


def test_a_good_job_is_shown_as_it_would_be_and_not_submitted(client, engine):
    cycles = engine.cycles
    found = checked(client, command="python train.py", gpus="1,2", time="2h", owner="ana")
    assert (found["id"], found["refused"], found["problems"]) == ("train-1", "", {})
    assert (found["job"]["sizes"], found["job"]["limit_s"], found["job"]["owner"]) == ([1, 2], 7200.0, "ana")
    assert found["command_line"] == "hocket submit --owner ana --gpus 1,2 --time 2h -- python train.py"
    assert found["toml"] == 'owner = "ana"\ncommand = "python train.py"\ngpus = "1,2"\ntime = "2h"\n'
    assert client.get("/v1/jobs?all=true").json()["jobs"] == []
    assert engine.cycles == cycles, "a check is not in the journal"


def test_what_was_said_can_be_submitted_too(client):
    told = client.post("/v1/jobs", {"options": [{"command": "true", "name": "net", "gpus": "2", "until": "for 2h"}]})
    assert told.json()["jobs"] == [{"id": "net", "refused": ""}]
    job = client.get("/v1/jobs/net").json()["job"]
    assert (job["sizes"], job["until"]) == ([2], "for 2h")
    again = client.post("/v1/jobs", {"options": [{"command": "true", "gpus": "many"}]})
    assert again.status == 400
    assert again.json()["error"].startswith("options[0]: gpus must be numbers of GPUs")


def test_every_wrong_field_is_named_and_the_rest_is_written(client):
    found = checked(client, command="true", gpus="many", mem="much", time="1h")
    assert set(found["problems"]) == {"gpus", "mem"}
    assert found["problems"]["gpus"].startswith("must be numbers of GPUs")
    assert found["command_line"] == "hocket submit --time 1h -- true"
    assert found["job"] is None


def test_what_the_cluster_and_other_jobs_refuse_is_told_by_field(client):
    assert client.post("/v1/jobs", {"jobs": [{"id": "net", "command": ["true"]}]}).status == 200
    large = checked(client, command="true", gpus="8")
    assert large["problems"] == {"gpus": "must fit the cluster; its smallest needs 8 GPUs, the largest that fits is 2"}
    twin = checked(client, command="true", name="net")
    assert twin["problems"] == {"name": "must be unique, and a live job has it already"}
    assert checked(client, command="true", after=["nobody"])["problems"]["after"].endswith("there is no 'nobody'")
    client.put("/v1/owners/ana", {"max_gpus": 1})
    assert "quota" in checked(client, command="true", gpus="2", owner="ana")["problems"]["gpus"]
    assert checked(client)["problems"] == {"command": "must say what to run, and is missing"}


def test_a_check_and_a_submission_say_the_same(client):
    assert client.post("/v1/jobs", {"jobs": [{"id": "net", "command": ["true"]}]}).status == 200
    for spec in (
        {"command": ["true"], "gpus": 8},
        {"command": ["true"], "id": "net"},
        {"command": ["true"], "id": "x~2"},
        {"command": ["true"], "after": ["gone"]},
        {"command": ["true"], "notify": ["touch x"]},
        {"command": ["true"], "id": "fresh"},
        {"command": ["true"], "array": 3, "id": "sweep"},
    ):
        (would,) = client.post("/v1/jobs?check=true", {"jobs": [spec]}).json()["jobs"]
        is_, *_ = client.post("/v1/jobs", {"jobs": [spec]}).json()["jobs"]
        assert would["refused"] == is_["refused"]
        assert is_["refused"] or would["id"] == is_["id"]


def test_a_check_leaves_alone_what_is_for_the_controllers_thread_only(client, engine, monkeypatch):
    monkeypatch.setattr(engine.catalogue, "known", None)
    monkeypatch.setattr(engine.catalogue, "known_among", None)
    assert checked(client, command="true", name="net", after=["a"])["problems"]["after"].endswith("there is no 'a'")


def test_the_texts_of_a_refusal_are_those_of_a_submission_in_words(client):
    (would,) = client.post("/v1/jobs?check=true", {"jobs": [{"command": ["true"], "gpus": 8}]}).json()["jobs"]
    assert (would["command_line"], would["toml"]) == ("", ""), "a spec has no options"


def test_secrets_do_not_come_back(client):
    found = client.post("/v1/jobs?check=true", {"options": [{"command": "true", "secret": {"KEY": "s3cret"}}]})
    assert found.status == 200
    assert "s3cret" not in found.text
    assert "--secret KEY" in found.json()["jobs"][0]["command_line"]
    wrong = client.post("/v1/jobs?check=true", {"options": [{"command": "true", "secret": {"9": "s3cret"}}]})
    assert "secret" in wrong.json()["jobs"][0]["problems"]
    assert "s3cret" not in wrong.text


def test_a_user_checks_jobs_of_its_owner(with_token):
    ana = with_token("user", owner="ana")
    assert checked(ana, command="true")["job"]["owner"] == "ana"
    assert "owner must be that or empty" in checked(ana, command="true", owner="bob")["refused"]
    assert with_token("read").post("/v1/jobs?check=true", {"options": [{"command": "true"}]}).status == 403


def test_options_that_have_no_effect_are_told(client):
    assert checked(client, command="true", urgency="3")["warnings"][0].startswith("--urgency has no effect")
    warnings = checked(client, command="torchrun --nproc_per_node=2 train.py", gpus="1")["warnings"]
    assert warnings[0].startswith("--nproc_per_node 2 is not used")


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"options": [3]}, 200),
        ({"options": []}, 400),
        ({"options": [{}], "jobs": [{}]}, 400),
        ({"options": {}}, 400),
        ({"options": [{}] * 101}, 400),
        ({"options": [{"env": 3, "secret": 3, "cwd": 3, "command": 3, "progress": [], "deadline": {}, "x\n": 0}]}, 200),
    ],
)
def test_odd_bodies_are_refused_in_words(client, body, status):
    assert client.post("/v1/jobs?check=true", body).status == status
    assert client.post("/v1/jobs", body).status == 400


def test_what_a_form_needs_is_told_of_every_field(client):
    fields = {field["name"]: field for field in client.get("/v1/job-fields").json()["fields"]}
    assert [name for name, field in fields.items() if field["common"]] == [
        "name", "command", "gpus", "until", "time", "cwd", "env",
    ]  # fmt: skip
    assert fields["preempt"]["choices"] == ["always", "saved", "never"]
    assert fields["warm"]["reads"] == "flag"
    assert "export_all" not in fields
    assert client.post("/v1/jobs?check=perhaps", {"options": [{}]}).status == 422


def test_a_pattern_in_after_means_all_live_jobs_that_match(client):
    jobs = [{"id": name, "command": ["true"], "cwd": "/"} for name in ("sweep-0", "sweep-1", "other")]
    assert client.post("/v1/jobs", {"jobs": jobs}).status == 200
    found = checked(client, command="true", after=["sweep-*"], after_any=["o?her"])
    assert (found["refused"], found["job"]["after"]) == ("", ["sweep-0", "sweep-1"])
    assert found["job"]["after_any"] == ["other"]
    assert "'sweep-*'" in found["command_line"], "it is written as it was said"
    assert checked(client, command="true", after=["nope-*"])["problems"]["after"].endswith("there is no 'nope-*'")
    options = {"command": "true", "name": "sweep", "array": "2", "after": ["sweep-*"]}
    told = client.post(
        "/v1/jobs",
        {"options": [options | {"name": "sweep-all"}, {"command": "true", "name": "last", "after": ["sweep-all-*"]}]},
    )
    assert [job["refused"] for job in told.json()["jobs"]] == ["", "", ""]
    made = {
        name: client.get(f"/v1/jobs/{name}").json()["job"]["after"] for name in ("sweep-all-0", "sweep-all-1", "last")
    }
    assert made["sweep-all-0"] == made["sweep-all-1"] == ["sweep-0", "sweep-1"], "an array does not wait for itself"
    assert made["last"] == ["sweep-all-0", "sweep-all-1"]
