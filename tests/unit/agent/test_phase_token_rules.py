"""Which job gets a phase token next: one holder each, all are served, and none that hangs stops the others."""

from statistics import median

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hocket.agent.phase_token_rules import PhaseTokenRules
from hocket.model.phase_tokens import Phase, PhaseToken, TokenGranted, TokenLost, TokenPromoted

CPU, PRIMARY, SECONDARY = PhaseToken
COMP, COMM = Phase
FLOOR_S = 10.0


def holders(rules: PhaseTokenRules) -> dict[PhaseToken, tuple[str, int]]:
    return {token: held for token in PhaseToken if (held := rules.holder(token)) is not None}


class Host:
    """The rules, and what tenants believe by what they were told; checked after each step."""

    def __init__(self) -> None:
        self.rules, self.now_s, self.last = PhaseTokenRules(FLOOR_S), 0.0, 0
        self.asked: dict[Phase, list[tuple[str, int]]] = {phase: [] for phase in Phase}  # not served yet
        self.has: dict[tuple[str, int], PhaseToken] = {}
        self.lost: list[tuple[str, int]] = []
        self.waits_since_s: dict[tuple[str, int], float] = {}
        self.comp_since_s: dict[tuple[str, int], float] = {}
        self.comp_lasted_s: dict[str, list[float]] = {}

    def ask(self, tenant: str, phase: Phase) -> None:
        has = {t for (t, _), token in self.has.items() if (token is CPU) == (phase is COMP)}
        if tenant in has or tenant in {t for t, _ in self.asked[phase]}:
            with pytest.raises(ValueError, match="already"):
                self.rules.ask(tenant, 999, phase, self.now_s)
            return
        self.last += 1
        self.asked[phase].append((tenant, self.last))
        self.waits_since_s[tenant, self.last] = self.now_s
        self.hear(self.rules.ask(tenant, self.last, phase, self.now_s))

    def release(self, held: tuple[str, int]) -> None:
        del self.has[held]
        self.learn(held)
        self.hear(self.rules.release(*held, self.now_s))

    def release_late(self) -> None:
        if self.lost:
            before, held = holders(self.rules), self.lost.pop()
            self.learn(held)
            assert self.rules.release(*held, self.now_s) == []
            assert holders(self.rules) == before

    def leave(self, tenant: str) -> None:
        for queue in self.asked.values():
            queue[:] = [each for each in queue if each[0] != tenant]
        self.has = {held: token for held, token in self.has.items() if held[0] != tenant}
        self.lost = [each for each in self.lost if each[0] != tenant]
        self.comp_lasted_s.pop(tenant, None)
        self.hear(self.rules.leave(tenant, self.now_s))

    def learn(self, held: tuple[str, int]) -> None:
        if held in self.comp_since_s:
            lasted_s = self.comp_lasted_s.setdefault(held[0], [])
            lasted_s[:] = [*lasted_s[-8:], self.now_s - self.comp_since_s[held]]

    def wait(self, seconds: float) -> None:
        self.now_s += seconds
        self.hear(self.rules.expire(self.now_s))

    def hear(self, told) -> None:
        for tenant, message in told:
            held = tenant, message.number
            match message:
                case TokenGranted(token=token):
                    queue = self.asked[COMP if token is CPU else COMM]
                    before = queue[: queue.index(held)]
                    assert token is CPU or not before, "first come, first served"
                    assert all(self.is_shorter(held, each) for each in before), "only a shorter COMP overtakes"
                    queue.remove(held)
                    self.has[held] = token
                    if token is CPU:
                        self.comp_since_s[held] = self.now_s
                case TokenPromoted():
                    assert self.has[held] is SECONDARY
                    self.has[held] = PRIMARY
                case TokenLost():
                    assert self.has.pop(held) is not SECONDARY
                    self.lost.append(held)
        self.check()

    def is_shorter(self, one: tuple[str, int], other: tuple[str, int]) -> bool:
        """Does one usually compute for so much less time that it overtakes another that has waited for longer?"""
        if not self.comp_lasted_s.get(one[0]):  # It was never seen.
            return bool(self.comp_lasted_s.get(other[0]))
        ones_s, others_s = (max(1e-6, median(self.comp_lasted_s[of[0]])) for of in (one, other))
        waited_s, other_waited_s = (self.now_s - self.waits_since_s[of] for of in (one, other))
        return waited_s / ones_s > other_waited_s / others_s

    def check(self) -> None:
        """What tenants believe is so, and nothing that is wanted lies idle."""
        assert {token: held for held, token in self.has.items()} == holders(self.rules)
        assert len(self.has) == len(set(self.has.values())), "each token has one holder"
        assert {phase: self.rules.waiting(phase) for phase in Phase} == self.asked
        held = set(self.has.values())
        assert CPU in held or not self.asked[COMP]
        assert {PRIMARY, SECONDARY} <= held or not self.asked[COMM]
        assert PRIMARY in held or SECONDARY not in held


