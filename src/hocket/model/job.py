"""What a user submits: immutable, and the same whether it is simulated or runs.

Every field of a job is described here, once. Options of `hocket submit`, keys of TOML files, the HTTP API, snapshot
documents, workload files, `hocket show` and the tables in docs/ follow from it (`job_spec.py`).
"""

from __future__ import annotations

from enum import StrEnum
from functools import cached_property
from typing import Annotated, Any, TypeAlias

from msgspec import UNSET, Meta, Struct

from hocket.model.criterion import Criterion, Epochs, Goal, limit_of
from hocket.model.resources import UNITS, Demand


class Panel(StrEnum):
    """The groups of options in `hocket submit --help`."""

    JOB = "The job"
    RESOURCES = "What it needs"
    SCHEDULING = "When it runs"
    QUERY = "A query as a job"
    EXECUTION = "How it runs"


class JobField(Struct, frozen=True):
    """What there is to say about a field of a job, beside its type and default."""

    help: str  # what it means to users, in one line
    panel: Panel | None = None  # of `submit --help`; None: there is no option for it
    name: str = ""  # of the option (`--gpu-mem`) and the key in files (`gpu_mem`); the field's own if empty
    api: str = ""  # its name in the API; the field's own if empty
    api_help: str = ""  # what it means in the API, if not the same
    metavar: str = ""
    short: str = ""  # the option's one-letter form
    also: str = ""  # another name of the option
    reads: str = ""  # how a text is read, where type and unit do not tell (`SpecField.reads`)
    completes: str = ""  # names that the shell completes: "jobs" or "owners"
    rule: Meta | None = None  # holds everywhere
    given: Any = None  # the type of a submission, where its limits are tighter
    submitted: Any = UNSET  # the default of a submission, where it differs from the job's
    default: str = ""  # the default in words
    more: str = ""  # what only the table in docs/jobs.md has room for
    secret: bool = False  # values are never shown, only their names
    common: bool = False  # one of the few that a form shows first
    parts: dict[str, JobField] = {}  # of a field that is a struct: those of its fields that users set


NAME_LENGTH = 200  # characters of the name of a job or an owner
Name: TypeAlias = Annotated[str, Meta(min_length=1, max_length=NAME_LENGTH)]
Text: TypeAlias = Annotated[str, Meta(max_length=NAME_LENGTH)]
Names: TypeAlias = Annotated[tuple[Name, ...], Meta(max_length=1000)]
Word: TypeAlias = Annotated[str, Meta(max_length=131_072, pattern=r"^[^\x00]*\Z")]
Seconds: TypeAlias = Annotated[float, Meta(ge=0, le=1e9)]
Size: TypeAlias = Annotated[int, Meta(ge=1, le=1_000_000)]
_Criterion: TypeAlias = Annotated[str, Meta(max_length=1000)]
_Mebibytes: TypeAlias = Annotated[float, Meta(ge=0, le=1e9)]
_Variable: TypeAlias = Annotated[str, Meta(pattern=r"^[^=\x00]+\Z", max_length=1000)]
_SecretName: TypeAlias = Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]*\Z", max_length=200)]
_TraitName: TypeAlias = Annotated[str, Meta(min_length=1, max_length=100, pattern=r"^[A-Za-z_][A-Za-z0-9_.-]*\Z")]
_Target: TypeAlias = Annotated[str, Meta(min_length=1, max_length=4096)]
_Requirement: TypeAlias = Annotated[str, Meta(min_length=1, max_length=4096, pattern=r"^[^\x00\r\n]*\Z")]
_NOT_NEGATIVE, _POSITIVE = Meta(ge=0), Meta(gt=0)


class Kind(StrEnum):
    """What sort of work a job is."""

    TRAINING = "training"  # a model is trained, epoch by epoch
    QUERY = "query"  # an approximate query, whose estimate improves with the rows read
    PARAMETER_SERVER = "parameter-server"  # training whose COMP and COMM phases can take turns with those of others
    MODEL = "model"  # one model of a pack


