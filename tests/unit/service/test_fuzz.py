"""The API fuzzed from its own description: whatever comes, the answer is never a 500."""

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from tests.unit.service.conftest import TOKEN
from tests.unit.service.route_fuzz import RouteFuzz, fuzz_all

ROUNDS = 7  # at most, for each route
LONG = 1000  # characters


def without_long_patterns(part):
    """A description whose long texts have a pattern only: with a length it would be compiled that many times over."""
    if isinstance(part, list):
        return [without_long_patterns(each) for each in part]
    if not isinstance(part, dict):
        return part
    is_long = isinstance(part.get("pattern"), str) and part.get("maxLength", 0) > LONG
    return {key: without_long_patterns(each) for key, each in part.items() if not (is_long and key == "maxLength")}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_whatever_comes_the_answer_is_no_500(app, port):
    schemathesis = pytest.importorskip("schemathesis")
    schema = schemathesis.openapi.from_dict(without_long_patterns(app.openapi()))
    headers = {"Authorization": "Bearer a-token-of-the-tests"}
    tried = 0
    for found in schema.get_all_operations():
        operation = found.ok()
        if operation.path in ("/v1/events", "/v1/down"):
            continue  # The first never ends; the second is the end.

        @settings(
            max_examples=ROUNDS, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck),
            database=None,
        )  # fmt: skip
        @given(operation.as_strategy())
        def try_it(case):
            nonlocal tried
            answer = case.call(base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=120)
            tried += 1
            assert answer.status_code < 500, (case.path, answer.status_code, answer.text)

        try_it()
    assert tried > 100


def test_no_route_answers_without_a_token_or_breaks(engine, port):
    engine.sessions.lease_s = 0.3  # A call for orders stands for a third of it.
    fuzz = RouteFuzz(port, TOKEN)
    fuzz_all(fuzz, 8)
    fuzz.close()
    assert fuzz.statuses[200] > 50, "some got past the first check"
    assert fuzz.statuses[401] > 100
