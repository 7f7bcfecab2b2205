"""`hocket show JOB`: all about one job, but for what may be secret."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hocket.cli.options import AsJson, Home, JobName

if TYPE_CHECKING:
    from hocket.cli.live.job_rows import ListedJob

_OBSERVED = 10  # observations shown
_ATTEMPTS = 10  # shown
_NOT_GIVEN: tuple[object, ...] = (None, "", [], {}, 0, 0.0, False)


def show(job: JobName, home: Home = None, as_json: AsJson = False) -> None:
    """Show a job: where it stands, as what it was submitted, what it reported, what went wrong."""
    from hocket.cli.live.client import Client
    from hocket.cli.live.crash import last_crash
    from hocket.cli.live.job_rows import shown

    with Client(home) as client:
        found = without_secrets(shown(client, job))
        found["crash"] = last_crash(client, job, found)
    if as_json:
        import msgspec

        print(msgspec.json.encode(found).decode())
        return
    _print(found)


def without_secrets(found: dict[str, Any]) -> dict[str, Any]:
    """Names of variables and secrets only. The controller sends no values; should one ever, they end here."""
    job = found.get("job")
    if not isinstance(job, dict):
        return found
    names = {field: sorted(job[field]) for field in ("env", "secrets") if isinstance(job.get(field), dict)}
    return found | {"job": job | names}


def _print(found: dict[str, Any]) -> None:
    from rich.text import Text

    from hocket.cli.live.job_rows import row_in
    from hocket.cli.live.job_table import bar_of, devices, one_line, styled_state
    from hocket.cli.terminal.console import clock, console
    from hocket.reports.formatting import format_duration

    page = console()
    row = row_in(found)

    def say(name: str, value: object, style: str = "") -> None:
        if value not in _NOT_GIVEN:
            page.print(Text(f"{name:11} ", style="dim") + Text(one_line(str(value)), style=style), soft_wrap=True)

    page.print(Text(row.id, style="bold") + Text("  ") + styled_state(row.state, row.kept), soft_wrap=True)
    say("owner", row.owner)
    say("reason", row.reason)
    say("waits for", found.get("waits_for"))
    say("on", devices(row))
    say("submitted", clock(row.submitted_s))
    say("started", clock(row.started_s) if row.started_s is not None else "")
    say("ended", clock(row.ended_s) if row.ended_s is not None else "")
    say("waited", format_duration(row.waited_s))
    say("ran", format_duration(row.ran_s) if row.ran_s else "")
    say("attempts", row.attempts)
    say("failures", found.get("failures"))
    say("kept", row.kept)
    say("saved", _saved(row))
    say("protected", f"from preemption: {found['protected']}" if found.get("protected") else "")
    say("lost", _lost(row), "yellow")
    if row.until:
        page.print(Text(f"{'until':12}", style="dim") + Text(row.until) + Text("  ") + bar_of(row), soft_wrap=True)
    say("epoch", f"{row.epoch:g}" if row.epoch else "")
    say("step", row.step)
    say("metrics", _all_metrics(row))
    _print_use(found.get("use"), say)
    say("checkpoint", _paths(found.get("checkpoint")))
    say("log", _paths(found.get("log")))
    job = found.get("job") or {}
    if job:
        page.print(Text("\nas submitted", style="bold"))
        for name, value in _as_typed(job).items():
            if name != "until" and value not in _NOT_GIVEN:
                say(name, _words(name, value) if name != "deadline" else _deadline(row, job))
    _print_attempts(found.get("attempt_list") or [], page)
    _print_crash(found.get("crash"), page)
    _print_observations(found.get("observations") or [], page)
    for n, warning in enumerate(found.get("warnings") or []):
        if n == 0:
            page.print(Text("\nwarnings", style="bold"))
        page.print(Text(one_line(str(warning)), style="yellow"), soft_wrap=True)


def _saved(row: ListedJob) -> str:
    from hocket.cli.terminal.console import clock

    if row.saved_s is not None:
        return clock(row.saved_s)
    return "" if row.started_s is None or row.is_over else "never: if it is stopped, its work is lost"


def _lost(row: ListedJob) -> str:
    from hocket.reports.formatting import format_duration

    if not row.lost_s:
        return ""
    counts = ((row.lost_epochs, "epochs"), (row.lost_steps, "steps"))
    counted = "".join(f", {count:,} {unit}" for count, unit in counts if count)
    return f"{format_duration(row.lost_s)} of work{counted} that were not saved"


def _deadline(row: ListedJob, job: dict[str, Any]) -> str:
    """`6h after submission, 2026-11-20 18:00:00`, and whether that is past."""
    import time

    from hocket.reports.formatting import format_duration

    wanted_s = float(job["deadline_s"])
    at_s = row.submitted_s + wanted_s
    ended_s = row.ended_s if row.ended_s is not None else time.time()
    past = f"; passed {format_duration(ended_s - at_s)} before it ended" if row.is_over else "; it is past"
    date = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at_s))
    return f"{date} ({format_duration(wanted_s)} after submission{past if ended_s > at_s else ''})"


def _all_metrics(row: ListedJob) -> str:
    """Every value that it reported last, that of the criterion first."""
    named = row.until.split()[0] if row.until else ""
    names = sorted(row.metrics, key=lambda name: (name != named, name))
    values = ((name, row.metrics[name]) for name in names)
    return "  ".join(f"{name}={value:.4g}" for name, value in values if isinstance(value, int | float))


def _paths(found: object) -> str:
    """`/path`, or `/path (on n1)` of each of several nodes."""
    if not isinstance(found, list):
        return ""
    by_path: dict[str, list[str]] = {}
    for file in found:
        by_path.setdefault(str(file.get("path")), []).append(str(file.get("node")))
    return ", ".join(f"{path} (on {', '.join(nodes)})" for path, nodes in by_path.items())


def _print_crash(crash: object, page: Any) -> None:
    """The last lines that the last failed attempt printed."""
    from rich.text import Text

    from hocket.cli.live.job_table import one_line

    if not isinstance(crash, dict):
        return
    page.print(Text(f"\nlast lines of attempt {crash['attempt']}, which {one_line(crash['how'])}", style="bold"))
    for line in crash["lines"]:
        page.print(Text(one_line(line)), soft_wrap=True)
    if not crash["lines"]:
        page.print(Text("(it printed nothing, or its output is no longer kept)", style="dim"))


def _as_typed(job: dict[str, Any]) -> dict[str, Any]:
    """A job's fields by the names in files and options; GPUs are those of the whole job, as its user gave them."""
    from hocket.job_input.read_job import option_name_of

    each, sizes = job.get("gpus"), job.get("sizes")
    typed: dict[str, Any] = {}
    for field, value in job.items():
        if field == "sizes" and isinstance(sizes, list) and isinstance(each, int):
            typed["gpus"] = ",".join(str(size * each) for size in sizes) if each else "none"
            if job.get("kind") == "query":
                typed |= {"gpus": "", "threads": ",".join(map(str, sizes))}
        elif field == "gpus" and isinstance(sizes, list):
            typed["replica_gpus"] = value if isinstance(value, int) and value > 1 else 0
        elif (field not in ("stop", "may_lower") or value != "fixed") and (field, value) != ("kind", "training"):
            is_time = field.endswith("_s") and isinstance(value, int | float) and value
            is_memory = field.endswith("_mib") and isinstance(value, int | float) and value
            typed[option_name_of(field)] = f"{value:g}s" if is_time else f"{value:g}M" if is_memory else value
    return typed


