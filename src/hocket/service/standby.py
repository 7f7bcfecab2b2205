"""A controller that stands by: it waits until the journal can be had, and then takes over."""

from __future__ import annotations

import logging
from collections.abc import Callable
from hashlib import sha256
from time import sleep
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct

from hocket.control.journal import JournalAway, JournalHeld, standby_of
from hocket.service.home import Home

if TYPE_CHECKING:
    from hocket.control.journal.postgresql_standby import PostgresqlStandby

_log = logging.getLogger("hocket.service")
_EVERY_S = 0.25
T = TypeVar("T")


def token_digest(home: Home) -> str:
    """A digest of the home's token, by which two controllers see that they have the same one."""
    return sha256(home.token.encode()).hexdigest()


class StandbyOptions(Struct, frozen=True):
    """How a controller stands by."""

    takeover_s: float  # a controller that stands still for so long loses the journal
    say: Callable[[str], None]  # is told what holds the journal, whenever that changes


def when_free(home: Home, store: str, called_at: str, options: StandbyOptions, take: Callable[[], T]) -> T:
    """Wait until no other controller has the journal, and take it. Raises JournalError for what waiting does not mend.

    This controller will be called at `called_at`.
    """
    while True:
        _wait(home, standby_of(store, called_at, token_digest(home), options.takeover_s), options.say)
        try:
            return take()
        except (JournalHeld, JournalAway) as error:  # Another one that stood by was first, or the database is gone.
            _log.info("%s", error)


def _wait(home: Home, standby: PostgresqlStandby, say: Callable[[str], None]) -> None:
    holder = trouble = ""
    try:
        while True:
            try:
                now = standby.holder()
            except JournalAway as error:
                if str(error) != trouble:  # A server that is restarted, or a network that is down.
                    trouble = str(error)
                    _log.warning("%s; trying again", trouble)
                sleep(_EVERY_S)
                continue
            home.tell_controllers(standby.controllers())
            if not now:
                return
            if now != holder:
                holder = now
                _log.info("stands by: the journal is held by %s", now)
                say(now)
            trouble = ""
            sleep(_EVERY_S)
    finally:
        standby.close()
