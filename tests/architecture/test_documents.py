"""The documents speak of what is there: links, files, folders, commands, and the example as it runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from hocket.cli.live.job_rows import LIVE
from hocket.model.plan import Verdict

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src" / "hocket"
DECISIONS = sorted((ROOT / "docs" / "decisions").glob("*.md"))
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
GENERATED = ("reference/commands.md",)  # when the site is built
COMMAND = re.compile(r"^(?:\$ )?(?:[A-Z_]+=\S+ )?hocket ([a-z]+)", re.MULTILINE)


def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#]+)", page.read_text(encoding="utf-8"))
    gone = [t for t in targets if "://" not in t and not (page.parent / t).exists() and t not in GENERATED]
    assert not gone


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_nothing_names_the_machine_it_was_written_on(page: Path) -> None:
    found = re.findall(r"(?<![\w$.])/(?:home|root|work|tmp|Users)/\S*|\.\./shared\S*", page.read_text(encoding="utf-8"))
    assert not found


@pytest.mark.long
def test_the_site_builds_with_every_page_and_fetches_nothing(tmp_path: Path) -> None:
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    ran = subprocess.run(build, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    for page in tmp_path.rglob("*.html"):
        fetched = r'<(?:script|img|iframe)[^>]*\ssrc="?https?:|<link[^>]*rel="?(?:stylesheet|preconnect)[^>]*https?:'
        assert not re.search(fetched, page.read_text(encoding="utf-8")), page.name


def test_the_readme_shows_commands_that_exist() -> None:
    from hocket.cli.command_list import COMMANDS

    shown = set(COMMAND.findall(text("README.md")))
    assert {"up", "submit", "why", "simulate", "compare", "replay", "whatif", "tune"} <= shown <= set(COMMANDS)


def test_the_readme_names_every_make_target() -> None:
    targets = set(re.findall(r"^([a-z]+):.*## ", text("Makefile"), re.MULTILINE)) - {"clean"}
    assert {t for t in targets if f"make {t}" not in text("README.md")} == set()


@pytest.mark.parametrize("example", ["smallest", "priority"])
def test_the_example_stands_in_contributing_as_it_is(example: str) -> None:
    assert f"```python\n{text(f'examples/policies/{example}.py')}```" in text("CONTRIBUTING.md")


def test_the_example_of_parameter_servers_stands_in_its_page_as_it_is() -> None:
    assert f"```python\n{text('examples/paramserver_kmeans.py')}```" in text("docs/paramserver.md")


def test_the_code_map_has_every_folder_and_no_file_that_is_gone() -> None:
    page = text("ARCHITECTURE.md")
    folders = {p.parent.name for p in SRC.glob("*/__init__.py")}
    assert {f for f in folders if f"**`{f}/" not in page} == set()
    files = set(re.findall(r"`(?:[a-z]+/)*([a-z_]+\.py)`", page))
    assert files - {p.name for p in SRC.rglob("*.py")} == set()


def measured(page: str) -> set[str]:
    """The rows of the table that the policies' pages share, as this page has them, and of when they are."""
    _before, _, after = text(f"docs/policies/{page}.md").partition("| changes |\n")
    table, _, below = after.partition("\n\n")
    return {*table.splitlines(), *re.findall(r"20\d\d-\d\d-\d\d", below)[:1]}


def test_the_pages_of_policies_have_the_numbers_of_their_overview() -> None:
    pages = ("fifo", "backfill", "las", "fair", "drf", "edf", "srtf", "round_robin")
    assert len(measured("README")) == 1 + len(pages) + 1
    assert [page for page in pages if measured(page) != measured("README")] == []


def test_every_state_of_a_job_is_explained() -> None:
    firsts = [line.split("|")[1] for line in text("docs/jobs.md").splitlines() if line.startswith("| `")]
    assert {*LIVE, *Verdict} <= {word for first in firsts for word in re.findall(r"`([a-z-]+)`", first)}


def test_every_policy_is_in_the_changelog() -> None:
    there = {p.stem for p in (SRC / "policies").glob("*.py") if '@policy("' in p.read_text(encoding="utf-8")}
    assert {name for name in there if f"`{name}`" not in text("CHANGELOG.md")} == set()


def test_decisions_are_numbered_dated_and_say_why() -> None:
    assert [p.name[:4] for p in DECISIONS] == [f"{n:04d}" for n in range(1, len(DECISIONS) + 1)]
    for page in DECISIONS:
        lines = page.read_text(encoding="utf-8").splitlines()
        assert lines[0].startswith(f"# {page.name[:4]} ")
        assert re.match(r"\d{4}-\d\d-\d\d · ", lines[2]), f"{page.name} has no date"
        assert [line for line in lines if line.startswith("## ")] == ["## Context", "## Decision", "## Consequences"]
