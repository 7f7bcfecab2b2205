"""`python -m hocket.executors.ray ADDRESS NAMESPACE HEAD_FILE [OPTIONS]`: watches Ray for a controller.

A process of its own: Ray is slow to import, has threads of its own, and ends the process when its head is gone.
"""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import suppress

import msgspec

from hocket.agent.log_setup import set_up_logging
from hocket.executors.ray.connection import START, NoRay, connect
from hocket.executors.ray.local_head import LocalNodes, local_head, stop_local_head
from hocket.executors.ray.messages import WatchSpec, encoded


def main() -> int:
    """Say whether Ray is there; then wait for the controller to say what to do, and do it until it is gone."""
    parser = argparse.ArgumentParser(prog="python -m hocket.executors.ray")
    parser.add_argument("address")
    parser.add_argument("namespace")
    parser.add_argument("head_file")
    parser.add_argument("--gpus", type=int)
    parser.add_argument("--cores", type=float)
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--log-level", default="info")
    parser.add_argument("--log-json", action="store_true")
    parser.add_argument("--log-file")
    options = parser.parse_args()
    answers = os.dup(1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # Ray prints pages of other processes' logs there.
    set_up_logging(options.log_level, options.log_json, options.log_file)
    owns_head = options.address == START
    try:
        nodes = LocalNodes(options.nodes, options.gpus, options.cores)
        at = local_head(options.head_file, 2, nodes) if owns_head else options.address
        connect(at, options.namespace)
    except NoRay as error:
        _answer(answers, {"error": str(error)})
        return 2
    from hocket.executors.ray.watch import Watch

    _answer(answers, {"connected": at})
    orders = open(0, "rb", buffering=0)  # noqa: SIM115 - without a buffer: what is not read can be waited for
    line = orders.readline()
    if not line:  # The controller could not be started.
        if owns_head and not Watch.has_groups(options.namespace):
            stop_local_head(options.head_file)
        return 0
    watch = Watch(msgspec.json.decode(line, type=WatchSpec))
    if watch.run(orders):
        if owns_head:
            stop_local_head(options.head_file)
        _answer(answers, {"left": True})
    return 0


def _answer(answers: int, message: dict[str, object]) -> None:
    with suppress(BrokenPipeError):  # The controller was killed; the end of its orders says so.
        os.write(answers, encoded(message))


if __name__ == "__main__":
    sys.exit(main())
