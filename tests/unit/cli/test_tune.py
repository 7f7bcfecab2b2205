"""`hocket tune` as users type it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.unit.cli.typed import hocket, refused

EXAMPLES = Path(__file__).parents[3] / "examples"
SCRIPT = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from hocket.pack import Training
from hocket.tune import choice, loguniform

data = TensorDataset(torch.randn(64, 4, generator=torch.Generator().manual_seed(0)), torch.arange(64) % 3)
space = {"rate": loguniform(0.01, 0.5), "batch_size": choice([8, 16])}


def training(config):
    model = nn.Linear(4, 3)
    optimiser = torch.optim.SGD(model.parameters(), config["rate"])
    return Training(config.name, model, optimiser, DataLoader(data, config["batch_size"]), config.steps,
                    loss=nn.CrossEntropyLoss())


def evaluate(module, config):
    return {"accuracy": (module(data.tensors[0]).argmax(1) == data.tensors[1]).float().mean()}
"""
SHORT = ("--metric", "accuracy", "--goal", "max", "--units", "3", "--unit-steps", "3")


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(SCRIPT)
    return tmp_path / "train.py"


def test_a_script_is_searched_and_the_best_is_shown(script: Path) -> None:
    done = hocket("tune", "train.py", *SHORT, "--plots", "plots")
    assert done.exit_code == 0, done.output
    assert "best: accuracy 0." in done.stdout
    assert "5 trials, 33 steps in" in done.stdout
    assert (script.parent / "tune-out" / "train" / "journal.db").exists()
    assert {p.name for p in (script.parent / "plots").iterdir()} == {
        f"{name}.{kind}" for name in ("curves", "parallel", "gain") for kind in ("png", "svg")
    }


def test_json_is_one_object(script: Path) -> None:
    done = hocket("tune", str(script), *SHORT, "--json", "--policy", "pack_none", "--way", "turn")
    found = json.loads(done.stdout)
    assert (found["policy"], found["trials"], found["steps"], found["failed"]) == ("pack_none", 5, 33, 0)
    assert found["models_in_a_pack"] == 1
    best = max(found["results"], key=lambda r: r["metrics"]["accuracy"])
    assert found["best"]["metrics"]["accuracy"] == best["metrics"]["accuracy"]


def test_packed_or_not_is_one_option_and_the_winner_is_the_same(script: Path) -> None:
    packed, alone = (
        json.loads(hocket("tune", str(script), *SHORT, "--json", "--way", "turn", "--policy", p, "--out", p).stdout)
        for p in ("pack_gain", "pack_none")
    )
    assert packed["best"]["config"] == alone["best"]["config"]
    assert packed["models_in_a_pack"] > 1 == alone["models_in_a_pack"]


