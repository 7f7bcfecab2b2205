"""Events as journals write them: what an earlier version wrote can be read, and what is written now, by it too."""

import msgspec

from hocket.model.event import JobAsked, JobRequest

WRITTEN = b'{"event":"JobAsked","at_s":3.0,"job":"a","wish":"pause","by":"ann"}'


def test_a_request_is_called_wish_in_journals():
    asked = JobAsked(3.0, "a", JobRequest.PAUSE, "ann")
    assert msgspec.json.encode(asked) == WRITTEN
    assert msgspec.json.decode(WRITTEN, type=JobAsked) == asked
