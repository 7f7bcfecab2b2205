"""A learned policy takes over when it is at least as good as MLF-H on this home's own past, and hands back (MLFS, 3.4).

The judging is done by a process of its own (`hocket.learn.judge_worker`), now and then: the controller's cycle waits
for none of it. Which policy decides then is a pure function of what was found, `switch`.
"""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from threading import Event as Flag
from threading import Thread
from typing import Any

import msgspec
from msgspec import Struct

from hocket.policies.registry import BoundPolicy, PolicyError, UnknownPolicy, find
from hocket.service.engine import Engine, Unavailable
from hocket.service.home_settings import JUDGE_EVERY_S, JUDGE_OVER_S

_log = logging.getLogger("hocket.service")
# By name: what runs the past again is not for the service to import, and runs elsewhere anyway.
_COMMAND = (sys.executable, "-P", "-m", "hocket.learn.judge_worker")
_LIMIT_S = 3600.0  # that a judgement may take
_LIMIT_MIB = 4096  # and its memory
_FIRST_S = 60.0  # after the start
_LEAVE_S = 5.0  # for the process to end when the controller does
_WRITE_S = 60.0  # for a switch to be in the journal
USUAL = "mlf_h"
LEAST_JOBS = 20  # that ended: with fewer nothing is judged
MARGIN = 0.01  # of the reward: by so much the learned policy must fall behind, or each judgement might switch


class SwitchOptions(Struct, frozen=True):
    """Which policy may take over, how often it is judged, and by how much of the past."""

    learned: str
    params: dict[str, Any] = {}  # those of it that were given; of others, MLF-H's are carried over
    every_s: float = JUDGE_EVERY_S
    over_s: float = JUDGE_OVER_S
    least_jobs: int = LEAST_JOBS
    first_s: float = _FIRST_S


class Judgement(Struct, frozen=True):
    """What both policies would have made of the same past."""

    jobs: int  # that ended under the usual policy
    undone: int  # of these, not under the learned one
    usual: float  # reward over those that ended under both
    learned: float


class Switch(Struct, frozen=True):
    """Another policy shall decide."""

    to_learned: bool
    reason: str


def switch(
    found: Judgement, learned_decides: bool, least_jobs: int, names: tuple[str, str], days: float
) -> Switch | None:
    """Whether the other policy shall decide from now on; `names` are those of the usual and of the learned one."""
    usual, learned = names
    if found.jobs < least_jobs:
        return None
    over = f"reward {found.learned:.3f} against {found.usual:.3f} over {found.jobs} jobs of the last {days:g} days"
    if not learned_decides and not found.undone and found.learned >= found.usual:
        return Switch(True, f"{learned} is at least as good as {usual}: {over}")
    if learned_decides and found.undone:
        return Switch(False, f"{learned} would not have ended {found.undone} of {found.jobs} jobs that {usual} ends")
    if learned_decides and found.learned < found.usual * (1 - MARGIN):
        return Switch(False, f"{learned} falls behind {usual}: {over}")
    return None


def carried_over(of: BoundPolicy, to: str, given: dict[str, Any]) -> BoundPolicy:
    """Another policy with the knobs given, and else those that both have as they are set."""
    known = find(to).params.__struct_fields__
    return find(to).bound({name: value for name, value in of.settings.items() if name in known} | given)


class PolicySwitch:
    """Has the learned policy judged from time to time, in a thread of its own, and switches."""

    def __init__(
        self, engine: Engine, store: str, archives: str, options: SwitchOptions, command: Sequence[str] = _COMMAND
    ) -> None:
        """`store` is as the journal was opened by, `archives` the folder of what was removed from it, or empty."""
        self._engine, self._store, self._archives, self._options = engine, store, archives, options
        self._command = command
        self._over = Flag()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = Thread(target=self._run, name="policy-switch", daemon=True)
        if engine.policy.policy.name not in (USUAL, options.learned):
            engine.set_policy(find(USUAL).bound(), f"it decides until {options.learned} is at least as good")

    def start(self) -> None:
        """Begin to judge."""
        self._thread.start()

    def close(self) -> None:
        """End it, and a judgement that is under way."""
        self._over.set()
        if (process := self._process) is not None:
            with suppress(ProcessLookupError):
                process.kill()
        if self._thread.is_alive():
            self._thread.join(_LEAVE_S)

    def _run(self) -> None:
        wait_s = min(self._options.first_s, self._options.every_s)
        while not self._over.wait(wait_s):
            wait_s = self._options.every_s
            try:
                self._look()
            except (OSError, PolicyError, UnknownPolicy, Unavailable, TimeoutError, subprocess.TimeoutExpired) as error:
                if not self._over.is_set():
                    _log.warning("policy '%s' was not judged: %s", self._options.learned, error)
            except Exception:
                _log.exception("policy '%s' was not judged", self._options.learned)

    def _look(self) -> None:
        options, now = self._options, self._engine.policy
        learned_decides = now.policy.name == options.learned
        if not learned_decides and now.policy.name != USUAL:
            return  # A user has set another since.
        usual = carried_over(now, USUAL, {}) if learned_decides else now
        learned = now if learned_decides else carried_over(now, options.learned, options.params)
        found = self._judged(usual, learned)
        if found is None:
            return
        days = options.over_s / 86400.0
        if found.jobs < options.least_jobs:
            few = "'%s' was not judged: %d jobs ended in the last %g days, and %d are needed"
            _log.info(few, options.learned, found.jobs, days, options.least_jobs)
            return
        names = (USUAL, options.learned)
        message = "'%s' was judged: reward %.3f, '%s' %.3f, over %d jobs of the last %g days"
        _log.info(message, options.learned, found.learned, USUAL, found.usual, found.jobs, days)
        if (decided := switch(found, learned_decides, options.least_jobs, names, days)) is not None:
            self._engine.set_policy(learned if decided.to_learned else usual, decided.reason).result(_WRITE_S)

    def _judged(self, usual: BoundPolicy, learned: BoundPolicy) -> Judgement | None:
        """What a process finds; None if the controller ends meanwhile. Raises OSError."""
        options = self._options
        asked = {
            "store": self._store, "archives": self._archives, "since_s": self._engine.now_s() - options.over_s,
            "usual": usual.policy.name, "usual_params": usual.settings,
            "learned": learned.policy.name, "learned_params": learned.settings,
            "least_jobs": options.least_jobs, "limit_mib": _LIMIT_MIB,
        }  # fmt: skip
        self._process = process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        if self._over.is_set():
            process.kill()
        try:
            output, _error = process.communicate(msgspec.json.encode(asked) + b"\n", timeout=_LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise
        finally:
            self._process = None
        if self._over.is_set():
            return None
        if not output:
            raise OSError(f"its process ended with code {process.returncode}")
        result = msgspec.json.decode(output, type=dict[str, msgspec.Raw])
        if "error" in result:
            raise OSError(msgspec.json.decode(result["error"], type=str))
        return msgspec.json.decode(result["result"], type=Judgement)
