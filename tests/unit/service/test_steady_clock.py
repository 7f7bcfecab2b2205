"""The controller's clock goes on evenly when that of the machine is set, also over a restart."""

import logging
from pathlib import Path

import pytest

from hocket.agent.lease_file import boot_id
from hocket.service.steady_clock import SteadyClock


class Machine:
    """Its clock can be set; the time since it booted cannot."""

    def __init__(self) -> None:
        self.wall_s, self.up_s, self.boot = 1_800_000_000.0, 500.0, "first"

    def goes_on(self, s: float) -> None:
        self.wall_s += s
        self.up_s += s

    def clock(self, folder: Path) -> SteadyClock:
        def write(path: Path, text: str) -> None:
            path.write_text(text)

        return SteadyClock(folder / "clock.json", write, lambda: self.wall_s, lambda: self.up_s, self.boot)


@pytest.mark.parametrize("step_s", [3600.0, -3600.0])
def test_a_step_of_the_machines_clock_changes_nothing(tmp_path: Path, step_s: float) -> None:
    machine = Machine()
    clock = machine.clock(tmp_path)
    assert clock() == 1_800_000_000.0
    machine.wall_s += step_s
    machine.goes_on(10.0)
    assert clock() == 1_800_000_010.0


@pytest.mark.parametrize("step_s", [3600.0, -3600.0])
def test_nor_does_one_over_a_restart(tmp_path: Path, step_s: float, caplog: pytest.LogCaptureFixture) -> None:
    machine = Machine()
    machine.clock(tmp_path)
    machine.wall_s += step_s
    machine.goes_on(10.0)
    with caplog.at_level(logging.WARNING):
        assert machine.clock(tmp_path)() == 1_800_000_010.0
    assert f"was set by {step_s:+.0f} s" in caplog.text


def test_when_the_machine_boots_again_its_clock_is_taken(tmp_path: Path) -> None:
    machine = Machine()
    machine.clock(tmp_path)
    machine.wall_s, machine.up_s, machine.boot = 1_800_007_000.0, 3.0, "second"
    assert machine.clock(tmp_path)() == 1_800_007_000.0
    machine.wall_s += 3600.0
    assert machine.clock(tmp_path)() == 1_800_007_000.0


@pytest.mark.parametrize("kept", ["", "{", '{"boot": 3}'])
def test_a_file_that_cannot_be_read_is_made_anew(tmp_path: Path, kept: str) -> None:
    (tmp_path / "clock.json").write_text(kept)
    machine = Machine()
    assert machine.clock(tmp_path)() == machine.wall_s
    machine.wall_s += 99.0
    assert machine.clock(tmp_path)() == 1_800_000_000.0


def test_where_no_file_can_be_written_the_clock_goes_on_all_the_same(tmp_path: Path) -> None:
    def full(_path: Path, _text: str) -> None:
        raise OSError("No space left on device")

    machine = Machine()
    clock = SteadyClock(tmp_path / "clock.json", full, lambda: machine.wall_s, lambda: machine.up_s, "first")
    machine.wall_s += 3600.0
    assert clock() == 1_800_000_000.0


def test_this_machine_has_booted_once() -> None:
    assert boot_id() == boot_id() != ""
