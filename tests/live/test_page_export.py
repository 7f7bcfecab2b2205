"""The page of a run as a file, in a real browser, opened as by a double click."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.live.browser import Tab, chromium
from tests.unit.cli.typed import hocket

HOSTILE = "</script><img src=x onerror=document.title='owned'>"
WORKLOAD = """submit_s,id,owner,gpus,run_s
0,first,ana,2,3000
10,"{name}",<b>eve</b>,2,2000
20,third,ana,1,500
"""
VIEWS = {"": ".lanes-canvas", "#/jobs": ".virtual .row", "#/jobs/first": ".story li", "#/past": ".gpu"}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def page_of_a_run(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    assert browser.is_connected()
    root = tmp_path_factory.mktemp("run")
    (root / "jobs.csv").write_text(WORKLOAD.replace("{name}", HOSTILE.replace("/", "")))
    told = hocket(
        "simulate", str(root / "jobs.csv"), "--policy", "fifo", "--cluster", "1x2", "--page", str(root / "page"),
        "--journal", str(root / "run.db"),
    )  # fmt: skip
    assert told.exit_code == 0, told.output
    assert f"page in {root}/page/index.html" in told.stdout.replace("\n", "")
    return root / "page" / "index.html"


class Document(Tab):
    """A file in the browser."""

    def _requested(self, request: Any) -> None:
        if not request.url.startswith((self.url, "data:", "blob:")):
            self.elsewhere.append(request.url)


@pytest.fixture
def tab(browser: Any, page_of_a_run: Path) -> Iterator[Document]:
    found = Document(browser, page_of_a_run.as_uri())
    found.page.goto(found.url)
    found.page.wait_for_selector(".tile")
    yield found
    found.close()


@pytest.mark.slow
def test_a_run_is_shown_without_a_controller(tab: Document) -> None:
    page = tab.page
    tab.awaits("document.querySelector('.policy').textContent.startsWith('fifo')")
    assert page.get_by_role("button", name="Sign out").count() == 0
    tab.awaits("document.querySelector('.choices [aria-pressed=true]').textContent === 'all'")
    box = page.locator(".lanes-canvas").bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.3, box["y"] + 20 + 44 + 8 + 10)
    page.wait_for_selector(".tip:not([hidden])")
    assert page.locator(".tip strong").inner_text() == "first"
    page.goto(f"{tab.url}#/jobs")
    tab.awaits("document.querySelectorAll('.virtual .row').length === 3")
    assert page.get_by_role("link", name="Submit a job").count() == 0
    page.get_by_role("link", name="first").click()
    page.wait_for_selector(".story li")
    assert "submitted" in page.locator(".story").inner_text()
    assert not page.locator(".log").is_visible()


@pytest.mark.slow
def test_its_decisions_are_stepped_through(tab: Document) -> None:
    page = tab.page
    page.goto(f"{tab.url}#/past")
    tab.awaits("/^#.past.[0-9]+$/.test(location.hash)")
    assert "starts" in page.locator(".changes").inner_text()
    page.get_by_label("First cycle").click()
    tab.awaits("document.querySelector('.gpu')?.textContent === 'first'")
    assert "gets 2" in page.locator(".changes li").first.inner_text()
    seen = [page.evaluate("location.hash")]
    while page.get_by_label("Next decision").is_enabled():
        page.get_by_label("Next decision").click()
        tab.awaits("before => location.hash !== before", seen[-1])
        seen.append(page.evaluate("location.hash"))
    assert len(seen) == 3
    assert page.locator(".counts").inner_text() == "Jobs: 1 starting · ended: 2 finished"
    while page.get_by_label("Previous decision").is_enabled():
        page.get_by_label("Previous decision").click()
        tab.awaits("before => location.hash !== before", seen.pop())
    assert page.locator(".counts").inner_text() == "Jobs: 1 starting"


@pytest.mark.slow
def test_names_are_text_and_no_rule_of_accessibility_is_broken(tab: Document) -> None:
    axe = pytest.importorskip("axe_playwright_python.base", reason="pip install axe-playwright-python")
    page = tab.page
    for view, ready in VIEWS.items():
        page.goto(f"{tab.url}{view}")
        page.wait_for_selector(ready)
        page.evaluate(axe.AXE_SCRIPT)
        found = page.evaluate("axe.run(document, {runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa']})")
        broken = [(rule["id"], [node["html"][:200] for node in rule["nodes"]]) for rule in found["violations"]]
        assert broken == [], f"{view}: {broken}"
        assert "owned" not in page.title()
    page.goto(f"{tab.url}#/jobs")
    page.get_by_role("link", name=HOSTILE.replace("/", "")).click()
    page.wait_for_selector(".story li")
    assert page.locator("h1").inner_text() == HOSTILE.replace("/", "")
    assert page.locator("img").count() == 1


@pytest.mark.slow
def test_a_journal_gives_the_same_page(page_of_a_run: Path, tmp_path: Path) -> None:
    shutil.copy(page_of_a_run.parents[1] / "run.db", tmp_path / "run.db")
    told = hocket("journal", "page", str(tmp_path / "out"), "--store", str(tmp_path / "run.db"), "--json")
    assert told.exit_code == 0, told.output
    assert json.loads(told.stdout)["page"] == str(tmp_path / "out" / "index.html")
    assert (tmp_path / "out" / "index.html").read_text() == page_of_a_run.read_text()
