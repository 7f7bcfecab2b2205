"""The controller's side of Ray: what it says when Ray cannot be used. With Ray, tests/ray shows it."""

from pathlib import Path

import pytest
from tests.live.processes import below

from hocket.service.home import Home
from hocket.service.ray_nodes import RayNodes, RayOptions, RayUnavailable


@pytest.fixture
def home(tmp_path: Path) -> Home:
    found = Home(tmp_path / "home")
    found.make()
    return found


def test_an_address_without_ray_is_refused_in_one_line_and_no_process_is_left(home: Home) -> None:
    with pytest.raises(RayUnavailable, match=r"^there is no Ray at 127\.0\.0\.1:9: Connection refused"):
        RayNodes(home, RayOptions("127.0.0.1:9")).connect()
    assert not list(below(home.path))


def test_without_the_package_it_is_said_how_to_install_it(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ray.py").write_text("""raise ImportError("No module named 'ray'")""")  # as where it is not installed
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(RayUnavailable, match=r"^--ray needs Ray \(No module .*\): pip install 'hocket\[ray\]'"):
        RayNodes(home, RayOptions("auto")).connect()
