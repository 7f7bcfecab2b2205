"""Parameter-server jobs that share two machines while workers, servers, sidecars and agents are killed at random.

    python -m tests.live.paramserver_chaos --seconds 600 --seed 7

Afterwards every job has ended with the objective that it reaches undisturbed, no phase token is lost on either machine,
and no process is left. A worker and a server of a host are threads of one process, so they are killed together.
"""

import random
import sys
import time
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from threading import Thread
from typing import Any

from tests.live.agent import LiveAgent
from tests.live.at_rest import orphans
from tests.live.chaos_command import chaos_command
from tests.live.controller import LiveController, NoAnswer, awaited
from tests.live.processes import below
from tests.live.random_kills import RandomKills

from hocket.paramserver import train
from hocket.runtimes.paramserver.generators import generate
from hocket.runtimes.paramserver.phase_tokens import PhaseTokens

_WEIGHTS = {"training": 5, "sidecar": 3, "agent": 1}
_EVERY_S = 6.0  # on average: a job needs some seconds to begin
_NODES = ("left", "right")
_REST_S = 900.0  # for all jobs to end once the kills have stopped
_TELL_EVERY_S = 10.0
_TOLERANCE = 0.01  # of the objective: on two hosts, updates are added in another order
_FEW = 3  # jobs that are left when new ones are submitted
_BLOCKS = 8
# By application: the scale of its data, its epochs, and its options.
_JOBS: dict[str, tuple[float, int, dict[str, Any]]] = {
    "nmf": (0.005, 120, {"rank": 8}),
    "lda": (0.2, 150, {"topics": 10}),
    "mlr": (0.01, 200, {}),
    "lasso": (0.02, 300, {}),
}


