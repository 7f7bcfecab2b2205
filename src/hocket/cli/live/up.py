"""`hocket up`: a controller, with an agent on this machine."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from hocket.cli.live.ray_options import (
    Ray,
    RayAutoscale,
    RayCheckpoints,
    RayIdle,
    RayKeep,
    RayNodeCount,
    RayState,
    check_ray_settings,
    nodes_from_ray,
    ray_readers,
)
from hocket.cli.live.switch_options import JudgeEvery, JudgeOver, SwitchTo, switch_options, switch_setting
from hocket.cli.options import History, Params, policy_names
from hocket.cli.terminal.errors import InputError, refusing

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hocket.service.home import Home
    from hocket.service.home_settings import Settings
    from hocket.service.listening import Tls

_PATIENCE_S = 120.0  # for a detached one to answer; a few seconds, unless the machine does much else

_STANDS_BY = "hocket: stands by"

# Options that a home remembers (`service/home_settings.py`).
Gpus = Annotated[
    str | None,
    typer.Option(
        metavar="N|auto", help="Declare so many devices instead of those found; they may be virtual. Remembered."
    ),
]
Cores = Annotated[str | None, typer.Option(metavar="N|auto", help="Lend so many cores instead of all. Remembered.")]
NodeName = Annotated[
    str | None, typer.Option(help="Of this machine among the nodes; its host name by default. Remembered.")
]
Containment = Annotated[
    Literal["auto", "cgroup", "none"] | None,
    typer.Option(
        help="What contains jobs on this machine: auto is a cgroup for each, if it can be made; cgroup does not start "
        "without. Remembered.",
        show_default=False,
    ),
]
HardCpus = Annotated[
    bool | None,
    typer.Option(
        help="Give jobs no more CPU time than the cores that they asked for, even if others are idle. Remembered.",
        show_default=False,
    ),
]
Protect = Annotated[
    str | None,
    typer.Option(
        metavar="TIME|none",
        help="How long `--preempt` and `--min-run` protect a run from preemption at most. Remembered.",
    ),
]

Notify = Annotated[
    list[str] | None,
    typer.Option(
        metavar="URL|CMD|none",
        help="Tell of all jobs there when they end, fail or are paused, as `submit --notify` does for one. "
        "Repeatable. Remembered.",
    ),
]
NotifyCommands = Annotated[
    bool | None,
    typer.Option(
        help="Let jobs that come from other machines name commands as --notify: they run here, as you. Remembered.",
        show_default=False,
    ),
]
KeepHistory = Annotated[
    str | None,
    typer.Option(
        metavar="TIME|all",
        help="Remove older cycles from the journal, into the archive; 90d at first. Ended jobs stay listed. "
        "Remembered.",
    ),
]
KeepSize = Annotated[
    str | None,
    typer.Option(metavar="SIZE|any", help="Remove the oldest cycles when the journal is larger: 2G. Remembered."),
]
Archive = Annotated[
    str | None,
    typer.Option(
        metavar="DIR|auto|none",
        help="Folder for removed cycles, compressed; auto: journal-archive beside the journal; none: delete them. "
        "Remembered.",
    ),
]


def up(
    policy: Annotated[
        str | None,
        typer.Option(
            help="Policy from now on (see `hocket policies`); by default the last one of this home, las in a new one.",
            autocompletion=policy_names,
        ),
    ] = None,
    param: Params = None,
    switch_to: SwitchTo = None,
    judge_every: JudgeEvery = None,
    judge_over: JudgeOver = None,
    history: History = None,
    gpus: Gpus = None,
    cores: Cores = None,
    name: NodeName = None,
    ray: Ray = None,
    ray_nodes: RayNodeCount = None,
    ray_state: RayState = None,
    ray_checkpoints: RayCheckpoints = None,
    ray_keep: RayKeep = None,
    ray_autoscale: RayAutoscale = None,
    ray_idle: RayIdle = None,
    containment: Containment = None,
    hard_cpus: HardCpus = None,
    protect: Protect = None,
    notify: Notify = None,
    notify_commands: NotifyCommands = None,
    keep_history: KeepHistory = None,
    keep_size: KeepSize = None,
    archive: Archive = None,
    home: Annotated[Path, typer.Option(envvar="HOCKET_HOME", help="Where the controller keeps everything.")] = Path(
        "~/.hocket"
    ),
    store: Annotated[
        str, typer.Option(metavar="FILE|URL", help="Its journal: a file, or postgresql://…; in its home by default.")
    ] = "",
    new_journal: Annotated[
        bool, typer.Option("--new-journal", help="Begin anew where the journal of this home is missing or empty.")
    ] = False,
    listen: Annotated[
        str,
        typer.Option(
            metavar="ADDRESS|unix:PATH",
            help="An address for agents on other machines, or a socket that only you may use.",
        ),
    ] = "127.0.0.1",
    port: Annotated[int | None, typer.Option(min=1, max=65535, help="Listen there; any free one by default.")] = None,
    tls_cert: Annotated[
        Path | None, typer.Option(metavar="PEM", help="Its certificate: HTTPS, so that the token stays secret.")
    ] = None,
    tls_key: Annotated[Path | None, typer.Option(metavar="PEM", help="The key of it.")] = None,
    tls_ca: Annotated[
        Path | None, typer.Option(metavar="PEM", help="What clients trust; the certificate itself by default.")
    ] = None,
    insecure_listen: Annotated[
        bool,
        typer.Option(
            "--insecure-listen",
            help="Listen to other machines without a certificate: tokens and jobs cross the network in plain text.",
        ),
    ] = False,
    host_name: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="A name by which it is called, beside its host name and those in the certificate. Repeatable.",
        ),
    ] = None,
    metrics_listen: Annotated[
        str,
        typer.Option(
            metavar="[ADDRESS:]PORT",
            help="Serve metrics there too, without a token; on loopback if no address is named.",
        ),
    ] = "",
    standby: Annotated[
        bool,
        typer.Option(
            "--standby",
            help="If another controller has the journal (in PostgreSQL), wait, and take over when that ends or hangs.",
        ),
    ] = False,
    takeover: Annotated[
        float | None,
        typer.Option(
            min=1, metavar="SECONDS", help="With --standby: take over from one that hangs for so long; lease / 3."
        ),
    ] = None,
    advertise: Annotated[
        str, typer.Option(metavar="URL", help="Where agents call this controller, if not where it listens.")
    ] = "",
    agent: Annotated[
        bool | None,
        typer.Option(help="Lend this machine's devices too, as it does unless --ray is given.", show_default=False),
    ] = None,
    lease: Annotated[
        float,
        typer.Option(
            min=1, help="Seconds of silence after which a node counts as lost; its jobs are frozen before that."
        ),
    ] = 15.0,
    resize: Annotated[
        Literal["early", "terminate"],
        typer.Option(help="How jobs change size: prepared while they still train, or stopped and started cold."),
    ] = "early",
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        typer.Option(envvar="HOCKET_LOG_LEVEL", case_sensitive=False, help="Log from this level on, to stderr."),
    ] = "info",
    log_json: Annotated[bool, typer.Option("--log-json", help="Log one JSON object a line.")] = False,
    detach: Annotated[bool, typer.Option("--detach", help="Go on in the background; `hocket down` ends it.")] = False,
) -> None:
    """Start a controller and share this machine's devices among the jobs you submit."""
    from hocket.service.home import Home
    from hocket.service.home_settings import write_settings

    place = Home(home)
    given: dict[str, object] = {"containment": containment, "hard_cpus": hard_cpus, "notify_commands": notify_commands}
    given |= {"ray_autoscale": ray_autoscale, "ray_nodes": ray_nodes}
    judging = {"switch_to": switch_to, "judge_every_s": judge_every, "judge_over_s": judge_over}
    of_ray = {"ray": ray, "ray_state": ray_state, "ray_checkpoints": ray_checkpoints, "ray_keep_s": ray_keep}
    of_ray["ray_idle_s"] = ray_idle
    settings, remembered = _settings(
        place, gpus, cores, name, protect, notify, given, keep_history, keep_size, archive, of_ray | judging
    )
    check_ray_settings(settings, agent, ray_nodes)
    if takeover is not None and not standby:
        raise InputError("--takeover is for a controller that stands by: add --standby")
    if detach:
        _detached(place, standby)
        return
    from hocket.agent.log_setup import set_up_logging
    from hocket.cli.policy_text import bound_policy

    with refusing():
        if param and policy is None:
            raise InputError("--param is of a policy: name it with --policy")
        bound = bound_policy(policy, param or ()) if policy is not None else None
        switches = switch_options(settings, bound)
        if history is not None:
            from hocket.workloads.past_jobs_file import read_past_jobs

            past = read_past_jobs(history)
        else:
            past = ()
    log_options = ["--log-level", log_level, *(["--log-json"] if log_json else [])]
    options = [*settings.agent_options, *log_options]
    set_up_logging(log_level, log_json, place.log)
    from hocket.control.journal.archive import archive_folder
    from hocket.executors.agents.executor import agents
    from hocket.executors.agents.standby_runs import ResizeBy
    from hocket.service.standby import StandbyOptions
    from hocket.service.steady_clock import SteadyClock
    from hocket.service.up import Up

    os.umask(0o077)  # What jobs have in their environment is in the journal.
    with refusing(), ExitStack() as undo:
        place.make()
        nodes_of_ray = nodes_from_ray(place, settings, log_options)
        if nodes_of_ray is not None:
            undo.callback(nodes_of_ray.close)
            nodes_of_ray.connect()  # Before the journal is taken: nothing is half-started if Ray is not there.
        executor = agents(lease, ResizeBy(resize), SteadyClock(place.clock_file, place.write))
        stands_by = StandbyOptions(takeover or lease / 3, _say_standby) if standby else None
        controller = Up(
            place, bound, store or str(place.journal), executor,
            listen=listen, port=port, tls=_tls(tls_cert, tls_key, tls_ca),
            insecure=insecure_listen, host_names=host_name or (), advertise=advertise,
            standby=stands_by, when_lost=_start_again if standby else lambda: None,
            agent_options=options if agent or (agent is None and not settings.ray) else None, ray=nodes_of_ray,
            protect_s=settings.protect_s,
            notify=settings.notify, notify_commands=settings.notify_commands, new_journal=new_journal,
            metrics_listen=_metrics_listen(metrics_listen),
            keep=settings.keep(archive_folder(store) if store and "://" not in store else place.archive),
            history=past, switch_to=switches,
        )  # fmt: skip
        write_settings(place, settings)
        undo.pop_all()
    if not log_json:  # Where stdout and stderr are one file, as with --detach, a program reads it.
        message = f"'{controller.engine.policy.policy.name}' decides at {controller.url}"
        print(f"hocket: {message}; `hocket submit -- COMMAND` submits, Ctrl-C ends", flush=True)
        if controller.url.startswith("http"):
            print(f"hocket: the page is at {controller.url}/; `hocket open` opens it, signed in", flush=True)
        if remembered:
            print(f"hocket: as at the last start: {remembered}", flush=True)
    raise typer.Exit(controller.run())


