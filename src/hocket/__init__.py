"""Hocket shares one cluster, or one machine, among many training jobs and progressive queries."""

TYPE_CHECKING = False  # Without `typing`: a training script that calls `hocket.report` pays for nothing else.
if TYPE_CHECKING:
    from hocket.agent.progress.report import report as report

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    """`hocket.report`, loaded when it is first asked for."""
    if name != "report":
        raise AttributeError(f"module 'hocket' has no attribute {name!r}")
    from hocket.agent.progress.report import report

    globals()["report"] = report
    return report
