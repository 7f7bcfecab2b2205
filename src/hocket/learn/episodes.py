"""What one process of a training does: run a window under MLF-H with a record, or under a network."""

from __future__ import annotations

import os
import signal
import threading
from functools import partial
from multiprocessing import parent_process
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from hocket.learn.reward import Goals, run_window
from hocket.learn.windows import Window, workload_of
from hocket.model.plan import Plan
from hocket.model.snapshot import Snapshot
from hocket.policies.mlfs import mlf_rl, rl
from hocket.policies.mlfs.network import PolicyNetwork
from hocket.policies.registry import BoundPolicy, find


class Episode(Struct, frozen=True):
    """A window under a policy with these parameters, or under this network. Plain data for another process."""

    window: Window
    policy: str = "mlf_rl"
    params: dict[str, Any] = {}
    network: PolicyNetwork | None = None
    whole: bool = False
    eta: float = 0.95


def run_episode(episode: Episode) -> Goals:
    """Run the window, and measure how far its goals were reached."""
    policy = find(episode.policy).bound(episode.params)
    if episode.network is not None:
        policy = with_network(policy, episode.network)
    return run_window(episode.window, policy, episode.whole, episode.eta)


def with_network(policy: BoundPolicy, network: PolicyNetwork) -> BoundPolicy:
    """mlf_rl or rl with this network instead of a file."""
    decide: Any = rl.decide_with if isinstance(policy.params, rl.Rl) else mlf_rl.decide_with
    return replace(policy, decide=partial(decide, params=policy.params, network=network))


class RecordedWindow(Struct, frozen=True):
    """A window under MLF-H, with its decisions written to a folder."""

    window: Window
    folder: str


def record(recording: RecordedWindow) -> str:
    """Run it; returns the folder."""
    from hocket.control.journal import MemoryJournal
    from hocket.control.ports import Header
    from hocket.executors.simulated import simulate
    from hocket.executors.simulated.beliefs import parse_beliefs
    from hocket.reports.decision_record import DecisionRecord

    window, policy = recording.window, find("mlf_h").bound({})
    header = Header("mlf_h", policy.settings, window.nodes, window.seed, window.name)
    kept, journal = DecisionRecord(header), MemoryJournal(header)
    simulate(
        workload_of(window), window.nodes, replace(policy, decide=kept.watching(policy.decide)), seed=window.seed,
        beliefs=parse_beliefs(window.beliefs), journal=journal,
    )  # fmt: skip
    kept.write(Path(recording.folder), journal)
    return recording.folder


class SameDecisions(Struct, frozen=True):
    """How many decisions of MLF-H place something, and how many of these a network makes in the same way."""

    decisions: int
    same_jobs: int  # the same jobs start
    same_plan: int  # on the same GPUs


def compare_decisions(episode: Episode) -> SameDecisions:
    """Run a window under MLF-H, and ask the network at every decision what it would have done."""
    assert episode.network is not None
    asked = with_network(find("mlf_rl").bound({}), episode.network)
    found = [0, 0, 0]

    def around(policy: BoundPolicy) -> BoundPolicy:
        def decide(snapshot: Snapshot) -> Plan:
            plan = policy.decide(snapshot)
            if plan.put:
                other = asked.decide(snapshot)
                found[0] += 1
                found[1] += _tenants(plan) == _tenants(other)
                found[2] += plan.put == other.put
            return plan

        return replace(policy, decide=decide)

    run_window(episode.window, find("mlf_h").bound({}), around=around)
    return SameDecisions(*found)


def _tenants(plan: Plan) -> set[str]:
    return {t.job for p in plan.put for t in p.tenants}


def seen_columns(episode: Episode) -> Any:
    """[row, feature]: the features of all jobs that a network scored in a window."""
    import numpy as np

    assert episode.network is not None
    seen: list[Any] = []

    class RecordingNetwork(PolicyNetwork, frozen=True):
        """The network, which also keeps what it is given, and takes no input to be unlike its training."""

        def is_far(self, columns: Any) -> bool:
            seen.append(columns)
            return False

    recording = RecordingNetwork(**{name: getattr(episode.network, name) for name in episode.network.__struct_fields__})
    run_window(episode.window, with_network(find(episode.policy).bound(episode.params), recording))
    return np.concatenate(seen) if seen else np.empty((0, len(episode.network.mean)))


def begin_worker() -> None:
    """In a process of a training: Ctrl-C is for the parent, which ends it; if the parent is gone, it ends itself."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