TENANTS = st.sampled_from("abcde")
STEPS = st.one_of(
    st.tuples(st.just("ask"), TENANTS, st.sampled_from(Phase)),
    st.tuples(st.just("release"), st.integers(0, 4)),
    st.tuples(st.just("release late")),
    st.tuples(st.just("leave"), TENANTS),
    st.tuples(st.just("wait"), st.sampled_from([0.01, 3.0, 11.0, 200.0])),
)


def played(steps) -> Host:
    host = Host()
    for step in steps:
        match step:
            case ("ask", tenant, phase):
                host.ask(tenant, phase)
            case ("release", i) if host.has:
                host.release(list(host.has)[i % len(host.has)])
            case ("release late",):
                host.release_late()
            case ("leave", tenant):
                host.leave(tenant)
            case ("wait", seconds):
                host.wait(seconds)
    return host


@settings(max_examples=100)
@given(st.lists(STEPS, min_size=20, max_size=60))
def test_each_token_has_one_holder_and_only_shorter_comps_overtake(steps):
    played(steps)  # which checks after each step


@settings(max_examples=100)
@given(st.lists(STEPS, max_size=40), st.sets(TENANTS, max_size=3))
def test_all_that_wait_are_served_although_some_jobs_hang(steps, hanging):
    host = played(steps)
    waiting = {each for queue in host.asked.values() for each in queue}
    began_s = host.now_s
    for _ in range(100):
        for held in [held for held in host.has if held[0] not in hanging]:
            if held in host.has:
                host.release(held)
        if not host.has:
            break
        due_s = host.rules.next_expiry_s()
        assert due_s is not None, "a job that hangs is noticed"
        host.wait(max(0.0, due_s - host.now_s))
    assert not host.has
    assert not any(host.asked.values())
    # Each job that hangs costs its limit once for each phase; these learnt no more than the longest wait.
    longest_s = max(host.rules.limit_s(tenant, phase) for tenant in "abcde" for phase in Phase)
    assert host.now_s - began_s <= 2 * max(1, len(hanging)) * longest_s or not waiting


def test_the_secondary_becomes_the_primary_and_the_next_the_secondary():
    rules = PhaseTokenRules()
    assert rules.ask("a", 1, COMM, 0.0) == [("a", TokenGranted(1, PRIMARY))]
    assert rules.ask("b", 1, COMM, 0.0) == [("b", TokenGranted(1, SECONDARY))]
    assert rules.ask("c", 1, COMM, 0.0) == []
    assert rules.release("a", 1, 1.0) == [("b", TokenPromoted(1)), ("c", TokenGranted(1, SECONDARY))]
    assert rules.release("c", 1, 1.0) == []
    assert rules.holder(PRIMARY) == ("b", 1)


