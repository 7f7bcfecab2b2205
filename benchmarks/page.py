"""The measurements as people read them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchmarks.__main__ import Measured
    from benchmarks.decisions import Decisions


def text(m: Measured) -> str:
    """One page."""
    here = m.machine
    lines = [
        f"{m.command}",
        f"{here.date}, {here.cores} cores, {here.memory_gib:g} GiB, Python {here.python}; "
        f"load average {here.load:g} when it began",
        f"trace: {m.trace}",
        "peers' figures are those of the project's design notes, section 8; they are not run again here",
        "",
        "START-UP (CPU-seconds of the whole process, bytecode compiled beforehand)",
    ]
    s = m.start_up
    lines += table(
        ("command", "CPU-s", "× bare python", "goal"),
        [
            ("python -c pass", f"{s.python_s:.3f}", "1.0", ""),
            ("hocket --help", f"{s.help_s:.3f}", f"{s.help_ratio:.1f}", f"{s.goal_help_s:g}"),
            ("hocket simulate, one job", f"{s.one_job_s:.3f}", f"{s.one_job_s / s.python_s:.1f}", ""),
        ],
    )
    if m.speeds:
        lines += ["", "SIMULATOR (jobs per CPU-second of the whole process)"]
        lines += table(
            ("policy", "cluster", "jobs", "finished", "CPU-s", "jobs/CPU-s", "best peer", "× peer", "goal", "MiB"),
            [
                (
                    v.policy, v.cluster, f"{v.jobs:,}", f"{v.finished:,}", f"{v.cpu_s:.2f}", f"{v.jobs_per_cpu_s:,.0f}",
                    f"{v.best_peer} {v.best_peer_jobs_per_cpu_s:g}", f"{v.ratio:.1f}", f"{v.goal_jobs_per_cpu_s:,}",
                    f"{v.peak_mib:.0f}",
                )
                for v in m.speeds
            ],
        )  # fmt: skip
        lines += [f"  {v.command}" for v in m.speeds]
    if m.growth:
        lines += ["", "GROWTH (CPU-µs per job; net: less the CPU time of the same trace with one job)"]
        lines += table(
            ("what", "jobs", "µs/job", "net µs/job", "net, × the fewer"),
            [
                (
                    g.what,
                    f"{g.jobs[0]:,} → {g.jobs[1]:,}",
                    f"{g.cpu_us_per_job[0]:.0f} → {g.cpu_us_per_job[1]:.0f}",
                    f"{g.net_us_per_job[0]:.0f} → {g.net_us_per_job[1]:.0f}",
                    f"{g.ratio:.2f}",
                )
                for g in m.growth
            ],
        )
    if m.decisions:
        lines += [
            "",
            "DECISIONS (ms of wall time; a full 160x8 cluster; each cycle one job ends and one comes)",
            *_decisions(m.decisions),
        ]
    if m.summing is not None and m.journalling is not None:
        a, j = m.summing, m.journalling
        lines += ["", f"SUMMARY (CPU-seconds, {a.jobs:,} generated jobs, las, 160x8)"]
        lines += table(
            ("simulate", "account", "summarise", "account and summary of all"),
            [(f"{a.simulate_s:.2f}", f"{a.account_s:.2f}", f"{a.summarise_s:.2f}", f"{a.share:.0%}")],
        )
        lines += ["", "JOURNAL ON DISK (submissions per second through the controller, each synced; no service)"]
        lines += table(
            ("submissions", "per second", "Kueue's admissions", "×"),
            [(f"{j.submissions:,}", f"{j.per_s:,.0f}", "43", f"{j.ratio:.0f}")],
        )
    return "\n".join(lines)


def _decisions(found: list[Decisions]) -> list[str]:
    return table(
        ("policy", "waiting", "asked", "median", "p99", "whole cycle", "× MLFS (40 ms)"),
        [
            (
                d.policy,
                f"{d.waiting:,}",
                f"{d.asked:,}",
                f"{d.decision_ms:.3f}",
                f"{d.decision_p99_ms:.3f}",
                f"{d.cycle_ms:.3f}",
                "" if d.ratio is None else f"{d.ratio:,.0f}",
            )
            for d in found
        ],
    )


def table(titles: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    """Columns as wide as they need to be; the first to the left, the others to the right."""
    wide = [max(len(row[i]) for row in [titles, *rows]) for i in range(len(titles))]
    return [
        "  " + "  ".join(c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(row, wide, strict=True)))
        for row in [titles, *rows]
    ]
