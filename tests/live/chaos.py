"""Short jobs on a real controller while everything is killed at random with -9; then, what must have come of it.

    python -m tests.live.chaos --seconds 600 --seed 7

What became of the jobs is read from the ledgers that the training scripts write themselves, not from the journal.
"""

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.live import ledger
from tests.live.at_rest import Shown, complaints, decided_again, leftover_files, orphans, restored
from tests.live.controller import LiveController, NoAnswer, awaited
from tests.live.processes import Found, below, end_all
from tests.live.random_kills import RandomKills

_ROOT = Path(__file__).parents[2]
TRAIN = "examples/train_numpy.py"  # which really trains
COUNT = "tests/live/chaos_job.py"  # which takes a tenth of the processor's time
_POLICIES = {"las": ("--param", "levels_gpu_s=[2,6]"), "restless": ()}
# Not all die with their sidecar because their output pipe closes: some print into a file, and some below a shell.
_SHELLS = (
    (),
    (),
    ("/bin/sh", "-c", 'exec "$@" >/dev/null 2>&1', "sh"),
    ("/bin/sh", "-c", '"$@" >/dev/null; exit $?', "sh"),
)
_WEIGHTS = {"controller": 2, "agent": 2, "sidecar": 3, "training": 4}
_KILL_EVERY_S = 0.8  # on average, where a controller begins within
_BEGINS_S = 2.0  # and else less often: killed before it came to anything, it would be all that is ever killed
_ALL = 0.03  # how likely it is that everything is killed
_LOOK_EVERY_S = 0.1
_TELL_EVERY_S = 5.0
_ALONE_S = 30.0  # for an agent to begin, and to end what a dead sidecar left, on a machine that does much else
_WAVE, _FEW = 30, 10  # jobs, and as many again when there are few left and there is time
_REST_S = 900.0  # for all jobs to end once the kills have stopped


