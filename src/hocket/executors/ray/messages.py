"""What the controller says to the process that watches Ray, and what that says to agents on Ray's nodes.

This module imports nothing of Ray, for the controller imports it.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import msgspec
from msgspec import Struct

KEEP_S = 600.0
IDLE_S = 300.0
LEAVE = b"leave\n"  # after it, nothing of ours is left on Ray, and the process ends


class AgentSettings(Struct, frozen=True):
    """The same for the agents of all nodes."""

    url: str  # of the controller, as other machines call it
    ca: str = ""  # the text of the certificates to trust; empty: those of the system
    namespace: str = ""  # in Ray; made of the controller's home, so that two controllers do not meet
    state: str = "~/.hocket/ray"  # folder for the agents' own folders, on each node
    checkpoints: str = ""  # folder that all nodes share; empty: each agent has its own
    options: tuple[str, ...] = ()  # of the agent: containment, how it logs
    keep_s: float = KEEP_S  # without an answer from a controller for so long, the agent gives its node back to Ray

    @property
    def digest(self) -> str:
        """Tells agents that were started with other settings."""
        return sha256(msgspec.json.encode(self)).hexdigest()[:12]


class WatchSpec(Struct, frozen=True):
    """What the process that watches Ray does once it is connected."""

    settings: AgentSettings
    token_file: str  # of an admin, to make tokens for agents
    ca_file: str = ""
    is_local: bool = True  # The controller can be called from its own machine only.
    gpus: int | None = None  # of each node at most; None: all that are free
    cores: float | None = None
    idle_s: float = 0.0  # A node that no job needs for so long is given back to Ray; 0: none is.
    drained_file: str = ""  # where it is kept which nodes are drained to be given back


class NodeNeeds(Struct, frozen=True):
    """What jobs need of a cluster that grows and shrinks."""

    wanted: list[dict[str, float]]  # what jobs wait for: sets of resources, each to be on one node
    up: list[str] = []  # the nodes that jobs can have; others that are reserved are still to come for them
    idle: dict[str, bool] = {}  # the nodes that no job needs, and whether they are drained


class Reserved(Struct, frozen=True):
    """What is reserved of a node."""

    cpus: float
    gpus: int = 0
    mem_bytes: float = 0.0
    gpu_kind: str = ""

    def as_resources(self) -> dict[str, float]:
        """The resources by Ray's names, without those of which it has none."""
        wanted = {"CPU": self.cpus, "GPU": float(self.gpus), "memory": self.mem_bytes}
        return {resource: amount for resource, amount in wanted.items() if amount}


class AgentSpec(Struct, frozen=True):
    """The agent of one node."""

    name: str  # of the node
    actor: str  # the name of its actor in Ray
    token: str
    settings: AgentSettings
    reserved: Reserved
    # These are known on the node only:
    ray_address: str = ""
    ray_environment: dict[str, str] = {}  # what is needed to call Ray
    raylet_pid: int = 0
    visible: str | None = None  # CUDA_VISIBLE_DEVICES: the GPUs that Ray has reserved

    def agent_options(self, folder: str, url: str = "") -> list[str]:
        """The options of `hocket agent`; `folder` has its token and its state."""
        options = ["--url", url or self.settings.url, "--token-file", f"{folder}/token", "--state", f"{folder}/state"]
        options += ["--ca", f"{folder}/ca.pem"] if self.settings.ca else []
        options += ["--name", self.name, "--gpus", str(self.reserved.gpus), "--cores", f"{self.reserved.cpus:g}"]
        options += ["--gpu-kind", self.reserved.gpu_kind] if self.reserved.gpu_kind else []
        mem_mib = int(self.reserved.mem_bytes / (1 << 20))
        options += ["--mem-mib", str(mem_mib)] if mem_mib else []
        return [*options, "--log-file", f"{folder}/log", *self.settings.options]


def encoded(message: Struct | dict[str, Any]) -> bytes:
    """A message as a line."""
    return msgspec.json.encode(message) + b"\n"
