"""`hocket submit job.toml …` and `hocket submit [options] -- COMMAND`."""

from __future__ import annotations

import typer

from hocket.cli import submit_options as said_by
from hocket.cli.live_options import Home
from hocket.cli.options import AsJson


def submit(
    ctx: typer.Context,
    files: said_by.Files = None,
    name: said_by.Name = None,
    owner: said_by.Owner = None,
    until: said_by.Until = None,
    target: said_by.Target = None,
    stop: said_by.StopAt = None,
    may_lower: said_by.MayLower = None,
    array: said_by.Array = None,
    model: said_by.Model = None,
    gpus: said_by.Gpus = None,
    replica_gpus: said_by.ReplicaGpus = None,
    cpus: said_by.Cpus = None,
    mem: said_by.Mem = None,
    gpu_kind: said_by.GpuKind = None,
    gpu_mem: said_by.GpuMem = None,
    max_nodes: said_by.MaxNodes = None,
    priority: said_by.Priority = None,
    weight: said_by.Weight = None,
    urgency: said_by.Urgency = None,
    deadline: said_by.Deadline = None,
    time: said_by.Time = None,
    after: said_by.After = None,
    retries: said_by.Retries = None,
    backoff: said_by.Backoff = None,
    cwd: said_by.Cwd = None,
    env: said_by.Env = None,
    export_all: said_by.ExportAll = False,
    resume: said_by.Resume = None,
    signal: said_by.Signal = None,
    checkpoint_signal: said_by.CheckpointSignal = None,
    grace: said_by.Grace = None,
    warm: said_by.Warm = None,
    progress: said_by.Progress = None,
    hang: said_by.Hang = None,
    log_size: said_by.LogSize = None,
    wait: said_by.Wait = False,
    dry_run: said_by.DryRun = False,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Submit jobs; prints their names.

    Options given with a file hold for all its jobs. With --wait: exit code 0 if all finished or attained their
    criterion, 1 if one failed, 3 otherwise.
    """
    said = {
        "name": name, "owner": owner, "until": until, "target": target, "stop": stop, "may_lower": may_lower,
        "array": array, "model": model, "gpus": gpus, "replica_gpus": replica_gpus, "cpus": cpus, "mem": mem,
        "gpu_kind": gpu_kind, "gpu_mem": gpu_mem,
        "max_nodes": max_nodes, "priority": priority, "weight": weight, "urgency": urgency, "deadline": deadline,
        "time": time, "after": after, "retries": retries, "backoff": backoff, "cwd": cwd, "env": env,
        "export_all": export_all or None, "resume": resume, "signal": signal, "checkpoint_signal": checkpoint_signal,
        "grace": grace, "warm": warm, "progress": progress, "hang": hang, "log_size": log_size,
    }  # fmt: skip
    import msgspec

    from hocket.cli.after_dashes import after_dashes
    from hocket.cli.client import Client
    from hocket.cli.submission import sent, specs_of, warn_of_folders

    options = {key: value for key, value in said.items() if value not in (None, [])}
    specs = specs_of(after_dashes(ctx), files or [], options)
    warn_of_folders(specs)
    if dry_run:
        print(msgspec.json.format(msgspec.json.encode({"jobs": specs})).decode())
        return
    with Client(home) as client:
        ids = sent(client, specs)
        if not as_json:
            print("\n".join(ids), flush=True)
        ends = {}
        if wait:
            from hocket.cli.waiting import await_ends

            ends = await_ends(client, ids)
    if as_json:
        told = [{"id": job_id} | ({"state": ends[job_id]} if wait else {}) for job_id in ids]
        print(msgspec.json.encode({"jobs": told}).decode())
    if wait:
        from hocket.cli.waiting import exit_code

        raise typer.Exit(exit_code(ends.values()))