class Chaos:
    """One run: `torment` for a while, then `check`."""

    def __init__(self, root: Path, seed: int, policy: str, program: str = TRAIN) -> None:
        self.seed = seed
        self._program = program
        self.wrongs: list[str] = []
        self._dice = random.Random(seed)
        self._kills = RandomKills(self._dice, _WEIGHTS, _ALL)
        self.kills, self.killed = self._kills.count, self._kills.killed
        options = ("--gpus", "4", "--policy", policy, "--lease", "60", *_POLICIES[policy])
        self._controller = LiveController(root, *options)
        self._ledgers = root / "ledgers"
        self._ledgers.mkdir(exist_ok=True)
        self._epochs: dict[str, int] = {}  # job → how many it has
        self._intervals: dict[str, int] = {}  # job → after how many it saves its state
        self._to_submit: list[dict[str, Any]] = []
        self._agents: set[Found] = set()  # at the last look
        self._alone: dict[Found, float] = {}  # what has had no sidecar since then
        self._began = time.monotonic()
        self._told_s = 0.0

    # -- the run ------------------------------------------------------------------------------------------------

    def torment(self, seconds: float) -> None:
        """Submit jobs and kill whatever there is; for longer if something of every kind has yet to be killed."""
        self._new_wave()
        every_s = _KILL_EVERY_S * max(1.0, self._begin_s() / _BEGINS_S)
        until = time.monotonic() + seconds
        next_kill = time.monotonic() + 2.0
        while time.monotonic() < until or (self._spared() and time.monotonic() < until + _REST_S):
            self._look()
            self._have_a_controller()
            if time.monotonic() >= next_kill:
                self._kill_some()
                next_kill = time.monotonic() + self._dice.expovariate(1 / every_s)
            self._submit_some()
            is_early = until - time.monotonic() > 30 or self._spared()
            if is_early and not self._to_submit and self._live() < _FEW:
                self._new_wave()
            time.sleep(_LOOK_EVERY_S)

    def _begin_s(self) -> float:
        """Start the first controller, and see how long it takes to begin."""
        began = time.monotonic()
        self._controller.begin()
        return time.monotonic() - began

    def _spared(self) -> set[str]:
        """The kinds of which none was killed."""
        return self._kills.spared()

    def check(self) -> None:
        """Let everything come to rest, and see what is wrong."""
        awaited(self._all_over, "all jobs over", _REST_S, 0.5)
        for job_id, row in self._controller.jobs().items():
            if row["state"] != "finished":
                self.wrongs.append(f"job '{job_id}' is {row['state']}: {row['reason']}")
        for job_id, epochs in self._epochs.items():
            lines = ledger.read(self._ledgers / job_id)
            self.wrongs += [
                f"job '{job_id}': {wrong}" for wrong in ledger.wrongs(lines, epochs, self._intervals[job_id])
            ]
        self._check_journal()
        awaited(self._controller.answers, "a controller that answers")
        self._controller.down()
        awaited(lambda: not orphans(self._controller.root), "every process gone")
        self.wrongs += [f"left behind: {path}" for path in leftover_files(self._controller)]
        self.wrongs += complaints(self._controller)

    def clean_up(self) -> None:
        """End what we started, whatever went wrong."""
        self._controller.kill()
        end_all(self._controller.root)

    def _check_journal(self) -> None:
        """Killed once more, at rest, it is restored to what it showed."""
        before = self._shown_at_rest()
        self._controller.kill()
        self.kills["controller"] += 1
        journal = self._controller.home / "journal.db"
        again = restored(journal, self._controller.root / "copy")
        self.wrongs += [f"restored otherwise: {wrong}" for wrong in before.differences(again)]
        if different := decided_again(self._controller.root / "copy" / journal.name):
            self.wrongs.append(f"decided otherwise: {different}")
        self._controller.start()
        awaited(self._controller.answers, "a controller that answers")
        self.wrongs += [f"shown otherwise: {wrong}" for wrong in before.differences(Shown.by(self._controller))]

    def _shown_at_rest(self) -> Shown:
        """What it shows once that does not change any more: last words of an agent may still come."""
        found = Shown.by(self._controller)

        def is_at_rest() -> bool:
            nonlocal found
            before, found = found, Shown.by(self._controller)
            return not any(before.differences(found)) and all(node["up"] for node in found.nodes)

        awaited(is_at_rest, "at rest", every_s=0.5)
        return found

    def _have_a_controller(self) -> None:
        if self._controller.pid is None:
            if self._controller.code not in (None, -signal.SIGKILL):
                self.wrongs.append(f"the controller ended by itself with {self._controller.code}")
            self._controller.start()

    # -- jobs ---------------------------------------------------------------------------------------------------

    def _new_wave(self) -> None:
        for _ in range(_WAVE):
            name = f"job-{len(self._epochs)}"
            epochs = self._dice.randint(18, 24) if self._dice.random() < 0.2 else self._dice.randint(4, 10)
            every, pace_s = self._dice.randint(1, 3), self._dice.uniform(0.3, 0.5)
            command = [sys.executable, self._program, "--seed", str(len(self._epochs))]
            command += ["--epochs", str(epochs), "--pace", f"{pace_s:.2f}", "--ledger", str(self._ledgers / name)]
            command += ["--checkpoint-every", str(every)]
            self._epochs[name], self._intervals[name] = epochs, every
            shell = self._dice.choice(_SHELLS)
            self._to_submit.append(
                {
                    "id": name,
                    "command": [*shell, *command],
                    "cwd": str(_ROOT),
                    "gpus": self._dice.randint(1, 2),
                    "sizes": [1, 2],
                    "warm": self._dice.random() < 0.4,
                    "preempt": self._dice.choice(["always", "saved"]),
                    "retries": 1000,
                    "backoff_s": 0.01,  # It doubles with every crash, and some crash often.
                    "grace_s": 10.0,
                }
            )

    def _submit_some(self) -> None:
        """Jobs come a few at a time. Whether a submission was taken that got no answer, the next attempt tells."""
        if self._to_submit and self._dice.random() < 0.3:
            some = self._to_submit[: self._dice.randint(1, 6)]
            try:
                answer = self._controller.call("POST", "/v1/jobs", {"jobs": some}, within_s=5)
            except NoAnswer:
                return
            for said in answer["jobs"]:
                if said["refused"] and "unique" not in said["refused"]:
                    self.wrongs.append(f"job '{said['id']}' was refused: {said['refused']}")
            del self._to_submit[: len(some)]

    def _live(self) -> int:
        """How many jobs there are that are not over, by their own word."""
        return sum(not self._has_ended(job_id) for job_id in self._epochs)

    def _has_ended(self, job_id: str) -> bool:
        return any(line["event"] == "end" for line in ledger.read(self._ledgers / job_id))

    def _all_over(self) -> bool:
        self._have_a_controller()
        self._look()
        self._submit_some()
        try:
            jobs = self._controller.jobs()
        except NoAnswer:
            return False
        return not self._to_submit and all(row["ended_s"] is not None for row in jobs.values())

    # -- kills --------------------------------------------------------------------------------------------------

    def _kill_some(self) -> None:
        self._kills.kill_some(below(self._controller.root))

    def _look(self) -> None:
        """See that nothing runs twice at once or on its own, and tell how it goes."""
        there = list(below(self._controller.root))
        self._see_twice(there)
        self._see_alone(there)
        now_s = time.monotonic() - self._began
        if now_s - self._told_s > _TELL_EVERY_S:
            self._told_s = now_s
            over = len(self._epochs) - self._live()
            print(f"{now_s:5.0f} s: {over} of {len(self._epochs)} jobs over, {self._kills.told()}", flush=True)

    def _see_twice(self, there: list[Found]) -> None:
        """No job has two processes at once, but for a shell above the other, and one that is only prepared."""
        present: dict[str, Found] = {}
        for found in there:
            if found.kind == "training" and not found.command.startswith("/bin/sh") and not self._stands_by(found):
                other = present.setdefault(found.job, found)
                if other is not found and found.lives() and other.lives():
                    self.wrongs.append(f"job '{found.job}' lives twice: {other} and {found}")

    def _stands_by(self, found: Found) -> bool:
        """Is it prepared for an attempt that is yet to come? Told to start, it has that in its folder."""
        folder = self._controller.home / "agent" / "runs" / found.job / str(found.attempt)
        return "hocket/agent/sidecar/warm.py" in found.command and not (folder / "start.json").exists()

    def _see_alone(self, there: list[Found]) -> None:
        """What has no sidecar any more is soon ended, if only there is an agent all the while."""
        agents = {found for found in there if found.kind == "agent"}
        cared_for = {(found.job, found.attempt) for found in there if found.kind == "sidecar"}
        alone = {f for f in there if f.kind == "training" and (f.job, f.attempt) not in cared_for}
        now_s = time.monotonic()
        self._alone = {f: self._alone.get(f, now_s) for f in alone} if agents & self._agents else {}
        self._agents = agents
        for found, since_s in self._alone.items():
            if now_s - since_s > _ALONE_S and found.lives():
                self.wrongs.append(f"job '{found.job}' runs on without a sidecar: {found}")

    # -- what is said -------------------------------------------------------------------------------------------

    def summary(self) -> str:
        """The run in a few lines."""
        told = [ledger.told(ledger.read(self._ledgers / job_id)) for job_id in self._epochs]
        attempts, stops, epochs, again, ends = map(sum, zip(*told, strict=True))
        ended = sum(t.ends > 0 for t in told)
        return "\n".join(
            [
                f"chaos with seed {self.seed}: {len(told)} jobs, {self._kills.told()} survived",
                f"the ledgers: {ended} jobs ended, {ends - ended} said so twice; {attempts} attempts, {stops} of them "
                f"paused; {epochs} epochs, {again} done again since a checkpoint",
                f"wrong: {len(self.wrongs)}" if self.wrongs else "nothing lost, nothing twice, nothing left behind",
            ]
        )

    def explained(self) -> str:
        """What is needed to understand what went wrong."""
        said: list[str] = []
        jobs = [job_id for job_id in self._epochs if not self._has_ended(job_id)]
        jobs += [job_id for job_id in self._epochs if any(f"'{job_id}'" in wrong for wrong in self.wrongs)]
        for job_id in list(dict.fromkeys(jobs))[:3]:
            said.append(f"-- ledger of '{job_id}':")
            said += map(json.dumps, ledger.read(self._ledgers / job_id))
            for path in sorted((self._controller.home / "agent" / "runs" / job_id).glob("*/events.jsonl")):
                said += [f"-- {path}:", *path.read_text(errors="replace").splitlines()[-10:]]
            said += self._past_of(job_id)
        said += ["-- the last kills:", *(f"{at_s:.3f} {found}" for at_s, found in self.killed[-20:])]
        for log in (self._controller.log, self._controller.home / "log"):
            said += [f"-- {log}:", *(log.read_text(errors="replace").splitlines()[-40:] if log.exists() else ())]
        said += [f"seed {self.seed}, folder {self._controller.root}", *self.wrongs]  # last: long output is cut above
        return "\n".join(said)

    def _past_of(self, job_id: str) -> list[str]:
        try:
            why = self._controller.call("GET", f"/v1/jobs/{job_id}/why")
            return [f"-- what the controller says of '{job_id}': {why['now']}", *map(json.dumps, why["past"][-20:])]
        except (NoAnswer, ValueError):
            return []


