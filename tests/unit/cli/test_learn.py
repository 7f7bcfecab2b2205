"""`hocket learn` refuses what it cannot do in one line, before anything is written."""

import pytest
from tests.unit.cli.typed import hocket


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("las",), "policy 'las' does not learn; those that do: mlf_rl, rl"),
        (("rl", "--search-betas", "2"), "--search-betas is for mlf_rl: rl is rewarded for completion times alone"),
        (("mlf_rl", "--trace", "none.csv"), "none.csv: the file must be readable: no such file or directory"),
        (("mlf_rl", "--records", "."), "--records '.': must be a folder that `hocket simulate --record` wrote"),
    ],
)
def test_what_it_cannot_do_is_refused_before_anything_is_written(arguments, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    told = hocket("learn", *arguments)
    assert told.exit_code == 2
    assert words in told.output + told.stderr
    assert not list(tmp_path.iterdir())
