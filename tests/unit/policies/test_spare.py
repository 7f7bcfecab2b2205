"""What is kept for the next decision: taken out by one at a time, few of them, and nothing that broke off."""

import sys
import threading

import pytest

from hocket.policies import spare
from hocket.policies.spare import forget, taken_out


@pytest.fixture(autouse=True)
def _nothing_kept():
    forget()
    yield
    forget()


def test_what_was_put_back_is_found_again():
    with taken_out("a", list) as first:
        first.append(1)
    with taken_out("a", list) as again, taken_out("a", list) as another:
        assert again is first
        assert another == [], "somebody works with the first"


def test_what_broke_off_is_not_kept():
    with pytest.raises(ZeroDivisionError), taken_out("a", list) as found:
        found.append(1 / 0)
    with taken_out("a", list) as found:
        assert found == []


def test_few_are_kept_the_latest():
    for n in range(20):
        with taken_out(n, list) as found:
            found.append(n)
    assert list(spare._spare) == list(range(12, 20))


def test_threads_do_not_meet():
    broken = []

    def work(me):
        try:
            for n in range(4000):
                with taken_out((n * me) % 40, set) as found:
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
