"""One attempt to deliver a notification: a POST, or a command that is run."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import HTTPRedirectHandler, Request, build_opener

import msgspec

from hocket import __version__
from hocket.model.notify_target import is_url
from hocket.service.notifications import Notification

TIMEOUT_S = 10.0
_TAIL = 300  # characters of what a command that failed wrote last


def deliver(target: str, told: Notification, folder: str) -> str:
    """Why it was not delivered; empty if it was. A command runs in `folder`."""
    body = msgspec.json.encode(told)
    return _post(target, body) if is_url(target) else _run(target, told, body, folder)


class _NoRedirect(HTTPRedirectHandler):
    """Where a notification goes is what its job says, and nothing else."""

    def redirect_request(self, *_args: Any) -> None:
        return None


_OPENER = build_opener(_NoRedirect)


def _post(url: str, body: bytes) -> str:
    headers = {"Content-Type": "application/json", "User-Agent": f"hocket/{__version__}"}
    try:
        with _OPENER.open(Request(url, body, headers, method="POST"), timeout=TIMEOUT_S):
            return ""  # Another status than 2xx is raised.
    except HTTPError as error:
        error.close()
        return f"it answered {error.code}"
    except URLError as error:
        return str(error.reason)
    except (OSError, HTTPException, ValueError) as error:
        return str(error) or type(error).__name__


def _run(line: str, told: Notification, body: bytes, folder: str) -> str:
    env = {**os.environ, **told.environment()}
    with TemporaryFile() as given, TemporaryFile() as errors:  # No pipes: a child of the command may hold them open.
        given.write(body)
        given.seek(0)
        try:
            process = subprocess.Popen(
                shlex.split(line), stdin=given, stdout=subprocess.DEVNULL, stderr=errors, env=env,
                cwd=folder if Path(folder).is_dir() else None, start_new_session=True,
            )  # fmt: skip
        except (OSError, ValueError) as error:
            return str(error)
        try:
            code = process.wait(TIMEOUT_S)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return f"it ran longer than {TIMEOUT_S:g} s and was killed"
        if code == 0:
            return ""
        errors.seek(0)
        said = errors.read().decode(errors="replace").strip()[-_TAIL:]
        return f"it ended with {code}" + (f": {said}" if said else "")
