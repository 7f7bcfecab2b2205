"""Workers take blocks as they are free; results are taken in the order of the blocks."""

import signal
import threading
from collections.abc import Iterator

import pytest

from hocket.runtimes.paramserver.worker_pool import WorkerPool


@pytest.fixture(params=[1, 3])
def pool(request: pytest.FixtureRequest) -> Iterator[WorkerPool]:
    found = WorkerPool(request.param)
    yield found
    found.close()


def test_results_are_taken_in_order_though_the_first_is_the_last_to_be_there() -> None:
    pool, last_is_there, taken = WorkerPool(3), threading.Event(), []  # type: ignore[var-annotated]

    def work(item: int) -> int:
        if item == 2:
            last_is_there.set()
        elif item == 0:
            assert last_is_there.wait(60)
        return item * 10

    pool.each([0, 1, 2], work, lambda item, result: taken.append((item, result)))
    pool.close()
    assert taken == [(0, 0), (1, 10), (2, 20)]


def test_an_error_ends_it_and_no_later_result_is_taken(pool: WorkerPool) -> None:
    taken: list[int] = []

    def work(item: int) -> int:
        if item == 4:
            raise ValueError("item 4")
        return item

    with pytest.raises(ValueError, match="item 4"):
        pool.each(list(range(50)), work, lambda item, _result: taken.append(item))
    assert taken == list(range(len(taken)))
    assert len(taken) <= 4
    pool.each([7], work, lambda item, _result: taken.append(item))  # It goes on with something else.
    assert taken[-1] == 7


def test_an_error_in_taking_ends_it_too(pool: WorkerPool) -> None:
    def take(item: int, _result: int) -> None:
        if item == 3:
            raise KeyError(item)

    with pytest.raises(KeyError):
        pool.each(list(range(50)), lambda item: item, take)


def test_an_interrupt_ends_it_before_the_next_items() -> None:
    begun: list[int] = []
    both, interrupted = threading.Barrier(2), threading.Event()
    pool = WorkerPool(2)

    def work(item: int) -> int:
        begun.append(item)
        if item < 2:
            both.wait(60)
        elif item == 2:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            assert interrupted.wait(60)
        return item

    try:
        with pytest.raises(KeyboardInterrupt):
            pool.each(list(range(50)), work, lambda _item, _result: None)
    finally:
        interrupted.set()
        pool.close()
    assert len(begun) <= 5


def test_all_rows_are_worked_on_once(pool: WorkerPool) -> None:
    for rows in (0, 1, 5, 1000):
        seen = [0] * rows

        def work(first: int, behind: int, seen: list[int] = seen) -> None:
            for row in range(first, behind):
                seen[row] += 1

        pool.over_rows(rows, 100_000, work)
        assert seen == [1] * rows


def test_an_error_in_rows_is_raised(pool: WorkerPool) -> None:
    def work(first: int, _behind: int) -> None:
        if first > 20:
            raise ValueError("a row")

    with pytest.raises(ValueError, match="a row"):
        pool.over_rows(100, 1 << 19, work)
