"""`hocket demo`: real jobs share four virtual devices, one is killed, and nothing is lost; in under a minute.

With `--ray start` they share three nodes of four devices each, and a whole node is killed as well.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from random import Random
from time import monotonic, sleep
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from hocket.cli.terminal.errors import UNFINISHED, InputError
from hocket.executors.ray.connection import START

if TYPE_CHECKING:
    from hocket.cli.live.client import Client
    from hocket.cli.live.job_rows import ListedJob


DEVICES = 4
# Least service first, in levels small enough for jobs of seconds: newcomers make the long ones pause.
POLICY = ("las", "levels_gpu_s=[6, 24]")
# When, name, GPUs, epochs, seconds an epoch, criterion: different sizes and goals, some beyond what is free.
JOBS = (
    (0.0, "large", (4,), 24, 0.5, ""),
    (1.0, "patient", (2,), 24, 0.5, "acc >= 90%"),
    (3.0, "small", (1,), 10, 0.4, ""),
    (5.0, "goal", (2,), 60, 0.3, "acc >= 85% within 2m"),
    (7.0, "unlucky", (1,), 24, 0.4, ""),
    (9.0, "plateau", (1,), 60, 0.3, "acc changes < 0.002 within 30 epochs"),
    (12.0, "timed", (1,), 100, 0.3, "for 6s"),
    (15.0, "late", (2,), 8, 0.4, ""),
)
# A query beside them, where DuckDB is installed: what came in by shop, from as much of the sales as the goal needs.
QUERY_AT_S, QUERY = 4.0, "sales"
SALES = 200_000
SQL = "SELECT shop, count(*) AS sales, avg(price) AS price FROM sales GROUP BY shop ORDER BY shop"
QUERY_GOAL = "acc >= 97% within 5m"
UNLUCKY = "unlucky"  # whose process is killed once it has got somewhere
NODES = 3  # of a Ray of the demo's own, each with as many devices; when one is lost, two are enough for all sizes
_BEGIN_S = 120.0  # for the controller to begin; a few seconds, unless the machine does much else
_LONGEST_S = 600.0  # It takes below a minute, unless the machine does much else.


def demo(
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where the figures and the journal go.")] = Path("demo-out"),
    home: Annotated[
        Path | None,
        typer.Option("--home", metavar="DIR", help="Keep the controller's folder here."),
    ] = None,
    ray: Annotated[
        str,
        typer.Option(
            "--ray", metavar="HOST:PORT|auto|start", help="Run on the nodes of a Ray cluster, or start one for it."
        ),
    ] = "",
    nodes: Annotated[
        int | None,
        typer.Option(
            metavar="N", help=f"With --ray start: so many nodes; of several, one is killed. {NODES} at first."
        ),
    ] = None,
) -> None:
    """Run eight real training jobs on four virtual devices, kill one, and ask what fifo would have done.

    Where DuckDB is installed (`pip install 'hocket[query]'`), a query runs beside them, answered from part of its data.
    """
    from hocket.cli.live.client import Client
    from hocket.cli.terminal.errors import refusing
    from hocket.cli.terminal.output_files import must_be_writable

    with refusing():
        must_be_writable(out, "--out", is_folder=True)
        script = _training_script()
        if nodes is not None and ray != START:
            raise InputError("--nodes is for a Ray of the demo's own: say --ray start")
    count = (nodes or NODES) if ray == START else 1
    with _folder(home) as folder, _controller(folder, _devices(ray, count, folder)), Client(folder) as client:
        data = _sales(folder)
        beside = " and a query" if data is not None else ""
        devices = "a Ray cluster" if ray not in ("", START) else f"{DEVICES} virtual devices"
        devices += f" on each of {count} nodes" if count > 1 else ""
        _await_nodes(client, count)
        typer.echo(f"{len(JOBS)} training jobs{beside} come to {devices}; {POLICY[0]} decides …", err=True)
        faults = _play(client, folder, count > 1, [_spec(job, script) for job in JOBS], data)
        rows = _rows(client)
        answer = _answer(client) if data is not None else ""
        client.post("/v1/down", {"grace_s": 5})
        _kept(folder, out)
    _report(rows, faults, out, answer)
    if any(row.state not in ("finished", "attained") for row in rows):
        raise typer.Exit(UNFINISHED)


def _training_script() -> Path:
    here = Path(__file__).parents[2]
    for folder in (here / "examples", here.parents[1] / "examples"):
        if (folder / "train_numpy.py").exists():
            return folder / "train_numpy.py"
    raise InputError("the demo's training script, examples/train_numpy.py, is not there")


@contextmanager
def _folder(given: Path | None) -> Iterator[Path]:
    if given is not None:
        yield given.expanduser()
        return
    with tempfile.TemporaryDirectory(prefix="hocket-demo-") as folder:
        yield Path(folder)


def _devices(ray: str, nodes: int, folder: Path) -> list[str]:
    """The options of `hocket up` for this machine's virtual devices, or for the nodes of a Ray cluster."""
    virtual = ["--gpus", str(DEVICES)]
    if not ray:
        return [*virtual, "--name", "demo"]
    shared = ["--ray-state", str(folder / "nodes"), "--ray-checkpoints", str(folder / "checkpoints")]
    return ["--ray", ray, *shared, *([*virtual, "--ray-nodes", str(nodes)] if ray == START else ())]


