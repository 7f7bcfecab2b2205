"""The connection to Ray, and why there is none, in one line."""

from __future__ import annotations

import os
import re
import socket

AUTO, START = "auto", "start"
_LOOK_S = 10.0  # for Ray's port to be reached
_GONE = "RAY_gcs_rpc_server_reconnect_timeout_s", "20"  # Then Ray ends this process; its own default is a minute.
_VERSIONS = re.compile(r"Ray: (\S+)\s+Python: (\S+)")
_AUTH = "RAY_AUTH_MODE"
LEAST = (2, 50)  # earlier ones cannot bind a placement group to a node


class NoRay(ValueError):
    """Ray cannot be used; says why, in one line."""


def connect(address: str, namespace: str) -> None:
    """Connect this process. Raises NoRay."""
    ray_at = checked_address(address)
    os.environ.setdefault(*_GONE)
    try:
        import ray
    except ImportError as error:
        raise NoRay(f"--ray needs Ray ({error}): pip install 'hocket[ray]'") from error
    if tuple(int(part) for part in ray.__version__.split(".")[:2]) < LEAST:
        least = ".".join(map(str, LEAST))
        raise NoRay(f"--ray needs Ray {least} or newer, and {ray.__version__} is installed: pip install 'hocket[ray]'")
    try:
        ray.init(ray_at, namespace=namespace, logging_level="error", log_to_driver=False)
    except Exception as error:  # Ray raises whatever it comes across: RuntimeError, ConnectionError, AssertionError.
        raise NoRay(no_connection(address, str(error))) from error


def checked_address(address: str) -> str:
    """The address, if something listens there. Raises NoRay."""
    if address == AUTO:
        return address
    host, _, port = address.rpartition(":")
    if "://" in address or not host or not (port.isascii() and port.isdecimal() and 0 < int(port) < 65536):
        raise NoRay(
            f"--ray must be {AUTO}, {START} or HOST:PORT of Ray's head (6379 by default), not '{address}'; the "
            "controller runs on a node of the Ray cluster"
        )
    try:
        socket.create_connection((host, int(port)), _LOOK_S).close()
    except OSError as error:
        raise NoRay(f"there is no Ray at {address}: {error.strerror or error}; see `ray status`") from error
    return address


def no_connection(address: str, error: str) -> str:
    """What Ray said, in one line."""
    if "Version mismatch" in error and len(found := _VERSIONS.findall(error)) == 2:
        (ray, python), (own_ray, own_python) = found
        return (
            f"Ray at {address} is Ray {ray} with Python {python}, and the controller has Ray {own_ray} with Python "
            f"{own_python}: install Hocket beside the same Ray and Python"
        )
    if address == AUTO and "Could not find any running Ray instance" in error:
        return (
            "no Ray runs on this machine: `ray start --head` starts one, --ray HOST:PORT names another one's head, and "
            "--ray start has one of its own"
        )
    said = f"Ray at {address} cannot be used: {' '.join(error.split())[:500]}"
    if _AUTH not in os.environ and "Failed to connect" in error:
        # Something listens there. Ray asks for a token where its head found one, and says no more than this.
        said += f" (if it needs a token: {_AUTH}=token, see docs/ray.md)"
    return said
