"""Workloads as the command line names them: `philly:PATH?first=1000`, `jobs.csv`, `poisson?jobs=200`, `demo`.

    spec    = reader ":" path [options] | path ending in .csv, .csv.gz or .toml [options] | name [options]
    options = "?" name "=" value ("&" name "=" value)*

A bare option (`?elastic`) is one that is set to yes.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from hocket.workloads import generate
from hocket.workloads.demo import demo
from hocket.workloads.dorm import READINGS as DORM_READINGS
from hocket.workloads.dorm import dorm_workload
from hocket.workloads.errors import WorkloadError, did_you_mean, shown
from hocket.workloads.fields import TEXT, Fields, Number, Seconds, Whole, split_options
from hocket.workloads.harmony import READINGS as HARMONY_READINGS
from hocket.workloads.harmony import SUBSETS, harmony_workload
from hocket.workloads.mlfs import mlfs_philly, mlfs_workload, read_mlfs_options
from hocket.workloads.muri import read_muri
from hocket.workloads.philly import read_philly
from hocket.workloads.plain_csv import read_csv
from hocket.workloads.pollux import pollux_option, read_pollux
from hocket.workloads.reshape import READINGS as RESHAPE_READINGS
from hocket.workloads.reshape import WORKLOADS as RESHAPE
from hocket.workloads.reshape import reshape_workload
from hocket.workloads.rotary import CLASSES, CRITERIA, RULES, rotary_workload
from hocket.workloads.rotary import WORKLOADS as ROTARY
from hocket.workloads.selection import read_selection
from hocket.workloads.toml_file import read_workload_toml
from hocket.workloads.truth import Workload

_SUFFIXES = {".toml": "toml", ".csv": "csv", ".csv.gz": "csv"}
_TRACE_OPTIONS = "first, from, to, scale-arrivals, elastic"
_RECIPE_OPTIONS = "jobs, gpus, run, sigma, owners, elastic, deadlines, epochs, goals"


class Source(Struct, frozen=True):
    """A kind of workload: one line of `hocket workloads`."""

    name: str
    example: str
    summary: str
    options: str
    takes_path: bool
    open: Callable[[str, Fields, int], Workload]  # path, options, seed; calls `finish` on the options


def load(spec: str, *, seed: int = 0, limit: int | None = None) -> Workload:
    """The workload that a spec names, or its first `limit` jobs. Raises WorkloadError."""
    source, path, options = _resolved(spec)
    workload = source.open(path, options, seed)
    if source.name != "toml" or workload.name == "toml":
        workload = replace(workload, name=spec)  # A TOML file may name itself.
    if limit is not None:
        workload = replace(workload, submissions=workload.submissions[:limit])
    return workload


def sources() -> tuple[Source, ...]:
    """All kinds, readers first."""
    return _SOURCES


def _resolved(spec: str) -> tuple[Source, str, Fields]:
    name, colon, rest = spec.partition(":")
    by_name = {s.name: s for s in _SOURCES}
    where = f"workload {shown(spec)}"
    if colon and name in by_name and by_name[name].takes_path:
        path, options = split_options(rest, where)
        if not path:
            raise WorkloadError(f"{where}: {name} must be followed by a path, as {by_name[name].example}")
        return by_name[name], path, options
    path, options = split_options(spec, where)
    for suffix, reader in _SUFFIXES.items():
        if path.endswith(suffix) and not (colon and name.isalpha()):
            return by_name[reader], path, options
    if path in by_name:
        if by_name[path].takes_path:
            raise WorkloadError(f"{where}: {path} must be followed by a path, as {by_name[path].example}")
        return by_name[path], "", options
    hint = did_you_mean(name if colon else path, by_name)
    raise WorkloadError(f"{where}: must be READER:PATH, a path that ends in .csv, .csv.gz or .toml, or a name{hint}")


def _philly(path: str, options: Fields, _seed: int) -> Workload:
    selection = read_selection(options, "vc")
    options.finish()
    return read_philly(path, selection)


def _pollux(path: str, options: Fields, _seed: int) -> Workload:
    selection, wanted = read_selection(options), pollux_option(options)
    options.finish()
    return read_pollux(path, wanted, selection)


def _muri(path: str, options: Fields, _seed: int) -> Workload:
    selection = read_selection(options)
    options.finish()
    return read_muri(path, selection)


def _csv(path: str, options: Fields, _seed: int) -> Workload:
    selection = read_selection(options, "owner")
    options.finish()
    return read_csv(path, selection)


def _toml(path: str, options: Fields, _seed: int) -> Workload:
    options.finish()
    return read_workload_toml(path)


def _poisson(_path: str, options: Fields, seed: int) -> Workload:
    wanted, gap_s = generate.read_generator_options(options), options.read("gap", Seconds(above=True), 60.0)
    options.finish()
    return generate.poisson(wanted, gap_s, seed)


def _window(_path: str, options: Fields, seed: int) -> Workload:
    wanted, over_s = generate.read_generator_options(options), options.read("over", Seconds(above=True), 3600.0)
    options.finish()
    return generate.window(wanted, over_s, seed)


def _burst(_path: str, options: Fields, seed: int) -> Workload:
    wanted = generate.read_generator_options(options)
    options.finish()
    return generate.burst(wanted, seed)


def _demo(_path: str, options: Fields, seed: int) -> Workload:
    options.finish()
    return demo(seed)


def _dorm(_path: str, options: Fields, seed: int) -> Workload:
    reading = options.choice("reading", DORM_READINGS, "figure-1")
    options.finish()
    return dorm_workload(seed, reading=reading)


def _rotary(_path: str, options: Fields, seed: int) -> Workload:
    which, rule = options.choice("which", ROTARY, "aqp"), options.choice("rule", RULES, "intervals")
    load = options.read("load", Number(low=0.01, high=100.0), 1.0)
    only = options.choice("only", ("all", *CLASSES, *CRITERIA), "all")
    past = options.choice("past", ("yes", "no"), "yes") == "yes"
    curves, scale = options.read("curves", TEXT, ""), options.read("scale", Number(low=0.001, high=1e6), 1.0)
    options.finish()
    if curves and which == "aqp":
        raise WorkloadError(f"curves={curves} is for training, and which=aqp has queries only: say which=dlt or mixed")
    if scale != 1.0 and which == "dlt":
        raise WorkloadError(f"scale={scale:g} is for queries, and which=dlt has training only: say which=aqp or mixed")
    return rotary_workload(which, seed, load, "" if only == "all" else only, rule, past, curves=curves, scale=scale)


def _harmony(_path: str, options: Fields, seed: int) -> Workload:
    which, gap_s = options.choice("which", SUBSETS, "all"), options.read("gap", Seconds(), 0.0)
    reading = options.choice("reading", HARMONY_READINGS, "epochs")
    options.finish()
    return harmony_workload(which, gap_s, seed, reading=reading)


def _reshape(_path: str, options: Fields, seed: int) -> Workload:
    number, cold = options.choice("workload", map(str, RESHAPE), "1"), options.flag("cold")
    reading = options.choice("reading", RESHAPE_READINGS, "introduction")
    options.finish()
    return reshape_workload(int(number), seed, early=not cold, reading=reading)


def _mlfs(_path: str, options: Fields, seed: int) -> Workload:
    jobs, over_s = (
        options.read("jobs", Whole(low=1, high=100_000), 620),
        options.read("over", Seconds(above=True), 6048e2),
    )
    run_s, sigma = options.read("run", Seconds(above=True), 3600.0), options.read("sigma", Number(high=5.0), 1.0)
    wanted = read_mlfs_options(options)
    options.finish()
    return mlfs_workload(jobs, over_s, run_s, sigma, wanted, seed)


def _mlfs_philly(path: str, options: Fields, seed: int) -> Workload:
    times = options.read("k", Number(above=True, high=16.0), 1.0)
    if times > 1 and times != int(times):
        options.fail("k", f"must be a whole number, or below 1 to leave some out, not {times:g}")
    selection, wanted = read_selection(options, "vc"), read_mlfs_options(options)
    options.finish()
    return mlfs_philly(path, selection, times, wanted, seed)


_SOURCES = (
    Source(
        "philly",
        "philly:philly_jobs.csv.gz?first=10000",
        "Microsoft's Philly trace, recorded run times: a table, or its cluster_job_log",
        f"vc, {_TRACE_OPTIONS}",
        True,
        _philly,
    ),
    Source(
        "pollux",
        "pollux:pollux_workloads.csv.gz?workload=workload-1",
        "a workload of Pollux; its run times are our assumption",
        f"workload, {_TRACE_OPTIONS}",
        True,
        _pollux,
    ),
    Source(
        "muri",
        "muri:muri_trace3.csv.gz",
        "a trace of Muri: Philly's arrivals with models",
        _TRACE_OPTIONS,
        True,
        _muri,
    ),
    Source(
        "csv",
        "jobs.csv?elastic=yes",
        "your own jobs, one a row: id, submit_s, run_s and more",
        f"owner, {_TRACE_OPTIONS}",
        True,
        _csv,
    ),
    Source("toml", "jobs.toml", "jobs, owners, cluster, costs and faults in one file", "", True, _toml),
    Source(
        "poisson",
        "poisson?jobs=200&gap=60",
        "generated: independent arrivals",
        f"gap, {_RECIPE_OPTIONS}",
        False,
        _poisson,
    ),
    Source(
        "window",
        "window?jobs=40&over=11000",
        "generated: exponential gaps that fill a window",
        f"over, {_RECIPE_OPTIONS}",
        False,
        _window,
    ),
    Source("burst", "burst?jobs=80", "generated: all at once", _RECIPE_OPTIONS, False, _burst),
    Source(
        "dorm",
        "dorm?reading=figure-8",
        "Dorm's 50 applications of seven types, its cluster included; two readings of its run times and speeds",
        "reading",
        False,
        _dorm,
    ),
    Source(
        "harmony",
        "harmony?gap=240",
        "Harmony's 80 parameter-server jobs (Table I) and its 100 machines; COMP times are measured, the rest assumed; "
        "two readings of its run times",
        "which, gap, reading",
        False,
        _harmony,
    ),
    Source(
        "rotary",
        "rotary?which=dlt",
        "Rotary's queries (Table 3.1), its training jobs (Table 3.2), or both on one machine, with past jobs",
        "which, load, only, rule, past, curves",
        False,
        _rotary,
    ),
    Source(
        "reshape",
        "reshape?workload=1",
        "Reshape's four workloads, its cluster included; two readings of its run times, speeds and costs",
        "workload, cold, reading",
        False,
        _reshape,
    ),
    Source(
        "mlfs",
        "mlfs?jobs=620",
        "MLFS's partitioned models with deadlines and accuracies, its 80 GPUs included; run times are our assumption",
        "jobs, over, run, sigma, accuracy, replicas, curves, whole",
        False,
        _mlfs,
    ),
    Source(
        "mlfs-philly",
        "mlfs-philly:philly_jobs.csv.gz?k=2",
        "the Philly trace as partitioned models on 2,474 GPUs, each job k times; models are drawn",
        f"k, vc, {_TRACE_OPTIONS}, accuracy, replicas, curves, whole",
        True,
        _mlfs_philly,
    ),
    Source("demo", "demo", "built in: 61 jobs of three teams for 4 nodes of 4 GPUs", "", False, _demo),
)