# The first words of commands that an agent runs by its own Python.
QUERY_COMMAND = ("hocket", "query")
PARAMETER_SERVER_COMMAND = ("hocket", "paramserver")
FUNCTION_COMMAND = ("hocket", "function")  # with the file that a function was sent along in


class Stop(StrEnum):
    """What may end a job beside its process, its criterion and its user; each includes what stands before it."""

    FIXED = "fixed"  # nothing else may end it
    OPTSTOP = "optstop"  # it may end when its goal is out of reach, or reached and nothing more is to be gained
    REQUIRED = "required"  # it may also end when its goal is reached


class Preempt(StrEnum):
    """When the policy may pause, resize or move a running job, which ends its process."""

    ALWAYS = "always"  # whenever it decides so
    SAVED = "saved"  # once the job has saved a state to continue from
    NEVER = "never"  # not at all


class Task(Struct, frozen=True, gc=False):
    """One part of a partitioned model."""

    id: str  # name of the task, unique in its job
    demand: Demand  # what one replica of the task needs
    share: float = 1.0  # part of the model's parameters that it holds, from 0 to 1
    is_parameter_server: bool = False  # it holds parameters for the other tasks and computes no layer of the model


class Edge(Struct, frozen=True, gc=False):
    """What one task sends to another in each iteration."""

    source: str  # id of the task that sends
    target: str  # id of the task that receives
    mib: float = 0.0  # MiB in each iteration; 0: the target only waits for the source


class TaskGraph(Struct, frozen=True, dict=True):
    """The tasks of a partitioned model; acyclic."""

    tasks: tuple[Task, ...]  # at least one; their ids differ
    edges: tuple[Edge, ...] = ()  # empty: no task waits for another

    def task(self, name: str) -> Task | None:
        """The task of that `name`, None if there is none; a replica ("layer1#2") is a copy of its task."""
        return self._by_id.get(name.partition("#")[0])

    @cached_property
    def _by_id(self) -> dict[str, Task]:
        return {t.id: t for t in self.tasks}


