"""Jobs that count steps and not epochs, and criteria whose metric is not seen: with a real controller and real jobs."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.live.controller import LiveController, awaited

# Prints lines of a file, one by one as that grows, until the line "end".
_PRINTS = """
import sys, time
with open(sys.argv[1]) as file:
    while True:
        line = file.readline()
        if line == "end\\n":
            break
        if line:
            print(line, end="", flush=True)
        else:
            time.sleep(0.02)
"""


class User:
    """Types commands, reads what they print, and says what jobs print."""

    def __init__(self, controller: LiveController) -> None:
        self.controller, self.folder = controller, controller.root
        (self.folder / "prints.py").write_text(_PRINTS)

    def types(self, *args: str, code: int = 0) -> str:
        return str(self.controller.types(*args, code=code, COLUMNS="400").stdout)

    def submits(self, name: str, *options: str, printed: str = "") -> None:
        self.prints(name, printed)
        command = [sys.executable, str(self.folder / "prints.py"), str(self.folder / name)]
        self.types("submit", "-n", name, *options, "--", *command)

    def prints(self, name: str, text: str) -> None:
        with (self.folder / name).open("a") as file:
            file.write(text)

    def row(self, name: str) -> dict:
        return self.controller.jobs()[name]

    def awaits(self, name: str, state: str) -> None:
        awaited(lambda: self.row(name)["state"] == state, f"{name} is {state}: {self.row(name)}")


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[User]:
    monkeypatch.setenv("HOCKET_METRIC_WARNING_S", "2")
    with LiveController(tmp_path, "--gpus", "4", "--policy", "fifo") as controller:
        controller.begin()
        yield User(controller)
        controller.down(grace_s=0.0)


@pytest.mark.slow
def test_values_and_limits_in_steps_decide_criteria(user: User) -> None:
    user.submits("net", "--until", "loss <= 0.005", printed="step 197 loss 0.0051\n")
    user.submits("late", "--until", "val_loss <= 2 within 250 steps", printed="step 0: train loss 4.1, val loss 4.2\n")
    user.submits("trees", "--until", "for 100 steps", printed="[99]\ttrain-rmse:0.11\teval-rmse:0.21\n")
    user.submits("both", "--until", "for 300 steps", printed="epoch 1 step 200 loss 0.5\nepoch 2 step 299 loss 0.4\n")
    awaited(lambda: user.row("net")["step"] == 197 and user.row("trees")["step"] == 99, "steps are seen")
    awaited(lambda: user.row("both")["step"] == 299, "steps are counted beside epochs")
    shown = user.types("show", "net")
    assert "step        197" in shown
    assert "step 197     loss=0.0051" in shown
    assert "98%" in shown, "the way from 0.0051 to 0.005"
    assert "99%" in user.types("show", "trees")
    user.prints("net", "step 198 loss 0.0050\n")
    user.prints("late", "iter 240: loss 3.2, time 100ms, mfu 1%\nstep 250: train loss 2.1, val loss 2.2\n")
    user.prints("trees", "[100]\ttrain-rmse:0.10\teval-rmse:0.20\n")
    user.prints("both", "epoch 2 step 300 loss 0.4\n")
    for name in ("net", "trees", "both"):
        user.awaits(name, "attained")
    user.awaits("late", "missed")
    assert "attained: loss <= 0.005 (loss is 0.005)" in user.types("show", "net")
    assert "missed: val_loss <= 2 within 250 steps (val_loss is 2.2)" in user.types("why", "late")

    user.submits("short", "--until", "loss <= 0.1", printed="step 10 loss 0.3\nstep 20 loss 0.2\nend\n")
    user.awaits("short", "missed")
    assert "was not met when its process ended at step 20: loss was 0.2" in user.types("show", "short")


@pytest.mark.slow
def test_work_that_was_lost_is_counted_in_steps(user: User) -> None:
    user.submits(
        "careless", "--until", "loss <= 0.001", "--grace", "0s", printed="step 10 loss 0.3\nstep 250 loss 0.2\n"
    )
    awaited(
        lambda: user.row("careless")["step"] == 250 and user.row("careless")["ran_s"] > 2, "it has worked for a while"
    )
    user.types("pause", "careless")
    user.awaits("careless", "held")
    awaited(lambda: user.row("careless")["lost_steps"] == 250, f"what it lost: {user.row('careless')}")
    assert "(250 steps) were not saved" in user.types("why", "careless")
    assert ", 250 steps that were not saved" in user.types("show", "careless")


@pytest.mark.slow
def test_a_metric_that_is_not_seen_is_warned_of_until_it_is(user: User) -> None:
    """And the warning survives the controller."""
    user.submits(
        "odd", "--until", "quality >= 0.9", printed="hello\nround the first: Q is 0.31\nround the second: Q is 0.42\n"
    )
    user.submits("silent", "--until", "acc >= 0.9")
    user.submits("uncounted", "--until", "for 10 steps", printed="working\n")
    user.submits("fine", "--until", "acc >= 0.9", printed="epoch 1 step 10 acc 0.2\n")

    def warned(name: str) -> list[str]:
        return [line for line in user.types("show", name).splitlines() if line.startswith("its criterion is about")]

    awaited(lambda: all(warned(name) for name in ("odd", "silent", "uncounted")), "they are warned of")
    (about,) = warned("odd")
    assert about == (
        "its criterion is about 'quality', and that was not seen in its first 2 s: nothing like it was read; "
        "it printed last: 'hello' | 'round the first: Q is 0.31' | 'round the second: Q is 0.42'; "
        "--progress says how to read it, or call hocket.report() in the program"
    )
    assert "it has printed nothing" in warned("silent")[0]
    assert "'steps'" in warned("uncounted")[0]
    assert warned("fine") == [], "a value within an epoch is seen"
    assert f"warning    {about}" in user.types("why", "odd")
    assert "MetricUnseen 'odd'" in user.controller.log.read_text()

    user.controller.kill()
    user.controller.begin()
    assert warned("odd") == [about]
    user.prints("odd", "epoch 1 quality=0.5\n")
    awaited(lambda: not warned("odd"), "it is seen now")
    past = user.types("why", "odd")
    assert "warning    its" not in past
    assert "what its criterion is about is reported now" in past
