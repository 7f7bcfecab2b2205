"""The controllers that an agent may have: the one that it calls, and those that may take over its journal."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable
from contextlib import closing
from http.client import HTTPException

from hocket.agent.address import connection

_log = logging.getLogger("hocket.agent")
_LOOK_S = 2.0  # for one of them to answer
_MOST = 16


class Controllers:
    """For many threads. What was told is kept in a file, for an agent that is started while its controller is gone."""

    def __init__(self, url: str, file: str, ca: str = "") -> None:
        """`url` is tried first. Raises ValueError for one that is none."""
        connection(url, _LOOK_S, ca)
        self.url = url  # of the one that leads, as far as is known
        self._first, self._file, self._ca = url, file, ca
        self._known = _read(file)
        self.when_changed: list[Callable[[], None]] = []  # are called when another one leads

    def learn(self, urls: tuple[str, ...]) -> None:
        """The controller that leads says which there are."""
        if not urls or urls == self._known:
            return
        self._known = urls
        _log.info("controllers: %s", ", ".join(urls))
        part = f"{self._file}.new"
        try:
            with open(part, "w", encoding="utf-8") as file:
                json.dump(urls, file)
            os.replace(part, self._file)
        except OSError as error:
            _log.warning("'%s' cannot be written: %s", self._file, error)

    def find_leader(self) -> bool:
        """Ours does not answer: call another one that says that it leads, if there is one."""
        for url in self._others():
            if _leads(url, self._ca):
                _log.warning("the controller at %s leads now; it was %s", url, self.url)
                self.url = url
                for call in self.when_changed:
                    call()
                return True
        return False

    def _others(self) -> list[str]:
        # A controller that was called over TLS cannot make this agent call others without it.
        is_secure = self.url.startswith("https:")
        known = dict.fromkeys((self._first, *self._known))
        return [url for url in known if url != self.url and (url.startswith("https:") or not is_secure)][:_MOST]


def _leads(url: str, ca: str) -> bool:
    """A controller that stands by is not listening, and one that lost its journal says that it is not well."""
    try:
        with closing(connection(url, _LOOK_S, ca)) as link:
            link.request("GET", "/v1/health")
            return link.getresponse().status == 200
    except (OSError, ValueError, HTTPException):
        return False


def _read(file: str) -> tuple[str, ...]:
    try:
        with open(file, encoding="utf-8") as kept:
            found = json.load(kept)
    except (OSError, ValueError):
        return ()
    return tuple(url for url in found if isinstance(url, str)) if isinstance(found, list) else ()
