"""Jobs that take turns by tokens: with a real server, and jobs that are threads, or processes where they are killed."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest
from tests.children import child

from hocket.agent.node.phase_token_server import PhaseTokenServer
from hocket.agent.protocol import RunKey
from hocket.model.phase_tokens import ACTIVITY, VARIABLE, PhaseToken
from hocket.runtimes.paramserver import phase_tokens
from hocket.runtimes.paramserver.phase_tokens import PhaseTokens, tokens_offered
from hocket.runtimes.paramserver.phase_turns import CommOrder

_LONG_S = 300.0  # until a test gives up; the machine may be slow


@pytest.fixture
def server(tmp_path):
    with closing(PhaseTokenServer(str(tmp_path / "tokens"), lambda: None)) as found:
        found.listen()
        yield found


@pytest.fixture
def join(server):
    """Makes a job's tokens."""
    made = []

    def joined(job: str, run: int = 1) -> PhaseTokens:
        made.append(PhaseTokens(server.listen(), job, run))
        return made[-1]

    yield joined
    for tokens in made:
        tokens.close()


def awaited(holds) -> None:
    until_s = time.monotonic() + _LONG_S
    while not holds():
        assert time.monotonic() < until_s
        time.sleep(0.001)


def in_thread(call) -> threading.Thread:
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    return thread


def test_a_job_without_an_agent_that_offers_tokens_runs_without(tmp_path):
    assert tokens_offered({}) is None
    with closing(tokens_offered({VARIABLE: str(tmp_path / "nothing"), "HOCKET_JOB": "a"})) as turns:  # It is away.
        with turns.comp(), turns.comm() as comm:
            comm.between_chunks()
        assert turns.iteration_done(0, 0.1, 0.1, 0.1) is False


def test_two_jobs_never_compute_at_once_and_one_communicates_meanwhile(join):
    inside, most, turns_taken = [], [0], []

    def iterate(job: str) -> None:
        turns = join(job)
        for iteration in range(20):
            with turns.comm() as comm:
                comm.between_chunks()
            with turns.comp():
                inside.append(job)
                most[0] = max(most[0], len(inside))
                turns_taken.append(job)
                time.sleep(0.001)
                inside.remove(job)
            turns.iteration_done(iteration, 0.0, 0.001, 0.0)

    threads = [in_thread(lambda job=job: iterate(job)) for job in "abc"]
    for thread in threads:
        thread.join(_LONG_S)
    assert most == [1]
    assert {job: turns_taken.count(job) for job in "abc"} == {"a": 20, "b": 20, "c": 20}


def test_a_secondary_waits_while_the_primary_moves_chunks_and_goes_on_in_its_gaps(join, monkeypatch):
    monkeypatch.setattr(phase_tokens, "_FIRST_CHUNK_NS", 30_000_000_000)  # So the gap begins when it is said, below.
    primary, secondary = join("primary"), join("secondary")
    went_on, in_first = threading.Event(), threading.Event()

    def communicate() -> None:
        with secondary.comm() as comm:
            in_first.set()
            comm.between_chunks()
            went_on.set()

    with primary.comm() as comm:
        comm.between_chunks()
        thread = in_thread(communicate)
        awaited(lambda: PhaseToken.SECONDARY in secondary._held.values())
        assert not in_first.wait(0.05)
        primary._activity.end(comm.order.since_ns)  # as if it waited for a server
        assert went_on.wait(_LONG_S)
    thread.join(_LONG_S)


def test_a_secondary_goes_on_as_the_primary_when_that_ends(join, monkeypatch):
    monkeypatch.setattr(phase_tokens, "_FIRST_CHUNK_NS", 10**15)
    primary, secondary = join("primary"), join("secondary")
    seen = []

    def communicate() -> None:
        with secondary.comm() as comm:
            comm.between_chunks()
            seen.append(set(secondary._held.values()))
            seen.append(comm.waited_s > 0)

    with primary.comm():
        thread = in_thread(communicate)
        awaited(lambda: PhaseToken.SECONDARY in secondary._held.values())
        assert not seen
    thread.join(_LONG_S)
    assert seen == [{PhaseToken.PRIMARY}, True]


def test_a_comm_that_comes_later_says_so_to_other_hosts_and_whether_it_gives_way(join):
    first, later = join("first"), join("later")
    with first.comp(), first.comm() as comm, later.comm() as other:
        assert 0 < comm.order.since_ns < other.order.since_ns
        assert (comm.order.gives_way, other.order.gives_way) == (False, True)


