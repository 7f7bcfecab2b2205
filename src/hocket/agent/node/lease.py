"""The agent's lease: renewed by what the controller answers; without it, the runs of this node stand still."""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
import time
from urllib.parse import quote

import msgspec

from hocket.agent.lease_file import boot_id, boot_of_lease, boot_s, read_lease, write_lease
from hocket.agent.node.controller_link import Away, Gone, Link, Session
from hocket.agent.node.controllers import Controllers
from hocket.agent.protocol import Alive, Welcome

_log = logging.getLogger("hocket.agent")
_BEATS = 5  # calls in the time after which runs stand still
_LEAST_CALL_S = 1.0  # for an answer to come
_ALIVE = msgspec.json.Decoder(Alive)
_FOR_EVER = float("inf")
_UNFENCED_S = 5.0  # between looks whether there is a lease


class Lease:
    """For many threads. It says when the runs of this node must stand still, and keeps that in a file for sidecars."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._boot = boot_id()
        self._until_s = read_lease(path) or 0.0
        self._trouble = ""
        if boot_of_lease(path) != self._boot:  # Its time is of another boot, or of an agent that did not say.
            self._until_s = 0.0
        if boot_of_lease(path) not in ("", self._boot):
            self._extend(0.0)  # Nothing that starts from now on may go by it.

    @property
    def holds(self) -> bool:
        """Whether runs may go on."""
        with self._lock:
            return boot_s() < self._until_s

    def renew(self, sent_s: float, welcome: Welcome) -> None:
        """A call that was sent at this time of `boot_s` was answered."""
        self._extend(sent_s + welcome.fence_s if welcome.fence_s else _FOR_EVER)

    def extend(self, fence_s: float) -> None:
        """No controller lives that could start these runs elsewhere: they may go on, unless it is too late for that."""
        if self.holds:
            self._extend(boot_s() + fence_s)

    def _extend(self, until_s: float) -> None:
        with self._lock:
            was_over = boot_s() >= self._until_s
            is_new = _FOR_EVER in (until_s, self._until_s)  # The controller was replaced by an older or newer one.
            self._until_s = until_s if is_new else max(self._until_s, until_s)
            try:
                write_lease(self.path, self._until_s, self._boot)
                trouble = ""
            except OSError as error:  # A full disk; it has its 8 bytes already, unless it is new.
                trouble = str(error)
        if trouble and trouble != self._trouble:
            _log.error("the lease cannot be written, so that jobs stand still: %s", trouble)
        elif was_over:
            _log.info("the lease is renewed: runs may go on")
        self._trouble = trouble


class Heartbeat:
    """Calls the controller several times in each lease, whatever the other threads do."""

    def __init__(
        self, link: Link, session: Session, lease: Lease, controllers: Controllers, controller_lock: str = ""
    ) -> None:
        self._link, self._session, self._lease, self._controllers = link, session, lease, controllers
        self._controller_lock = controller_lock  # the lock file of a controller's journal on this machine; or empty
        self._fence_s = 0.0

    def beat(self) -> None:
        """Call once, and wait until the next call is due."""
        session = ""
        try:
            welcome = self._session.joined(self._link)
            session = welcome.session
            if not welcome.fence_s:  # An older controller knows no such call.
                time.sleep(_UNFENCED_S)
                return
            self._fence_s = welcome.fence_s
            sent_s = boot_s()
            path = f"/v1/agents/{quote(welcome.session, safe='')}/alive"
            answer = self._link.call("POST", path, within_s=max(welcome.fence_s / 4, _LEAST_CALL_S))
        except Gone:
            self._session.is_gone(session)  # Or hello itself was answered so.
            raise
        except Away:
            if self._controller_lock and controller_is_dead(self._controller_lock):
                self._lease.extend(self._fence_s)
            if self._controllers.find_leader():
                self._session.leave()
            raise
        self._controllers.learn(_ALIVE.decode(answer).controllers)
        if self._session.is_settled(welcome.session):
            self._lease.renew(sent_s, welcome)
        time.sleep(welcome.fence_s / _BEATS)


def controller_is_dead(lock_file: str) -> bool:
    """Whether no process of this machine holds a journal; in doubt, one does."""
    try:
        with open(lock_file, encoding="utf-8") as file:
            holder = json.load(file)
        if holder["host"] != socket.gethostname():
            return False
        os.kill(int(holder["pid"]), 0)
    except (FileNotFoundError, ProcessLookupError):
        return True
    except (OSError, ValueError, KeyError, TypeError):
        return False
    return False