class Launch(Struct, frozen=True):
    """How a job's command is run where it really runs; a simulation needs none of it."""

    cwd: Annotated[
        str,
        JobField(
            "Working directory.", Panel.EXECUTION, metavar="DIR", reads="folder", common=True,
            given=Annotated[str, Meta(max_length=4096, pattern=r"^(/[^\x00]*)?\Z")],
            default="the current one; for a file, the file's folder", more="In a file relative to the file.",
        ),
    ] = ""  # absolute; empty: a folder of the job's own  # fmt: skip
    working_dir: Annotated[
        str,
        JobField(
            "Folder that is sent along, and in which the job runs on each node: no shared disk is needed.",
            Panel.EXECUTION, metavar="DIR", reads="bundle", default="none: nodes have what it needs",
            given=Annotated[str, Meta(pattern=r"^([0-9a-f]{64})?\Z")],
            api_help="Digest of a bundle that was uploaded, in which the job runs.",
            more="See [Code that is sent along](#code-that-is-sent-along).",
        ),
    ] = ""  # the digest of a bundle; empty: it runs in `cwd`  # fmt: skip
    pip: Annotated[
        tuple[str, ...],
        JobField(
            "Package that pip installs before, or a file of requirements: FILE.txt.", Panel.EXECUTION,
            metavar="PACKAGE|FILE.txt", reads="pip", default="none",
            api_help="Requirements that pip installs before, one each.",
            given=Annotated[tuple[_Requirement, ...], Meta(max_length=1000)],
            more="See [Code that is sent along](#code-that-is-sent-along).",
        ),
    ] = ()  # lines of a requirements file  # fmt: skip
    env: Annotated[
        dict[str, str],
        JobField(
            "Environment variable: NAME=VALUE, or NAME for the shell's value.", Panel.EXECUTION,
            metavar="K[=V]", reads="env", common=True, api_help="Environment variables, by name.", secret=True,
            given=Annotated[dict[_Variable, Word], Meta(max_length=10_000)],
            more="In a file a table, or a list of such texts.",
        ),
    ] = {}  # fmt: skip
    secrets: Annotated[
        tuple[str, ...],
        JobField(
            "Variable whose value is kept encrypted and never shown: NAME for the shell's value, or NAME=@FILE.",
            Panel.EXECUTION, name="secret", api="secrets", metavar="K[=@FILE]", reads="secrets", default="none",
            api_help="Environment variables, by name, that are kept encrypted and never shown.", secret=True,
            given=Annotated[dict[_SecretName, Word], Meta(max_length=100)], submitted={},
            more="In a file a list of such texts. See [Secrets](#secrets).",
        ),
    ] = ()  # names only: no job has their values  # fmt: skip
    resume: Annotated[
        tuple[str, ...],
        JobField(
            "Command that continues from a checkpoint.", Panel.EXECUTION, metavar="COMMAND", reads="words",
            given=Annotated[tuple[Word, ...], Meta(max_length=10_000)], default="the same command",
        ),
    ] = ()  # empty: the same command  # fmt: skip
    stop_signal: Annotated[
        str,
        JobField(
            "Signal that asks the job to save its state and exit.", Panel.EXECUTION, name="signal", metavar="USR1",
            reads="signal", given=Annotated[str, Meta(pattern=r"^(SIG)?[A-Z0-9]{2,10}\Z")], default="SIGTERM",
            more="`USR1` or `SIGUSR1`.",
        ),
    ] = "SIGTERM"  # fmt: skip
    checkpoint_signal: Annotated[
        str,
        JobField(
            "Signal that asks the job to save its state and continue.", Panel.EXECUTION, metavar="USR2",
            reads="signal", given=Annotated[str, Meta(pattern=r"^((SIG)?[A-Z0-9]{2,10})?\Z")], default="none",
        ),
    ] = ""  # empty: there is none  # fmt: skip
    checkpoint: Annotated[
        str,
        JobField(
            "File or folder in which the job saves its state, if not $HOCKET_CHECKPOINT_DIR.", Panel.EXECUTION,
            metavar="PATH", given=Annotated[str, Meta(max_length=4096, pattern=r"^[^\x00]*\Z")],
            default="$HOCKET_CHECKPOINT_DIR", more="Relative to the working directory; `ckpt/*.pt` works too.",
        ),
    ] = ""  # empty: the folder that Hocket gives it  # fmt: skip
    continues: Annotated[
        str,
        JobField(
            "Job that is over, whose $HOCKET_CHECKPOINT_DIR it uses, to continue from there.", Panel.EXECUTION,
            metavar="JOB", given=Annotated[str, Meta(max_length=NAME_LENGTH, pattern=r"^[^/\x00]*\Z")],
            default="none: its own", completes="jobs",
        ),
    ] = ""  # fmt: skip
    grace_s: Annotated[
        float,
        JobField(
            "Time to exit after the signal; then the job is killed.", Panel.EXECUTION, name="grace", metavar="30s",
            rule=_NOT_NEGATIVE, given=Seconds, default="30s",
        ),
    ] = 30.0  # in seconds  # fmt: skip
    hang_s: Annotated[
        float,
        JobField(
            "Restart the job after this long without progress.", Panel.EXECUTION, name="hang", metavar="10m",
            rule=_NOT_NEGATIVE, given=Seconds, default="never",
        ),
    ] = 0.0  # in seconds; 0: never  # fmt: skip
    progress: Annotated[
        dict[str, Any],
        JobField(
            "How progress is read: json:FILE, csv:FILE, tensorboard:DIR, pattern:REGEX, none.", Panel.EXECUTION,
            api_help="How progress is read: an object with `kind` and what belongs to it.",
            metavar="KIND[:WHERE]", reads="progress", default="from the output", more="See below.",
        ),
    ] = {}  # fmt: skip
    log_mib: Annotated[
        float,
        JobField(
            "Output kept of each attempt.", Panel.EXECUTION, name="log_size", metavar="64M",
            given=Annotated[float, Meta(gt=0, le=1e6)], default="64M",
        ),
    ] = 64.0  # in MiB  # fmt: skip
    notify: Annotated[
        tuple[str, ...],
        JobField(
            "URL that gets a POST, or command that is run, when the job ends, fails or is paused.", Panel.JOB,
            metavar="URL|CMD", given=Annotated[tuple[_Target, ...], Meta(max_length=20)], default="none",
            more="See [Notifications](#notifications).",
        ),
    ] = ()  # fmt: skip


