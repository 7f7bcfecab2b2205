"""The notifier: order and independence of targets, attempts, bounds, and what a restart repeats."""

import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event as Flag
from threading import Lock, Thread

import pytest

from hocket.control.journal.memory import MemoryJournal
from hocket.control.journal.no_others import NoOthers
from hocket.control.ports import Beginning, Cycle, Header
from hocket.model.event import JobEnded, JobFailed, JobPaused, JobStarted, JobSubmitted, NodeLost
from hocket.model.job import Job, Launch
from hocket.model.partition import Partition, Tenant
from hocket.model.plan import Plan
from hocket.model.resources import Slice
from hocket.service import notifier as module
from hocket.service import notify_delivery
from hocket.service.catalogue import Catalogue
from hocket.service.home import Home
from hocket.service.notifications import notifications
from hocket.service.notifier import ATTEMPTS, Notifier


class Run:
    """A catalogue and a journal that are given cycles, and the notifier that follows them."""

    def __init__(self, path, send, targets=()):
        self.home = Home(path)
        self.home.make()
        self.journal = MemoryJournal(Header("fifo", {}, (), 0, "live"))
        self.catalogue = Catalogue()
        self.restart(send, targets)

    def restart(self, send, targets=()):
        self.notifier = Notifier(self.home, self.catalogue, targets, send)
        self.notifier.start(self.journal)

    def cycle(self, *events, seen=True):
        at_s = 100.0 + len(self.journal)
        cycle = Cycle(at_s, tuple(type(e)(at_s, *(getattr(e, f) for f in e.__struct_fields__[1:])) for e in events))
        self.journal.append(cycle)
        self.catalogue.add_cycle(cycle)
        if seen:
            self.notifier.add_cycle(len(self.journal), cycle)

    def ends(self, name, *targets, seen=True):
        job = Job(name, launch=Launch(notify=targets))
        self.cycle(JobSubmitted(0, job), seen=seen)
        self.cycle(JobEnded(0, name), seen=seen)


class Sent:
    """Keeps what is sent; targets that are `dead` refuse it."""

    def __init__(self, *dead):
        self.dead, self.got, self.tried, self.lock = set(dead), [], 0, Lock()

    def __call__(self, target, told, _folder):
        with self.lock:
            self.tried += 1
            if target in self.dead:
                return "it is dead"
            self.got.append((target, told.job))
            return ""


def until(holds):
    limit = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < limit
        time.sleep(0.005)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(module, "BACKOFF_S", 0.001)


def test_each_target_gets_its_own_in_order_and_one_that_stands_still_delays_no_other(tmp_path):
    free = Flag()
    sent = Sent()

    def send(target, told, folder):
        if target == "slow":
            free.wait(60)
        return sent(target, told, folder)

    run = Run(tmp_path, send)
    names = [f"j{n}" for n in range(20)]
    for name in names:
        run.ends(name, "slow", "quick")
    until(lambda: [job for target, job in sent.got if target == "quick"] == names)
    assert not [job for target, job in sent.got if target == "slow"]
    free.set()
    until(lambda: [job for target, job in sent.got if target == "slow"] == names)
    run.notifier.close()


def test_a_target_that_fails_is_tried_a_few_times_and_then_given_up(tmp_path, caplog):
    sent = Sent("dead")
    run = Run(tmp_path, sent)
    run.ends("a", "dead")
    until(lambda: "given up" in caplog.text)
    assert sent.tried == ATTEMPTS
    assert "notification 'end' of job 'a' did not reach dead: it is dead; given up after 5 attempts" in caplog.text
    run.notifier.close()
    run.restart(sent)
    run.ends("b", "alive")
    until(lambda: sent.got == [("alive", "b")])
    assert sent.tried == ATTEMPTS + 1  # What was given up stays so.
    run.notifier.close()