@contextmanager
def _controller(folder: Path, devices: list[str]) -> Iterator[None]:
    """A controller of its own, that is gone afterwards, whatever happens."""
    command = [sys.executable, "-P", "-m", "hocket", "up", "--home", str(folder), *devices]
    command += ["--policy", POLICY[0], "--param", POLICY[1]]
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with open(folder / "up.log", "wb") as log:
        # A session of its own: Ctrl-C is for the demo, which then takes everything down in order.
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    try:
        until = monotonic() + _BEGIN_S
        while not (folder / "url").exists():
            if child.poll() is not None or monotonic() > until:
                output = (folder / "up.log").read_text(errors="replace").strip().splitlines()
                raise InputError(f"the controller does not start: {output[-1] if output else child.returncode}")
            sleep(0.02)
        yield
    finally:
        if child.poll() is None:
            child.send_signal(signal.SIGTERM)
        try:
            child.wait(45)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def _await_nodes(client: Client, count: int) -> None:
    """Wait for so many nodes that the largest job fits: those of a Ray cluster join one after the other."""
    until = monotonic() + _BEGIN_S
    while True:
        gpus = [len(row["gpus"]) for row in client.get("/v1/nodes").json()["nodes"] if row["up"]]
        if sum(number >= DEVICES for number in gpus) >= count:
            return
        if monotonic() > until:
            needs = f"{count} nodes" if count > 1 else "a node"
            raise InputError(
                f"the demo needs {needs} with {DEVICES} GPUs; the nodes that are there have {sorted(gpus)}"
            )
        sleep(0.1)


def _sales(folder: Path) -> Path | None:
    """A folder with the table that the query reads; None without what `hocket query` needs."""
    if find_spec("duckdb") is None or find_spec("sqlglot") is None:
        return None
    dice = Random(0)
    data = folder / "data"
    data.mkdir(exist_ok=True)
    lines = (f"{n},{n % 4},{dice.lognormvariate(3.0, 0.5):.2f}" for n in range(SALES))
    (data / "sales.csv").write_text("\n".join(["sale,shop,price", *lines]))
    return data


def _query(data: Path) -> dict[str, Any]:
    """The spec of the query, as `hocket submit --query` makes it."""
    from hocket.job_input.read_job import read_job

    options = {"name": QUERY, "query": SQL, "data": str(data), "until": QUERY_GOAL, "owner": "demo"}
    return read_job(options, str(data), {}).spec


class _Faults(NamedTuple):
    """What was killed on the way."""

    process: bool = False  # that of the unlucky job
    node: str = ""


def _play(client: Client, folder: Path, loses_node: bool, specs: list[dict[str, Any]], data: Path | None) -> _Faults:
    """Submit each job in its time, watch, and kill one process and perhaps one node on the way."""
    from rich.live import Live

    from hocket.cli.live.cluster_view import pictured
    from hocket.cli.live.top import look
    from hocket.cli.terminal.console import console

    left = [(job[0], spec) for job, spec in zip(JOBS, specs, strict=True)]
    if data is not None:
        left = sorted([*left, (QUERY_AT_S, _query(data))], key=lambda each: each[0])
    page, began_s, faults = console(), monotonic(), _Faults()
    with Live(console=page, auto_refresh=False, transient=True) as live:
        while True:
            elapsed_s = monotonic() - began_s
            while left and left[0][0] <= elapsed_s:
                client.post("/v1/jobs", {"jobs": [left.pop(0)[1]]})
            now = look(client)
            if page.is_terminal:
                live.update(pictured(now, page.width, page.height - 1), refresh=True)
            # Only while they run: what saves its state to pause, or stands prepared, would die unnoticed.
            running = [row for row in now.jobs if row.state == "running" and row.epoch >= 3]
            if not faults.process and any(row.id == UNLUCKY for row in running):
                faults = faults._replace(process=_kill(UNLUCKY, folder))
            if loses_node and not faults.node:
                faults = faults._replace(node=_lose_node(running, folder))
            if not left and not now.jobs:
                return faults
            if elapsed_s > _LONGEST_S:
                raise InputError(f"the demo is not over after {_LONGEST_S:g} s: {[row.id for row in now.jobs]}")
            sleep(0.15)


