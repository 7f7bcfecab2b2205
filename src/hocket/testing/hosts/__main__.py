"""`python -m hocket.testing.hosts --hosts 4 --mbit 1000 --cores 0.5 --mem-mib 2048 -- COMMAND`

Starts hosts on this machine, a controller and an agent on each host, and runs the command beside them, with
`HOCKET_HOME` set: `hocket submit` and all other commands talk to that controller. Without a command, the hosts stay
until Ctrl-C. The variable `HOCKET_HOSTS_ADDRESSES` has the hosts' addresses.
All is taken down at the end, whatever happens; `--clean` removes what launchers left that were killed.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from typing import Any, NoReturn

from hocket.testing.hosts.host_cleanup import abandoned, one_at_a_time, take_down
from hocket.testing.hosts.launcher import Hosts
from hocket.testing.hosts.network import NoNamespaces

_BAD_INPUT = 2  # exit code


def _options(arguments: list[str] | None) -> argparse.Namespace:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(
        prog="python -m hocket.testing.hosts",
        description=__doc__.partition("\n\n")[2],
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--hosts", type=int, default=2, metavar="N", help="how many; default: 2")
    parser.add_argument(
        "--mbit", type=float, default=1000.0, help="bandwidth of each, Mbit/s; 0: no limit; default: 1000"
    )
    parser.add_argument("--cores", type=float, default=1.0, help="CPU time of each; default: 1")
    parser.add_argument("--mem-mib", type=float, default=1024.0, help="memory of each; default: 1024")
    parser.add_argument("--gpus", type=int, default=1, help="virtual GPUs of each; default: 1")
    parser.add_argument("--policy", default="fifo", help="of the controller; default: fifo")
    parser.add_argument("--no-controller", action="store_true", help="only the hosts, without controller and agents")
    parser.add_argument("--plain", action="store_true", help="plain processes at 127.0.0.1, as without root")
    parser.add_argument("--json", action="store_true", help="print the hosts as JSON")
    parser.add_argument("--clean", action="store_true", help="remove what launchers left that were killed, and end")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """Run it; the exit code of the command."""
    options = _options(arguments)
    signal.signal(signal.SIGTERM, _end)
    try:
        return _clean() if options.clean else _run(options)
    except (ValueError, NoNamespaces, RuntimeError) as error:
        print(error, file=sys.stderr)
        return _BAD_INPUT
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


def _clean() -> int:
    with one_at_a_time():
        for tag in abandoned():
            take_down(tag)
            print(f"removed what process {tag.pid} left ({tag})")
    return 0


def _run(options: argparse.Namespace) -> int:
    plain = "it was asked for" if options.plain else ""
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    with Hosts(options.hosts, options.mbit, options.cores, options.mem_mib, options.gpus, plain) as hosts:
        if not options.no_controller:
            hosts.start_controller("--policy", options.policy)
        _show(hosts, options)
        if not command:
            signal.pause()
        named = {"HOCKET_HOSTS_ADDRESSES": " ".join(host.address for host in hosts)}
        env = {**os.environ, "HOCKET_HOME": str(hosts.home), **named}
        try:
            code = hosts.start(None, command, env=env).wait()
        except OSError as error:
            raise ValueError(f"command '{command[0]}' cannot be run: {error.strerror}") from error
        return code if code >= 0 else 128 - code


def _show(hosts: Hosts, options: argparse.Namespace) -> None:
    if options.json:
        found: dict[str, Any] = {
            "hosts": [{"name": h.name, "address": h.address, "namespace": h.namespace} for h in hosts],
            "home": None if options.no_controller else str(hosts.home),
            "plain": hosts.plain,
            "limits": hosts.limits,
        }
        print(json.dumps(found), flush=True)
        return
    print(f"cores and memory are limited by: {hosts.limits}", file=sys.stderr)
    if hosts.plain:
        print(f"plain processes at {hosts.address}, bandwidth is not limited: {hosts.plain}", file=sys.stderr)
    for host in hosts:
        where = f"in namespace {host.namespace}" if host.namespace else "as a plain process"
        print(f"host {host.name} at {host.address}, {where}", file=sys.stderr)
    if not options.no_controller:
        print(f"the controller has HOCKET_HOME={hosts.home}", file=sys.stderr)


def _end(_number: int, _frame: object) -> NoReturn:
    raise SystemExit(128 + signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())
