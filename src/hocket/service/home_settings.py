"""What a controller was last started with: its home remembers that, so that the next start needs no options."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from hocket.model.notify_target import shown_target
from hocket.service.home import Home


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

    @property
    def agent_options(self) -> list[str]:
        """As the agent of this machine takes them."""
        options = [] if self.gpus is None else ["--gpus", str(self.gpus)]
        options += [] if self.cores is None else ["--cores", f"{self.cores:g}"]
        options += ["--name", self.name] if self.name else []
        options += ["--containment", self.containment] if self.containment != "auto" else []
        return options + (["--hard-cpus"] if self.hard_cpus else [])


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
    return " ".join(said)