def test_a_short_comm_need_not_give_way_to_a_long_one():
    rules = PhaseTokenRules()
    for number in range(3):
        for tenant, lasts_s in (("long", 1.0), ("short", 0.35), ("other", 0.36)):
            rules.ask(tenant, number, COMM, 0.0)
            rules.release(tenant, number, lasts_s)
    rules.ask("long", 9, COMM, 10.0)
    assert rules.ask("other", 9, COMM, 10.0) == [("other", TokenGranted(9, SECONDARY))]
    rules.release("other", 9, 15.0)  # It has waited most of the time, and this is not learned.
    assert rules.ask("short", 9, COMM, 15.0) == [("short", TokenGranted(9, SECONDARY, is_short=True))]
    assert rules.release("long", 9, 15.1) == [("short", TokenPromoted(9))]
    rules.release("short", 9, 15.2)
    assert rules.ask("short", 10, COMM, 20.0) == [("short", TokenGranted(10, PRIMARY))]
    assert rules.ask("long", 10, COMM, 20.0) == [("long", TokenGranted(10, SECONDARY))]


def learnt(phase: Phase, **lasts_s: float) -> PhaseTokenRules:
    """Rules that have seen such a phase of these tenants."""
    rules = PhaseTokenRules()
    for tenant, seconds in lasts_s.items():
        rules.ask(tenant, 0, phase, 0.0)
        rules.release(tenant, 0, seconds)
    return rules


def test_two_comms_of_which_none_gives_way_share_the_link_for_as_long_as_both_last():
    rules = learnt(COMM, long=1.0, short=0.2)
    rules.ask("long", 1, COMM, 10.0)
    rules.ask("short", 1, COMM, 10.5)
    rules.ask("third", 1, COMM, 10.6)  # That another waits, or computes, makes no difference.
    rules.ask("third", 2, COMP, 10.7)
    assert rules.take_shared_s("long", 10.75) == pytest.approx(0.25)
    rules.release("short", 1, 11.0)
    rules.release("long", 1, 12.0)
    assert [rules.take_shared_s(tenant, 20.0) for tenant in ("long", "short", "third")] == pytest.approx(
        [0.25, 0.5, 0.0]
    )
    assert rules.take_shared_s("short", 20.0) == 0.0


def test_a_comm_that_gives_way_shares_nothing():
    rules = learnt(COMM, long=1.0, other=0.9)
    rules.ask("long", 1, COMM, 10.0)
    rules.ask("other", 1, COMM, 10.5)
    rules.release("long", 1, 12.0)
    rules.release("other", 1, 13.0)
    assert [rules.take_shared_s(tenant, 20.0) for tenant in ("long", "other")] == [0.0, 0.0]


@pytest.mark.parametrize("ends", ["leaves", "expires"])
def test_a_link_is_shared_no_longer_when_one_is_gone(ends):
    rules = learnt(COMM, long=1.0, short=0.2)
    rules.ask("long", 1, COMM, 10.0)
    rules.ask("short", 1, COMM, 11.0)
    if ends == "leaves":
        rules.leave("long", 13.0)
        assert rules.take_shared_s("long", 14.0) == 0.0
    else:
        rules.expire(40.0)
    assert rules.take_shared_s("short", 60.0) == pytest.approx(2.0 if ends == "leaves" else 29.0)


def test_a_token_is_lost_after_the_floor_or_ten_times_the_usual_phase():
    rules = PhaseTokenRules(floor_s=10.0)
    assert rules.limit_s("a", COMP) == 10.0
    for number in range(5):
        rules.ask("a", number, COMP, 100.0 * number)
        rules.release("a", number, 100.0 * number + 7.0)
    assert rules.limit_s("a", COMP) == 70.0
    assert rules.limit_s("a", COMM) == rules.limit_s("b", COMP) == 10.0
    rules.ask("a", 5, COMP, 1000.0)
    rules.ask("b", 0, COMP, 1000.0)
    assert rules.next_expiry_s() == 1070.0
    assert rules.expire(1069.9) == []
    assert rules.expire(1070.0) == [("a", TokenLost(5)), ("b", TokenGranted(0, CPU))]