def _settings(
    home: Home,
    gpus: str | None,
    cores: str | None,
    name: str | None,
    protect: str | None,
    notify: list[str] | None,
    as_they_are: dict[str, object],
    keep_history: str | None = None,
    keep_size: str | None = None,
    archive: str | None = None,
    others: Mapping[str, str | None] | None = None,
) -> tuple[Settings, str]:
    """The settings from now on; and as options, those that the home remembers and that were not given anew."""
    from msgspec.structs import replace

    from hocket.job_input.units import BadValue, mebibytes, number, seconds, whole
    from hocket.model.resources import MAX_GPUS
    from hocket.service.home_settings import Settings, as_options, read_settings

    readers: dict[str, tuple[str | None, Callable[[str], object]]] = {
        "gpus": (gpus, lambda text: None if text == "auto" else whole(text, f"auto or a number from 0 to {MAX_GPUS}")),
        "cores": (cores, lambda text: None if text == "auto" else number(text, "auto or a number of cores")),
        "name": (name, str),
        "protect_s": (protect, lambda text: 0.0 if text == "none" else seconds(text)),
        "keep_history_s": (keep_history, lambda text: 0.0 if text == "all" else seconds(text)),
        "keep_size_mib": (keep_size, lambda text: 0.0 if text == "any" else mebibytes(text)),
        "archive": (archive, archive_setting),
    }
    others = others or {}
    readers |= {
        **ray_readers(others),
        "switch_to": (others.get("switch_to"), switch_setting),
        "judge_every_s": (others.get("judge_every_s"), seconds),
        "judge_over_s": (others.get("judge_over_s"), seconds),
    }
    given = {field: value for field, value in as_they_are.items() if value is not None}
    for field, (text, read) in readers.items():
        if text is None:
            continue
        try:
            given[field] = read(text)
        except BadValue as error:
            option = field.removesuffix("_s").removesuffix("_mib").replace("_", "-")
            raise InputError(f"--{option} {error}") from error
    if notify:
        given["notify"] = _targets(notify)
    settings = replace(Settings(), **given)
    if not 0 <= (settings.gpus or 0) <= MAX_GPUS:
        raise InputError(f"--gpus must be from 0 to {MAX_GPUS}, not {settings.gpus}")
    if (settings.cores or 0) < 0:
        raise InputError(f"--cores must be from 0 up, not {settings.cores:g}")
    with refusing():
        before = read_settings(home)
    unchanged = replace(before, **{field: getattr(Settings(), field) for field in given})
    return replace(before, **given), as_options(unchanged)


