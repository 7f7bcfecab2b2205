"""The server of phase tokens, by jobs that are sockets: what they say, and what comes back."""

import os
import socket
import threading
from contextlib import closing, contextmanager
from pathlib import Path
from typing import ClassVar

import pytest

from hocket.agent.node.phase_token_server import PhaseTokenServer
from hocket.agent.phase_measurements import PhaseMeans
from hocket.agent.phase_token_rules import PhaseTokenRules
from hocket.agent.protocol import RunKey
from hocket.model.phase_tokens import (
    ACTIVITY,
    ACTIVITY_SUFFIX,
    AreYouThere,
    AskToken,
    FromJob,
    HereIAm,
    IterationMeasured,
    JoinTurns,
    LeaveGroup,
    Phase,
    PhaseToken,
    ReleaseToken,
    TokenGranted,
    TokenLost,
    TurnsReplaced,
    decode_from_agent,
    encode,
)


@contextmanager
def server_at(path: Path, **options):
    """One that is closed, and a flag that it sets when it has something to report."""
    rung = threading.Event()
    server = PhaseTokenServer(str(path), rung.set, **options)
    with closing(server):
        yield server, rung
    while Job.connected:
        Job.connected.pop().close()


class Job:
    """A connection."""

    connected: ClassVar[list[socket.socket]] = []

    def __init__(self, server: PhaseTokenServer, name: str = "", run: int = 1) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.connected.append(self.socket)
        self.socket.settimeout(60.0)
        self.socket.connect(server.listen())
        if name:
            self.say(JoinTurns(name, run))

    def say(self, *messages: FromJob) -> None:
        for message in messages:
            self.socket.send(encode(message))

    def hears(self):
        data = self.socket.recv(4096)
        return decode_from_agent(data) if data else None

    def is_served(self) -> None:
        """All that was said until now is done."""
        self.say(AreYouThere())
        assert self.hears() == HereIAm()


@pytest.fixture
def server(tmp_path):
    with server_at(tmp_path / "tokens") as (found, _):
        yield found


def test_it_is_closed_while_its_thread_is_busy(server, monkeypatch):
    job = Job(server, "a")
    job.is_served()
    ring = os.eventfd_write

    def ring_late(bell, count):
        job.say(AreYouThere())  # The thread wakes up for this, sees that it is to end, and does.
        server._thread.join(60)
        ring(bell, count)

    monkeypatch.setattr(os, "eventfd_write", ring_late)
    server.close()
    assert not server._thread.is_alive()
    server.ask_to_leave(RunKey("a", 1))
    server.close()


def ask(number: int = 1, phase: Phase = Phase.COMP) -> AskToken:
    return AskToken(number, phase)


CPU = PhaseToken.CPU


def test_nothing_is_started_before_it_is_needed(tmp_path):
    before = threading.active_count()
    with server_at(tmp_path / "tokens") as (server, _):
        server.ask_to_leave(RunKey("a", 1))
        assert threading.active_count() == before
        assert not list(tmp_path.iterdir())
        server.listen()
        assert threading.active_count() == before + 1
    assert threading.active_count() == before
    assert not list(tmp_path.iterdir())


def test_a_job_whose_connection_ends_has_lost_its_token(server):
    a, b = Job(server, "a"), Job(server, "b")
    a.say(ask())
    assert a.hears() == TokenGranted(1, CPU)
    b.say(ask(7))
    b.is_served()
    a.socket.close()
    assert b.hears() == TokenGranted(7, CPU)


def test_network_tokens_are_stamped_in_the_order_in_which_they_are_granted(server, monkeypatch):
    monkeypatch.setattr("time.time_ns", lambda: 50)  # A clock that stands still, or was set back.
    a, b = Job(server, "a"), Job(server, "b")
    a.say(ask(1), ask(2, Phase.COMM))
    assert [a.hears(), a.hears()] == [TokenGranted(1, CPU), TokenGranted(2, PhaseToken.PRIMARY, since_ns=50)]
    b.say(ask(1, Phase.COMM))
    assert b.hears() == TokenGranted(1, PhaseToken.SECONDARY, since_ns=51)


def test_a_job_that_holds_a_token_for_too_long_loses_it_and_its_release_is_ignored(tmp_path, caplog):
    with server_at(tmp_path / "tokens", floor_s=0.05) as (server, _):
        a, b = Job(server, "a"), Job(server, "b")
        a.say(ask())
        assert a.hears() == TokenGranted(1, CPU)
        b.say(ask(1))
        assert a.hears() == TokenLost(1)
        assert b.hears() == TokenGranted(1, CPU)
        a.say(ReleaseToken(1), ask(2))
        a.is_served()
        b.say(ReleaseToken(1))
    assert "job 'a' held a phase token for too long" in caplog.text


