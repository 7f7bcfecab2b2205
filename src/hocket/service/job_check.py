"""Submissions that are checked and not made: the job as it would be, what is wrong by field, and both its texts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from hocket.control.admission import read_submitted_spec
from hocket.job_input.launchers import launcher_warning
from hocket.job_input.read_job import FieldProblem, as_field_problem, read_remote_job, remote_problems
from hocket.job_input.write_job import command_line, toml
from hocket.model.job import Job
from hocket.model.job_spec import FIELDS, SpecError, SubmittedSpec, shown_spec
from hocket.policies.registry import BoundPolicy
from hocket.service.ignored_options import ignored_options
from hocket.service.intake import Intake, read_body

CHECK_LIMIT = 100  # jobs or arrays that one call checks
_NOT_IN_FORM = ("export_all",)  # There is no shell.
# What a form says where `submit --help` speaks of the shell and its folder.
_IN_FORM = {
    "env": {"help": "Environment variables: NAME=VALUE."},
    "cwd": {"help": "Working directory on the node, an absolute path.", "default": "a folder of the job's own"},
    "secret": {"help": "Environment variables whose values are kept encrypted and never shown."},
}


class CheckedJob(Struct, frozen=True):
    """What came of checking one job or array."""

    id: str = ""  # that it would get; of an array that of the first; empty if it would be refused
    refused: str = ""  # why it would be, or nothing
    problems: dict[str, str] = {}  # field, by the name of its option → what is wrong with it
    job: dict[str, Any] | None = None  # as it would be, by the names of the API
    warnings: list[str] = []
    command_line: str = ""  # that submits the same; empty of a spec
    toml: str = ""


def check(
    body: bytes, owner: str, intake: Intake, policy: BoundPolicy, may_submit: Callable[[Job], str]
) -> list[CheckedJob]:
    """Check the jobs of a call; `may_submit` says why the caller may not. Raises SpecError, EndedJobsError."""
    call = read_body(body, owner)
    if len(call.given) > CHECK_LIMIT:
        raise SpecError(f"a check is of 1 to {CHECK_LIMIT:,} jobs, not {len(call.given):,}")
    judge = _Judge(intake, policy, may_submit)
    return [judge.from_options(each) if call.has_options else judge.from_spec(each) for each in call.given]


class _Judge(Struct, frozen=True):
    """Checks one job after the other; they do not know of each other."""

    intake: Intake
    policy: BoundPolicy
    may_submit: Callable[[Job], str]

    def from_spec(self, given: Any) -> CheckedJob:
        found = CheckedJob()
        try:
            return self._judged(found, read_submitted_spec(given))
        except SpecError as error:
            return _refused(found, as_field_problem(str(error)))

    def from_options(self, options: Any) -> CheckedJob:
        if not isinstance(options, dict):
            return CheckedJob(refused="a job must be an object")
        problems = remote_problems(options)
        right = {name: value for name, value in options.items() if name not in problems}
        found = CheckedJob(command_line=command_line(right), toml=toml(right))
        if problems:
            name, problem = next(iter(problems.items()))
            return replace(found, refused=f"{name} {problem}", problems=problems)
        try:
            spec = read_remote_job(options).spec
            warning = launcher_warning(spec, is_here=False)
            return self._judged(replace(found, warnings=[warning] if warning else []), read_submitted_spec(spec))
        except FieldProblem as problem:
            return _refused(found, problem)
        except SpecError as error:
            return _refused(found, as_field_problem(str(error)))

    def _judged(self, found: CheckedJob, spec: SubmittedSpec) -> CheckedJob:
        judged = self.intake.check([spec])
        job, why = next((each for each in judged if each[1]), judged[0])
        why = why or self.may_submit(job)
        warnings = [*found.warnings, *ignored_options(job, self.policy)]
        found = replace(found, job=shown_spec(job) | {"owner": job.owner}, warnings=warnings)
        if why:
            return replace(_refused(found, as_field_problem(why, job.id)), refused=why)
        return replace(found, id=judged[0][0].id)


def _refused(found: CheckedJob, problem: FieldProblem) -> CheckedJob:
    field = problem.field.rstrip(":")
    return replace(found, refused=str(problem), problems={field: problem.problem} if field else {})


def form_fields() -> list[dict[str, Any]]:
    """What can be said of a job where there is no shell, for a form: in the order of the tables in the documents."""
    return [
        {
            "name": field.name,
            "panel": str(field.about.panel or "The job"),
            "help": field.about.help,
            "metavar": field.about.metavar,
            "default": field.about.default,
            "reads": field.reads,
            "choices": [str(word) for word in field.plain_type] if field.reads == "choice" else [],
            "common": field.about.common,
            "completes": field.about.completes,
        }
        | _IN_FORM.get(field.name, {})
        for field in FIELDS
        if field.name not in _NOT_IN_FORM
    ]