def _words(name: str, value: object) -> object:
    import shlex

    if name in ("command", "resume") and isinstance(value, list):
        return shlex.join(str(word) for word in value)
    if isinstance(value, list):
        return ", ".join(str(v) for v in value)
    if isinstance(value, dict):
        return ", ".join(f"{key}={each}" for key, each in value.items())
    return f"{value:g}" if isinstance(value, float) else value


def _print_use(use: object, say: Any) -> None:
    if isinstance(use, dict):
        numbers = [f"{k} {v:.4g}" for k, v in use.items() if isinstance(v, int | float) and not isinstance(v, bool)]
        say("uses", ", ".join(numbers))


def _print_attempts(found: list[dict[str, Any]], page: Any) -> None:
    from rich.text import Text

    from hocket.cli.live.job_table import one_line
    from hocket.cli.terminal.console import clock
    from hocket.reports.formatting import format_duration

    if not found:
        return
    more = f" (the last {_ATTEMPTS} of {len(found):,})" if len(found) > _ATTEMPTS else ""
    page.print(Text(f"\nattempts{more}", style="bold"))
    for a in found[-_ATTEMPTS:]:
        started_s, ended_s = a.get("started_s"), a.get("ended_s")
        began = clock(started_s) if started_s is not None else "never ran"
        ran = f" for {format_duration(ended_s - started_s)}" if started_s is not None and ended_s is not None else ""
        where = f"on {', '.join(a.get('nodes') or [])} at size {a.get('size', 0)}"
        line = f"{a.get('number', 0):<4g} {began:9} {where}{ran}: {a.get('how') or 'runs'}"
        page.print(Text(one_line(line)), soft_wrap=True)


def _print_observations(found: list[dict[str, Any]], page: Any) -> None:
    from rich.text import Text

    from hocket.cli.live.job_table import one_line
    from hocket.cli.terminal.console import clock

    if not found:
        return
    more = f" (the last {_OBSERVED} of {len(found):,})" if len(found) > _OBSERVED else ""
    page.print(Text(f"\nreported{more}", style="bold"))
    for o in found[-_OBSERVED:]:
        metrics = o.get("metrics") or {}
        values = "  ".join(f"{k}={v:.4g}" for k, v in metrics.items() if isinstance(v, int | float))
        count = f"epoch {o.get('epoch', 0):<6}" if o.get("epoch") or not o.get("step") else f"step {o['step']:<7}"
        line = one_line(f"{count} {values}")
        page.print(Text(f"{clock(o.get('at_s'))}  ", style="dim") + Text(line), soft_wrap=True)
