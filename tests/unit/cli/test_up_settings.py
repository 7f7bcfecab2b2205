"""What `hocket up` remembers of its options."""

from pathlib import Path

import pytest

from hocket.cli.live.ray_options import check_ray_settings
from hocket.cli.live.switch_options import switch_options
from hocket.cli.live.up import _settings
from hocket.cli.terminal.errors import InputError
from hocket.policies import find
from hocket.service.compaction import Keep
from hocket.service.home import Home
from hocket.service.home_settings import Settings, write_settings

URL = "https://hooks.example.org/secret"


def given(
    home: Home, notify: list[str] | None = None, commands: bool | None = None
) -> tuple[tuple[str, ...], bool, str]:
    """What holds with these options, and what is said to be as at the last start."""
    settings, remembered = _settings(home, None, None, None, None, notify, {"notify_commands": commands})
    home.make()
    write_settings(home, settings)
    return settings.notify, settings.notify_commands, remembered


def test_targets_are_remembered_until_they_are_given_anew_and_shown_without_secrets(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    assert given(home, [URL, "mail ann", URL], True) == ((URL, "mail ann"), True, "")
    remembered = "--notify https://hooks.example.org/… --notify mail --notify-commands"
    assert given(home) == ((URL, "mail ann"), True, remembered)
    assert given(home, ["none"], False) == ((), False, "")
    assert given(home) == ((), False, "")


def test_a_target_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--notify must be an http or https URL"):
        given(Home(tmp_path), ["ftp://example.org"])


def test_what_contains_jobs_is_remembered_and_told_to_the_agent(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    home.make()
    said: dict[str, object] = {"containment": "cgroup", "hard_cpus": True}
    settings, remembered = _settings(home, None, None, None, None, None, said)
    assert (settings.agent_options, remembered) == (["--containment", "cgroup", "--hard-cpus"], "")
    write_settings(home, settings)
    unsaid: dict[str, object] = {"containment": None, "hard_cpus": None}
    settings, remembered = _settings(home, None, None, None, None, None, unsaid)
    assert (settings.containment, settings.hard_cpus) == ("cgroup", True)
    assert remembered == "--containment cgroup --hard-cpus"
    said = {"containment": "auto", "hard_cpus": False}
    assert _settings(home, None, None, None, None, None, said)[0].agent_options == []


def kept(
    home: Home, history: str | None = None, size: str | None = None, archive: str | None = None
) -> tuple[Keep, str]:
    settings, remembered = _settings(home, None, None, None, None, None, {}, history, size, archive)
    home.make()
    write_settings(home, settings)
    return settings.keep(home.archive), remembered


def test_what_a_journal_keeps_is_remembered(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    beside = str(home.archive)
    assert kept(home) == (Keep(90 * 86400.0, 0, beside), "")
    assert kept(home, "30d", "2G", "none") == (Keep(30 * 86400.0, 2 << 30, ""), "")
    assert kept(home) == (Keep(30 * 86400.0, 2 << 30, ""), "--keep-history 30d --keep-size 2048M --archive none")
    assert kept(home, "all", "any", str(tmp_path / "a")) == (Keep(0.0, 0, str(tmp_path / "a")), "")
    assert kept(home, archive="auto") == (Keep(0.0, 0, beside), "--keep-history all")
    for history, size, said in (
        ("soon", None, "--keep-history must be a time"),
        (None, "big", "--keep-size must be an"),
    ):
        with pytest.raises(InputError, match=said):
            kept(home, history, size)


def test_what_is_said_of_ray_is_remembered_until_it_is_none(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    home.make()

    def said(**of_ray: str) -> tuple[tuple[str, str, str, float], str]:
        settings, remembered = _settings(home, None, None, None, None, None, {}, others=of_ray)
        write_settings(home, settings)
        return (settings.ray, settings.ray_state, settings.ray_checkpoints, settings.ray_keep_s), remembered

    given = {"ray": "auto", "ray_state": "/local", "ray_checkpoints": "/shared", "ray_keep_s": "1h"}
    assert said(**given) == (("auto", "/local", "/shared", 3600.0), "")
    remembered = "--ray auto --ray-state /local --ray-checkpoints /shared --ray-keep 3600s"
    assert said() == (("auto", "/local", "/shared", 3600.0), remembered)
    forgotten = {"ray": "none", "ray_state": "auto", "ray_checkpoints": "none", "ray_keep_s": "10m"}
    assert said(**forgotten) == (("", "", "", 600.0), "")
    with pytest.raises(InputError, match="--ray-keep "):
        said(ray_keep_s="soon")
    assert said(ray_idle_s="never")[1] == ""
    assert said()[1] == "--ray-idle never"
    assert said(ray_idle_s="5m")[1] == ""


def test_only_a_ray_that_is_started_here_has_a_number_of_nodes() -> None:
    check_ray_settings(Settings(ray="start", ray_nodes=3), None, 3)
    check_ray_settings(Settings(ray="auto", ray_nodes=3), None, None)  # remembered
    with pytest.raises(InputError, match="--ray-nodes must be from 1 to 16, not 0"):
        check_ray_settings(Settings(ray="start"), None, 0)
    with pytest.raises(InputError, match="it needs --ray start, not 'auto'"):
        check_ray_settings(Settings(ray="auto"), None, 3)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("las", r"--switch-to must be a policy that learns \(mlf_rl, rl\) or none, not 'las'"),
        ("mlf_rl:weights_file=none.json", r"weights 'none\.json': cannot be read"),
        ("nothing", "policy 'nothing' is unknown"),
    ],
)
def test_a_policy_to_switch_to_must_have_learned(tmp_path: Path, said: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        _settings(Home(tmp_path), None, None, None, None, None, {}, others={"switch_to": said})


def test_a_policy_to_switch_to_is_remembered_and_goes_with_mlf_h_only(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    home.make()
    said = {"switch_to": "mlf_rl:guard=false", "judge_every_s": "12h"}
    write_settings(home, _settings(home, None, None, None, None, None, {}, others=said)[0])
    settings, remembered = _settings(home, None, None, None, None, None, {})
    assert remembered == "--switch-to mlf_rl:guard=false --judge-every 43200s"
    found = switch_options(settings, find("mlf_h").bound())
    assert found is not None
    assert (found.learned, found.params, found.every_s) == ("mlf_rl", {"guard": False}, 43200.0)
    with pytest.raises(InputError, match="between mlf_h and mlf_rl: --policy must be one of them, not 'las'"):
        switch_options(settings, find("las").bound())
    none, _remembered = _settings(home, None, None, None, None, None, {}, others={"switch_to": "none"})
    assert switch_options(none, find("las").bound()) is None