def test_on_other_hosts_a_comm_that_began_as_a_secondary_goes_before_those_that_come_later(join, monkeypatch):
    """It is not said there that it is the primary now: the primary has ended, and that is all that these hosts see."""
    monkeypatch.setattr(phase_tokens, "_FIRST_CHUNK_NS", 10**15)
    first, second, third = join("first"), join("second"), join("third")
    moved, waited = [], threading.Event()

    def communicate(tokens: PhaseTokens, order: CommOrder) -> None:
        with tokens.follow_comm(order) as comm:
            comm.between_chunks()
            comm.between_chunks()  # It does not give way to itself.
            moved.append(order.since_ns)
            assert waited.wait(_LONG_S)

    with first.follow_comm(CommOrder(1, gives_way=False)) as comm:
        comm.between_chunks()
        threads = [in_thread(lambda: communicate(second, CommOrder(2, gives_way=True)))]
        assert not waited.wait(0.1)
        assert not moved
    awaited(lambda: moved == [2])
    threads.append(in_thread(lambda: communicate(third, CommOrder(3, gives_way=True))))
    assert not waited.wait(0.1)
    assert moved == [2]
    waited.set()
    awaited(lambda: moved == [2, 3])
    for thread in threads:
        thread.join(_LONG_S)


def test_a_comm_that_comes_later_and_is_first_to_move_a_chunk_still_gives_way(join, monkeypatch):
    monkeypatch.setattr(phase_tokens, "_FIRST_CHUNK_NS", 10**15)
    earlier, later = join("earlier"), join("later")
    with later.follow_comm(CommOrder(3, gives_way=True)) as comm:
        comm.between_chunks()
        with earlier.follow_comm(CommOrder(2, gives_way=True)) as other:
            other.between_chunks()
            gone_on = threading.Event()
            thread = in_thread(lambda: (comm.between_chunks(), gone_on.set()))
            assert not gone_on.wait(0.1)
        assert gone_on.wait(_LONG_S)
        thread.join(_LONG_S)


def test_a_comm_that_ends_in_a_gap_of_the_primary_does_not_end_that(join, monkeypatch):
    monkeypatch.setattr(phase_tokens, "_FIRST_CHUNK_NS", 10**15)
    primary, other = join("primary"), join("other")
    with primary.follow_comm(CommOrder(1)) as comm:
        comm.between_chunks()
        with other.follow_comm(CommOrder(2)):
            pass  # A short one, which need not give way.
        assert other._activity.busy_s(2) > 0
    assert other._activity.busy_s(2) == 0


def test_a_gap_in_the_primary_does_not_count_as_a_slow_chunk(tmp_path):
    path = tmp_path / "activity"
    path.write_bytes(bytes(ACTIVITY.size))
    activity = phase_tokens._Activity(str(path))
    activity.map_again()
    before_ns = activity._chunk_ns
    activity.chunk_moved(1, 7)
    activity._moved_ns -= 10**12
    activity.chunk_moved(1, 7)
    assert before_ns < activity._chunk_ns < before_ns * 3  # not 50,000 times


def test_chunks_that_come_in_bursts_count_with_their_mean(tmp_path, monkeypatch):
    path = tmp_path / "activity"
    path.write_bytes(bytes(ACTIVITY.size))
    activity = phase_tokens._Activity(str(path))
    activity.map_again()
    now_ns = 10**12
    monkeypatch.setattr(phase_tokens.time, "monotonic_ns", lambda: now_ns)
    for chunk in range(400):
        now_ns += 30_000_000 if chunk % 3 == 0 else 0
        activity.chunk_moved(1, 7)
        if chunk >= 100:  # Within a burst the primary does not count as idle: it waits for the next one.
            now_ns += 29_000_000
            assert activity.busy_s(8) > 0
            now_ns -= 29_000_000


def test_threads_that_send_chunks_of_the_same_phase_wait_together(join, monkeypatch):
    monkeypatch.setattr(phase_tokens, "_FIRST_CHUNK_NS", 10**15)
    primary, secondary = join("primary"), join("secondary")
    sent = []

    def communicate() -> None:
        with secondary.comm() as comm:
            threads = [in_thread(lambda: sent.append(comm.between_chunks())) for _ in range(3)]
            for thread in threads:
                thread.join(_LONG_S)

    with primary.comm() as comm:
        thread = in_thread(communicate)
        awaited(lambda: PhaseToken.SECONDARY in secondary._held.values())
        primary._activity.end(comm.order.since_ns)
        awaited(lambda: len(sent) == 3)
    thread.join(_LONG_S)


def test_an_exception_within_a_phase_gives_the_token_back(join):
    a, b = join("a"), join("b")
    with pytest.raises(ZeroDivisionError), a.comp():
        raise ZeroDivisionError
    with b.comp():
        assert list(b._held.values()) == [PhaseToken.CPU]


