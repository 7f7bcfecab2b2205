"""`hocket open`: a link that signs in, for a browser or for its user."""

from __future__ import annotations

import json
import webbrowser
from typing import Any

import pytest
from tests.unit.cli.typed import hocket, refused

LINK = {"path": "/#link=secret", "expires_s": 1.0}


@pytest.fixture
def opened(controller: Any, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The links that a browser was asked to open, on a desktop."""
    controller.answer = lambda *_: (200, LINK, {})
    found: list[str] = []
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setattr(webbrowser, "open", lambda link: bool(found.append(link) or True))
    return found


def test_a_browser_is_given_the_link_and_the_terminal_is_not(controller: Any, opened: list[str]) -> None:
    url = (controller.home / "url").read_text().strip()
    said = hocket("open")
    assert said.exit_code == 0
    assert opened == [f"{url}/#link=secret"]
    assert said.stdout == f"hocket: the page at {url} is open in your browser\n"


@pytest.mark.parametrize("why", ["--no-browser", "no desktop", "no browser"])
def test_where_there_is_no_browser_the_link_is_printed(
    why: str, controller: Any, opened: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if why == "no desktop":
        monkeypatch.delenv("DISPLAY")
        monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
        monkeypatch.setattr("sys.platform", "linux")
    elif why == "no browser":
        monkeypatch.setattr(webbrowser, "open", lambda _link: False)
    said = hocket("open", *([why] if why.startswith("--") else []))
    assert said.stdout == f"{(controller.home / 'url').read_text().strip()}/#link=secret\n"
    assert "signs in once" in said.stderr
    assert opened == []


def test_as_json_it_is_for_programs(controller: Any, opened: list[str]) -> None:
    found = json.loads(hocket("open", "--json").stdout)
    assert found == {"url": f"{(controller.home / 'url').read_text().strip()}/#link=secret", "expires_s": 1.0}
    assert opened == []


def test_a_controller_that_listens_on_all_addresses_is_called_at_this_machines(
    controller: Any, opened: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    port = (controller.home / "url").read_text().strip().rpartition(":")[2]
    monkeypatch.setenv("HOCKET_URL", f"http://0.0.0.0:{port}")
    monkeypatch.setenv("HOCKET_TOKEN", (controller.home / "token").read_text().strip())
    hocket("open")
    assert opened == [f"http://127.0.0.1:{port}/#link=secret"]


def test_a_unix_socket_has_no_page_for_a_browser(unix_controller: Any) -> None:
    unix_controller.answer = lambda *_: (200, LINK, {})
    assert "no browser calls: say `hocket up --listen ADDRESS`" in refused("open")
