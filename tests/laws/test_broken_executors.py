"""The laws can fail: an executor that breaks one is found by that law, and told so in a few lines."""

import pytest
from tests.laws.broken_executors import BROKEN

from hocket.testing import executor_laws
from hocket.testing.laws import Broken


@pytest.mark.parametrize(
    ("law", "under", "expected"), BROKEN, ids=[f"{under.name}: {law}" for law, under, _expected in BROKEN]
)
def test_the_law_finds_an_executor_that(law, under, expected):
    with pytest.raises(Broken) as found:
        executor_laws.keep(law, under())
    lines = str(found.value).splitlines()
    assert lines[0].startswith(f"executor '{under.name}' breaks the law '{law}'"), "\n".join(lines)
    assert len(lines) <= 12
    assert [line.partition(":")[0] for line in lines[1:4]] == ["the law", "expected", "seen"]
    assert expected in lines[2], "\n".join(lines)
    assert lines[-1].startswith("repeat it: python -m pytest '")
    assert max(map(len, lines)) <= 400


def test_every_law_is_broken_by_some_executor():
    assert {law for law, _under, _expected in BROKEN} == set(executor_laws.LAWS)
