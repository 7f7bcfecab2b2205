"""What to run: trace readers, generators, clusters, and the truth about simulated jobs."""

from hocket.workloads.truth import Fault, Submission, Truth, Workload

__all__ = ["Fault", "Submission", "Truth", "Workload"]
