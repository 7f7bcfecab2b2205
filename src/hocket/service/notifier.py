"""Sends notifications, in threads of its own: the controller never waits for a receiver.

At least once: how far it has come stands in a file, and after a crash the journal is read from there. Each target
gets its notifications one at a time and in order; a target that does not answer delays no other.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from threading import Condition, Thread
from time import monotonic

import msgspec
from msgspec import Struct

from hocket.control.ports import Cycle, DurableJournal
from hocket.model.notify_target import shown_target
from hocket.service.catalogue import Catalogue
from hocket.service.ended_jobs import EndedJobsError
from hocket.service.home import Home
from hocket.service.notifications import Notification, NotifyEvent, notifications
from hocket.service.notify_delivery import deliver
from hocket.service.record import Record

_log = logging.getLogger("hocket.service")
ATTEMPTS = 5
BACKOFF_S = 1.0  # after the first failure, doubled each time
_WAITING = 1_000  # notifications of one target; more are dropped
_THREADS = 4
_CYCLES = 1_000  # without notifications, after which the file is brought up to date all the same
_CLOSE_S = 5.0  # for what is under way when the controller ends


class _Cursor(Struct, frozen=True):
    """What must survive a crash."""

    journal: str  # its name
    cycle: int  # all notifications up to this cycle are delivered or given up
    done: tuple[str, ...] = ()  # and these of later ones: their ids with their targets


class _Delivery(Struct, eq=False):
    cycle: int
    notification: Notification
    folder: str
    attempts: int = 0


class Notifier:
    """Follows the cycles of a journal, and sends users notifications of what happened to their jobs."""

    def __init__(
        self,
        home: Home,
        catalogue: Catalogue,
        targets: tuple[str, ...] = (),
        send: Callable[[str, Notification, str], str] = deliver,
    ) -> None:
        """Notifications of a job go to its own targets, and those of all jobs to `targets`."""
        self._home = home
        self._catalogue = catalogue
        self._targets = targets
        self._send = send
        self._file = home.notified_file
        self._journal = ""
        self._share: Callable[[str], None] = lambda _notes: None  # with the next controller
        self._changed = Condition()
        # All below is read and written with `_changed` held.
        self._queues: dict[str, deque[_Delivery]] = {}  # target → those not delivered; one under way is the first
        self._due: list[tuple[float, int, str]] = []  # heap: when to look at a target next; one entry for each queue
        self._scheduled = 0  # breaks ties in it
        self._open: dict[int, int] = {}  # cycle → how many of its deliveries are not done
        self._done: dict[str, int] = {}  # id and target of one that is done → its cycle
        self._seen = 0  # number of the last cycle
        self._saved_cursor: _Cursor | None = None
        self._under_way = 0
        self._is_leaving = self._is_closed = False
        self._threads = [Thread(target=self._work, name=f"notify-{n}", daemon=True) for n in range(_THREADS)]

    def start(self, journal: DurableJournal) -> None:
        """Take up what an earlier controller left, and begin to send. The catalogue is at the journal's end."""
        self._journal, length = journal.name, len(journal)
        self._share = journal.others.share_notes
        found = [cursor for cursor in (self._read(),) if cursor is not None and cursor.journal == journal.name]
        found += _notes(journal.others.notes_before())  # A controller of another home may have sent more.
        found = [cursor for cursor in found if cursor.cycle <= length]
        # There are no notifications of what happened before there was a file.
        cursor = max(found, key=lambda cursor: cursor.cycle, default=_Cursor(journal.name, length))
        if (begun := journal.beginning()) is not None and cursor.cycle < begun.number:
            _log.warning("notifications of cycles %d to %d are lost: they were removed", cursor.cycle + 1, begun.number)
            cursor = _Cursor(journal.name, begun.number)
        self._seen = cursor.cycle
        done = set(cursor.done)
        for number, cycle in enumerate(journal.after(cursor.cycle), cursor.cycle + 1):
            self.add_cycle(number, cycle, done)
        with self._changed:
            if self._open:
                _log.info("%d notifications of before the start are sent now", sum(self._open.values()))
            self._save_cursor()
        for thread in self._threads:
            thread.start()

    def add_cycle(self, number: int, cycle: Cycle, done: set[str] | frozenset[str] = frozenset()) -> None:
        """Take in a cycle that is in the journal, except what is `done`. Never waits, never raises."""
        try:
            found = [
                (record, notification)
                for record, notification in notifications(number, cycle, self._catalogue.records, self._find)
                if not (self._is_leaving and notification.event is NotifyEvent.PAUSE)  # `hocket down` is no policy.
            ]
        except Exception:
            _log.exception("notifications of cycle %d are lost", number)
            found = []
        with self._changed:
            self._seen = max(self._seen, number)
            for record, notification in found:
                launch = record.job.launch
                own = launch.notify if launch is not None else ()
                folder = (launch.cwd if launch is not None else "") or str(self._home.path)
                for target in dict.fromkeys((*own, *self._targets)):
                    if _key(notification, target) in done:
                        self._done[_key(notification, target)] = number
                    else:
                        self._put(target, _Delivery(number, notification, folder))
            if self._saved_cursor is not None and self._seen >= self._saved_cursor.cycle + _CYCLES:
                self._changed.notify()

    def leave(self) -> None:
        """The controller goes down: the pauses of all jobs that follow are not notified."""
        self._is_leaving = True

    def close(self) -> None:
        """Finish what is under way, within a few seconds; the next controller sends the rest."""
        until_s = monotonic() + _CLOSE_S
        with self._changed:
            while (self._under_way or self._is_due()) and monotonic() < until_s:
                self._changed.wait(0.05)
            self._is_closed = True
            self._changed.notify_all()
            self._save_cursor()

    def _find(self, job_id: str) -> Record | None:
        try:
            return self._catalogue.get(job_id)
        except EndedJobsError as error:
            _log.warning("no notification of job '%s' is sent: %s", job_id, error)
            return None

    def _put(self, target: str, delivery: _Delivery) -> None:
        queue = self._queues.get(target)
        if queue is not None and len(queue) >= _WAITING:
            message = "a notification of job '%s' is dropped: %d wait for %s already"
            _log.warning(message, delivery.notification.job, len(queue), shown_target(target))
            return
        self._open[delivery.cycle] = self._open.get(delivery.cycle, 0) + 1
        if queue is None:
            self._queues[target] = queue = deque()
            self._schedule(target, 0.0)
        queue.append(delivery)

    def _schedule(self, target: str, at_s: float) -> None:
        self._scheduled += 1
        heappush(self._due, (at_s, self._scheduled, target))
        self._changed.notify()

    def _is_due(self) -> bool:
        return bool(self._due) and self._due[0][0] <= monotonic()

    # -- in the threads -----------------------------------------------------------------------------------------

    def _work(self) -> None:
        with self._changed:
            while not self._is_closed:
                if self._saved_cursor is None or self._seen >= self._saved_cursor.cycle + _CYCLES:
                    self._save_cursor()
                if not self._is_due():
                    self._changed.wait(self._due[0][0] - monotonic() if self._due else None)
                    continue
                _at_s, _n, target = heappop(self._due)
                delivery = self._queues[target][0]
                self._under_way += 1
                self._changed.release()
                try:
                    problem = self._try(target, delivery)
                finally:
                    self._changed.acquire()
                    self._under_way -= 1
                self._settle(target, delivery, problem)

    def _try(self, target: str, delivery: _Delivery) -> str:
        try:
            return self._send(target, delivery.notification, delivery.folder)
        except Exception as error:  # If the thread ended, its target would get no more notifications.
            _log.exception("an error in sending a notification")
            return f"{type(error).__name__}: {error}"

    def _settle(self, target: str, delivery: _Delivery, problem: str) -> None:
        """A target was tried: go on with its next notification, or repeat this one later."""
        delivery.attempts += 1
        notification = delivery.notification
        if problem and delivery.attempts < ATTEMPTS:
            again_s = BACKOFF_S * 2 ** (delivery.attempts - 1)
            message = "notification '%s' of job '%s' did not reach %s: %s; tried again in %g s"
            _log.warning(message, notification.event, notification.job, shown_target(target), problem, again_s)
            self._schedule(target, monotonic() + again_s)
            return
        if problem:
            message = "notification '%s' of job '%s' did not reach %s: %s; given up after %d attempts"
            _log.error(message, notification.event, notification.job, shown_target(target), problem, ATTEMPTS)
        else:
            _log.debug(
                "notification '%s' of job '%s' has reached %s",
                notification.event,
                notification.job,
                shown_target(target),
            )
        queue = self._queues[target]
        queue.popleft()
        if queue:
            self._schedule(target, 0.0)
        else:
            del self._queues[target]
        self._open[delivery.cycle] -= 1
        if not self._open[delivery.cycle]:
            del self._open[delivery.cycle]
        self._done[_key(notification, target)] = delivery.cycle
        self._save_cursor()

    # -- the file -----------------------------------------------------------------------------------------------

    def _save_cursor(self) -> None:
        """Write down how far we are, if that has changed."""
        cycle = min(self._open) - 1 if self._open else self._seen
        self._done = {key: of for key, of in self._done.items() if of > cycle}
        cursor = _Cursor(self._journal, cycle, tuple(self._done))
        if cursor == self._saved_cursor:
            return
        text = msgspec.json.encode(cursor).decode()
        self._share(text)
        try:
            self._home.write(self._file, text)
        except OSError as error:
            _log.warning("'%s' cannot be written (%s): some notifications may come twice", self._file, error)
        self._saved_cursor = cursor

    def _read(self) -> _Cursor | None:
        try:
            return msgspec.json.decode(self._file.read_bytes(), type=_Cursor)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.DecodeError) as error:
            _log.warning(
                "'%s' cannot be read (%s): no notifications are sent of what happened before this start",
                self._file,
                error,
            )
            return None


def _notes(notes: str) -> list[_Cursor]:
    """How far another controller came; its name of the journal may be another."""
    try:
        return [msgspec.json.decode(notes, type=_Cursor)] if notes else []
    except msgspec.DecodeError:
        return []


def _key(notification: Notification, target: str) -> str:
    return f"{notification.id} {target}"