def archive_setting(text: str) -> str:
    """The folder as it is kept, whatever the next start's working directory is."""
    return {"auto": "", "none": "none"}.get(text, os.path.abspath(os.path.expanduser(text)))


def _targets(notify: list[str]) -> tuple[str, ...]:
    """Where to tell of all jobs."""
    from hocket.model.notify_target import target_problem

    targets = tuple(dict.fromkeys(target for target in notify if target != "none"))
    for target in targets:
        if problem := target_problem(target):
            raise InputError(f"--notify {problem}")
    return targets


def _tls(cert: Path | None, key: Path | None, ca: Path | None) -> Tls | None:
    from hocket.service.listening import Tls

    if cert is None and key is None and ca is None:
        return None
    if cert is None or key is None:
        raise InputError("--tls-cert and --tls-key go together")
    for path in (cert, key, ca):
        if path is not None and not path.is_file():
            raise InputError(f"{path}: there is no such file")
    return Tls(str(cert), str(key), "" if ca is None else str(ca))


def _metrics_listen(text: str) -> tuple[str, int] | None:
    """The address and port of `9100`, `0.0.0.0:9100`."""
    from hocket.service.listening import LOOPBACK

    if not text:
        return None
    address, _, port = text.rpartition(":")
    if not (port.isascii() and port.isdecimal() and len(port) <= 5 and 1 <= int(port) <= 65535):
        raise InputError(f"--metrics-listen must be [ADDRESS:]PORT, with a port from 1 to 65535, not '{text}'")
    return address or LOOPBACK, int(port)


