"""Traces of cycles for OpenTelemetry, where the environment names a collector and the extra `otel` is installed.

A span is a cycle. How long the policy and the journal took are attributes of it: only their lengths are measured.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from time import time_ns
from typing import Any

from hocket import __version__
from hocket.control.ports import Cycle
from hocket.service.engine import CycleTimes, Engine

_log = logging.getLogger("hocket.service")
ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")  # as OpenTelemetry calls them
_NS = 1_000_000_000


def trace_cycles(engine: Engine, environment: Mapping[str, str]) -> Callable[[], None] | None:
    """Send a span for each cycle from now on; gives what sends the last ones and ends it.

    None: the environment names no collector.

    The SDK reads all its other settings from the environment, too. It sends in a thread of its own, and drops spans
    rather than keep a cycle waiting.
    """
    asked = next((name for name in ENDPOINTS if environment.get(name)), None)
    if asked is None or environment.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return None
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        _log.warning("%s is set, but no traces are sent: %s; pip install 'hocket[otel]'", asked, error)
        return None
    named = {} if environment.get("OTEL_SERVICE_NAME") else {"service.name": "hocket"}
    provider = TracerProvider(resource=Resource.create({**named, "service.version": __version__}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    spans = _CycleSpans(provider.get_tracer("hocket", __version__), engine)
    engine.on_cycle.append(spans.add_cycle)
    engine.on_cycle_timed.append(spans.time)

    def end() -> None:
        provider.shutdown()

    return end


class _CycleSpans:
    """Called in the controller's thread: first with a cycle that is in the journal, then with how long it took."""

    def __init__(self, tracer: Any, engine: Engine) -> None:
        self._tracer, self._engine = tracer, engine
        self._cycle: tuple[int, Cycle] | None = None  # that has been seen and not timed

    def add_cycle(self, number: int, cycle: Cycle) -> None:
        self._cycle = number, cycle

    def time(self, times: CycleTimes) -> None:
        if self._cycle is None:
            return  # Nothing happened that the journal keeps.
        (number, cycle), self._cycle = self._cycle, None
        plan = cycle.plan
        end_ns = time_ns()
        span = self._tracer.start_span(
            "hocket.cycle",
            start_time=end_ns - int(times.cycle_s * _NS),
            attributes={
                "hocket.cycle": number,
                "hocket.policy": self._engine.policy.policy.name,
                "hocket.events": len(cycle.events),
                "hocket.decisions": len(times.decisions_s),
                "hocket.decision_s": sum(times.decisions_s),
                "hocket.journal_append_s": times.append_s,
                "hocket.changes": 0 if plan is None else len(plan.put) + len(plan.drop) + len(plan.ends),
                "hocket.refused": [why[:200] for why in cycle.refused[:5]],
            },
        )
        span.end(end_ns)