def test_a_queue_is_bounded(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(module, "_WAITING", 3)
    free, sent = Flag(), Sent()

    def send(target, told, folder):
        free.wait(60)
        return sent(target, told, folder)

    run = Run(tmp_path, send)
    for n in range(5):
        run.ends(f"j{n}", "slow")
    free.set()
    until(lambda: len(sent.got) == 3)
    run.notifier.close()
    assert [job for _, job in sent.got] == ["j0", "j1", "j2"]
    assert "a notification of job 'j4' is dropped: 3 wait for slow already" in caplog.text


class Before(NoOthers):
    """What a controller of another home left."""

    def __init__(self, notes):
        self.notes, self.kept = notes, ""

    def notes_before(self):
        return self.notes

    def share_notes(self, notes):
        self.kept = notes


def test_a_controller_that_took_over_sends_what_the_one_before_had_not(tmp_path):
    first, lost = Sent(), Sent()
    run = Run(tmp_path / "first", first)
    run.journal.others = Before("")
    run.restart(first)
    run.ends("a", "t")
    until(lambda: first.got == [("t", "a")])
    until(lambda: '"cycle":2' in run.journal.others.kept)
    run.ends("b", "t", seen=False)  # It was killed before it came to that.
    run.home = Home(tmp_path / "second")
    run.home.make()
    # An older cursor of its own does not make it repeat what the other has sent.
    run.home.notified_file.write_text('{"journal": "in memory", "cycle": 0}')
    run.journal.others = Before(run.journal.others.kept)
    run.restart(lost)
    until(lambda: bool(lost.got))
    run.notifier.close()
    assert lost.got == [("t", "b")]


@pytest.mark.parametrize("notes", ["nonsense", '{"journal": "x", "cycle": 99}'])
def test_notes_that_cannot_be_of_this_journal_are_passed_over(tmp_path, notes):
    sent = Sent()
    run = Run(tmp_path, sent)
    run.journal.others = Before(notes)
    run.restart(sent)
    run.ends("a", "t")
    until(lambda: sent.got == [("t", "a")])
    run.notifier.close()


def test_a_restart_sends_what_was_open_and_repeats_nothing(tmp_path):
    free, sent = Flag(), Sent()

    def send(target, told, folder):
        if target == "slow":
            free.wait(60)
            return "it was killed"
        return sent(target, told, folder)

    run = Run(tmp_path, send)
    run.ends("a", "slow", "quick")
    run.ends("b", "quick")
    until(lambda: len(sent.got) == 2)
    until(lambda: "4.0 quick" in run.home.notified_file.read_text())
    run.ends("c", "quick", seen=False)  # The controller was killed before the notifier saw it.
    later = Sent()
    run.restart(later)
    until(lambda: len(later.got) == 2)
    assert sorted(later.got) == [("quick", "c"), ("slow", "a")]
    run.notifier.close()
    last = Sent()
    run.restart(last)
    run.ends("d", "quick")
    until(lambda: bool(last.got))
    assert last.got == [("quick", "d")]
    run.notifier.close()
    free.set()


def test_jobs_of_before_the_first_start_are_not_told_of(tmp_path):
    sent = Sent()
    run = Run(tmp_path, sent)
    run.ends("old", "x", seen=False)
    run.home.notified_file.write_text("no JSON")
    run.restart(sent)
    run.ends("new", "x")
    until(lambda: bool(sent.got))
    assert sent.got == [("x", "new")]
    run.notifier.close()


def test_a_lost_node_is_a_failed_attempt_of_each_job_on_it():
    catalogue = Catalogue()
    put = [Partition("p", (Slice("n0", (0,)),), (Tenant("a", (1,)),))]
    catalogue.add_cycle(Cycle(1.0, (JobSubmitted(1.0, Job("a")), JobSubmitted(1.0, Job("b"))), Plan(put=tuple(put))))
    catalogue.add_cycle(Cycle(2.0, (JobStarted(2.0, "a"),)))
    lost = Cycle(3.0, (NodeLost(3.0, "n0"),))
    catalogue.add_cycle(lost)
    ((_, told),) = notifications(3, lost, catalogue.records, catalogue.get)
    assert (told.job, told.event, told.state, told.reason) == ("a", "retry", "waiting", "lost its node 'n0'")
    assert (told.id, told.ran_s) == ("3.0.1", 1.0)


def test_the_code_of_a_job_that_failed_for_good_is_told():
    catalogue = Catalogue()
    catalogue.add_cycle(Cycle(1.0, (JobSubmitted(1.0, Job("a~2", owner="ann")),)))
    failed = Cycle(2.0, (JobFailed(2.0, "a~2", "it was killed by SIGKILL", final=True, code=137), JobPaused(2.0, "x")))
    catalogue.add_cycle(failed)
    ((_, told),) = notifications(2, failed, catalogue.records, catalogue.get)
    assert (told.event, told.state, told.exit_code, told.name) == ("end", "failed", 137, "a")
    assert told.text == "job 'a~2' of ann: failed (it was killed by SIGKILL)"


def _told():
    catalogue = Catalogue()
    cycle = Cycle(1.0, (JobSubmitted(1.0, Job("a")), JobEnded(1.0, "a")))
    catalogue.add_cycle(cycle)
    ((_, told),) = notifications(1, cycle, catalogue.records, catalogue.get)
    return told


def test_a_command_that_does_not_end_is_killed_with_its_children(tmp_path, monkeypatch):
    monkeypatch.setattr(notify_delivery, "TIMEOUT_S", 0.5)
    line = "sh -c 'sleep 600 & echo $! > child; wait'"
    assert notify_delivery.deliver(line, _told(), str(tmp_path)) == "it ran longer than 0.5 s and was killed"
    child = (tmp_path / "child").read_text().strip()

    def is_gone():
        try:
            with open(f"/proc/{child}/stat") as file:
                return file.read().rpartition(")")[2].split()[0] == "Z"
        except OSError:
            return True

    until(is_gone)


def test_what_is_wrong_with_a_command_or_a_url_is_said(tmp_path):
    said = notify_delivery.deliver("sh -c 'echo no mail >&2; exit 4'", _told(), str(tmp_path))
    assert said == "it ended with 4: no mail"
    assert "No such file" in notify_delivery.deliver("/no/such/command", _told(), str(tmp_path / "gone"))
    assert "refused" in notify_delivery.deliver("http://127.0.0.1:1/x", _told(), str(tmp_path))


def test_a_redirect_is_not_followed_and_is_a_failure(tmp_path):
    asked = []

    class Elsewhere(BaseHTTPRequestHandler):
        def do_POST(self):
            asked.append(self.path)
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(302)
            self.send_header("Location", "/elsewhere")
            self.end_headers()

        def do_GET(self):
            asked.append(self.path)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_args):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Elsewhere)
    Thread(target=server.serve_forever, daemon=True).start()
    said = notify_delivery.deliver(f"http://127.0.0.1:{server.server_address[1]}/x", _told(), str(tmp_path))
    server.shutdown()
    server.server_close()
    assert (said, asked) == ("it answered 302", ["/x"])


def test_what_was_not_sent_of_cycles_that_were_removed_is_said_to_be_lost(tmp_path, caplog):
    sent = Sent()
    run = Run(tmp_path, sent)
    run.notifier.close()
    for name in ("a", "b"):
        run.ends(name, "there", seen=False)
    run.journal.beginning = lambda: Beginning(2, 102.0, b"")
    run.restart(sent)
    until(lambda: sent.got == [("there", "b")])
    run.notifier.close()
    assert "notifications of cycles 1 to 2 are lost: they were removed" in caplog.text
