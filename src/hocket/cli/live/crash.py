"""What the last failed attempt of a job printed at its end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hocket.cli.live.client import Client

_LINES = 20


def last_crash(client: Client, job: str, found: dict[str, Any]) -> dict[str, Any] | None:
    """Of a job as `shown` found it: the last attempt that failed, how, and its last lines.

    None if none failed, or if the job has ended with success since.
    """
    from hocket.cli.live.client import ControllerRefused
    from hocket.cli.live.job_rows import WELL
    from hocket.cli.live.logs import LogReader

    failed = [a for a in found.get("attempt_list") or [] if str(a.get("how", "")).startswith("failed")]
    if not failed or found.get("state") in WELL:
        return None
    attempt = failed[-1]
    try:
        data = LogReader(client, job, attempt["number"]).last_lines(_LINES)
    except ControllerRefused as error:
        if error.status != 403:
            raise
        data = b""  # A token of the role read sees jobs, and not what they print.
    printed = data.decode(errors="replace").removesuffix("\n")
    lines = [line.rstrip("\r").rsplit("\r", 1)[-1] for line in printed.split("\n")] if printed else []
    return {"attempt": attempt["number"], "how": attempt["how"], "lines": lines}
