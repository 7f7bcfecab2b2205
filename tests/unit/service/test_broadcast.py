"""Changes, sent to all listeners."""

import asyncio
import gc
from threading import Thread

import pytest

from hocket.service import broadcast as broadcast_file
from hocket.service.broadcast import Broadcast


def say(broadcast: Broadcast, *jobs: str) -> None:
    """As the controller's thread does."""
    thread = Thread(target=broadcast.publish, args=(list(jobs),))
    thread.start()
    thread.join()


def test_a_listener_gets_all_that_comes_from_then_on_though_it_asks_later() -> None:
    async def listen() -> list[bytes]:
        broadcast = Broadcast(lambda job: f"<{job}>".encode() if job != "unknown" else b"")
        say(broadcast, "before")
        first, second = broadcast.listen(), broadcast.listen()
        say(broadcast, "a", "b")
        heard = [await anext(first), await anext(second)]
        waiting = asyncio.ensure_future(anext(first))
        await asyncio.sleep(0)
        say(broadcast, "unknown")  # An empty part would end the answer.
        say(broadcast, "c")
        return [*heard, await waiting]

    assert asyncio.run(listen()) == [b"<a><b>", b"<a><b>", b"<c>"]


def test_a_listener_that_is_too_slow_is_told_so_and_one_that_hears_nothing_that_all_is_well(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(broadcast_file, "_WAITING", 2)
    monkeypatch.setattr(broadcast_file, "_KEEP_ALIVE_S", 0.01)

    async def listen() -> list[bytes]:
        broadcast = Broadcast(str.encode)
        listener = broadcast.listen()
        say(broadcast, "a", "b", "c")
        say(broadcast, "d")
        await asyncio.sleep(0)
        return [await anext(listener), await anext(listener)]

    assert asyncio.run(listen()) == [b"abevent: missed\ndata: {}\n\n", b": still here\n\n"]


def test_nothing_is_kept_for_a_listener_that_left_before_it_asked() -> None:
    async def listen() -> list[int]:
        broadcast = Broadcast(str.encode)
        listener = broadcast.listen()
        counts = [len(broadcast._listeners)]
        del listener
        gc.collect()
        return [*counts, len(broadcast._listeners)]

    assert asyncio.run(listen()) == [1, 0]


def test_sending_without_listeners_is_no_error() -> None:
    broadcast = Broadcast(str.encode)

    async def listen() -> object:
        return broadcast.listen()

    listener = asyncio.run(listen())
    say(broadcast, "a")
    assert listener is not None


def test_many_changes_are_told_in_order_and_the_event_loop_serves_others_in_between(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(broadcast_file, "_AT_ONCE", 2)
    done: list[str] = []

    def told(job: str) -> bytes:
        done.append(job)
        return job.encode()

    async def listen() -> bytes:
        broadcast = Broadcast(told)
        listener = broadcast.listen()
        say(broadcast, *"abcde")
        asyncio.get_running_loop().call_soon(done.append, "other")
        say(broadcast, "f")
        heard = b""
        while len(heard) < 6:
            heard += await anext(listener)
        return heard

    assert asyncio.run(listen()) == b"abcdef"
    assert done == ["a", "b", "other", "c", "d", "e", "f"]
