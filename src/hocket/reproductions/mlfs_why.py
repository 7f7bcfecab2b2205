"""Why the order of two schedulers differs from the paper's, as far as we know.

Tried with other settings of the same runs: what is said of `graphene`, and of tasks beside whole jobs
(docs/policies/mlf_h.md). The other sentences are readings of the tables.
"""

from __future__ import annotations

from msgspec import Struct

_TIMES = {"done in less than 100 minutes", "mean JCT", "makespan", "deadlines met", "mean waiting time"}
_ACCURACIES = {"mean accuracy by the deadline", "accuracies met by the deadline"}
_TASKS = {"mlfs_c", "mlf_h", "graphene", "gandiva"}
_WHOLE = {"tiresias", "hypersched", "borg_fair", "slaq"}


class Reason(Struct, frozen=True):
    """A sentence, and which pairs it is true of."""

    metrics: set[str]
    ahead: set[str]
    behind: set[str]
    sentence: str


_REASONS = (
    Reason(
        _TIMES | _ACCURACIES, {"graphene"}, {"mlf_h"},
        "graphene takes little work first; equations 3 and 5 sum over all dependants, so that mlf_h takes large graphs "
        "first, and a task that must leave an overloaded server and fits nowhere halts its job.",
    ),
    Reason(
        _ACCURACIES, _WHOLE, _TASKS,
        "The first epochs bring most: schedulers that pause give every newcomer its first ones, where those that place "
        "tasks pause nobody, so that who waits has learned nothing.",
    ),
    Reason(
        _TIMES, _TASKS | _WHOLE, {"hypersched"},
        "hypersched pauses jobs that hardly gain any more before their deadline, and those end last: it serves "
        "accuracy by the deadline, not the end by it.",
    ),
    Reason(
        _TIMES, {"slaq"}, {"borg_fair", "gandiva"},
        "slaq serves those first whose loss falls most, nearly least service first, for they are mostly young; "
        "in the paper it has CPU cores to give away, here sizes are fixed.",
    ),
    Reason(
        _TIMES | _ACCURACIES, _TASKS | _WHOLE, {"gandiva"},
        "gandiva lets nobody overtake: who needs many GPUs holds up all that come after.",
    ),
    Reason(
        _TIMES, _TASKS, _WHOLE,
        "Tasks share GPUs where whole jobs have them to themselves, so that more run at a time.",
    ),
    Reason(
        _TIMES, {"tiresias", "hypersched", "slaq"}, _TASKS,
        "Schedulers that pause let newcomers in at once; those that place tasks pause nobody.",
    ),
    Reason(
        _TIMES, _WHOLE, _TASKS,
        "Tasks that share a GPU run slower, a tenth for every further one, which whole jobs do not.",
    ),
    Reason(
        _TIMES | _ACCURACIES, _WHOLE, _WHOLE,
        "All of them run the same rigid jobs here, and differ by their order alone; in the paper some change sizes.",
    ),
    Reason(
        {"sent between servers"}, _TASKS | _WHOLE, _TASKS | _WHOLE,
        "graphene does not look at traffic, gandiva only at the sizes of jobs, and a job in one piece goes to as few "
        "servers as can be.",
    ),
    Reason(
        {"time of a decision"}, _TASKS | _WHOLE, _TASKS | _WHOLE,
        "How long a decision takes is a matter of how it is written; mlf_h works on columns, and rounds in which "
        "nothing can change are skipped.",
    ),
)  # fmt: skip


def why(metric: str, ahead: str, behind: str) -> str:
    """One sentence; says so where we do not know."""
    for reason in _REASONS:
        if metric in reason.metrics and ahead in reason.ahead and behind in reason.behind:
            return reason.sentence
    return f"Why {ahead} is before {behind} there, we have not found out."
