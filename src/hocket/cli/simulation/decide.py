"""`hocket decide --policy P SNAPSHOT.json`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from hocket.cli.options import Params, policy_names

if TYPE_CHECKING:
    from hocket.model.document import Document
    from hocket.model.snapshot import Snapshot
    from hocket.model.view import JobView
    from hocket.policies.registry import BoundPolicy

REFUSED = 4
MOST_BYTES = 1 << 28  # of a snapshot: what is larger is no snapshot


def decide(
    snapshot: Annotated[
        str | None,
        typer.Argument(
            metavar="SNAPSHOT", help="A snapshot in JSON, or - for standard input; with --example: a policy."
        ),
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option("--policy", "-p", help="Its name (see `hocket policies`).", autocompletion=policy_names),
    ] = None,
    param: Params = None,
    example: Annotated[
        bool, typer.Option("--example", help="Print a snapshot to begin with; `--example las` one for a policy.")
    ] = False,
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON Schema of snapshots.")] = False,
) -> None:
    """Ask a policy for one decision: the plan with its reasons, as JSON.

    Exit code 4 says that the plan breaks a rule and would be refused.
    """
    from hocket.cli.terminal.errors import InputError, refusing

    if example and schema:
        raise InputError("--example and --schema print two things: give one")
    if schema:
        from hocket.model.document import schema as schema_of

        _print(schema_of())
        return
    from hocket.cli.policy_text import bound_policy
    from hocket.cli.simulation.policy_fault import blaming
    from hocket.model.document import DocumentError

    with refusing():
        if example:
            from hocket.model.document import encode
            from hocket.model.example import example as example_for

            name = policy or snapshot
            print(encode(example_for(bound_policy(name, param or ()) if name else None)))
            return
        if policy is None:
            raise InputError("decide needs --policy (see `hocket policies`)")
        if snapshot is None:
            raise InputError("decide needs a snapshot: a file, or - for standard input (see --example)")
        bound = bound_policy(policy, param or ())
        document, name = _read(snapshot)
        document = _without_memos_of_others(document, bound)
        with blaming(bound, f"at {document.now_s:,.10g} s"):
            try:
                told = _decided(_rebuilt(document, name, bound), bound)
            except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
                noted = document.memo is not None or any(job.memo is not None for job in document.jobs)
                if not noted or isinstance(error, DocumentError):
                    raise
                what = f"{type(error).__name__}: {error}"
                raise InputError(f"{name}: policy '{policy}' cannot read the memos of this snapshot: {what}") from error
    _print(told)
    if told["violations"]:
        raise typer.Exit(REFUSED)


def _print(value: Any) -> None:
    import msgspec

    from hocket.model.document import readable

    # Through JSON: what a policy noted may hold anything that JSON can say, and NaN becomes null.
    print(readable(msgspec.json.decode(msgspec.json.encode(value))))


def _read(source: str) -> tuple[Document, str]:
    """The document of a file, and what to call that file."""
    import sys
    from pathlib import Path

    from hocket.model.document import DocumentError, decode

    if source == "-":
        text, name = sys.stdin.buffer.read(MOST_BYTES + 1), "standard input"
    else:
        with Path(source).open("rb") as file:
            text, name = file.read(MOST_BYTES + 1), source
    if len(text) > MOST_BYTES:
        raise DocumentError(f"{name}: a snapshot must have at most {MOST_BYTES:,} bytes")
    try:
        return decode(text), name
    except DocumentError as error:
        raise DocumentError(f"{name}: {error}") from error


def _without_memos_of_others(document: Document, bound: BoundPolicy) -> Document:
    """What a policy notes is its own: another cannot read it."""
    from msgspec.structs import replace

    if document.policy in ("", bound.policy.name):
        return document
    return replace(document, memo=None, jobs=tuple(replace(job, memo=None) for job in document.jobs))


def _rebuilt(document: Document, name: str, bound: BoundPolicy) -> Snapshot:
    """The snapshot, ranked as the policy ranks."""
    from hocket.control.admission import faults
    from hocket.model.document import DocumentError, from_document

    # Ranks that the same policy wrote are kept: they are of the moment at which each job last changed.
    is_ranked = document.policy == bound.policy.name

    def rank(view: JobView, now_s: float) -> tuple[Any, ...]:
        for fault in faults(view.job):  # Before the policy sees a job that would not be admitted.
            raise DocumentError(f"snapshot: job '{view.id}': {fault}")
        return view.rank if is_ranked else bound.order(view, now_s)

    try:
        return from_document(document, rank)
    except DocumentError as error:
        raise DocumentError(f"{name}: {error}") from error


def _decided(snapshot: Snapshot, bound: BoundPolicy) -> dict[str, Any]:
    """The plan, what it changes, and what would be done about it now."""
    from hocket.control.check import examine
    from hocket.control.commit import preview
    from hocket.control.diff import changes
    from hocket.model.document import plain

    plan = bound.decide(snapshot)
    violations, capacity = examine(snapshot, plan)
    told: dict[str, Any] = {
        "format": 1,
        "policy": bound.policy.name,
        "params": bound.settings,
        "now_s": snapshot.now_s,
        "partitions": plain(snapshot.partitions_of(plan)),
        "put": [p.id for p in plan.put],
        "drop": list(plan.drop),
        "ends": plan.ends,
        "checkpoints": plan.checkpoints,
        "tiers": plan.tiers,
        "changes": changes(snapshot, plan),
        "reasons": plan.reasons,
        "reviews": plan.reviews,
        "wake": plan.wake,
        "memo": plan.memo,
        "memos": plan.memos,
        "violations": violations,
        "actions": [],
    }
    if not violations:
        actions = preview(snapshot, bound.order, plan, capacity)
        told["actions"] = [{"action": type(a).__name__, **plain(a)} for a in actions]
    return told
