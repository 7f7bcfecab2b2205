"""What is kept for the next decision: taken out by one at a time, few of them, and nothing that broke off."""

import sys
import threading

import pytest

from hocket.policies.kit import decision_cache
from hocket.policies.kit.decision_cache import borrow, clear


@pytest.fixture(autouse=True)
def _nothing_kept():
    clear()
    yield
    clear()


def test_what_was_put_back_is_found_again():
    with borrow("a", list) as first:
        first.append(1)
    with borrow("a", list) as again, borrow("a", list) as another:
        assert again is first
        assert another == [], "the first is in use"


def test_what_broke_off_is_not_kept():
    with pytest.raises(ZeroDivisionError), borrow("a", list) as found:
        found.append(1 / 0)
    with borrow("a", list) as found:
        assert found == []


def test_few_are_kept_the_latest():
    for n in range(20):
        with borrow(n, list) as found:
            found.append(n)
    assert list(decision_cache._kept) == list(range(12, 20))


def test_threads_do_not_meet():
    broken = []

    def work(me):
        try:
            for n in range(4000):
                with borrow((n * me) % 40, set) as found:
                    found.add(me)
                    assert me in found
        except BaseException as error:
            broken.append(error)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=work, args=(me,)) for me in range(1, 7)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert not broken