def _spec(job: tuple[float, str, tuple[int, ...], int, float, str], script: Path) -> dict[str, Any]:
    _at_s, name, sizes, epochs, pace_s, until = job
    command = [sys.executable, str(script), "--epochs", str(epochs), "--pace", str(pace_s)]
    env = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PATH": os.environ.get("PATH", os.defpath)}
    spec = {"id": name, "command": command, "sizes": sizes, "until": until, "env": env, "backoff_s": 0.2, "grace_s": 10}
    return {**spec, "owner": "demo", "warm": True}


def _kill(job: str, folder: Path) -> bool:
    """Kill the training process of a job, as a fault would."""
    mark = f"HOCKET_JOB={job}".encode()
    where = str(folder).encode()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            variables = (entry / "environ").read_bytes().split(b"\0")
            if mark in variables and any(where in v for v in variables):
                os.kill(int(entry.name), signal.SIGKILL)
                return True
        except OSError:
            continue
    return False


def _lose_node(running: list[ListedJob], folder: Path) -> str:
    """End Ray on a node that one of these jobs has, as when its machine is lost; its name, empty if there is none."""
    from hocket.executors.ray.local_head import lose_node, read_local_head

    head = read_local_head(str(folder / "ray_head.json"))
    used = {gpu.rpartition(":")[0] for row in running for gpu in row.gpus}
    name = min(used & head.others.keys(), default="") if head is not None else ""
    if head is not None and name:
        lose_node(head, name)
    return name


def _rows(client: Client) -> list[ListedJob]:
    from hocket.cli.live.job_rows import rows

    return rows(client, everything=True)


def _answer(client: Client) -> str:
    """How much of its data the query has read, and how sure it is."""
    import msgspec

    from hocket.cli.answer_table import ShownAnswer, in_one_line

    return in_one_line(msgspec.json.decode(client.get(f"/v1/jobs/{QUERY}/answer").body, type=ShownAnswer))


def _kept(folder: Path, out: Path) -> None:
    """Wait until the controller has let go of its journal, and keep a copy."""
    import sqlite3

    out.mkdir(parents=True, exist_ok=True)
    target = out / "journal.db"
    target.unlink(missing_ok=True)
    with sqlite3.connect(folder / "journal.db") as source, sqlite3.connect(target) as copy:
        source.backup(copy)
    source.close()
    copy.close()


def _report(rows: list[ListedJob], faults: _Faults, out: Path, answer: str) -> None:
    from rich.table import Table

    from hocket.cli.page_folder import write_page
    from hocket.cli.simulation.whatif import whatif
    from hocket.cli.terminal.console import console
    from hocket.control.journal import SqliteJournal
    from hocket.reports.account import account
    from hocket.reports.plots import plot_run

    page = console()
    table = Table(title="what became of the jobs", title_justify="left")
    for name in ("job", "GPUs", "waited", "ran", "starts", "goal", "reached", "epochs", "accuracy"):
        table.add_column(name, justify="left" if name in ("job", "goal", "reached") else "right")
    sizes = {name: max(gpus) for _at, name, gpus, *_rest in JOBS}
    for row in rows:
        accuracy = row.metrics.get("acc")
        table.add_row(
            row.id, str(sizes.get(row.id, "")), f"{row.waited_s:.1f} s", f"{row.ran_s:.1f} s", str(row.attempts),
            row.until or "its end", row.state, f"{row.epoch:g}", f"{accuracy:.1%}" if accuracy is not None else "–",
        )  # fmt: skip
    page.print(table)
    if faults.process:
        page.print(f"'{UNLUCKY}' was killed with -9 on the way, and went on from its checkpoint\n", highlight=False)
    if faults.node:
        page.print(f"node '{faults.node}' was killed with -9 on the way: its jobs went on elsewhere\n", highlight=False)
    if answer:
        page.print(f"'{QUERY}' was answered {answer}\n", highlight=False)
    journal = SqliteJournal(out / "journal.db")
    plot_run(account(journal.header, journal), out)
    written = write_page(journal, out / "page")
    journal.close()
    whatif(out / "journal.db", ["fifo"])
    page.print(f"\nplots: {out}/gantt.png shows which job had which device when", highlight=False)
    page.print(f"page:  {written} shows the jobs and every decision in a browser", highlight=False)
    page.print("next:  hocket up --detach · hocket submit -- python train.py · hocket top", highlight=False)
