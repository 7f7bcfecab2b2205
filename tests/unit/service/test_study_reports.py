"""A study of models in one process tells a controller that is there, and does without one."""

from __future__ import annotations

import pytest
from tests.unit.cli.test_tune import SCRIPT, SHORT
from tests.unit.cli.typed import hocket

from hocket.cli.live.client import login
from hocket.cli.live.study_reports import reports_of_process_study
from hocket.control.journal import JournalError
from hocket.tune import Study, StudyError, choice
from hocket.tune.trials import Result, Trial


@pytest.fixture
def controller(client, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOCKET_URL", f"http://127.0.0.1:{client.port}")
    monkeypatch.setenv("HOCKET_TOKEN", client.headers["Authorization"].removeprefix("Bearer "))
    return client


def test_the_page_can_show_a_study_of_models_in_one_process(controller, tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT)
    done = hocket("tune", "train.py", *SHORT, "--json")
    assert done.exit_code == 0, done.output
    (head,) = controller.get("/v1/studies").json()["studies"]
    assert (head["id"], head["owner"], head["state"], head["trials"]) == ("train", login(), "done", 5)
    summary = controller.get("/v1/studies/train").json()["summary"]
    assert (summary["unit"], summary["done"], summary["total"]) == ("3 steps", 11, 11)
    assert {trial["job"] for trial in summary["trials"]} == {""}
    assert f'"trial":{summary["best"]}' in done.stdout
    assert summary["seconds"] > 0


@pytest.mark.parametrize(
    ("error", "state"),
    [(KeyboardInterrupt(), "paused"), (StudyError("no metric"), "failed"), (JournalError("another has it"), "running")],
)
def test_how_a_study_ended_is_told(controller, error, state):
    study = Study(lambda _config: None, {"rate": choice([1])}, name="net 1")

    def search():
        with reports_of_process_study(study, None) as tell:
            tell()
            assert [head["state"] for head in controller.get("/v1/studies").json()["studies"]] == ["running"]
            raise error

    with pytest.raises(type(error)):
        search()
    assert controller.get("/v1/studies/net%201").json()["state"] == state


def test_while_it_runs_a_study_is_told_of_when_there_is_a_new_result(controller, monkeypatch):
    monkeypatch.setattr("hocket.cli.live.study_reports._EVERY_S", 0.0)
    monkeypatch.setattr("hocket.cli.live.study_reports._PAUSE_FACTOR", 0)
    study = Study(lambda _config: None, {"rate": choice([1])}, name="net")
    with reports_of_process_study(study, None) as tell:
        tell()
        told_s = controller.get("/v1/studies/net").json()["told_s"]
        tell()
        assert controller.get("/v1/studies/net").json()["told_s"] == told_s, "nothing has happened"
        study.outcome.found.all[0] = Trial(0, {"rate": 1}, (Result(1, {"loss": 0.5}, 2.0, 1.0),), 1)
        tell()
        assert controller.get("/v1/studies/net").json()["best"] == 0.5


def test_without_a_controller_a_study_says_nothing_of_it(tmp_path, capsys):
    study = Study(lambda _config: None, {"rate": choice([1])})
    with reports_of_process_study(study, tmp_path / "none") as tell:
        tell()
    assert capsys.readouterr() == ("", "")


@pytest.mark.usefixtures("controller")
def test_a_controller_that_refuses_is_warned_of_once(monkeypatch, capsys):
    monkeypatch.setattr("hocket.service.study_calls._LONGEST_BODY", 10)
    study = Study(lambda _config: None, {"rate": choice([1])})
    with reports_of_process_study(study, None) as tell:
        tell()
    assert (
        capsys.readouterr().err.count("the page cannot show this study: the summary of a study must have 10 bytes") == 1
    )
