"""`hocket owners`, as users type it, against a stand-in that speaks the API over HTTP."""

from __future__ import annotations

import json
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


def lines(text: str) -> list[list[str]]:
    """The cells of a table, by line."""
    return [line.replace(" of ", "/").split() for line in text.splitlines()]


TITLES = ["owner", "weight", "gpus", "cores", "memory", "jobs", "waiting"]


def test_owners_are_listed_with_what_they_use_of_what_they_may_have(controller: Any) -> None:
    assert done("owners") == "no owners with live jobs, a weight or quotas\n"
    done("owners", "set", "ana", "--max-gpus", "8", "--max-mem", "1.5G", "--weight", "2.5")
    done("owners", "set", "bo", "--max-cores", "2", "--max-jobs", "4", "--max-mem", "64G")
    assert lines(done("owners")) == [
        TITLES,
        ["ana", "2.5", "2/8", "1.5", "512M/1536M", "1", "3"],
        ["bo", "1", "2", "1.5/2", "512M/64G", "1/4", "3"],
    ]
    assert json.loads(done("owners", "--json")) == {"owners": list(controller.owners.values())}


def test_only_what_is_named_is_sent_and_the_owner_is_shown_as_it_is_now(controller: Any) -> None:
    assert lines(done("owners", "set", "ana", "--max-gpus", "8")) == [
        TITLES,
        ["ana", "1", "2/8", "1.5", "512M", "1", "3"],
    ]
    told = json.loads(done("owners", "set", "ana", "--max-mem", "2T", "--max-cores", "0.5", "--max-jobs=0", "--json"))
    assert told == controller.owners["ana"]
    assert controller.calls("PUT", "/v1/owners/ana") == [
        {"max_gpus": 8},
        {"max_mem_mib": 2097152.0, "max_cores": 0.5, "max_jobs": 0},
    ]


@pytest.mark.parametrize("lifted", ["0", "none", "None"])
def test_a_limit_is_lifted_by_0_or_none(controller: Any, lifted: str) -> None:
    options = ("--max-gpus", "--max-cores", "--max-mem", "--max-jobs")
    done("owners", "set", "ana", *(word for option in options for word in (option, lifted)))
    (said,) = controller.calls("PUT", "/v1/owners/ana")
    assert said == {"max_gpus": 0, "max_cores": 0, "max_mem_mib": 0, "max_jobs": 0}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--weight", "0"], "--weight must be a number above 0, not '0'"),
        (["--weight", "none"], "--weight must be a number above 0, not 'none'"),
        (["--weight", "inf"], "--weight must be a number above 0, not 'inf'"),
        (["--max-gpus", "-1"], "--max-gpus must be a whole number from 0 up, or none, not '-1'"),
        (["--max-gpus", "1.5"], "--max-gpus must be a whole number from 0 up, or none, not '1.5'"),
        (["--max-jobs", ""], "--max-jobs must be a whole number from 0 up, or none, not ''"),
        (["--max-cores", "nan"], "--max-cores must be a number from 0 up, or none, not 'nan'"),
        (["--max-mem", "64X"], "--max-mem must be memory such as 512M or 8G, or none, not '64X'"),
        (["--max-mem", "-8"], "--max-mem must be memory such as 512M or 8G, or none, not '-8'"),
        ([], "say what to set: --weight, --max-gpus, --max-cores, --max-mem, --max-jobs"),
        (["--gpus", "1"], "No such option: --gpus"),
    ],
)
def test_what_breaks_a_rule_is_refused_before_anything_is_sent(controller: Any, options: list[str], said: str) -> None:
    assert refused("owners", "set", "ana", *options).startswith(f"hocket: {said}")
    assert controller.seen == []


def test_an_owner_may_have_any_name_that_is_text(controller: Any) -> None:
    done("owners", "set", "te/am #1?", "--weight", "2")
    done("owners", "set", "set", "--weight", "3")
    assert list(controller.owners) == ["te/am #1?", "set"]
    assert "must be text in UTF-8" in refused("owners", "set", "\udcff", "--weight", "2")


def test_the_home_and_json_may_stand_before_set_or_behind_it(controller: Any, tmp_path: Path, monkeypatch: Any) -> None:
    home = str(controller.home)
    monkeypatch.setenv("HOCKET_HOME", str(tmp_path / "other"))
    assert json.loads(done("owners", "--home", home, "--json", "set", "ana", "--weight", "2"))["weight"] == 2
    assert json.loads(done("owners", "set", "ana", "--weight", "3", "--home", home, "--json"))["weight"] == 3
    assert json.loads(done("owners", "--json", "--home", home))["owners"][0]["weight"] == 3
    assert str(tmp_path / "other") in refused("owners", "set", "ana", "--weight", "2")


def test_a_controller_that_went_away_is_no_reason_to_wonder_for_it_may_be_said_again(home: Path) -> None:
    def hang_up(server: socket.socket) -> None:
        connection = server.accept()[0]
        connection.recv(1 << 16)
        connection.close()

    with socket.create_server(("127.0.0.1", 0)) as server:
        (home / "url").write_text(f"http://127.0.0.1:{server.getsockname()[1]}")
        (home / "token").write_text("t")
        thread = threading.Thread(target=hang_up, args=(server,))
        thread.start()
        said = refused("owners", "set", "ana", "--weight", "2")
        thread.join()
    assert said.startswith("hocket: the controller went away before it answered; say it again (")


def test_names_of_owners_are_completed_from_the_controller(controller: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(options, "_PATIENCE_S", 60.0)  # A shell has less; a test has time.
    controller.owners = {name: {"id": name} for name in ("ana", "bo", "")}
    assert completed("owners", "s") == ["set"]
    assert completed("owners", "set", "a") == ["ana"]
    assert completed("jobs", "--owner", "b") == ["bo"]
    assert completed("submit", "--owner", "a") == ["ana"]
    assert completed("owners", "set", "") == ["ana", "bo"]
    assert "--max-gpus" in completed("owners", "set", "--max")
    monkeypatch.delenv("HOCKET_HOME")
    assert completed("owners", "set", "a") == []
    assert completed("owners", "--home", str(controller.home), "set", "a") == ["ana"]