def run(root: Path, seconds: float, seed: int, policy: str = "las", program: str = TRAIN) -> Chaos:
    """The whole run; AssertionError with all that is needed to understand it if anything is wrong."""
    chaos = Chaos(root, seed, policy, program)
    try:
        chaos.torment(seconds)
        chaos.check()
    except AssertionError as error:
        chaos.wrongs.append(str(error))
    finally:
        explained = chaos.explained() if chaos.wrongs else ""
        chaos.clean_up()
    print(chaos.summary(), flush=True)
    if chaos.wrongs:
        raise AssertionError(explained)
    return chaos


def main() -> None:
    """As a command."""
    parser = argparse.ArgumentParser(prog="python -m tests.live.chaos", description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=random.randrange(10_000))
    parser.add_argument("--policy", choices=list(_POLICIES), default="las")
    options = parser.parse_args()
    os.environ["HOCKET_POLICIES"] = str(Path(__file__).parent / "policies")
    root = Path(tempfile.mkdtemp(prefix="hocket-chaos-"))
    print(f"seed {options.seed}, folder {root}", flush=True)
    try:
        run(root, options.seconds, options.seed, options.policy)
    except AssertionError as error:
        sys.exit(f"{error}\nThe folder is kept: {root}")
    shutil.rmtree(root)


if __name__ == "__main__":
    main()
