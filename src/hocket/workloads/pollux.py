"""The workloads of Pollux (Qiao et al., OSDI'21): which application arrives when, on how many GPUs.

Columns: `name` (the job's id), `time` (seconds), `application`, `num_replicas`, `batch_size`; and `workload` in a file
that has several. In Pollux's repository each is a file of its own, without that column.

**The files hold no run times; ours are an assumption.** Pollux puts each application into a class of total
GPU time: small up to 1 GPU-hour, medium 1 to 10, large 10 to 100, extra-large 100 to 1,000. We give every job
of a class the same GPU time, the geometric middle of the class (half of the bound for the small one), divided
by `num_replicas`. So sizes and magnitudes are the paper's; single run times were not measured.
"""

from __future__ import annotations

from hocket.model.job import Job
from hocket.workloads.csv_table import Table, read_table
from hocket.workloads.errors import WorkloadError, did_you_mean, plain, shown
from hocket.workloads.fields import TEXT, Fields, Seconds, Whole
from hocket.workloads.selection import Selection
from hocket.workloads.submission import only
from hocket.workloads.truth import Submission, Truth, Workload

ASSUMED_GPU_HOURS = {
    "cifar10": 0.5,  # small
    "ncf": 0.5,  # small
    "bert": 3.16,  # medium
    "deepspeech2": 3.16,  # medium
    "yolov3": 31.6,  # large
    "imagenet": 316.0,  # extra-large
}


def read_pollux(path: str, workload: str = "", selection: Selection = Selection()) -> Workload:
    """One workload of the file; its name may be left out when there is only one."""
    table = read_table(path, ("name", "time", "application", "num_replicas", "batch_size"))
    if workload or "workload" in table.cells:
        table = _one_workload(table, workload)
    sizes = table.column("num_replicas", Whole(low=1))
    applications = table.column("application", TEXT)
    for row, application in enumerate(applications):
        if application not in ASSUMED_GPU_HOURS:
            known = did_you_mean(application, ASSUMED_GPU_HOURS)
            raise table.fail(
                "application", row, f"must be one whose run time is assumed, not {shown(application)}{known}"
            )
    submissions = [
        Submission(
            at_s,
            Job(job_id, sizes=only(size), model=application),
            Truth(round(ASSUMED_GPU_HOURS[application] * 3600 / size, 3), size),
        )
        for job_id, at_s, size, application in zip(
            table.ids("name"), table.column("time", Seconds()), sizes, applications, strict=True
        )
    ]
    return Workload("pollux", selection.of(submissions, path))


def pollux_option(options: Fields) -> str:
    """Which workload of the file is wanted."""
    return options.read("workload", TEXT, "")


def _one_workload(table: Table, wanted: str) -> Table:
    if "workload" not in table.cells:
        raise WorkloadError(f"{plain(table.path)}: the option workload is for files with a column of that name")
    names = table.column("workload", TEXT)
    known = sorted(set(names))
    if not wanted and len(known) == 1:
        return table
    if wanted not in known:
        asked = f"not {shown(wanted)}" if wanted else "and is missing"
        raise WorkloadError(
            f"{plain(table.path)}: the option workload must name one of the file, "
            f"{asked}{did_you_mean(wanted, known[:50])}"
        )
    return table.where([name == wanted for name in names])
