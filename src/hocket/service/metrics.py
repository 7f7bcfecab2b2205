"""Metrics for Prometheus: what the controller counts as it goes, and what it reads of its state when it is asked.

Names and units follow Prometheus' conventions. Labels have few values, whatever users do: see `MOST_OWNERS`.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import accumulate
from time import time

from anyio.to_thread import run_sync
from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from hocket import __version__
from hocket.control.ports import Cycle
from hocket.model.plan import Verdict
from hocket.model.snapshot import Snapshot, usage_of
from hocket.service import rows
from hocket.service.engine import CycleTimes, Engine
from hocket.service.host_names import HostNames
from hocket.service.permissions import PERMISSIONS

PATH = "/metrics"
MOST_OWNERS = 100  # that have series of their own, the first that are seen; others are counted together
OTHER_OWNERS = "(others)"
_BUCKETS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_LONG_CALLS = ("/v1/events", "/v1/agents/{session}/orders")  # They wait for something to happen: no delay is measured.
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"})
_NO_ROUTE = "(none)"
_Values = Iterable[tuple[tuple[str, ...], float]]  # labels and value


class _Distribution:
    """How often something took how long. One thread counts, without a lock: any may read."""

    __slots__ = ("counts", "sum_s")

    def __init__(self) -> None:
        self.counts = [0] * (len(_BUCKETS_S) + 1)  # by bucket; the last is for all that took longer
        self.sum_s = 0.0

    def observe(self, took_s: float) -> None:
        self.counts[bisect_left(_BUCKETS_S, took_s)] += 1
        self.sum_s += took_s


class Metrics(Collector):
    """All metrics of a controller. Each count has one thread that raises it; any thread may ask for them."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._events: dict[str, int] = {}  # kind → how many
        self._requests: dict[tuple[str, str, int], int] = {}  # method, route and status → how many
        self._routes: dict[str, tuple[str, str]] = {}  # a call as it is declared → method and route, as labels
        self._owners: set[str] = set()  # that have series of their own
        self._jobs_seen: set[tuple[str, str]] = set()  # states and owners: shown as 0 from then on
        self._registry = CollectorRegistry()

        self._cycle_s, self._decision_s, self._append_s = _Distribution(), _Distribution(), _Distribution()
        self._request_s: dict[str, _Distribution] = {}  # by method
        ProcessCollector(registry=self._registry)
        self._registry.register(self)
        engine.on_cycle.append(self._see)
        engine.on_cycle_timed.append(self._time)

    # -- the controller's thread ----------------------------------------------------------------------------

    def _see(self, _number: int, cycle: Cycle) -> None:
        """A cycle is in the journal."""
        counts = self._events
        for event in cycle.events:
            kind = type(event).__name__
            counts[kind] = counts.get(kind, 0) + 1

    def _time(self, times: CycleTimes) -> None:
        """A cycle is over."""
        self._cycle_s.observe(times.cycle_s)
        self._append_s.observe(times.append_s)
        for decision_s in times.decisions_s:
            self._decision_s.observe(decision_s)

    # -- the event loop's thread ----------------------------------------------------------------------------

    def count_request(self, call: str, status: int, took_s: float) -> None:
        """A request is answered; `call` is its method and its route as that is declared."""
        method, route = self._routes.get(call) or self._labels(call)
        key = method, route, status
        self._requests[key] = self._requests.get(key, 0) + 1
        if route not in _LONG_CALLS:
            self._request_s.setdefault(method, _Distribution()).observe(took_s)

    def _labels(self, call: str) -> tuple[str, str]:
        """Method and route, as few as there are: a path that no route serves may be anything."""
        method, _, path = call.partition(" ")
        if method not in _METHODS:
            return "OTHER", _NO_ROUTE
        if f"{'GET' if method == 'HEAD' else method} {path}" not in PERMISSIONS:
            return method, _NO_ROUTE
        found = self._routes[call] = method, path.replace(":path}", "}").replace(":text}", "}")
        return found

    # -- any thread -----------------------------------------------------------------------------------------

    def answer(self, accept: str = "") -> Response:
        """All metrics, as text in the format that the header `Accept` asks for."""
        encode, content_type = choose_encoder(accept)
        return Response(encode(self._registry), headers={"Content-Type": content_type})

    def describe(self) -> Iterable[Metric]:
        """Nothing: names are checked once, in a test, and not each time one is registered."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """What is read of the state when it is asked for."""
        snapshot = self._engine.snapshot
        yield from self._jobs(snapshot)
        yield from _devices(snapshot)
        yield from self._decisions()
        yield from self._durations()
        yield from self._journal()
        yield from self._agents(snapshot)
        requests = CounterMetricFamily(
            "hocket_http_requests_total", "Requests that were answered.", labels=("method", "route", "code")
        )
        for (method, route, status), count in list(self._requests.items()):
            requests.add_metric((method, route, str(status)), count)
        yield requests
        yield _gauge("hocket_build_info", "Version of this controller; always 1.", [((__version__,), 1)], "version")

    def _jobs(self, snapshot: Snapshot) -> Iterator[Metric]:
        counts: Counter[tuple[str, str]] = Counter(dict.fromkeys(self._jobs_seen, 0))
        for (state, owner), count in rows.live_counts_by_owner(snapshot).items():
            counts[state, self._owner(owner)] += count
        self._jobs_seen.update(counts)
        yield _gauge("hocket_jobs", "Live jobs.", counts.items(), "state", "owner")
        gpus: Counter[str] = Counter(dict.fromkeys(self._owners, 0))
        for owner, usage in usage_of(snapshot.partitions.values(), snapshot.jobs).items():
            gpus[self._owner(owner)] += usage.gpus
        by_owner = [((owner,), count) for owner, count in gpus.items()]
        yield _gauge("hocket_owner_devices", "Devices that the plan gives to jobs of an owner.", by_owner, "owner")
        ended: dict[str, int] = dict.fromkeys(map(str, Verdict), 0) | dict(self._engine.catalogue.over)
        over = [((verdict,), count) for verdict, count in ended.items()]
        yield _counter("hocket_jobs_ended_total", "Jobs that have ended since the journal began.", over, "verdict")

    def _owner(self, owner: str) -> str:
        if owner not in self._owners:
            if len(self._owners) >= MOST_OWNERS:
                return OTHER_OWNERS
            self._owners.add(owner)
        return owner

    def _decisions(self) -> Iterator[Metric]:
        engine = self._engine
        yield _counter("hocket_cycles_total", "Cycles since the journal began.", [((), engine.cycles)])
        adopted, refused = [((), engine.decisions)], [((), engine.refused_plans)]
        yield _counter("hocket_decisions_total", "Plans that were adopted since the journal began.", adopted)
        yield _counter("hocket_plans_refused_total", "Plans that broke a rule since the journal began.", refused)
        events = [((kind,), count) for kind, count in list(self._events.items())]
        yield _counter("hocket_events_total", "Events since this controller started.", events, "kind")

    def _durations(self) -> Iterator[Metric]:
        yield _histogram(
            "hocket_cycle_duration_seconds",
            "Time of a cycle, from taking in its events to sending its actions.",
            [((), self._cycle_s)],
        )
        what = "Time of a decision of the policy."
        yield _histogram("hocket_decision_duration_seconds", what, [((), self._decision_s)])
        what = "Time to write a cycle to the journal and sync it."
        yield _histogram("hocket_journal_append_duration_seconds", what, [((), self._append_s)])
        yield _histogram(
            "hocket_http_request_duration_seconds",
            "Time until a request is answered, without those that wait for events or orders.",
            [((method,), found) for method, found in list(self._request_s.items())],
            "method",
        )

    def _journal(self) -> Iterator[Metric]:
        engine = self._engine
        yield _gauge("hocket_journal_writable", "1 if the journal can be written, else 0.", [((), engine.is_writing)])
        yield _gauge(
            "hocket_journal_lag_seconds",
            "Age of the oldest request or report that is not in the journal yet; 0 if there is none.",
            [((), engine.executor.unwritten_s())],
        )
        if (size := _bytes(engine.journal.name)) is not None:
            yield _gauge("hocket_journal_size_bytes", "Size of the journal's files.", [((), size)])

    def _agents(self, snapshot: Snapshot) -> Iterator[Metric]:
        silent_s, now_s = self._engine.sessions.silent_s(), time()
        connected = [((node,), int(node in silent_s)) for node in dict.fromkeys((*snapshot.nodes, *silent_s))]
        yield _gauge("hocket_agent_connected", "1 if the agent of the node is connected, else 0.", connected, "node")
        yield _gauge(
            "hocket_agent_last_heard_timestamp_seconds",
            "When a connected agent last called, in seconds since 1970.",
            [((node,), now_s - for_s) for node, for_s in silent_s.items()],
            "node",
        )
        lease_s = self._engine.sessions.lease_s
        yield _gauge("hocket_agent_lease_seconds", "Silence after which an agent's node is lost.", [((), lease_s)])


def metrics_app(metrics: Metrics, hosts: HostNames) -> ASGIApp:
    """Metrics and nothing else, without a token, for a port of their own."""

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        headers = dict(scope["headers"])
        if wrong := hosts.problem(headers.get(b"host", b"")):
            answer = Response(f"{wrong}\n", 421, media_type="text/plain")
        elif scope["path"] != PATH:
            answer = Response(f"metrics are at {PATH}\n", 404, media_type="text/plain")
        elif scope["method"] not in ("GET", "HEAD"):
            answer = Response(f"{PATH} is read with GET\n", 405, media_type="text/plain")
        else:
            answer = await run_sync(metrics.answer, headers.get(b"accept", b"").decode("latin-1"))
        await answer(scope, receive, send)

    return serve


def _devices(snapshot: Snapshot) -> Iterator[Metric]:
    held: dict[str, int] = {}  # node → GPUs that jobs hold, as a mask: several may share one
    for view in snapshot.jobs.values():
        for tenancy in view.tenancies:
            holding = tenancy.holding or tenancy.coming
            for part in holding.slices if holding is not None else ():
                for gpu in part.gpus:
                    held[part.node] = held.get(part.node, 0) | 1 << gpu
    devices: Counter[tuple[str, str]] = Counter()
    nodes: Counter[str] = Counter({"up": 0, "drained": 0, "away": 0})
    for node in snapshot.nodes.values():
        kind, count = node.node.gpu_kind, node.node.gpus
        state = "away" if not node.up else "drained" if node.drained else "up"
        nodes[state] += 1
        if not node.up:
            devices[kind, "away"] += count
            continue
        busy = held.get(node.node.id, 0).bit_count()
        devices[kind, "busy"] += busy
        devices[kind, "drained" if node.drained else "idle"] += count - busy
    what = "Devices: busy, idle, drained (and idle) or away with their node."
    yield _gauge("hocket_devices", what, devices.items(), "kind", "state")
    by_state = [((state,), count) for state, count in nodes.items()]
    yield _gauge("hocket_nodes", "Nodes: up, drained or away.", by_state, "state")


def _histogram(name: str, what: str, values: Iterable[tuple[tuple[str, ...], _Distribution]], *labels: str) -> Metric:
    found = HistogramMetricFamily(name, what, labels=labels)
    for of, value in values:
        bounds = [*map(str, _BUCKETS_S), "+Inf"]
        found.add_metric(of, list(zip(bounds, accumulate(value.counts), strict=True)), value.sum_s)
    return found


def _gauge(name: str, what: str, values: _Values, *labels: str) -> Metric:
    found = GaugeMetricFamily(name, what, labels=labels)
    for of, value in values:
        found.add_metric(of, value)
    return found


def _counter(name: str, what: str, values: _Values, *labels: str) -> Metric:
    found = CounterMetricFamily(name, what, labels=labels)
    for of, value in values:
        found.add_metric(of, value)
    return found


def _bytes(journal: str) -> int | None:
    """The size of a journal in a file, with its write-ahead log; None if it is in a database."""
    try:
        size = os.stat(journal).st_size
    except OSError:
        return None
    try:
        return size + os.stat(f"{journal}-wal").st_size
    except OSError:
        return size
