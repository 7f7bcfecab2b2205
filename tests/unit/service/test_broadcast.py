"""Changes, told to whoever listens."""

from hocket.service.broadcast import Broadcast


def test_who_listens_hears_of_all_that_comes_from_then_on_though_it_asks_later() -> None:
    broadcast = Broadcast()
    broadcast.say(["before"])
    first, second = broadcast.listen(), broadcast.listen()
    broadcast.say(["a", "b"])
    assert [next(first), next(first)] == [next(second), next(second)] == ["a", "b"]


def test_nothing_is_kept_for_one_who_left_before_it_asked() -> None:
    broadcast = Broadcast()
    listener = broadcast.listen()
    assert len(broadcast._listeners) == 1
    del listener
    assert len(broadcast._listeners) == 0