ONE_GPU = Demand(gpus=1)
_ALWAYS = Preempt.ALWAYS


class Job(Struct, frozen=True, gc=False):
    """An immutable submission. Its size is the number of replicas; `sizes` are those it can run at."""

    id: Annotated[
        str,
        JobField(
            "Name of the job.", Panel.JOB, name="name", short="-n", given=Text, submitted="", common=True,
            rule=Meta(min_length=1, max_length=NAME_LENGTH, pattern="^[^/]*$"), default="made up, as `train-12`",
            more="1 to 200 printable characters without `/`; it may be that of a job that has ended.",
        ),
    ]  # fmt: skip
    owner: Annotated[
        str,
        JobField(
            "User or team that shares and quotas count against.", Panel.JOB, completes="owners",
            rule=Meta(max_length=NAME_LENGTH), default="the login name", more="See [Owners](#owners).",
        ),
    ] = ""  # fmt: skip
    kind: Annotated[
        Kind,
        JobField(
            "What sort of work it is: training, query or parameter-server.", Panel.JOB, metavar="KIND",
            default="training, or what its command says: `hocket query`, `hocket paramserver`",
            more="See [Queries as jobs](queries.md#as-a-job) and [Training on parameter servers](paramserver.md).",
        ),
    ] = Kind.TRAINING  # fmt: skip
    command: Annotated[
        tuple[str, ...],
        JobField(
            "Program and arguments; no shell reads them.", reads="words", default="required", common=True,
            given=Annotated[tuple[Word, ...], Meta(min_length=1, max_length=10_000)],
            more="After `--`; in a file a list of words, or one line of them, split as a shell does.",
        ),
    ] = ()  # empty in simulations  # fmt: skip
    demand: Annotated[
        Demand,
        JobField(
            "What one replica needs; a replica never spans two nodes.",
            parts={
                "gpus": JobField(
                    "GPUs of each replica (process).", Panel.RESOURCES, name="replica_gpus", metavar="N",
                    given=Annotated[int, Meta(ge=0, le=1024)], submitted=1, default="1",
                    more="`gpus` must be multiples of it.",
                ),
                "cores": JobField(
                    "CPU cores of each replica.", Panel.RESOURCES, name="cpus", metavar="N", also="cores",
                    given=Annotated[float, Meta(ge=0, le=1e6)], default="not counted",
                    more="Also `--cores`. Its share of CPU time where jobs are "
                    "[contained](machines.md#what-contains-a-job).",
                ),
                "mem_mib": JobField(
                    "Memory of each replica.", Panel.RESOURCES, name="mem", metavar="8G", given=_Mebibytes,
                    default="not counted",
                    more="`512M`, `8G`; a bare number is in MiB. "
                    "The most that it gets where jobs are [contained](machines.md#what-contains-a-job).",
                ),
            },
        ),
    ] = ONE_GPU  # fmt: skip
    sizes: Annotated[
        tuple[int, ...],
        JobField(
            "Numbers of GPUs it can run on: 2, 1,2,4 or 1-4; 0 for none.", Panel.RESOURCES, name="gpus", common=True,
            metavar="1,2,4", reads="gpus", default="1", api_help="Numbers of replicas it can run with, ascending.",
            rule=Meta(min_length=1, max_length=4096),
            given=Annotated[tuple[Annotated[int, Meta(ge=1, le=100_000)], ...], Meta(min_length=1, max_length=1000)],
            more="The policy chooses one and may change it while the job runs. Without GPUs a job gets one core "
            "unless `--cpus` says otherwise.",
        ),
    ] = (1,)  # distinct and positive  # fmt: skip
    max_nodes: Annotated[
        int,
        JobField(
            "Nodes it may span; 0 for any number.", Panel.RESOURCES, metavar="N", rule=_NOT_NEGATIVE,
            given=Annotated[int, Meta(ge=0, le=100_000)], default="0",
        ),
    ] = 0  # counted for each of its partitions  # fmt: skip
    gpu_kinds: Annotated[
        tuple[str, ...],
        JobField(
            "GPU type that it accepts.", Panel.RESOURCES, name="gpu_kind", metavar="KIND",
            reads="kinds", given=Annotated[tuple[Name, ...], Meta(max_length=100)],
            default="any", more="Also `a100,h100`.",
        ),
    ] = ()  # empty: any  # fmt: skip
    gpu_mem_mib: Annotated[
        float,
        JobField(
            "Least memory of each GPU.", Panel.RESOURCES, name="gpu_mem", metavar="40G",
            rule=_NOT_NEGATIVE, given=_Mebibytes, default="any",
        ),
    ] = 0.0  # in MiB; 0: any  # fmt: skip
    weight: Annotated[
        float,
        JobField(
            "Weight in fair shares.", Panel.SCHEDULING, metavar="X", rule=_POSITIVE,
            given=Annotated[float, Meta(gt=0, le=1e6)], default="1",
        ),
    ] = 1.0  # fmt: skip
    priority: Annotated[
        int,
        JobField(
            "Larger goes first, under policies that use it.", Panel.SCHEDULING, metavar="N",
            given=Annotated[int, Meta(ge=-1_000_000, le=1_000_000)], default="0",
        ),
    ] = 0  # fmt: skip
    urgency: Annotated[
        int,
        JobField(
            "1 to 10, for policies that use it; 0 for none.", Panel.SCHEDULING, metavar="1-10",
            rule=Meta(ge=0, le=10), default="0",
        ),
    ] = 0  # fmt: skip
    deadline_s: Annotated[
        float | None,
        JobField(
            "Wanted this long after submission, or by a date: '2026-11-20 12:00'.", Panel.SCHEDULING, name="deadline",
            metavar="6h|DATE", reads="moment", default="none", api_help="Wanted this many seconds after submission.",
            more="In local time, or with an offset as in `2026-11-20T12:00+01:00`.",
        ),
    ] = None  # in seconds; None: at any time  # fmt: skip
    criterion: Annotated[
        Criterion | None,
        JobField(
            "Ends the job when it holds: 'acc >= 92% within 2h'.", Panel.JOB, name="until", api="until", common=True,
            metavar="CRITERION", given=_Criterion, submitted="", default="when its process exits",
            more="Also `loss changes < 0.001 within 30 epochs`, `for 3000 steps`, `for 2h`.",
        ),
    ] = None  # None: it ends when its process exits  # fmt: skip
    tasks: Annotated[TaskGraph | None, JobField("Tasks of a partitioned model.")] = None
    warm: Annotated[
        bool,
        JobField(
            "Whether it may be prepared before it has devices: interpreter up, imports done.", Panel.EXECUTION,
            default="off", more="See [Changing size](#changing-size).",
        ),
    ] = False  # fmt: skip
    model: Annotated[
        str,
        JobField(
            "Name of its model, for reports and for policies that go by it (static).", Panel.JOB, metavar="NAME",
            given=Text, default="none",
        ),
    ] = ""  # empty: it is not said  # fmt: skip
    traits: Annotated[
        dict[str, float | str],
        JobField(
            "What else past jobs are compared by: dataset=cifar10, batch_size=128.", Panel.JOB, metavar="NAME=VALUE",
            also="trait", reads="traits", given=Annotated[dict[_TraitName, float | Text], Meta(max_length=100)],
            default="`program`, of a query `query` and `data`",
            api_help="What else past jobs are compared by: numbers or texts, by name.",
            more="For policies that estimate when a job is done ([what is estimated]"
            "(policies/rotary_dlt.md#what-is-estimated)). In a file a table, or a list of such texts.",
        ),
    ] = {}  # of a model in a pack: its hyperparameters, categories or positions of numbers  # fmt: skip
    after: Annotated[
        tuple[str, ...],
        JobField(
            "Start only after this job has ended; a name or 'sweep-*'.", Panel.SCHEDULING, metavar="JOB",
            api_help="Jobs that must have ended before it may start.", completes="jobs", given=Names,
            default="none",
        ),
    ] = ()  # empty: it waits for none  # fmt: skip
    after_any: Annotated[
        tuple[str, ...],
        JobField(
            "The same, however that job ended: failed, missed and stopped ones too.", Panel.SCHEDULING, metavar="JOB",
            api_help="Jobs that must have ended before it may start, however they ended.", completes="jobs",
            given=Names, default="none",
        ),
    ] = ()  # empty: it waits for none  # fmt: skip
    retries: Annotated[
        int | None,
        JobField(
            "Restarts after a crash.", Panel.SCHEDULING, metavar="N", rule=Meta(ge=0, le=1_000_000_000),
            given=Annotated[int, Meta(ge=0, le=1_000_000)], submitted=3, default="3",
        ),
    ] = None  # None: without limit  # fmt: skip
    backoff_s: Annotated[
        float,
        JobField(
            "Delay before a restart after a crash, doubled each time.", Panel.SCHEDULING, name="backoff",
            metavar="1s", rule=_NOT_NEGATIVE, given=Seconds, submitted=1.0, default="1s",
        ),
    ] = 0.0  # in seconds  # fmt: skip
    limit_s: Annotated[
        float | None,
        JobField(
            "Run time limit, over all attempts.", Panel.SCHEDULING, name="time", metavar="2h30m", common=True,
            default="no limit", more="`90s`, `2h30m`, `1d`; a bare number is in seconds.",
        ),
    ] = None  # in seconds; None: no limit  # fmt: skip
    preempt: Annotated[
        Preempt,
        JobField(
            "When it may be paused, resized or moved: always, saved (once it has saved its state), never.",
            Panel.SCHEDULING, metavar="WHEN", submitted=Preempt.SAVED, default="saved",
            more="See [Preemption](#preemption).",
        ),
    ] = Preempt.ALWAYS  # fmt: skip
    min_run_s: Annotated[
        float,
        JobField(
            "Not preempted before it has run this long since its last start.", Panel.SCHEDULING, name="min_run",
            metavar="10m", rule=_NOT_NEGATIVE, given=Seconds, default="0s",
        ),
    ] = 0.0  # in seconds  # fmt: skip
    protect_s: Annotated[
        float,
        JobField(
            "How long `preempt` and `min_run` protect a run at most; set by the administrator (`hocket up --protect`).",
            rule=_NOT_NEGATIVE,
        ),
    ] = 0.0  # in seconds; 0: without limit  # fmt: skip
    launch: Annotated[Launch | None, JobField("How its command is run; a simulation needs none of it.")] = None
    target: Annotated[
        Goal | None,
        JobField(
            "Goal that is measured and ends nothing: 'acc >= 91% within 80 epochs'.", Panel.JOB, metavar="GOAL",
            given=_Criterion, submitted="", default="none",
        ),
    ] = None  # None: there is none  # fmt: skip
    stop: Annotated[
        Stop,
        JobField(
            "What load control may end it for: fixed (nothing), optstop, required.", Panel.JOB, metavar="LEVEL",
            default="fixed", more="See [mlfs_c](policies/mlfs_c.md).",
        ),
    ] = Stop.FIXED  # fmt: skip
    may_lower: Annotated[
        Stop,
        JobField(
            "The same while the cluster is overloaded, if that is more.", Panel.JOB, metavar="LEVEL",
            default="fixed",
        ),
    ] = Stop.FIXED  # fmt: skip
    excluded_nodes: Annotated[
        tuple[str, ...],
        JobField("Nodes on which it may not be placed: they are reserved for other owners. Set by the controller."),
    ] = ()  # sorted; it may still be on one of them, and stays there until it ends or is paused

    @property
    def goal(self) -> Goal | None:
        """The value of a metric that it shall reach, whether it ends there or not."""
        return self.criterion if isinstance(self.criterion, Goal) else self.target

    @property
    def predecessors(self) -> tuple[str, ...]:
        """The jobs that it starts after: those that must end well, and those that may end in any way."""
        return tuple(dict.fromkeys(self.after + self.after_any)) if self.after_any else self.after

    @property
    def may_stop(self) -> bool:
        """Has its user allowed that it ends before, ever?"""
        return self.stop is not Stop.FIXED or self.may_lower is not Stop.FIXED

    @property
    def accepts_any_node(self) -> bool:
        """May it be placed on every node, if there is room?"""
        return not (self.gpu_kinds or self.gpu_mem_mib or self.excluded_nodes)

    @property
    def is_elastic(self) -> bool:
        """Can it run at several sizes?"""
        return len(self.sizes) > 1

    @property
    def is_protectable(self) -> bool:
        """Can there be times at which the policy may not change it while it runs?"""
        return self.preempt is not _ALWAYS or self.min_run_s > 0

    @property
    def least(self) -> tuple[int, float, float]:
        """The GPUs, cores and memory without which it does not run: of its smallest size, or of all its tasks."""
        if self.tasks is None:
            demand, size = self.demand, self.sizes[0]
            return demand.gpus * size, demand.cores * size, demand.mem_mib * size
        demands = [task.demand for task in self.tasks.tasks]
        return sum(d.gpus for d in demands), sum(d.cores for d in demands), sum(d.mem_mib for d in demands)

    @property
    def last_epoch(self) -> int | None:
        """The epoch by which it is over, where its criterion says so, or its target."""
        for wanted in (self.criterion, self.target):
            if wanted is not None and isinstance(limit := limit_of(wanted), Epochs):
                return limit.count
        return None


class Owner(Struct, frozen=True, gc=False):
    """A user or team, its weight in shares and its quota; 0 stands for no limit."""

    id: str  # name of the user or team
    weight: float = 1.0  # above 0; with twice the weight, an owner's share is twice as large
    max_gpus: int = 0  # GPUs of all its placed jobs together
    max_cores: float = 0.0  # CPU cores of all its placed jobs together
    max_mem_mib: float = 0.0  # MiB of memory of all its placed jobs together
    max_jobs: int = 0  # jobs that are placed at once

    def beyond(self, gpus: float, cores: float, mem_mib: float, jobs: int = 0) -> str:
        """The first of its limits that these amounts exceed, as `2 GPUs`; empty if none is.

        `gpus`, `cores`, `mem_mib` and `jobs` are what its placed jobs would have in all.
        """
        if 0 < self.max_gpus < gpus:
            return f"{self.max_gpus} {UNITS['gpus']}"
        if 0 < self.max_cores < cores:
            return f"{self.max_cores:g} {UNITS['cores']}"
        if 0 < self.max_mem_mib < mem_mib:
            return f"{self.max_mem_mib:g} {UNITS['mem_mib']}"
        return f"{self.max_jobs} jobs at once" if 0 < self.max_jobs < jobs else ""
