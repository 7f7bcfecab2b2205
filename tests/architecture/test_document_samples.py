"""Commands in the documents run, and print what is shown under them.

Every console block of every page is run, page by page in a folder of its own, unless the line before it says why not:
`<!-- not run: needs a GPU -->`. The commands of such blocks must still exist, with all their options.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import NamedTuple

import click
import pytest

ROOT = Path(__file__).parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(
    r"(?:^<!-- not run: (?P<why>[^\n]+) -->\n+)?^```(?P<kind>\w*)\n(?P<text>.*?)^```", re.MULTILINE | re.DOTALL
)
TIMED = ("decisions ", "cost ")  # rows that tell how long it took here
LIMIT_S = 120
LONG = ("docs/tutorials/first_simulation.md", "docs/tutorials/own_policy.md", "docs/tune.md")  # a minute together


class Sample(NamedTuple):
    command: str
    shown: list[str]


class Block(NamedTuple):
    page: Path
    samples: list[Sample]
    not_run: str  # why; empty if it is run


@cache
def blocks(page: Path) -> list[Block]:
    """The console blocks of a page, in order; of comments in commands nothing is kept."""
    found: list[Block] = []
    for block in BLOCK.finditer(page.read_text(encoding="utf-8")):
        if block["kind"] == "console":
            found.append(Block(page, samples(block["text"]), block["why"] or ""))
    return found


def samples(text: str) -> list[Sample]:
    """Each command with the lines shown under it; a command goes on after a backslash."""
    found: list[Sample] = []
    for line in re.sub(r" *\\\n *", " ", text).splitlines():
        if line.startswith("$ "):
            found.append(Sample(line[2:].split("  #")[0], []))
        else:
            found[-1].shown.append(line)
    return found


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


RUN = [page for page in PAGES if any(not b.not_run for b in blocks(page))]
NOT_RUN = [block for page in PAGES for block in blocks(page) if block.not_run]


@pytest.mark.parametrize(
    "page", [pytest.param(p, marks=pytest.mark.long if name(p) in LONG else (), id=name(p)) for p in RUN]
)
def test_commands_run_and_print_what_is_shown(page: Path, tmp_path: Path) -> None:
    for folder in ("examples", "tests"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "COLUMNS": "100", "HOCKET_HOME": str(tmp_path / "home")}
    wrong: list[str] = []
    try:
        for sample in (s for block in blocks(page) if not block.not_run for s in block.samples):
            if sample.command.startswith("cat "):
                (tmp_path / sample.command.split()[1]).write_text("\n".join(sample.shown) + "\n")
            elif sample.command.startswith("export "):
                key, _, value = sample.command.removeprefix("export ").partition("=")
                environment[key] = value
            else:
                wrong += faults(sample, tmp_path, environment)
    finally:
        if (tmp_path / "home").exists():
            subprocess.run(["hocket", "down"], cwd=tmp_path, env=environment, capture_output=True, check=False)
    assert not wrong, "\n".join(wrong)


def faults(sample: Sample, folder: Path, environment: dict[str, str]) -> list[str]:
    """Run a command; what differs from what is shown. An error that is shown is expected."""
    ran = subprocess.run(
        ["sh", "-c", sample.command],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=LIMIT_S,
    )
    expected = 2 if any(line.startswith("hocket: ") for line in sample.shown) else 0
    if ran.returncode != expected:
        return [f"`{sample.command}` ends with {ran.returncode}, not {expected}:\n{ran.stdout}"]
    printed = [line.strip() for line in ran.stdout.splitlines()]
    shown = [line.strip() for line in sample.shown]
    return [
        f"`{sample.command}` does not print {line!r} but\n{ran.stdout}"
        for line in shown
        if line and line != "…" and not line.startswith(TIMED)
        if not any(p.endswith(line) for p in printed)  # Paths are shown from the repository's root.
    ]


@pytest.mark.parametrize("block", NOT_RUN, ids=lambda b: f"{name(b.page)}: {b.samples[0].command[:40]}")
def test_commands_that_are_not_run_exist_with_their_options(block: Block) -> None:
    assert len(block.not_run.split()) >= 3, "say why it is not run"
    for sample in block.samples:
        words = shlex.split(sample.command)
        if "hocket" in words:
            command, *arguments = words[words.index("hocket") + 1 :]
            parse(command, arguments[: arguments.index("--")] if "--" in arguments else arguments)


@cache
def commands() -> dict[str, click.Command]:
    from typer.main import get_command

    from hocket.cli.main import app

    found: dict[str, click.Command] = get_command(app).commands  # type: ignore[attr-defined]
    return found


def parse(command: str, arguments: list[str]) -> None:
    assert command in commands(), f"there is no command '{command}'"
    found = commands()[command]
    if (command, *arguments[:1]) == ("query", "prepare"):
        from hocket.cli.query import prepare_command

        found, arguments = prepare_command(), arguments[1:]
    context = click.Context(found, info_name=command, **found.context_settings)
    found.make_parser(context).parse_args(arguments)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_block_with_commands_is_a_console_block(page: Path) -> None:
    """Else nothing would run it."""
    found = [
        b["text"] for b in BLOCK.finditer(page.read_text(encoding="utf-8")) if b["kind"] in ("", "sh", "bash", "shell")
    ]
    assert not [text for text in found if re.search(r"^(\$ |hocket |make |pip )", text, re.MULTILINE)]


def test_samples_are_found() -> None:
    assert sum(len(s.shown) for page in RUN for b in blocks(page) for s in b.samples) > 60
