"""Traces of cycles, as a collector gets them over HTTP."""

import gzip
import logging
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from hocket.service.cycle_traces import trace_cycles


@pytest.fixture
def collector():
    """Its address, and the bodies that came."""
    bodies = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            packed = self.headers.get("Content-Encoding") == "gzip"
            bodies.append((self.path, gzip.decompress(body) if packed else body))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Collector)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", bodies
    server.shutdown()
    thread.join()
    server.server_close()


def test_each_cycle_is_a_span(engine, collector, monkeypatch):
    pytest.importorskip("opentelemetry.sdk", reason="pip install 'hocket[otel]'")
    messages = pytest.importorskip(
        "opentelemetry.proto.collector.trace.v1.trace_service_pb2", reason="pip install 'hocket[otel]'"
    )
    url, bodies = collector
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
    before = engine.cycles
    close = trace_cycles(engine, {"OTEL_EXPORTER_OTLP_ENDPOINT": url})
    engine.executor.post(lambda _state, _now_s: []).result(60)
    engine.executor.post(lambda _state, _now_s: []).result(60)
    engine.close()  # The last cycle is over.
    close()
    spans = []
    for path, body in bodies:
        assert path == "/v1/traces"
        request = messages.ExportTraceServiceRequest.FromString(body)
        spans += [s for r in request.resource_spans for scope in r.scope_spans for s in scope.spans]
    assert {s.name for s in spans} == {"hocket.cycle"}
    told = [{a.key: a.value for a in s.attributes} for s in spans]
    numbers = [each["hocket.cycle"].int_value for each in told]
    assert numbers == list(range(before + 1, engine.cycles + 1))
    assert {each["hocket.policy"].string_value for each in told} == {"las"}
    for span, each in zip(spans, told, strict=True):
        assert span.end_time_unix_nano - span.start_time_unix_nano >= 1e9 * each["hocket.journal_append_s"].double_value


def test_nothing_is_sent_unless_a_collector_is_named(engine):
    assert trace_cycles(engine, {}) is None
    assert trace_cycles(engine, {"OTEL_EXPORTER_OTLP_ENDPOINT": ""}) is None
    assert trace_cycles(engine, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_SDK_DISABLED": "true"}) is None


def test_without_the_extra_it_says_what_to_install(engine, monkeypatch, caplog):
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.resources", None)
    with caplog.at_level(logging.WARNING, "hocket.service"):
        assert trace_cycles(engine, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}) is None
    assert "pip install 'hocket[otel]'" in caplog.text