def test_the_last_process_that_joins_for_a_job_has_its_tokens(server):
    first = Job(server, "a", run=1)
    first.say(ask())
    assert first.hears() == TokenGranted(1, CPU)
    second = Job(server, "a", run=2)
    assert first.hears() == TurnsReplaced()
    assert first.hears() is None
    second.say(ask())
    assert second.hears() == TokenGranted(1, CPU)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (b"nonsense", "JSON is malformed"),
        (encode(ReleaseToken(1)), "it has not said which job it is"),
        (encode(AskToken(1, Phase.COMP)), "it has not said which job it is"),
        (b'{"type":"join","job":3,"run":1}', "Expected `str`"),
    ],
)
def test_a_connection_that_says_nonsense_is_closed_and_the_others_go_on(server, caplog, said, why):
    neighbour, bad = Job(server, "neighbour"), Job(server)
    bad.socket.send(said)
    assert bad.hears() is None
    neighbour.say(ask())
    assert neighbour.hears() == TokenGranted(1, CPU)
    assert why in caplog.text


def test_a_job_that_asks_twice_is_left_out(server):
    a, b = Job(server, "a"), Job(server, "b")
    a.say(ask(1), ask(2))
    assert [a.hears(), a.hears()] == [TokenGranted(1, CPU), None]
    b.say(ask())
    assert b.hears() == TokenGranted(1, CPU)


def test_phases_are_reported_as_means_over_some_iterations_without_the_first(tmp_path):
    with server_at(tmp_path / "tokens") as (server, rung):
        a = Job(server, "a", run=4)
        a.say(IterationMeasured(10, 99.0, 99.0, 99.0))
        for iteration in (11, 12, 13):
            a.say(IterationMeasured(iteration, 0.25, 1.0 * (iteration - 10), 0.5, 0.6, 0.1))
        a.say(IterationMeasured(14, 0.1, 0.1, 0.1))  # It comes too soon after the others.
        a.is_served()
        assert rung.is_set()
        assert server.take_reports() == [
            (
                RunKey("a", 4),
                PhaseMeans(13, 3, comp_s=2.0, comm_s=0.75, link=pytest.approx(0.8), meeting_s=pytest.approx(0.1)),
            )
        ]
        assert server.take_reports() == []


def test_for_how_long_a_comm_had_half_of_the_link_is_reported_too(tmp_path, monkeypatch):
    shared_s = iter((9.0, 0.1, 0.2, 0.6))
    monkeypatch.setattr(PhaseTokenRules, "take_shared_s", lambda _rules, _tenant, _now_s: next(shared_s))
    with server_at(tmp_path / "tokens") as (server, _rung):
        a = Job(server, "a")
        a.say(*(IterationMeasured(iteration, 0.25, 1.0, 0.5) for iteration in range(4)))
        a.is_served()
        ((_run, means),) = server.take_reports()
        assert means.shared_s == pytest.approx(0.3)  # without the first iteration's
        assert means.comm_s == pytest.approx(0.75)


def test_a_job_that_measures_what_cannot_be_is_left_out(server, caplog):
    a = Job(server, "a")
    a.say(IterationMeasured(1, 0.1, -1.0, 0.1))
    assert a.hears() is None
    assert "job 'a' is left out: iteration 1: phases took 0.1, -1, 0.1 s" in caplog.text


def test_a_run_is_told_to_leave_now_or_when_it_joins_again(server):
    a = Job(server, "a", run=2)
    a.is_served()
    server.ask_to_leave(RunKey("a", 1))
    server.ask_to_leave(RunKey("b", 1))
    a.is_served()
    server.ask_to_leave(RunKey("a", 2))
    assert a.hears() == LeaveGroup()
    assert Job(server, "a", run=2).hears() == LeaveGroup()
    assert Job(server, "b", run=1).hears() == LeaveGroup()
    Job(server, "b", run=2).is_served()


def test_a_socket_that_an_agent_before_left_is_replaced_and_what_is_mapped_stays(tmp_path):
    path = tmp_path / "tokens"
    activity = tmp_path / f"tokens{ACTIVITY_SUFFIX}"
    activity.write_bytes(bytes(ACTIVITY.size))
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)) as before:
        before.bind(str(path))
    with activity.open("rb") as mapped, server_at(path) as (server, _):
        Job(server, "a").is_served()
        assert os.fstat(mapped.fileno()).st_size == ACTIVITY.size


def test_the_path_may_be_longer_than_that_of_a_socket(tmp_path):
    folder = tmp_path / ("x" * 150)
    folder.mkdir()
    with server_at(folder / "tokens") as (server, _):
        assert Path(server.listen()).is_socket()