def test_jobs_go_on_without_tokens_while_the_agent_is_away_and_find_the_next_one(tmp_path, monkeypatch):
    monkeypatch.setattr(phase_tokens, "_RETRY_S", 0.0)
    path = str(tmp_path / "tokens")
    with closing(PhaseTokens(path, "a", 1)) as a, closing(PhaseTokens(path, "b", 1)) as b:
        first = PhaseTokenServer(path, lambda: None)
        first.listen()
        with a.comp():
            waits = threading.Event()

            def compute() -> None:
                with b.comp():
                    waits.set()

            thread = in_thread(compute)
            awaited(lambda: None in b._held.values())
            first.close()
            assert waits.wait(_LONG_S), "it does not wait for an agent that is gone"
            thread.join(_LONG_S)
        with a.comp():
            assert not a._held
        with closing(PhaseTokenServer(path, lambda: None)) as second:
            second.listen()
            with a.comp():
                assert list(a._held.values()) == [PhaseToken.CPU]


def test_an_agent_that_does_not_answer_counts_as_away(tmp_path, monkeypatch):
    monkeypatch.setattr(phase_tokens, "_SILENCE_S", 0.02)
    path = str(tmp_path / "tokens")
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)) as silent:
        silent.bind(path)
        silent.listen()
        (tmp_path / "tokens.activity").write_bytes(bytes(ACTIVITY.size))
        with closing(PhaseTokens(path, "a", 1)) as a, a.comp():
            assert a._socket is None


@pytest.mark.parametrize("said", [b'{"type": "of a later version"}', b"nonsense"])
def test_what_is_not_understood_of_the_agent_does_not_end_the_job(tmp_path, said):
    path = tmp_path / "tokens"
    Path(f"{path}.activity").write_bytes(bytes(ACTIVITY.size))
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as agent, PhaseTokens(str(path), "a", 1) as tokens:
        agent.bind(str(path))
        agent.listen()

        def grant() -> None:
            with agent.accept()[0] as job:
                for message in (said, b'{"type": "granted", "number": 1, "token": "cpu"}'):
                    job.send(message)
                while job.recv(4096):
                    pass

        granting = in_thread(grant)
        with tokens.comp():
            assert tokens.is_connected
        tokens.close()
        granting.join(_LONG_S)


def test_a_job_that_waits_for_long_asks_and_goes_on_waiting(join, monkeypatch):
    monkeypatch.setattr(phase_tokens, "_SILENCE_S", 0.05)
    a, b = join("a"), join("b")
    done = threading.Event()

    def compute() -> None:
        with b.comp():
            assert list(b._held.values()) == [PhaseToken.CPU]
            done.set()

    with a.comp():
        thread = in_thread(compute)
        assert not done.wait(0.3)
    assert done.wait(_LONG_S)
    thread.join(_LONG_S)


def test_the_last_iteration_of_a_run_that_is_told_to_leave_says_so(server, join):
    a = join("a", 3)
    assert a.iteration_done(0, 0.1, 0.1, 0.1) is False
    server.ask_to_leave(RunKey("a", 3))
    awaited(lambda: a.iteration_done(1, 0.1, 0.1, 0.1))


def test_a_process_whose_place_another_took_goes_on_without_tokens_and_stays_away(join, monkeypatch):
    monkeypatch.setattr(phase_tokens, "_RETRY_S", 0.0)
    first, second = join("a", 1), join("a", 2)
    with first.comp():
        pass
    with second.comp():
        for _ in range(2):
            with first.comp():  # It does not wait for the other one, which is the same job.
                assert not first._held
        assert list(second._held.values()) == [PhaseToken.CPU]


_JOB = """
import sys, time
from hocket.runtimes.paramserver.phase_tokens import tokens_offered
turns = tokens_offered()
with turns.comp():
    print("computes", flush=True)
    if sys.argv[1] == "hangs":
        time.sleep(3600)
    until_s = time.process_time() + 0.02
    while time.process_time() < until_s:
        pass
"""


def test_a_job_that_is_killed_or_hangs_harms_no_neighbour(tmp_path: Path):
    path = str(tmp_path / "tokens")
    with closing(PhaseTokenServer(path, lambda: None, floor_s=0.2)) as server:
        env = {**os.environ, VARIABLE: server.listen(), "HOCKET_ATTEMPT": "1"}

        def job(name: str, how: str):
            command = [sys.executable, "-c", _JOB, how]
            return child(command, env={**env, "HOCKET_JOB": name}, stdout=subprocess.PIPE, text=True)

        with job("hangs", "hangs") as hangs, job("works", "works") as works:
            assert hangs.stdout.readline() == works.stdout.readline() == "computes\n"
            assert works.wait(_LONG_S) == 0
            assert hangs.poll() is None, "it lost its token, and nothing else"
            hangs.send_signal(signal.SIGKILL)
        with job("killed", "hangs") as killed, job("next", "works") as after:
            assert killed.stdout.readline() == "computes\n"
            killed.send_signal(signal.SIGKILL)
            assert after.wait(_LONG_S) == 0
        awaited(lambda: not server._tenants and not any(server._rules.holder(token) for token in PhaseToken))
