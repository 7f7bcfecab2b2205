"""A controller's folder."""

from pathlib import Path

from hocket.service.home import Home


def test_what_a_killed_controller_left_half_written_is_swept_away(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    home.make()
    (home.path / "url.4711.part").write_text("http://127.")
    home.sweep()
    assert [path.name for path in home.path.iterdir()] == ["token"]


def test_only_what_a_controller_writes_is_swept_away(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.make()
    theirs = ["film.mkv.part", "token.part", "url.old.part", "url.old.12.part", "urls.12.part", "notes.4711.part"]
    for name in (*theirs, "token.1.part", "url.22.part", "ca.pem.333.part"):
        (home.path / name).touch()
    home.sweep()
    assert sorted(path.name for path in home.path.iterdir()) == sorted([*theirs, "token"])
