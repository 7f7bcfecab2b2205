"""The options of `hocket up` by which the nodes of a Ray cluster are lent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from hocket.cli.terminal.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hocket.service.home import Home
    from hocket.service.home_settings import Settings
    from hocket.service.ray_nodes import RayNodes

MOST_LOCAL_NODES = 16  # Each takes some 300 MB of memory.

Ray = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT|auto|start|none",
        help="Lend the nodes of a Ray cluster instead of this machine: by its head's address, the one that runs here "
        "(auto), or one of its own (start). --gpus and --cores are for each node then. Remembered.",
    ),
]
RayNodeCount = Annotated[
    int | None,
    typer.Option(
        "--ray-nodes",
        metavar="N",
        help="With --ray start: so many nodes on this machine, to try out what becomes of jobs when one is lost. "
        "Remembered.",
    ),
]
RayState = Annotated[
    str | None,
    typer.Option(
        metavar="DIR|auto", help="With --ray: folder on each node for its agent, on a local disk. Remembered."
    ),
]
RayCheckpoints = Annotated[
    str | None,
    typer.Option(
        metavar="DIR|none",
        help="With --ray: folder that all nodes share, so that jobs resume on another one. Remembered.",
    ),
]
RayKeep = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help="With --ray: without a controller for so long, agents stop their jobs and give their nodes back; 10m at "
        "first. Remembered.",
    ),
]
RayAutoscale = Annotated[
    bool | None,
    typer.Option(
        "--ray-autoscale/--no-ray-autoscale",
        help="With --ray: ask Ray's autoscaler for nodes for jobs that wait. Remembered.",
        show_default=False,
    ),
]
RayIdle = Annotated[
    str | None,
    typer.Option(
        metavar="TIME|never",
        help="With --ray-autoscale: a node that no job needs for so long is given back to Ray; 5m at first. "
        "Remembered.",
    ),
]


def ray_readers(said: Mapping[str, str | None]) -> dict[str, tuple[str | None, Callable[[str], object]]]:
    """What is said of Ray, by the name of its setting, and how it is read."""
    from hocket.job_input.units import seconds

    return {
        "ray": (said.get("ray"), lambda text: "" if text == "none" else text),
        "ray_state": (said.get("ray_state"), lambda text: "" if text == "auto" else text),
        "ray_checkpoints": (said.get("ray_checkpoints"), lambda text: "" if text == "none" else text),
        "ray_keep_s": (said.get("ray_keep_s"), seconds),
        "ray_idle_s": (said.get("ray_idle_s"), lambda text: 0.0 if text == "never" else seconds(text)),
    }


def check_ray_settings(settings: Settings, agent: bool | None, ray_nodes: int | None) -> None:
    """See that they go together with what was said now. Raises InputError."""
    if settings.ray and agent:
        raise InputError(f"--agent would lend this machine twice, for it is a node of Ray (--ray {settings.ray})")
    if ray_nodes is not None and not 1 <= ray_nodes <= MOST_LOCAL_NODES:
        raise InputError(f"--ray-nodes must be from 1 to {MOST_LOCAL_NODES}, not {ray_nodes}")
    if ray_nodes is not None and settings.ray != "start":
        raise InputError(f"--ray-nodes is for a Ray that is started here: it needs --ray start, not '{settings.ray}'")


def nodes_from_ray(home: Home, settings: Settings, log_options: list[str]) -> RayNodes | None:
    """The nodes of a Ray cluster, if it lends them."""
    if not settings.ray:
        return None
    from hocket.service.ray_nodes import RayNodes, RayOptions

    options = RayOptions(
        settings.ray, settings.gpus, settings.cores, settings.ray_state, settings.ray_checkpoints, settings.ray_keep_s,
        settings.ray_autoscale, settings.ray_idle_s, settings.ray_nodes, tuple(settings.containment_options),
        tuple(log_options),
    )  # fmt: skip
    return RayNodes(home, options)
