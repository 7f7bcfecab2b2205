"""From submission to the first line of the user's program, on a warm cluster: `python -m benchmarks.ray_start_time`.

`hocket submit` on a node that Ray lends, and `ray job submit` on the same Ray, one after the other, in turns, each as a
command typed in a shell; the program writes down when it began. It needs `pip install 'ray[default]'`, for jobs of Ray
are submitted to its dashboard.
"""

from __future__ import annotations

import argparse
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

from benchmarks.live import HOCKET, Controller
from benchmarks.machine import machine, median, table

_START_S, _JOB_S = 120.0, 180.0
_RAY = (sys.executable, "-m", "ray.scripts.scripts")


def main() -> int:
    """Measure both, so many times."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ray_start_time", description=__doc__.splitlines()[0])
    parser.add_argument("--times", type=int, default=5)
    options = parser.parse_args()
    if find_spec("aiohttp_cors") is None:
        parser.error("jobs are submitted to Ray's dashboard, which needs: pip install 'ray[default]'")
    folder = Path(tempfile.mkdtemp(prefix="hocket-rs-", dir="/tmp"))  # Paths of Ray's sockets must be short.
    port, dashboard = _free_port(), _free_port()
    head = [*_RAY, "start", "--head", "--block", "--disable-usage-stats", "--node-ip-address", "127.0.0.1"]
    head += ["--port", str(port), "--dashboard-port", str(dashboard), "--dashboard-host", "127.0.0.1"]
    head += [
        "--num-cpus",
        "2",
        "--num-gpus",
        "1",
        "--object-store-memory",
        str(80 << 20),
        "--temp-dir",
        f"{folder}/ray",
    ]
    with open(folder / "ray.log", "wb") as log:
        ray = subprocess.Popen(head, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        _await(lambda: "Ray runtime started" in (folder / "ray.log").read_text(), _START_S)
        (folder / "home").mkdir()
        # A core is left for jobs of Ray.
        controller = Controller(
            folder / "home", "--ray", f"127.0.0.1:{port}", "--cores", "1", "--ray-state", str(folder / "nodes")
        )
        try:
            rows = _measured(folder, f"http://127.0.0.1:{dashboard}", options.times)
        finally:
            controller.down()
    finally:
        ray.terminate()
        ray.wait(60)
        shutil.rmtree(folder, ignore_errors=True)
    print("\n".join(table(("", "median", "least", "most"), rows)))
    print(machine())
    return 0


def _measured(folder: Path, dashboard: str, times: int) -> list[tuple[str, ...]]:
    env = {**os.environ, "HOCKET_HOME": str(folder / "home")}
    took: dict[str, list[float]] = {"hocket submit": [], "ray job submit": []}
    for n in range(times + 1):  # The first of each warms up.
        for name, seconds in took.items():
            began = folder / f"{name.split()[0]}-{n}"
            program = [sys.executable, "-c", f"import time; open({str(began)!r}, 'w').write(str(time.time()))"]
            words = [*HOCKET, "submit", "--gpus", "0", "--"] if name.startswith("hocket") else None
            words = words or [*_RAY, "job", "submit", "--address", dashboard, "--no-wait", "--"]
            asked_s = time.time()
            subprocess.run(
                [*words, *program], env=env, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            _await(lambda began=began: began.exists() and bool(began.read_text()), _JOB_S)
            if n:
                seconds.append(float(began.read_text()) - asked_s)
    return [(k, f"{median(v):.2f} s", f"{min(v):.2f} s", f"{max(v):.2f} s") for k, v in took.items()]


def _await(holds: object, within_s: float) -> None:
    until_s = time.monotonic() + within_s
    while not holds():  # type: ignore[operator]
        assert time.monotonic() < until_s, "it does not begin"
        time.sleep(0.005)


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


if __name__ == "__main__":
    sys.exit(main())
