"""The list of commands says what the commands say, and makes them when they are asked for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.unit.cli.typed import completed, hocket, refused
from typer.main import get_command

from hocket.cli.command_list import COMMANDS, LazyCommands
from hocket.cli.main import app


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_says_of_a_command_what_its_help_begins_with(name: str) -> None:
    command = get_command(app).commands[name]  # type: ignore[attr-defined]
    assert command.name == name
    assert COMMANDS[name].help == " ".join(command.help.split("\n\n")[0].split())


def test_help_lists_every_command_in_the_order_of_the_list() -> None:
    listed = hocket("--help").stdout.partition("Commands")[2]
    assert re.findall(r"^│ ([a-z]+) ", listed, re.MULTILINE) == list(COMMANDS)
    assert all(command.help in listed for command in COMMANDS.values())


def test_names_of_commands_are_completed() -> None:
    assert completed("") == list(COMMANDS)
    assert completed("su") == ["submit"]
    assert completed("node") == ["nodes", "node"]


def test_every_file_with_commands_is_in_the_list() -> None:
    """Such a file begins with the command that it is for."""
    root = Path(__file__).parents[3] / "src/hocket/cli"
    said = [re.match(r'"""`hocket ([a-z]+)', path.read_text(encoding="utf-8")) for path in root.rglob("*.py")]
    found = {each[1] for each in said if each}
    assert {"submit", "tune", "simulate"} <= found <= set(COMMANDS)


def test_a_command_is_made_once() -> None:
    commands = LazyCommands(COMMANDS)
    assert commands["version"] is commands["version"]
    assert "versions" not in commands
    assert commands.get("versions") is None
    assert len(commands) == len(list(commands)) == len(COMMANDS)


def test_an_argument_that_a_command_needs_is_missed() -> None:
    assert "Missing argument 'JOB' (see `hocket show --help`)" in refused("show")


def test_the_agent_reads_its_options_itself() -> None:
    assert hocket("agent", "--help").stdout.startswith("usage: hocket agent [-h] --url URL")
