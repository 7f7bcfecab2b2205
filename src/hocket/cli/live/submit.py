"""`hocket submit job.toml …` and `hocket submit [options] -- COMMAND`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from hocket.cli.live.job_options import given_command, given_job_options
from hocket.cli.options import AsJson, Home


def submit(
    ctx: typer.Context,
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[FILE.toml… | -- COMMAND…]", help="Files of jobs, or a command behind two dashes."),
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the end; Ctrl-C ends the waiting only.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check the jobs, print what would be sent, and send nothing.")
    ] = False,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Submit jobs; prints their names.

    Options given with a file hold for all its jobs. With --wait: exit code 0 if all finished or attained their
    criterion, 1 if one failed, 5 if all others missed their criterion, 3 otherwise.
    """
    import msgspec

    from hocket.cli.live.bundle_upload import Bundles
    from hocket.cli.live.client import Client
    from hocket.cli.live.submission import described_jobs, sent, warn_of_launchers, warn_of_missing_folders

    with Bundles() as bundles:
        jobs = described_jobs(given_command(ctx), files or [], given_job_options(ctx), bundles)
        warn_of_missing_folders(jobs)
        warn_of_launchers(jobs)
        if dry_run:
            specs = [each.spec | _hidden(each.spec) for each in jobs]
            print(msgspec.json.format(msgspec.json.encode({"jobs": specs})).decode())
            return
        with Client(home) as client:
            ids = sent(client, jobs, bundles)
            if not as_json:
                print("\n".join(ids), flush=True)
            ends = {}
            if wait:
                from hocket.cli.live.waiting import await_ends

                ends = await_ends(client, ids)
    if as_json:
        told = [{"id": job_id} | ({"state": ends[job_id]} if wait else {}) for job_id in ids]
        print(msgspec.json.encode({"jobs": told}).decode())
    if wait:
        from hocket.cli.live.waiting import exit_code

        raise typer.Exit(exit_code(ends.values()))


def _hidden(spec: dict[str, Any]) -> dict[str, Any]:
    """The secrets of a spec, without their values."""
    return {"secrets": dict.fromkeys(spec["secrets"], "…")} if "secrets" in spec else {}