def test_where_no_controller_is_there_nothing_is_summed_up_for_it(
    script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hocket.tune.summary.summary_of", lambda *_: pytest.fail("a summary is made"))
    done = hocket("tune", str(script), *SHORT, HOCKET_HOME=str(script.parent / "none"))
    assert done.exit_code == 0, done.output


def test_run_again_a_finished_study_only_shows_what_it_found(script: Path) -> None:
    first = json.loads(hocket("tune", str(script), *SHORT, "--json").stdout)
    script.write_text(SCRIPT.replace("model = nn.Linear", "raise RuntimeError; model = nn.Linear"))
    again = json.loads(hocket("tune", str(script), *SHORT, "--json").stdout)
    assert again["results"] == first["results"]
    assert again["failures"] == {}


def test_a_study_file_says_it_all(script: Path) -> None:
    (script.parent / "study.toml").write_text(
        'script = "train.py"\nmetric = "accuracy"\ngoal = "max"\nunit_steps = 2\npolicy = "pack_knn"\nseed = 3\n'
        'params = { threshold = 4 }\n[search]\nkind = "halving"\ntrials = 3\nunits = 3\n'
        "[space]\nrate = { uniform = [0.1, 0.2] }\nbatch_size = { choice = [8] }\n"
    )
    found = json.loads(hocket("tune", "study.toml", "--json", "--unit-steps", "4").stdout)
    assert (found["study"], found["policy"], found["seed"], found["unit_steps"]) == ("study", "pack_knn", 3, 4)
    assert found["search"] == {"type": "halving", "trials": 3, "units": 3, "least": 1, "eta": 3}
    assert all(0.1 <= r["config"]["rate"] <= 0.2 for r in found["results"])


@pytest.mark.parametrize("name", ["random", "dice"])  # the second is an earlier name
def test_configurations_are_drawn_at_random_by_name(script: Path, name: str) -> None:
    by_default = json.loads(hocket("tune", str(script), *SHORT, "--json").stdout)["results"]
    named = json.loads(hocket("tune", str(script), *SHORT, "--json", "--sampler", name).stdout)["results"]
    assert [r["config"] for r in named] == [r["config"] for r in by_default]


def test_trials_can_be_exported_to_optuna(script: Path) -> None:
    optuna = pytest.importorskip("optuna", reason="needs the optuna extra")
    done = hocket("tune", str(script), *SHORT, "--export", "sqlite:///trials.db", "--json", "--sampler", "TPESampler")
    assert done.exit_code == 0, done.output
    there = optuna.load_study(study_name="train", storage="sqlite:///trials.db")
    assert there.best_value == json.loads(done.stdout)["best"]["metrics"]["accuracy"]


def test_if_every_trial_fails_the_exit_code_says_so(script: Path) -> None:
    script.write_text(SCRIPT.replace("model = nn.Linear(4, 3)", "raise KeyError('shape')"))
    done = hocket("tune", str(script), *SHORT)
    assert done.exit_code == 3
    assert "trial 0 failed: KeyError: 'shape'" in done.stdout


def test_a_script_that_is_mended_after_all_trials_failed_is_searched_by_the_same_command(script: Path) -> None:
    script.write_text(SCRIPT.replace("model = nn.Linear(4, 3)", "raise KeyError('shape')"))
    done = hocket("tune", str(script), *SHORT)
    assert "all trials failed: the same command begins anew" in done.stdout
    script.write_text(SCRIPT)
    assert hocket("tune", str(script), *SHORT).exit_code == 0


def test_several_numbers_without_a_metric_are_refused_in_one_line_and_named_they_are_searched(script: Path) -> None:
    script.write_text(SCRIPT.replace('return {"accuracy"', 'return {"others": 1.0, "accuracy"'))
    said = refused("tune", str(script), *SHORT[2:])
    assert "evaluate gives others, accuracy: say by metric, or --metric, which of them counts" in said
    assert hocket("tune", str(script), *SHORT).exit_code == 0


def test_a_space_that_fails_later_on_says_so_in_one_line(script: Path) -> None:
    space = """
asked = []

def space(trial):
    asked.append(trial.suggest_float("rate", 0.1, 0.2))
    trial.suggest_categorical("batch_size", [8])
    if len(asked) > 3:
        raise RuntimeError("another")
"""
    script.write_text(SCRIPT + space)
    assert "space's function fails: RuntimeError: another" in refused("tune", str(script), *SHORT)


BAD = [
    (("nothing.py",), "study 'nothing.py' must be a TOML file or a script that exists"),
    (("train.py", "--space", "a=choice:"), "hyperparameter 'a': a choice needs at least one value"),
    (("train.py", "--space", "a=loguniform:-1,1"), "hyperparameter 'a': loguniform needs 0 < low < high, not -1 and 1"),
    (("train.py", "--device", "cuda:99"), "device 'cuda:99' is not there"),
    (("train.py", "--device", "tpu"), "device 'tpu' is not one that PyTorch knows"),
    (("train.py", "--search", "grid"), "search 'grid' is not one of hyperband, halving, asha, random"),
    (("train.py", "--trials", "9"), "search 'hyperband': unknown field 'trials'"),
    (("train.py", "--policy", "pack_non"), "policy 'pack_non' is unknown; did you mean 'pack_none'?"),
    (("train.py", "--param", "most=0"), "policy 'pack_gain'"),
    (("train.py", "--param", "most"), "--param 'most' must be NAME=VALUE"),
    (("train.py", "--way", "sideways"), "mode 'sideways' is not one of"),
    (("train.py", "--goal", "more"), "goal is min or max, not 'more'"),
    (("train.py", "--out", "train.py"), "--out 'train.py' must be a folder"),
    (("train.py", "--plots", "train.py"), "--plots 'train.py' must be a folder"),
]


@pytest.mark.parametrize(("args", "said"), BAD, ids=[" ".join(a) for a, _said in BAD])
def test_what_cannot_be_run_is_refused_in_one_line(script: Path, args: tuple[str, ...], said: str) -> None:
    assert said in refused("tune", *args)
    assert not (script.parent / "tune-out").exists(), "nothing was begun"


SCRIPTS = [
    ("x = 1\n", "must have a function training(config), and has none"),
    ("import nowhere\n", "cannot be imported: ModuleNotFoundError: No module named 'nowhere'"),
    ("def training(config:\n", "cannot be imported: SyntaxError"),
    ("raise SystemExit(3)\n", "cannot be imported: SystemExit: 3"),
    ("def training(config): ...\nevaluate = 3\n", "evaluate must be a function, not a int"),
    ("def training(config): ...\n", "has no space, and none is given"),
    ("def training(config): ...\nspace = [1]\n", "a search space is a dict or a function, not a list"),
    ("def training(config): ...\ndef space(trial): 1 / 0\n", "space's function fails: ZeroDivisionError"),
    ("def training(config): ...\ndef space(trial): ...\n", "the search space's function asks for no hyperparameter"),
]


@pytest.mark.parametrize(("text", "said"), SCRIPTS, ids=[said for _text, said in SCRIPTS])
def test_a_script_that_does_not_serve_is_refused_in_one_line(script: Path, text: str, said: str) -> None:
    script.write_text(text)
    assert said in refused("tune", "train.py")


FILES = [
    ("script = 3\n", "script: expected a text, not 3"),
    ("script = \n", "is not TOML"),
    ('script = "train.py"\nmetirc = 3\n', "unknown field 'metirc'; did you mean 'metric'?"),
    ('script = "train.py"\nname = "../../elsewhere"\n', "printable characters without '/', and no '.' or '..', not"),
    ('script = "gone.py"\n', "must be a file that exists"),
    ('script = "train.py"\n[space]\nrate = { choice = [] }\n', "hyperparameter 'rate': a choice needs at least one"),
    (
        'script = "train.py"\n[search]\nkind = "halving"\nunits = 0\n',
        "search 'halving': units: expected a whole number from 1 up, not 0",
    ),
    ('script = "train.py"\nsampler = "Crystal"\n', "sampler 'Crystal' is none of Optuna's"),
    ('script = "train.py"\n[search]\nkind = ["asha"]\n', "search '['asha']' is not one of hyperband"),
]


@pytest.mark.parametrize(("text", "said"), FILES, ids=[said for _text, said in FILES])
def test_a_study_file_that_makes_no_sense_is_refused_in_one_line(script: Path, text: str, said: str) -> None:
    if "sampler" in text:
        pytest.importorskip("optuna", reason="needs the optuna extra")
    (script.parent / "study.toml").write_text(text)
    assert said in refused("tune", "study.toml")


def test_a_study_file_that_is_no_text_is_refused_in_one_line(script: Path) -> None:
    (script.parent / "study.toml").write_bytes(b"\xff\xfe")
    assert "study 'study.toml' is not text in UTF-8" in refused("tune", "study.toml")


def test_a_storage_that_cannot_be_written_is_refused_before_anything_is_trained(script: Path) -> None:
    pytest.importorskip("optuna", reason="needs the optuna extra")
    script.write_text(SCRIPT.replace("model = nn.Linear(4, 3)", "open('trained', 'w')\n    model = nn.Linear(4, 3)"))
    for url, said in (
        ("sqlite:////no/such/folder/trials.db", "storage 'sqlite:////no/such/folder/trials.db' cannot be opened"),
        ("nonsense", "storage 'nonsense' cannot be opened"),
    ):
        assert said in refused("tune", str(script), *SHORT, "--export", url)
    assert not Path("trained").exists()


def test_a_storage_that_has_the_study_already_is_refused(script: Path) -> None:
    pytest.importorskip("optuna", reason="needs the optuna extra")
    command = ("tune", str(script), *SHORT, "--export", "sqlite:///trials.db")
    assert hocket(*command).exit_code == 0
    assert "storage 'sqlite:///trials.db' has a study 'train' already" in refused(*command)


def test_a_storage_that_is_gone_in_the_end_hides_nothing_that_was_found(script: Path) -> None:
    pytest.importorskip("optuna", reason="needs the optuna extra")
    text = SCRIPT.replace(
        "model = nn.Linear(4, 3)", "import shutil; shutil.rmtree('there', True)\n    model = nn.Linear(4, 3)"
    )
    script.write_text(text)
    Path("there").mkdir()
    done = hocket("tune", str(script), *SHORT, "--export", "sqlite:///there/trials.db", "--json")
    assert done.exit_code == 2
    assert json.loads(done.stdout)["best"]["trial"] >= 0
    assert "storage 'sqlite:///there/trials.db' cannot be opened" in done.stderr


def test_a_study_is_unharmed_by_one_that_wants_to_go_on_with_it_otherwise(script: Path) -> None:
    first = json.loads(hocket("tune", str(script), *SHORT, "--json").stdout)
    assert "was begun with seed 0, not 1" in refused("tune", str(script), *SHORT, "--seed", "1")
    assert json.loads(hocket("tune", str(script), *SHORT, "--json").stdout)["results"] == first["results"]


def test_a_study_that_another_process_runs_is_refused(script: Path) -> None:
    folder = script.parent / "tune-out" / "train"
    holds = "from hocket.control.journal import SqliteJournal; import sys; j = SqliteJournal(sys.argv[1], goes_on=True)"
    hocket("tune", str(script), *SHORT, "--json")
    command = [
        sys.executable,
        "-c",
        f"{holds}; print('held', flush=True); sys.stdin.read()",
        str(folder / "journal.db"),
    ]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        assert "is held by" in refused("tune", str(script), *SHORT)
        other.communicate()


@pytest.mark.parametrize("option", [("--export", "sqlite:///t.db"), ("--sampler", "TPESampler")])
def test_what_needs_optuna_says_so_where_it_is_not(
    script: Path, monkeypatch: pytest.MonkeyPatch, option: tuple[str, str]
) -> None:
    monkeypatch.setattr("hocket.tune.optuna_support.find_spec", lambda _name: None)
    assert "needs Optuna: pip install 'hocket[optuna]'" in refused("tune", str(script), *SHORT, *option)


def test_a_folder_with_another_journal_is_refused(script: Path) -> None:
    folder = script.parent / "tune-out" / "train"
    folder.mkdir(parents=True)
    (folder / "journal.db").write_text("nonsense")
    assert "cannot be" in refused("tune", str(script), *SHORT)


@pytest.mark.slow
@pytest.mark.parametrize("example", ["tune_mlp.py", "tune_cnn.toml"])
def test_the_examples_find_something_good(example: str, tmp_path: Path) -> None:
    options = ("--metric", "accuracy", "--goal", "max", "--units", "9", "--unit-steps", "15", "--json")
    if example.endswith(".toml"):
        options = ("--json",)
    done = hocket("tune", str(EXAMPLES / example), *options, "--out", str(tmp_path / "out"))
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["best"]["metrics"]["accuracy"] > 0.8
