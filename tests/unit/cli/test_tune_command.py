"""`hocket tune … -- COMMAND` as users type it: what is refused, without a controller."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.cli.typed import hocket, refused

RATE = ("--space", "lr=loguniform:1e-4,0.1")
RUN = ("--", "python", "train.py", "--lr", "{lr}")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOCKET_HOME", str(tmp_path / "home"))
    return tmp_path


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ((*RATE, "--", "python", "train.py", "{rate}", "{lr}"), "placeholder {rate} is no hyperparameter of the space"),
        ((*RATE, "--", "python", "train.py"), "hyperparameter 'lr' has no placeholder {lr} in the command"),
        ((*RATE, "--"), "there is no command behind --"),
        (RATE, "tune needs a study, or a command behind two dashes"),
        (RUN, "a command needs --space"),
        (("--space", "none.toml", *RUN), "--space 'none.toml' must be a TOML file or NAME=KIND:VALUES"),
        ((*RATE, *RATE, *RUN), "hyperparameter 'lr' is there twice"),
        (("--space", "lr=normal:0,1", *RUN), "'normal' is not one of choice, uniform"),
        (
            (*RATE, "--unit", "2 hours", *RUN),
            "or '100 steps', not '2 hours'",
        ),
        ((*RATE, "--goal", "most", *RUN), "goal is min or max, not 'most'"),
        ((*RATE, "--search", "grid", *RUN), "search 'grid' is not one of hyperband, halving, asha, random"),
        ((*RATE, "--at-once", "2", *RUN), "at_once"),
        ((*RATE, "--gpus", "many", *RUN), "--gpus must be numbers of GPUs"),
        ((*RATE, "--policy", "fifo", *RUN), "--policy is for models in one process"),
        ((*RATE, "--device", "cuda", *RUN), "--device is for models in one process"),
        (("study.toml", *RATE, *RUN), "give a study or a command behind --, not both ('study.toml' stands before it)"),
        (("study.toml", "--gpus", "2"), "--gpus is for a command behind --"),
        (("study.toml", "--unit", "1 epoch"), "--unit is for a command behind --"),
        ((*RATE, "--name", "a/b", *RUN), "without '/'"),
    ],
)
def test_bad_input_is_refused_in_one_line(words: tuple[str, ...], problem: str, folder: Path) -> None:
    assert problem in refused("tune", *words)
    assert not (folder / "tune-out").exists()


def test_without_a_controller_it_is_said_how_to_start_one() -> None:
    assert "start one with 'hocket up'" in refused("tune", *RATE, *RUN)


def test_a_study_of_another_kind_is_refused_in_its_folder(folder: Path) -> None:
    from hocket.control.journal import open_to_append
    from hocket.tune import RandomSearch
    from hocket.tune.definition import Definition
    from hocket.tune.job_study import header_of_jobs
    from hocket.tune.space import loguniform

    of = Definition(
        "train",
        {"lr": loguniform(1e-4, 0.1)},
        RandomSearch(),
        100,
        "loss",
        "min",
        0,
        "cpu",
        None,
        False,
        None,
        "random",
    )
    (folder / "tune-out" / "train").mkdir(parents=True)
    open_to_append(folder / "tune-out" / "train" / "journal.db", header_of_jobs(of)).close()
    assert "is one of models in one process, not of jobs" in refused("tune", *RATE, *RUN)


def test_a_space_is_read_from_a_file(folder: Path) -> None:
    (folder / "space.toml").write_text("[space]\nlr = { loguniform = [1e-4, 0.1] }\nsize = { choice = [1, 2] }\n")
    assert "hyperparameter 'size' has no placeholder" in refused("tune", "--space", "space.toml", *RUN)
    (folder / "flat.toml").write_text("lr = { loguniform = [1e-4, 0.1] }\nspace = { choice = [1, 2] }\n")
    assert "hyperparameter 'space' has no placeholder" in refused("tune", "--space", "flat.toml", *RUN)
    (folder / "broken.toml").write_text("lr = {")
    assert "--space 'broken.toml' is not TOML" in refused("tune", "--space", "broken.toml", *RUN)


def test_help_shows_the_options_of_jobs() -> None:
    page = hocket("tune", "--help").output
    assert "--gpus" in page
    assert "--continues" not in page, "that is for the search to say"