def test_one_hang_does_not_change_what_is_usual_but_longer_phases_do():
    rules = PhaseTokenRules(floor_s=1.0)

    def phase(number: int, lasts_s: float) -> None:
        rules.ask("a", number, COMP, 0.0)
        rules.expire(lasts_s)
        rules.release("a", number, lasts_s)

    for number in range(3):
        phase(number, 0.5)
    phase(3, 600.0)
    assert rules.limit_s("a", COMP) == 5.0
    for number in range(4, 10):
        phase(number, 6.0)
    assert rules.limit_s("a", COMP) == 60.0


def test_a_secondary_that_waits_for_long_loses_nothing():
    rules = PhaseTokenRules(floor_s=10.0)
    rules.ask("a", 1, COMM, 0.0)
    rules.ask("b", 1, COMM, 0.0)
    assert rules.release("a", 1, 9.0) == [("b", TokenPromoted(1))]
    rules.ask("a", 2, COMM, 9.0)
    assert rules.expire(18.9) == []
    assert rules.expire(19.0) == [("b", TokenLost(1)), ("a", TokenPromoted(2))]
    assert rules.release("b", 1, 20.0) == []
    assert rules.holder(PRIMARY) == ("a", 2)


def test_those_that_wait_are_served_in_the_order_in_which_they_asked():
    rules = PhaseTokenRules()
    for tenant in "abcd":
        rules.ask(tenant, 1, COMP, 0.0)
    assert rules.waiting(COMP) == [("b", 1), ("c", 1), ("d", 1)]
    served = [rules.release(tenant, 1, 1.0) for tenant in "abc"]
    assert served == [[(tenant, TokenGranted(1, CPU))] for tenant in "bcd"]


def test_a_short_comp_overtakes_long_ones_that_waited_little_longer():
    rules = learnt(COMP, long=1.0, longer=2.0, short=0.1)
    rules.ask("long", 1, COMP, 10.0)
    rules.ask("longer", 1, COMP, 10.1)
    rules.ask("short", 1, COMP, 10.9)
    assert rules.release("long", 1, 11.0) == [("short", TokenGranted(1, CPU))]
    rules.ask("long", 2, COMP, 11.0)
    assert rules.release("short", 1, 11.1) == [("longer", TokenGranted(1, CPU))]


def test_a_long_comp_does_not_wait_for_ever_while_short_ones_come():
    rules = learnt(COMP, long=1.0, a=0.1, b=0.1)
    rules.ask("a", 1, COMP, 10.0)
    rules.ask("long", 1, COMP, 10.0)
    now_s, number = 10.0, 1
    while rules.holder(CPU) != ("long", 1):  # The other short one always waits already.
        tenant, held = rules.holder(CPU) or ("", 0)
        number += 1
        rules.ask("b" if tenant == "a" else "a", number, COMP, now_s + 0.05)
        now_s += 0.1
        rules.release(tenant, held, now_s)
    assert 10.45 < now_s < 10.75


def test_a_job_whose_comps_were_never_seen_goes_first():
    rules = learnt(COMP, a=0.1)
    rules.ask("b", 0, COMP, 1.0)
    rules.ask("a", 1, COMP, 1.0)
    rules.ask("c", 0, COMP, 5.0)
    assert rules.release("b", 0, 5.0) == [("c", TokenGranted(0, CPU))]


def test_the_time_that_a_secondary_waits_is_no_part_of_its_usual_phase():
    rules = PhaseTokenRules(floor_s=1.0)
    rules.ask("a", 1, COMM, 0.0)
    rules.ask("b", 1, COMM, 0.0)
    rules.release("b", 1, 500.0)
    assert rules.limit_s("b", COMM) == 1.0


def test_what_was_asked_for_can_be_taken_back():
    rules = PhaseTokenRules()
    rules.ask("a", 1, COMP, 0.0)
    rules.ask("b", 1, COMP, 0.0)
    assert rules.release("b", 1, 0.0) == []
    assert rules.release("a", 1, 0.0) == []
    assert rules.holder(CPU) is None