class ParamserverChaos:
    """One run: `torment` for a while, then `check`."""

    def __init__(self, root: Path, seed: int, within: ExitStack) -> None:
        self.root, self.seed, self.wrongs = root, seed, list[str]()
        self._dice = random.Random(seed)
        self.kills = RandomKills(self._dice, _WEIGHTS, 0.0)
        self._told_s = 0.0
        self._applications: dict[str, str] = {}  # by job
        self._undisturbed = {name: self._alone(name) for name in _JOBS}
        options = ("--no-agent", "--policy", "harmony", "--param", "profile_machines=2")
        self.controller = within.enter_context(LiveController(root, *options))
        self.controller.begin()
        given = ("--gpus", "0", "--mem-mib", "8000", "--checkpoints", str(root / "checkpoints"))
        self.agents = {node: within.enter_context(LiveAgent(self.controller, node, *given)) for node in _NODES}
        for agent in self.agents.values():
            agent.begin()

    def _alone(self, application: str) -> float:
        """Generate the data; the objective that the job reaches in this process."""
        scale, epochs, options = _JOBS[application]
        data = self.root / f"{application}.txt"
        generate(application, data, scale=scale)
        loader = import_module(f"hocket.runtimes.paramserver.applications.{application}")
        algorithm, blocks = loader.load(data, _BLOCKS, _BLOCKS, seed=0, **options)
        found = train(
            algorithm, blocks, workers=1, epochs=epochs, batch=_BLOCKS, objective_every=epochs,
            checkpoint=self.root / f"{application}-alone",
        ).objective  # fmt: skip
        assert found is not None
        print(f"{application}: undisturbed objective {found:.6g}", flush=True)
        return found

    def torment(self, seconds: float) -> None:
        """Submit jobs and kill; for longer if something of every kind has yet to be killed."""
        until, next_kill = time.monotonic() + seconds, time.monotonic() + 10.0
        while time.monotonic() < until or (self.kills.spared() and time.monotonic() < until + _REST_S):
            if time.monotonic() >= next_kill:
                self.kills.kill_some(found for found in below(self.root) if not found.command.startswith("/bin/sh"))
                next_kill = time.monotonic() + self._dice.expovariate(1 / _EVERY_S)
            self._have_agents()
            if self._live() < _FEW and until - time.monotonic() > 20:
                self._submit()
            self._tell()
            time.sleep(0.2)

    def _have_agents(self) -> None:
        for agent in self.agents.values():
            if not agent.lives:
                agent.start()

    def _submit(self) -> None:
        """One job of each application."""
        jobs = []
        for application, (_scale, epochs, options) in _JOBS.items():
            name = f"{application}-{len(self._applications)}"
            words = [sys.executable, "-m", "hocket", "paramserver", application, "--workers", "1", "--seed", "0"]
            words += ["--data", str(self.root / f"{application}.txt"), "--epochs", str(epochs)]
            words += ["--blocks", str(_BLOCKS), "--batch", str(_BLOCKS), "--objective-every", str(epochs)]
            words += ["--checkpoint-every", "1s"]
            for option, value in options.items():
                words += [f"--{option}", str(value)]
            jobs.append(
                {
                    "id": name, "kind": "parameter-server", "command": words, "cwd": "/", "sizes": [1, 2], "gpus": 0,
                    "mem_mib": 500.0, "retries": 1000, "backoff_s": 0.1, "grace_s": 20.0,
                }
            )  # fmt: skip
            self._applications[name] = application
        for said in self.controller.call("POST", "/v1/jobs", {"jobs": jobs})["jobs"]:
            assert not said["refused"], said

    def _live(self) -> int:
        return sum(row["ended_s"] is None for row in self.controller.jobs().values())

    def _tell(self) -> None:
        if time.monotonic() - self._told_s > _TELL_EVERY_S:
            self._told_s = time.monotonic()
            over = len(self._applications) - self._live()
            print(f"{over} of {len(self._applications)} jobs over, {self.kills.told()}", flush=True)

    # -- what must have come of it ------------------------------------------------------------------------------

    def check(self) -> None:
        """Let all jobs end, and see what is wrong."""
        awaited(self._all_over, "all jobs over", _REST_S, 0.5)
        for name, row in self.controller.jobs().items():
            wanted, found = self._undisturbed[self._applications[name]], row["metrics"].get("objective")
            if row["state"] != "finished":
                self.wrongs.append(f"job '{name}' is {row['state']}: {row['reason']}")
            elif found is None or abs(found - wanted) > _TOLERANCE * abs(wanted):
                self.wrongs.append(f"job '{name}' ended with objective {found}, undisturbed it is {wanted}")
        for node, agent in self.agents.items():
            agent.await_up()
            self._check_tokens(node, agent)
        self.controller.down()
        awaited(lambda: all(found.kind == "agent" for found in below(self.root)), "every job's processes gone")
        for agent in self.agents.values():
            agent.cut()
        awaited(lambda: not orphans(self.root), "every process gone")

    def _all_over(self) -> bool:
        self._have_agents()
        self._tell()
        try:
            return self._live() == 0
        except NoAnswer:
            return False

    def _check_tokens(self, node: str, agent: LiveAgent) -> None:
        """A job that comes now gets every token at once, and none was ever held for too long."""
        path = agent.state / "phase_tokens"
        if path.exists():  # Else no job has asked for one since the agent was started.
            got: list[str] = []
            for job in ("first", "second"):
                asking = Thread(target=_take_all, args=(str(path), job, got), daemon=True)
                asking.start()
                asking.join(5.0)
            if got != ["first", "second"]:
                self.wrongs.append(f"node '{node}': tokens are lost; only {got} had them")
        for line in agent.log.read_text(errors="replace").splitlines():
            if "held a phase token for too long" in line or "Traceback" in line:
                self.wrongs.append(f"node '{node}': {line}")

    def summary(self) -> str:
        """The run in a line or two."""
        said = f"{len(self._applications)} jobs, {self.kills.told()} survived"
        return f"{said}; wrong: {len(self.wrongs)}" if self.wrongs else f"{said}; every objective as undisturbed"

    def explained(self) -> str:
        """What is needed to understand what went wrong."""
        said = [f"{at_s:.3f} {found}" for at_s, found in self.kills.killed[-20:]]
        for agent in self.agents.values():
            said += agent.log.read_text(errors="replace").splitlines()[-20:]
        return "\n".join([*said, f"seed {self.seed}", *self.wrongs])


def _take_all(path: str, job: str, got: list[str]) -> None:
    """Take the CPU token and a network token from the agent's socket."""
    with PhaseTokens(path, job, 1) as tokens, tokens.comp(), tokens.comm():
        if tokens.is_connected:
            got.append(job)


def run(root: Path, seconds: float, seed: int) -> ParamserverChaos:
    """The whole run; AssertionError with what is needed to understand it if anything is wrong."""
    with ExitStack() as within:
        chaos = ParamserverChaos(root, seed, within)
        try:
            chaos.torment(seconds)
            chaos.check()
        except AssertionError as error:
            chaos.wrongs.append(str(error))
        print(chaos.summary(), flush=True)
        if chaos.wrongs:
            raise AssertionError(chaos.explained())
    return chaos


if __name__ == "__main__":
    chaos_command("paramserver_chaos", __doc__ or "", run)
