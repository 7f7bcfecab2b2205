"""`hocket why JOB`: the reasons of past and present decisions, and what it waits for."""

from __future__ import annotations

from typing import Any

from hocket.cli.options import AsJson, Home, JobName


def why(job: JobName, home: Home = None, as_json: AsJson = False) -> None:
    """Say why a job stands where it stands, and when that may change."""
    from hocket.cli.live.client import Client
    from hocket.cli.live.job_rows import job_path, named

    with Client(home) as client:
        answer = named(client, job, lambda: client.get(job_path(job, "why")))
    if as_json:
        print(answer.body.decode())
        return
    _print(job, answer.json())


def _print(job: str, told: dict[str, Any]) -> None:
    from rich.text import Text

    from hocket.cli.live.job_table import one_line, styled_state
    from hocket.cli.terminal.console import clock, console
    from hocket.reports.formatting import format_duration

    page = console()

    def say(text: Text) -> None:
        page.print(text, soft_wrap=True)

    state = told.get("state")
    say(
        Text(job, style="bold")
        + (Text("  ") + styled_state(str(state), str(told.get("kept") or "")) if state else Text())
    )
    say(Text(f"now        {one_line(str(told.get('now') or 'nothing has been decided yet'))}"))
    if told.get("waits_for"):
        say(Text(f"waits for  {one_line(str(told['waits_for']))}"))
    if told.get("warning"):
        say(Text(f"warning    {one_line(str(told['warning']))}", style="yellow"))
    expected_s = told.get("expected_s")
    if isinstance(expected_s, int | float):
        say(Text(f"expected   in about {format_duration(expected_s)}"))
    elif told.get("waits_for") and state != "held":  # What holds it is no matter of room.
        is_short = told.get("short_of") != []
        unknown = "nothing is known of how long running jobs will take" if is_short else "the policy decides"
        say(Text(f"expected   unknown: {unknown}"))
    past = told.get("past") or []
    if past:
        say(Text("\nbefore", style="bold"))
    for line in past:
        reason = one_line(str(line.get("reason") or ""))
        say(
            Text(f"{clock(line.get('at_s'))}  ", style="dim")
            + Text(f"{one_line(str(line.get('what', ''))):16} {reason}")
        )