def _say_standby(holder: str) -> None:
    print(f"{_STANDS_BY}: the journal is held by {holder}", flush=True)


def _start_again() -> None:
    """The same command in this process, from its beginning: to stand by for the controller that has taken over."""
    os.execv(sys.executable, [sys.executable, "-P", "-m", "hocket", *sys.argv[1:]])


def _detached(home: Home, standby: bool) -> None:
    """The same command without --detach, in a session of its own; returns when it answers, or stands by."""
    with refusing():
        home.make()
        log = open(home.log, "ab")  # noqa: SIM115 - handed to the child
    # -P: no module is imported from the working directory.
    command = [sys.executable, "-P", "-m", "hocket", *(word for word in sys.argv[1:] if word != "--detach")]
    began = home.log.stat().st_size
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    log.close()
    until = monotonic() + _PATIENCE_S
    while monotonic() < until:
        if _answers(home, child.pid):
            url = home.url_file.read_text().strip()
            print(f"hocket: a controller answers at {url} (process {child.pid})")
            if url.startswith("http"):
                print("hocket: `hocket open` opens its page, signed in")
            return
        log_now = home.log.read_bytes() if standby or child.poll() is not None else b""
        output = log_now[began if began <= len(log_now) else 0 :].decode(errors="replace").strip().splitlines()
        if stands_by := [line for line in output if line.startswith(_STANDS_BY)]:
            print(f"{stands_by[-1]} (process {child.pid})")
            return
        if child.poll() is not None:
            raise InputError(output[-1].removeprefix("hocket: ") if output else f"it ended with {child.returncode}")
        sleep(0.02)
    raise InputError(f"the controller does not answer within {_PATIENCE_S:g} s; see {home.log}")


def _answers(home: Home, pid: int) -> bool:
    from contextlib import closing
    from http.client import HTTPException
    from json import loads

    from hocket.agent.address import connection as connection_to

    try:
        ca = str(home.ca_file) if home.ca_file.exists() else ""
        with closing(connection_to(home.url_file.read_text().strip(), 2.0, ca)) as connection:
            connection.request("GET", "/v1/health")
            health = loads(connection.getresponse().read())
    except (OSError, HTTPException, ValueError):
        return False
    return bool(health.get("ok")) and (health.get("pid") == pid or os.getpid() == pid)
