"""A controller's folder."""

from pathlib import Path

from hocket.service.home import Home


def test_what_a_killed_controller_left_half_written_is_swept_away(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    home.make()
    (home.path / "url.4711.part").write_text("http://127.")
    home.sweep()
    assert [path.name for path in home.path.iterdir()] == ["token"]
