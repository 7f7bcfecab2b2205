"""What a controller was last started with: its home remembers that, so that the next start needs no options."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from hocket.model.notify_target import shown_target
from hocket.service.home import Home

if TYPE_CHECKING:
    from hocket.service.compaction import Keep

KEEP_HISTORY_S = 90 * 86400.0
RAY_KEEP_S, RAY_IDLE_S = 600.0, 300.0
JUDGE_EVERY_S, JUDGE_OVER_S = 86400.0, 14 * 86400.0
NO_ARCHIVE = "none"


class Settings(Struct, frozen=True, omit_defaults=True):
    """Options of `hocket up` that hold until they are given anew."""

    gpus: int | None = None  # devices of this machine; None: those that are found
    cores: float | None = None  # cores that it lends; None: all
    name: str = ""  # of this machine among the nodes; empty: its host name
    containment: str = "auto"  # what contains jobs on this machine: auto, cgroup or none
    hard_cpus: bool = False  # they get no more CPU time than the cores that they asked for
    protect_s: float = 0.0  # how long jobs may be protected from preemption, in seconds; 0: without limit
    notify: tuple[str, ...] = ()  # where all jobs are told of
    notify_commands: bool = False  # clients on other machines may name commands to notify them by
    keep_history_s: float = KEEP_HISTORY_S  # cycles that are older are removed from the journal; 0: none are
    keep_size_mib: float = 0.0  # and so are the oldest, when the journal is larger; 0: of any size
    ray: str = ""  # address of a Ray cluster that lends its nodes, auto or start; empty: none does
    ray_nodes: int = 1  # of a Ray that is started on this machine
    ray_state: str = ""  # folder for agents on each of its nodes; empty: `~/.hocket/ray`
    ray_checkpoints: str = ""  # folder for checkpoints that all of them share; empty: each has its own
    ray_keep_s: float = RAY_KEEP_S  # how long they stay without a controller
    ray_autoscale: bool = False  # whether Ray's autoscaler is asked for nodes for waiting jobs
    ray_idle_s: float = RAY_IDLE_S  # A node that no job needs for so long is given back to it; 0: none is.
    switch_to: str = ""  # learned policy that takes over from MLF-H when it is as good, as `compare` names it
    judge_every_s: float = JUDGE_EVERY_S
    judge_over_s: float = JUDGE_OVER_S  # of the past
    archive: str = ""  # folder for what is removed; empty: `journal-archive` beside the journal; none: it is deleted

    @property
    def agent_options(self) -> list[str]:
        """The options of the agent of this machine."""
        options = [] if self.gpus is None else ["--gpus", str(self.gpus)]
        options += [] if self.cores is None else ["--cores", f"{self.cores:g}"]
        options += ["--name", self.name] if self.name else []
        return options + self.containment_options

    @property
    def containment_options(self) -> list[str]:
        """What contains jobs, as any agent takes it."""
        options = ["--containment", self.containment] if self.containment != "auto" else []
        return options + (["--hard-cpus"] if self.hard_cpus else [])

    def keep(self, beside: Path) -> Keep:
        """How much a journal keeps; `beside` is the folder for archives if none is named."""
        from hocket.service.compaction import Keep  # A client that starts a controller does not need the rest of it.

        folder = "" if self.archive == NO_ARCHIVE else self.archive or str(beside)
        return Keep(self.keep_history_s, int(self.keep_size_mib * (1 << 20)), folder)


def read_settings(home: Home) -> Settings:
    """The settings of a home; the defaults of a new one. Raises ValueError if its file cannot be read."""
    path = home.path / "settings.json"
    try:
        return msgspec.json.decode(path.read_bytes(), type=Settings)
    except FileNotFoundError:
        return Settings()
    except (OSError, msgspec.DecodeError) as error:
        raise ValueError(f"settings '{path}' cannot be read: {error}; remove the file to start without them") from error


def write_settings(home: Home, settings: Settings) -> None:
    """Keep them for the next start."""
    if settings != read_settings(home):
        home.write(home.path / "settings.json", msgspec.json.encode(settings).decode())


def as_options(settings: Settings) -> str:
    """The settings that are not the defaults, as options: `--gpus 4 --name box`."""
    said = settings.agent_options
    said += ["--protect", f"{settings.protect_s:g}s"] if settings.protect_s else []
    said += [word for target in settings.notify for word in ("--notify", shown_target(target))]
    said += ["--notify-commands"] if settings.notify_commands else []
    if (kept_s := settings.keep_history_s) != KEEP_HISTORY_S:
        said += ["--keep-history", f"{kept_s / 86400:g}d" if kept_s else "all"]
    said += ["--keep-size", f"{settings.keep_size_mib:g}M"] if settings.keep_size_mib else []
    said += ["--ray", settings.ray] if settings.ray else []
    said += ["--ray-nodes", str(settings.ray_nodes)] if settings.ray_nodes != 1 else []
    said += ["--ray-state", settings.ray_state] if settings.ray_state else []
    said += ["--ray-checkpoints", settings.ray_checkpoints] if settings.ray_checkpoints else []
    said += ["--ray-keep", f"{settings.ray_keep_s:g}s"] if settings.ray_keep_s != RAY_KEEP_S else []
    said += ["--ray-autoscale"] if settings.ray_autoscale else []
    if (idle_s := settings.ray_idle_s) != RAY_IDLE_S:
        said += ["--ray-idle", f"{idle_s:g}s" if idle_s else "never"]
    said += ["--switch-to", settings.switch_to] if settings.switch_to else []
    if (every_s := settings.judge_every_s) != JUDGE_EVERY_S:
        said += ["--judge-every", f"{every_s:g}s"]
    said += ["--judge-over", f"{settings.judge_over_s:g}s"] if settings.judge_over_s != JUDGE_OVER_S else []
    said += ["--archive", settings.archive] if settings.archive else []
    return " ".join(said)
