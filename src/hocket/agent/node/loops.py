"""The two loops that call the controller, each in a thread of its own: one takes orders, one sends reports."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import NamedTuple
from urllib.parse import quote

import msgspec

from hocket.agent.lease_file import boot_s
from hocket.agent.logs import log_files, read_log
from hocket.agent.node.controller_link import Away, CallRefused, Gone, Link, Patience, Session
from hocket.agent.node.gpus import GpuUsage
from hocket.agent.node.lease import Lease
from hocket.agent.node.query_run import last_answer
from hocket.agent.node.runs import Runs
from hocket.agent.node.state_folder import StateFolder
from hocket.agent.protocol import Order, ReadAnswer, ReadLog, ReportsAccepted, Welcome

_log = logging.getLogger("hocket.agent")
_MARGIN_S = 15.0  # for the answer to a call for orders, beyond the time it may stand
_GAP_S = 0.02  # between calls with reports, lest a hundred jobs make a thousand calls
_ORDER = msgspec.json.Decoder(Order)


class _Received(msgspec.Struct, frozen=True):
    """As `Numbered`, with an order that is not read yet."""

    n: int
    order: msgspec.Raw


_RECEIVED = msgspec.json.Decoder(list[_Received])
_HEARD = msgspec.json.Decoder(ReportsAccepted)


def repeat_in_thread(call: Callable[[], None], fail: Callable[[str], None]) -> None:
    """Call again and again, in a new thread; an error for which there is no remedy ends the agent."""

    def go_on() -> None:
        patience = Patience()
        while True:
            try:
                call()
                patience.reset()
            except (Away, Gone) as trouble:
                time.sleep(patience.wait_s(trouble))
            except CallRefused as error:
                fail(str(error))
                return
            except Exception as error:  # Whatever comes, the agent goes on: its jobs depend on it.
                if patience.is_news(error):
                    _log.exception("bug, or nonsense from the controller; trying again")
                time.sleep(patience.wait_s(error))

    threading.Thread(target=go_on, daemon=True).start()


class OrderLoop:
    """Takes orders. The next are asked for when these are carried out, so that none is taken and forgotten."""

    def __init__(self, link: Link, session: Session, runs: Runs, state: StateFolder, lease: Lease) -> None:
        self._link, self._session, self._runs, self._state, self._lease = link, session, runs, state, lease
        self._of, self._after = "", 0

    def take(self) -> None:
        """Wait for orders, and carry them out."""
        welcome = self._session.joined(self._link)
        if welcome.session != self._of:
            self._of, self._after = welcome.session, 0
            self._settle(welcome, self._session.said_s)
        path = f"/v1/agents/{quote(self._of, safe='')}/orders?after={self._after}"
        sent_s = boot_s()
        try:
            answer = self._link.call("GET", path, within_s=welcome.poll_s + _MARGIN_S)
        except Gone:
            self._session.is_gone(self._of)
            raise
        received = _RECEIVED.decode(answer)
        _log.debug("%d orders after %d", len(received), self._after)
        for each in received:
            if each.n > self._after:
                if not self._session.carry_out(self._of, partial(self._carry_out, each)):
                    return  # The answer is late: these orders are of another session.
                self._after = each.n
        self._settle(welcome, sent_s)

    def _carry_out(self, received: _Received) -> None:
        try:
            order = _ORDER.decode(received.order)
        except msgspec.MsgspecError as error:  # One that cannot be read must not keep the others from being taken.
            _log.error("order %d cannot be read, and is left out: %s", received.n, error)
            return
        if not isinstance(order, ReadLog | ReadAnswer):
            self._runs.carry_out(order)
            return
        try:
            self._send(order.request, self._read(order))
        except Gone:
            raise
        except Exception:
            _log.exception("bug: order %d, for a part of a log or an answer, is left out", received.n)

    def _settle(self, welcome: Welcome, sent_s: float) -> None:
        """What was ordered when the session began is done: what runs here may go on."""
        if self._after >= welcome.orders:
            self._session.settle(welcome.session)
            self._lease.renew(sent_s, welcome)

    def _read(self, order: ReadLog | ReadAnswer) -> LogPart:
        if isinstance(order, ReadLog):
            return log_part(self._state, order)
        number, answer = last_answer(self._state, order.job)
        return LogPart(number, 0, answer)

    def _send(self, request: str, part: LogPart) -> None:
        headers = {
            "Content-Type": "application/octet-stream",
            "X-Attempt": str(part.number),
            "X-Offset": str(part.offset),
            "X-Next-Offset": str(part.offset + len(part.data)),
        }
        path = f"/v1/agents/{quote(self._of, safe='')}/logs/{quote(request, safe='')}"
        try:
            self._link.call("POST", path, part.data, headers)
        except Gone:
            self._session.is_gone(self._of)
            raise
        except (Away, CallRefused):  # The caller has stopped waiting, and can ask again.
            pass


class ReportLoop:
    """Says what is to be said, until it is heard."""

    def __init__(self, link: Link, session: Session, runs: Runs, gpus: GpuUsage) -> None:
        self._link, self._session, self._runs, self._gpus = link, session, runs, gpus

    def say(self) -> None:
        """Wait for something to say, and say it."""
        batch, session = self._runs.next_batch(), ""
        try:
            session = self._session.joined(self._link).session
            path = f"/v1/agents/{quote(session, safe='')}/reports"
            said = [self._gpus.added(report) for report in batch.reports()]
            _HEARD.decode(self._link.call("POST", path, msgspec.json.encode(said)))
        except Gone:
            self._session.is_gone(session)  # Or hello itself was answered so.
            self._runs.not_delivered()
            raise
        except CallRefused as error:
            if error.status not in (400, 413, 422):
                raise
            given_up = self._runs.rejected(batch)
            if given_up is not None:
                run = given_up.run
                extra = {"job": run.job, "run": run.number}
                _log.warning("a report is given up: %s: %s", error, given_up, extra=extra)
        except BaseException:
            self._runs.not_delivered()
            raise
        else:
            _log.debug("%d reports are in the controller's journal", len(said))
            self._runs.acknowledged(batch)
        time.sleep(_GAP_S)


_MOST_BYTES = 4 << 20  # in one answer; orders wait while it is sent


class LogPart(NamedTuple):
    """Where it begins: later than asked for when that was removed, and the end when there is no more."""

    number: int  # of the run; 0 if nothing is kept of it
    offset: int
    data: bytes


def log_part(state: StateFolder, order: ReadLog) -> LogPart:
    """Read it, across as many files as it takes."""
    kept = state.kept_run(order.job, order.number)
    if kept is None:
        return LogPart(0, 0, b"")
    number, folder = kept
    try:
        return LogPart(number, *_read(folder, order.offset, min(max(order.limit, 0), _MOST_BYTES)))
    except OSError:  # It was forgotten under our eyes.
        return LogPart(0, 0, b"")


def _read(folder: str, offset: int, limit: int) -> tuple[int, bytes]:
    end = _end(folder)
    place = min(end + offset, end) if offset < 0 else min(offset, end)
    begin, data = read_log(folder, max(place, 0), limit)
    while len(data) < limit:
        next_begin, more = read_log(folder, begin + len(data), limit - len(data))
        if not more or next_begin != begin + len(data):  # What comes next was removed meanwhile: that is another part.
            break
        data += more
    return begin, data


def _end(folder: str) -> int:
    start, path = log_files(folder)[-1]
    try:
        return start + os.stat(path).st_size
    except FileNotFoundError:
        return start
