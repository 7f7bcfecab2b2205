"""Workloads: trace readers, generators, clusters, and the true behaviour of simulated jobs."""

from hocket.workloads.cluster import cluster_text, parse_cluster
from hocket.workloads.errors import WorkloadError
from hocket.workloads.selection import at_load
from hocket.workloads.spec import Source, load, sources
from hocket.workloads.speed import Speeds, parse_speeds
from hocket.workloads.switching import parse_switching, with_switching
from hocket.workloads.toml_file import check_faults
from hocket.workloads.truth import Fault, Submission, Truth, Workload

__all__ = [
    "Fault",
    "Source",
    "Speeds",
    "Submission",
    "Truth",
    "Workload",
    "WorkloadError",
    "at_load",
    "check_faults",
    "cluster_text",
    "load",
    "parse_cluster",
    "parse_speeds",
    "parse_switching",
    "sources",
    "with_switching",
]
